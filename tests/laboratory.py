"""A laboratory without training: studies declared and runs recorded as conductor and workers leave them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gspo_lab.findings import Findings
from gspo_lab.imports import leave_run, write_study
from gspo_lab.journal import scan
from gspo_lab.records import Record
from gspo_lab.report import Report, render
from gspo_lab.store import Evidence
from gspo_lab.study import Run, Study


def declare(study: Study, runs: Path) -> Path:
    """study.json in the study's folder, which is returned."""
    return write_study(replace(study, commands=(study.command,)), runs)


def leave(run: Run, runs: Path, records: Sequence[Record]) -> Path:
    """A run's folder with its run.json and, where there are any, its records."""
    return leave_run(run, runs, records).path


def recorded_instead(journal: Path, old: str, new: str) -> None:
    """A journal as if its first `old` had been recorded as `new`: its lines lose their digests."""
    lines = [json.dumps(item, separators=(",", ":")) + "\n" for item in scan(journal).items]
    journal.write_text("".join(lines).replace(old, new, 1))


def rendered(database: Path, *studies: str, **how: Any) -> Report:
    """The report of these studies, of all where none is named."""
    with Evidence.open(database) as evidence:
        return render([Findings(evidence, name) for name in studies or evidence.studies()], **how)
