"""Imported studies and runs, written in the format of trained ones, with the program that recorded them.

    home = write_study(declaration, runs)
    for run, records in ...:  # a run for every arm and seed that was read
        import_run(run, runs, records, Origin("trl", "logs/a/trainer_state.json", "1.16.0"))

An imported run is read, reported and compared like any other, with two exceptions. It is never called matched, because
gspo-lab did not train it, and no worker resumes it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from gspo_lab import __version__
from gspo_lab.atomic_files import atomic_folder, read_json, write_json
from gspo_lab.errors import LabError
from gspo_lab.journal import Journal
from gspo_lab.paths import STUDY
from gspo_lab.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.runfolder import RunFolder
from gspo_lab.states import LAST_WORDS, STARTED, State
from gspo_lab.study import Declaration, Run
from gspo_lab.study.import_origin import ORIGIN, Origin
from gspo_lab.study.load import NAMED, fits_as_name

Recorded = StepRecord | UpdateRecord | AnswerRecord
"""What a source can have recorded of a run, beside its beginning and its end."""

AT_ONCE = 1000
"""Records that are put on the disk together; no more are ever held."""


def write_study(declaration: Declaration, runs: Path) -> Path:
    """Write study.json under the digest of what it declares; the study's folder, which is returned.

    The same declaration twice changes nothing. LabError where another one is there, or a name fits no folder.
    """
    swept = {name: name.replace("@", "-", 1) for name, arm in declaration.arms.items() if arm.of is not None}
    for name in (declaration.name, *declaration.arms):
        if not fits_as_name(swept.get(name, name)):
            raise LabError(f"neither a study nor an arm can be named '{name}': {NAMED}")
    home = runs / declaration.name
    present = read_json(home / STUDY)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    stamped = replace(declaration, created=declaration.created or now, version=declaration.version or __version__)
    if present is None:
        home.mkdir(parents=True, exist_ok=True)
        write_json(home / STUDY, stamped.to_json())
    elif Declaration.parse(present, home / STUDY).locked() != declaration.locked():
        raise LabError(f"{home} holds another study of that name: give this one another, or move that folder away")
    return home


def leave_run(run: Run, runs: Path, records: Iterable[Record]) -> RunFolder:
    """Write a run's folder, run.json and journal, whole or not at all, as a worker would have left it.

    The records keep their order and are held only AT_ONCE at a time. LabError where the run has recorded anything.
    """
    folder = RunFolder(run.folder(runs))
    if folder.journal.exists():
        raise LabError(f"{folder.path} has records already: take another seed, or move that folder away")
    folder.path.parent.mkdir(parents=True, exist_ok=True)
    batches = iter(records)
    with atomic_folder(folder.path) as beside:
        beside.mkdir()
        RunFolder(beside).specify(run.to_json())
        while some := list(islice(batches, AT_ONCE)):
            with Journal(beside) as journal:
                journal.write(some)
    return folder


def import_run(
    run: Run,
    runs: Path,
    records: Iterable[Recorded],
    origin: Origin,
    *,
    facts: Mapping[str, Any] | None = None,
    state: State = State.FINISHED,
) -> RunFolder:
    """Write a run that another program recorded, between a start and an end that carry its origin; its folder.

    `facts` is what the program recorded of itself under the names of `engines.facts`; `state` is how it ended.
    LabError where study.json does not declare the run's arm and seed, or the run has recorded anything.
    """
    if state not in LAST_WORDS:
        raise ValueError(f"a run does not end as {state}")
    file = runs / run.study / STUDY
    present = read_json(file)
    declared = None if present is None else Declaration.parse(present, file)
    if declared is None or run.arm not in declared.arms or run.seed not in declared.seeds:
        raise LabError(f"{file} does not declare {run.id}: write the study first, with it")

    def with_status() -> Iterator[Record]:
        steps = 0
        yield RunStatus(state=STARTED, step=0, facts={**(facts or {}), ORIGIN: origin.to_json()})
        for record in records:
            if isinstance(record, StepRecord):
                steps = max(steps, record.step + 1)
            yield record
        yield RunStatus(state=state, step=steps)

    return leave_run(replace(run, origin=origin), runs, with_status())
