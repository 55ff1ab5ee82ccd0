"""All-or-nothing imports: write runs into a folder beside the study, compare them with its runs,
then move them.

A second import of a log continues where the first one ended. Its past must be unchanged, except the
last step, which may have been incomplete. Then the run starts again at that step, as after a
restart of a worker. This voids answers that were imported with the log; they are written again.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import STUDY
from gspo_lab.common.states import STARTED, State
from gspo_lab.exchange.importers.convert import Conversion, Converted
from gspo_lab.recording.journal import Journal, JournalReader, from_end
from gspo_lab.recording.records import (
    AnswerRecord,
    Record,
    RunStatus,
    ScoreRecord,
    StepRecord,
    UpdateRecord,
    from_dict,
    to_dict,
    voided,
)
from gspo_lab.recording.runfolder import RunFolder, WorkFolder
from gspo_lab.study import Declaration, Run
from gspo_lab.study.dotted_keys import differing
from gspo_lab.study.import_origin import ORIGIN, Origin

AT_ONCE = 1000
"""Records that are written together; no more are held."""
LATER = "nonfinite"
"""A field that earlier versions did not write."""
ROWS = (StepRecord.kind, UpdateRecord.kind, ScoreRecord.kind)


@dataclass(frozen=True)
class ImportedRun:
    """The result for one run. `state` is new, grown or unchanged."""

    id: str
    state: str
    origin: Origin


class ImportTransaction:
    """One import of a study. Nothing in the study changes before `commit`."""

    def __init__(self, runs: Path, study: str) -> None:
        self._live = runs / study
        self._beside = runs / f".import-{study}"
        self._study = study
        self.runs: list[ImportedRun] = []

    @contextmanager
    def open(self) -> Iterator["ImportTransaction"]:
        """Hold the import lock of this study. At the end, delete what was not committed."""
        runs = self._beside.parent
        new = [folder for folder in (runs, *runs.parents) if not folder.exists()]
        try:
            with WorkFolder(self._beside).exclusive_lock(
                f"{self._study}: another import of it is under way"
            ):
                self._clear()
                try:
                    yield self
                # before the lock is released: a refused import must not delete the other's files
                finally:
                    self._clear()
                    shutil.rmtree(self._beside, ignore_errors=True)
        finally:
            for folder in new:
                with suppress(OSError):  # it is not empty
                    folder.rmdir()

    def end(self, arm: str, seed: int) -> int:
        """The number of steps of a run so far; 1 for a new run."""
        journals = [self._folder(home, arm, seed).journal for home in (self._beside, self._live)]
        return max(1, next((_end(journal) for journal in journals if journal.exists()), 1))

    def configs(self, arm: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Name and configuration of each run of an arm from earlier imports."""
        homes = sorted(
            self._live.joinpath(arm).glob("s*"), key=lambda home: (len(home.name), home.name)
        )
        known = [
            (home.name, _origin(folder))
            for home in homes
            if (folder := RunFolder(home)).journal.exists()
        ]
        return [(f"{arm}/{name}", origin.config) for name, origin in known if origin is not None]

    def stage_run(self, arm: str, seed: int, converted: Conversion, source: str) -> None:
        """Write one run's records beside the study.

        LabError if they contradict an earlier import of it.
        """
        name = f"{self._study}/{arm}/s{seed}"
        live = self._folder(self._live, arm, seed)
        beside = self._folder(self._beside, arm, seed)
        known = beside if beside.journal.exists() else live
        if not known.journal.exists():
            beside.path.mkdir(parents=True)
            self._write(beside, chain.from_iterable(converted.groups()), converted, source, 0, None)
            self._record_outcome(name, "new", beside)
            return
        before = _origin(known)
        if before is None:
            raise LabError(
                f"{name} was trained here; give the import another --study, or another seed"
            )
        start, more = _news(
            known.journal, converted, f"{name}, imported from {before.source}: {source}"
        )
        first = next(more, None)
        if first is None:
            self.runs.append(ImportedRun(name, "unchanged", before))
            return
        if known is live:
            beside.path.mkdir(parents=True)
            shutil.copyfile(live.journal, beside.journal)
        self._write(beside, chain([first], more), converted, source, start, before)
        self._record_outcome(name, "grown", beside)

    def commit(self, declaration: Declaration) -> None:
        """Write study.json and every run.json, and move the journals into the study.

        LabError if a journal is gone.
        """
        for run in self.runs:
            folder = self._beside / run.id.partition("/")[2]
            if run.state != "unchanged" and not RunFolder(folder).journal.exists():
                raise LabError(
                    f"{run.id}: its journal is gone from {self._beside}; import it again"
                )
        self._live.mkdir(parents=True, exist_ok=True)
        write_json(self._live / STUDY, declaration.to_json())
        for arm, entry in declaration.arms.items():
            for seed in declaration.seeds:
                live = self._folder(self._live, arm, seed)
                beside = self._folder(self._beside, arm, seed)
                known = beside if beside.journal.exists() else live
                origin = _origin(known) if known.journal.exists() else None
                if origin is None:
                    continue
                spec = Run(
                    self._study,
                    arm,
                    seed,
                    entry.settings,
                    entry.declared,
                    {},
                    origin=origin,
                    known=entry.known,
                )
                live.specify(spec.to_json(), imported=True)
                if known is beside:
                    beside.journal.replace(live.journal)

    def _clear(self) -> None:
        """Delete everything but the lock."""
        for entry in self._beside.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)

    def _folder(self, home: Path, arm: str, seed: int) -> RunFolder:
        return RunFolder(home / arm / f"s{seed}")

    def _record_outcome(self, name: str, state: str, folder: RunFolder) -> None:
        origin = _origin(folder)
        assert origin is not None
        if any((run.id, run.state) == (name, "new") for run in self.runs):
            state = "new"  # this import has the run's log and its answers
        self.runs = [run for run in self.runs if run.id != name]
        self.runs.append(ImportedRun(name, state, origin))

    def _write(
        self,
        folder: RunFolder,
        records: Iterable[Record],
        converted: Conversion,
        source: str,
        start: int,
        before: Origin | None,
    ) -> None:
        """Write the records between a start and an end record; the end states the meaning of each
        metric.
        """
        origin = Origin(converted.log.program, source, converted.log.version)
        remaining = iter(records)
        end = start
        with Journal(folder.path) as journal:
            journal.write(
                [RunStatus(state=STARTED, step=start, facts={ORIGIN: (before or origin).to_json()})]
            )
            while batch := list(islice(remaining, AT_ONCE)):
                end = max(
                    end,
                    *(
                        record.step + isinstance(record, StepRecord | UpdateRecord)
                        for record in batch
                    ),
                )
                journal.write(batch)
            origin = converted.origin(source)
            facts = {
                ORIGIN: (origin if before is None else _merge_origins(before, origin)).to_json()
            }
            journal.write([RunStatus(state=State.FINISHED, step=end, facts=facts)])


