"""An import is whole or nothing: runs are written beside the study, held against what is there, and then moved at once.

A log that was imported before goes on where it ended: what it says of the past must be what it said then, but for its
last step, of which it may have held only a part. Then the run has started again there, as of any worker's; answers that
were imported beside the log, which that voids, are said again.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.files import write_json
from gspo_lab.imported_runs import AT_ONCE
from gspo_lab.importers.convert import Conversion, Converted
from gspo_lab.journal import TORN, Journal, from_end
from gspo_lab.layout import STUDY
from gspo_lab.records import (
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
from gspo_lab.runfolder import RunFolder, WorkFolder
from gspo_lab.states import STARTED, State
from gspo_lab.study import Declaration, Run
from gspo_lab.study.origin import ORIGIN, Origin

LATER = "nonfinite"
"""What earlier versions left out of a row that had it."""
ROWS = (StepRecord.kind, UpdateRecord.kind, ScoreRecord.kind)


@dataclass(frozen=True)
class Put:
    """What became of one run: `what` is new, grown or unchanged."""

    run: str
    what: str
    origin: Origin


class Stage:
    """The runs of one import of a study, until `commit`."""

    def __init__(self, runs: Path, study: str) -> None:
        self._live, self._beside, self._study = runs / study, runs / f".import-{study}", study
        self.puts: list[Put] = []
        self._origins: dict[tuple[str, int], Origin] = {}

    @contextmanager
    def open(self) -> Iterator["Stage"]:
        """Alone on this study; whatever was not committed is gone at the end."""
        runs = self._beside.parent
        new = [one for one in (runs, *runs.parents) if not one.exists()]
        try:
            with WorkFolder(self._beside).held(f"{self._study}: another import of it is under way"):
                self._clear()
                try:
                    yield self
                finally:  # still alone: who is refused must not take away what the other has written
                    self._clear()
                    shutil.rmtree(self._beside, ignore_errors=True)
        finally:
            for folder in new:
                with suppress(OSError):  # something lies in it
                    folder.rmdir()

    def end(self, arm: str, seed: int) -> int:
        """How many steps a run has so far; 1 of one that does not exist yet."""
        journals = [self._folder(home, arm, seed).journal for home in (self._beside, self._live)]
        return max(1, next((_end(one) for one in journals if one.exists()), 1))

    def configs(self, arm: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Of each run of an arm that was imported before its name and configuration."""
        homes = sorted(self._live.joinpath(arm).glob("s*"), key=lambda home: (len(home.name), home.name))
        known = [(home.name, _origin(folder)) for home in homes if (folder := RunFolder(home)).journal.exists()]
        return [(f"{arm}/{name}", origin.config) for name, origin in known if origin is not None]

    def put(self, arm: str, seed: int, converted: Conversion, source: str) -> None:
        """Write one run's records beside. LabError where they are not what was imported of it before."""
        name = f"{self._study}/{arm}/s{seed}"
        live, beside = self._folder(self._live, arm, seed), self._folder(self._beside, arm, seed)
        known = beside if beside.journal.exists() else live
        if not known.journal.exists():
            beside.path.mkdir(parents=True)
            self._write(beside, chain.from_iterable(converted.groups()), converted, source, 0, None)
            self._say(arm, seed, name, "new", beside)
            return
        before = _origin(known)
        if before is None:
            raise LabError(f"{name} was trained here; give the import another --study, or another seed")
        start, more = _news(known.journal, converted, f"{name}, imported from {before.source}: {source}")
        first = next(more, None)
        if first is None:
            self._origins[arm, seed] = before
            self.puts.append(Put(name, "unchanged", before))
            return
        if known is live:
            beside.path.mkdir(parents=True)
            shutil.copyfile(live.journal, beside.journal)
        self._write(beside, chain([first], more), converted, source, start, before)
        self._say(arm, seed, name, "grown", beside)

    def commit(self, declaration: Declaration) -> None:
        """Write study.json, every run's run.json, and the journals in their places. LabError where one is gone."""
        for put in self.puts:
            folder = self._beside / put.run.partition("/")[2]
            if put.what != "unchanged" and not RunFolder(folder).journal.exists():
                raise LabError(f"{put.run}: what was to be imported is gone from {self._beside}; import it again")
        self._live.mkdir(parents=True, exist_ok=True)
        write_json(self._live / STUDY, declaration.to_json())
        for arm, entry in declaration.arms.items():
            for seed in declaration.seeds:
                live, beside = self._folder(self._live, arm, seed), self._folder(self._beside, arm, seed)
                known = beside if beside.journal.exists() else live
                origin = _origin(known) if known.journal.exists() else None
                if origin is None:
                    continue
                run = Run(self._study, arm, seed, entry.settings, entry.declared, {}, origin=origin, known=entry.known)
                live.specify(run.to_json(), imported=True)
                if known is beside:
                    beside.journal.replace(live.journal)

    def _clear(self) -> None:
        """Remove all but the lock."""
        for left in self._beside.iterdir():
            if left.is_dir():
                shutil.rmtree(left)

    def _folder(self, home: Path, arm: str, seed: int) -> RunFolder:
        return RunFolder(home / arm / f"s{seed}")

    def _say(self, arm: str, seed: int, name: str, what: str, folder: RunFolder) -> None:
        origin = _origin(folder)
        assert origin is not None
        if any((one.run, one.what) == (name, "new") for one in self.puts):
            what = "new"  # a log and its answers
        self.puts = [one for one in self.puts if one.run != name]
        self.puts.append(Put(name, what, origin))

    def _write(
        self,
        folder: RunFolder,
        records: Iterable[Record],
        converted: Conversion,
        source: str,
        start: int,
        before: Origin | None,
    ) -> None:
        """The records between a start and an end, which says what each number is: known when the log is through."""
        told = Origin(converted.log.program, source, converted.log.version)
        rest, end = iter(records), start
        with Journal(folder.path) as journal:
            journal.write([RunStatus(state=STARTED, step=start, facts={ORIGIN: (before or told).to_json()})])
            while some := list(islice(rest, AT_ONCE)):
                end = max(end, *map(_moment, some))
                journal.write(some)
            told = converted.origin(source)
            facts = {ORIGIN: (told if before is None else _merged(before, told)).to_json()}
            journal.write([RunStatus(state=State.FINISHED, step=end, facts=facts)])


