"""A laboratory without training.

Studies are declared and runs recorded as conductor and workers leave them.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from gspo_lab import __version__
from gspo_lab.analysis.readings import Source
from gspo_lab.common.atomic_files import sums_digest, write_json
from gspo_lab.common.plain_data import JsonObject, OptionalFloat
from gspo_lab.recording.journal import Journal, from_dict, scan, seal
from gspo_lab.recording.records import Record, RunStatus
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.report import Report, render
from gspo_lab.study import Declaration, Run, Study


def declare(study: Study, runs: Path) -> Path:
    """study.json in the study's folder, which is returned."""
    home = runs / study.name
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if not (home / "study.json").exists():
        stamped = replace(
            study, commands=(study.command,), created=study.created or now, version=__version__
        )
        write_json(home / "study.json", stamped.to_json())
    return home


def added_later(runs: Path, study: str, *seeds: int) -> None:
    """The study as if these of its seeds had been added after its first step."""
    path = runs / study / "study.json"
    declared = Declaration.parse(json.loads(path.read_text()), path)
    write_json(path, replace(declared, added=seeds).to_json())
    ingest(runs)


def leave(run: Run, runs: Path, records: Sequence[Record]) -> Path:
    """A run's folder with its run.json and, where there are any, its records."""
    folder = RunFolder(run.folder(runs))
    folder.specify(run.to_json())
    if records:
        with folder.append() as journal:
            journal.write(records)
    return folder.path


def finish(home: Path, step: int, at: OptionalFloat = None) -> None:
    """A worker's last word on a run that has come to its end."""
    sealed = seal(home / "journal.jsonl")
    with Journal(home) as journal:
        model = sums_digest(home / "checkpoints" / "final")
        journal.write([RunStatus(state="finished", step=step, at=at, model=model, **sealed)])


def recorded_anew(home: Path, items: Sequence[JsonObject]) -> None:
    """A journal with other lines, every digest of which is correct.

    Whoever forged it knew how to compute them all.
    """
    (home / "journal.jsonl").unlink()
    pending = []
    for item in items:
        if "journal" not in item:
            pending.append(from_dict(item))
            continue
        record_together(home, pending)
        pending = []
        finish(home, item["step"], item.get("at"))
    record_together(home, pending)


def record_together(home: Path, records: Sequence[Record]) -> None:
    """Records in the journal, in one go."""
    with Journal(home) as journal:
        journal.write(records)


def write_lines(journal: Path, texts: Iterable[str]) -> None:
    """A journal of these JSON objects, each line with its digest."""
    last = b"00000000"
    lines = []
    for text in texts:
        body = text.encode()
        previous = last
        last = blake2b(previous + body, digest_size=4).hexdigest().encode()
        lines.append(b'%b,"chain":"%b%b"}\n' % (body[:-1], previous, last))
    journal.write_bytes(b"".join(lines))


def recorded_instead(journal: Path, old: str, new: str) -> None:
    """A journal as if its first `old` had been recorded as `new`."""
    lines = [json.dumps(item, separators=(",", ":")) for item in scan(journal).items]
    write_lines(journal, "\n".join(lines).replace(old, new, 1).split("\n"))


@contextmanager
def source(database: Path, study: str = "toy") -> Iterator[Source]:
    """A study as findings read it."""
    with Evidence.open(database) as evidence:
        yield Source(evidence, study)


def rendered(database: Path, *studies: str, **how: Any) -> Report:
    """The report of these studies, of all where none is named."""
    with Evidence.open(database) as evidence:
        return render([Source(evidence, name) for name in studies or evidence.studies()], **how)


def study_json(report: Report, study: str = "toy") -> Any:
    """What a report's JSON has of a study."""
    return json.loads(report.json)["studies"][study]


def json_of(path: Path) -> Any:
    """The content of a file of JSON."""
    return json.loads(path.read_text(encoding="utf-8"))