def _origin(folder: RunFolder) -> Origin | None:
    """A run's origin by its last import; None if a worker wrote its journal."""
    facts: dict[str, Any] = next(
        (line["facts"] for line in from_end(folder.journal) if line.get("facts")), {}
    )
    return Origin.from_fact(facts[ORIGIN], str(folder.path)) if ORIGIN in facts else None


def _merge_origins(before: Origin, later: Origin) -> Origin:
    """The origin of a run from several files."""
    return replace(
        before,
        converted=tuple(dict.fromkeys((*before.converted, *later.converted))),
        metrics={**before.metrics, **later.metrics},
        files={**before.files, **later.files},
        settings={**before.settings, **later.settings},
        config={**before.config, **later.config},
    )


def _news(journal: Path, converted: Conversion, where: str) -> tuple[int, Iterator[Record]]:
    """The step at which a known run starts again, and its new records from there.

    LabError if the past differs.
    """
    old = _in_force(journal)
    rows = (record for record in old if record["kind"] in ROWS)
    end = _end(journal)
    for group in converted.groups():
        if isinstance(group[0], AnswerRecord):
            return end, chain.from_iterable(
                _new_answers(journal, chain([group], converted.groups()), where)
            )
        logged = sorted((json.loads(json.dumps(to_dict(record))) for record in group), key=_key)
        known = sorted(
            islice(rows, len(group)), key=_key
        )  # after a new start, a valid score comes before its step
        if known in (
            logged,
            [{key: record[key] for key in record if key != LATER} for record in logged],
        ):
            continue
        if not known:
            return end, chain(group, chain.from_iterable(converted.groups()))
        if next(rows, None) is None and set(map(_key, known)) <= set(map(_key, logged)):
            start = _start(group)
            known = [record for record in known if not voided(record, start)]
            keys = set(map(_key, known))
            logged = [record for record in logged if _key(record) in keys]
            if known == logged:
                new = [record for record in group if _key(to_dict(record)) not in keys]
                answers = (
                    record for record in _in_force(journal) if record["kind"] == AnswerRecord.kind
                )
                again = [from_dict(answer) for answer in answers if voided(answer, start)]
                return start, chain(new, again, chain.from_iterable(converted.groups()))
        raise LabError(
            f"{where}: the past has changed: {_difference(known, logged)}; nothing was imported"
        )
    if (missing := next(rows, None)) is not None and converted.steps:
        raise LabError(
            f"{where}: it ends before the imported step {missing['step']}; nothing was imported"
        )
    return end, iter(())