def _moment(record: Record) -> int:
    """After how many steps a record was made."""
    return record.step + isinstance(record, StepRecord | UpdateRecord)


def _origin(folder: RunFolder) -> Origin | None:
    """What the last import said of a run's origin; None where another than an import has written its journal."""
    facts: dict[str, Any] = next((one["facts"] for one in from_end(folder.journal) if one.get("facts")), {})
    return Origin.from_fact(facts[ORIGIN], str(folder.path)) if ORIGIN in facts else None


def _merged(before: Origin, later: Origin) -> Origin:
    """Of a run whose parts come from several files: all that is known of it."""
    return replace(
        before,
        converted=tuple(dict.fromkeys((*before.converted, *later.converted))),
        metrics={**before.metrics, **later.metrics},
        files={**before.files, **later.files},
        settings={**before.settings, **later.settings},
        config={**before.config, **later.config},
    )


def _news(journal: Path, converted: Conversion, where: str) -> tuple[int, Iterator[Record]]:
    """The step at which a known run starts again, and its records from there on; none where there is nothing new.

    LabError where the past differs.
    """
    old = _in_force(journal)
    rows = (one for one in old if one["kind"] in ROWS)
    end, nothing = _end(journal), iter(())
    for group in converted.groups():
        if isinstance(group[0], AnswerRecord):
            return end, chain.from_iterable(_new_answers(journal, chain([group], converted.groups()), where))
        told = sorted((json.loads(json.dumps(to_dict(one))) for one in group), key=_key)
        known = sorted(islice(rows, len(group)), key=_key)  # a score that stood at a new start comes before its step
        if known in (told, [{key: one[key] for key in one if key != LATER} for one in told]):
            continue
        if not known:
            return end, chain(group, chain.from_iterable(converted.groups()))
        if next(rows, None) is None and set(map(_key, known)) <= set(map(_key, told)):
            start = _start(group)
            standing = [one for one in known if not voided(one, start)]
            stay = set(map(_key, standing))
            again = [one for one in told if _key(one) in stay]
            if standing == again:
                new = [one for one in group if _key(to_dict(one)) not in stay]
                voids = [one for one in _in_force(journal) if one["kind"] == AnswerRecord.kind and voided(one, start)]
                return start, chain(new, map(from_dict, voids), chain.from_iterable(converted.groups()))
            known, told = standing, again
        raise LabError(f"{where}: the past has changed: {_difference(known, told)}; nothing was imported")
    if (left := next(rows, None)) is not None and converted.steps:
        raise LabError(f"{where}: it ends before step {left['step']}, which was imported before; nothing was imported")
    return end, nothing