def _start(group: Sequence[Converted]) -> int:
    """The step at which a run with an incomplete last row starts again: its training of that step
    is void.

    A score of that step may stay valid (`voided`), as the scores in a row without training numbers
    do.
    """
    trained = [record.step for record in group if isinstance(record, StepRecord | UpdateRecord)]
    return min(trained or [record.step for record in group])


def _key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """The identity of a record within its row."""
    return record["kind"], record["step"], record.get("bench")


def _difference(known: Sequence[dict[str, Any]], logged: Sequence[dict[str, Any]]) -> str:
    for old, new in zip(known, logged, strict=False):
        if _key(old) != _key(new):
            return (
                f"step {old['step']} has other records; other options, such as --score-metric, need"
                " another --study"
            )
        if keys := differing(old, new):
            before = _format_value(old.get(keys[0]))
            now = _format_value(new.get(keys[0]))
            return f"at step {old['step']} {keys[0]} was {before}, now {now}"
    return f"step {known[0]['step']} has other numbers"


def _format_value(value: Any) -> str:
    text = "not there" if value is None else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _new_answers(
    journal: Path, groups: Iterable[Sequence[Converted]], where: str
) -> Iterator[list[Converted]]:
    """The new answers. LabError if an earlier answer changed, or is missing from its evaluation."""
    old = {
        (record["bench"], record["step"], record["problem"], record["sample"]): record.get(
            "correct"
        )
        for record in _in_force(journal)
        if record["kind"] == AnswerRecord.kind
    }
    keys = set()
    new: list[Converted] = []
    for answer in chain.from_iterable(groups):
        assert isinstance(answer, AnswerRecord)
        key = (answer.bench, answer.step, answer.problem, answer.sample)
        keys.add(key)
        if key not in old:
            new.append(answer)
        elif old[key] != answer.correct:
            raise LabError(
                f"{where}: the past has changed: problem {answer.problem} of {answer.bench} was"
                f" {old[key]}"
            )
    evaluations = {key[:2] for key in keys}
    if missing := [key for key in old if key[:2] in evaluations and key not in keys]:
        raise LabError(
            f"{where}: problem {missing[0][2]} of {missing[0][0]}, imported before, is no longer"
            " there"
        )
    yield new


def _in_force(journal: Path) -> Iterator[dict[str, Any]]:
    """`journal.in_force`, line by line: a log may be longer than memory."""
    starts = [
        (at, line["step"])
        for at, line in enumerate(JournalReader(journal))
        if line.get("state") == STARTED
    ]
    for at, line in enumerate(JournalReader(journal)):
        if "state" not in line and not any(
            at < later and voided(line, step) for later, step in starts
        ):
            yield line


def _end(journal: Path) -> int:
    """The number of steps of the run."""
    return next(
        (int(line["step"]) for line in from_end(journal) if line.get("state") == State.FINISHED), 0
    )