def _start(group: Sequence[Converted]) -> int:
    """The step at which a run starts again whose last row was known in part: what it has trained there is void.

    A score of that step may stand (`voided`), as those of a row of scores alone do.
    """
    trained = [one.step for one in group if isinstance(one, StepRecord | UpdateRecord)]
    return min(trained or [one.step for one in group])


def _key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which of a row's records it is."""
    return record["kind"], record["step"], record.get("bench")


def _difference(known: Sequence[dict[str, Any]], told: Sequence[dict[str, Any]]) -> str:
    for one, other in zip(known, told, strict=False):
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                return f"at step {one['step']} {key} was {_shown(one.get(key))}, now {_shown(other.get(key))}"
    return f"step {known[0]['step']} has other numbers"


def _shown(value: Any) -> str:
    text = "not there" if value is None else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _new_answers(journal: Path, groups: Iterable[Sequence[Converted]], where: str) -> Iterator[list[Converted]]:
    """The answers that are new. LabError where one was another, or is missing of an evaluation that is there."""
    old = {
        (one["bench"], one["step"], one["problem"], one["sample"]): one.get("correct")
        for one in _in_force(journal)
        if one["kind"] == AnswerRecord.kind
    }
    seen = set()
    fresh: list[Converted] = []
    for one in chain.from_iterable(groups):
        assert isinstance(one, AnswerRecord)
        key = (one.bench, one.step, one.problem, one.sample)
        seen.add(key)
        if key not in old:
            fresh.append(one)
        elif old[key] != one.correct:
            raise LabError(f"{where}: the past has changed: problem {one.problem} of {one.bench} was {old[key]}")
    asked = {key[:2] for key in seen}
    if missing := [key for key in old if key[:2] in asked and key not in seen]:
        raise LabError(f"{where}: problem {missing[0][2]} of {missing[0][0]}, imported before, is no longer there")
    yield fresh


def _lines(journal: Path) -> Iterator[dict[str, Any]]:
    with journal.open("rb") as file:
        for line in file:
            if line.strip() and not line.rstrip(b"\n").endswith(TORN):
                item = json.loads(line)
                item.pop("chain", None)
                yield item


def _in_force(journal: Path) -> Iterator[dict[str, Any]]:
    """`journal.in_force`, line by line: a log may be longer than memory."""
    starts = [(at, one["step"]) for at, one in enumerate(_lines(journal)) if one.get("state") == STARTED]
    for at, one in enumerate(_lines(journal)):
        if "state" not in one and not any(at < later and voided(one, step) for later, step in starts):
            yield one


def _end(journal: Path) -> int:
    """How many steps the run has."""
    return next((int(one["step"]) for one in from_end(journal) if one.get("state") == State.FINISHED), 0)
