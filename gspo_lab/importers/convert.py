"""From a log's rows to the lab's records: columns where the definition is the same, else the program's own name."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.importers.config import kept
from gspo_lab.importers.log import Log, digest
from gspo_lab.importers.names import OF_UPDATES, Metric, Names
from gspo_lab.records import AnswerRecord, ScoreRecord, StepRecord, UpdateRecord
from gspo_lab.study.origin import Origin

AVERAGED = -1
"""The mini-batch of a row that is a mean over updates, or of which that is not known."""

MOST = 2**53
"""From here on a float tells no whole number from the next."""

Converted = StepRecord | UpdateRecord | AnswerRecord | ScoreRecord


class Conversion:
    """One run's log as records. What it has seen is complete once `groups` is through."""

    def __init__(
        self,
        log: Log,
        found: Names,
        declared: Mapping[str, Any],
        bench: str | None = None,
        at_end: int = 1,
        ignored: Sequence[str] = (),
    ) -> None:
        self.log = log
        self.config = kept(log.settings, ignored)
        self.told = found.settings(log.settings)
        """The dotted settings that the log tells."""
        self.metrics: dict[str, Metric] = {}
        self.benches: dict[str, str | None] = {}
        """Per benchmark the name of its score in the log; None where answers make it."""
        self.problems: dict[str, set[str]] = {}
        self.largest: dict[str, float] = {}
        """Per benchmark the largest of its logged scores, whatever its sign."""
        self.steps = 0
        """Rows' steps, counted from the program's first: the lab's steps."""
        self._names, self._bench, self._at_end = found, bench, at_end
        self._settings = {**self.told, **declared}
        self._places: dict[str, list[tuple[str, str]]] = {}
        self._groups: Iterator[list[Converted]] | None = None

    def groups(self) -> Iterator[list[Converted]]:
        """All records, row by row; asked again it goes on where it was left."""
        if self._groups is None:
            self._groups = (group for group in self._made() if group)
        return self._groups

    def _made(self) -> Iterator[list[Converted]]:
        first = self._names.counts_from
        strange: dict[str, tuple[int, bool]] = {}
        for step, values in self.log.rows:
            columns: dict[str, dict[str, float]] = {"step": {}, "update": {}, "own": {}, "score": {}}
            for name, value in values.items():
                if not math.isfinite(value):
                    if name not in strange:
                        strange[name] = step, self._names.fatal(name)
                    if strange[name][1]:
                        columns["update"]["nonfinite"] = 1.0
                    continue
                for where, as_what in self._places.get(name) or self._placed(name):
                    columns[where][as_what] = value
            yield list(self._row(step, step - first if first else step, columns))
        self.log.notes += [f"{name} is NaN or infinite, first at step {step}" for name, (step, _) in strange.items()]
        yield from ([one] for one in self._answers())
        if missing := self._names.mapped.keys() - self.metrics.keys():
            raise LabError(
                f"{self.log.files[0]}: no number under {', '.join(sorted(missing))}, which --map names; "
                f"it has {', '.join(sorted(self.metrics)[:20]) or 'none'}"
            )
        if missing := self._names.scored.keys() - {name for name in self.benches.values() if name}:
            raise LabError(f"{self.log.files[0]}: no number under {', '.join(sorted(missing))}, the score to read")

    def origin(self, source: str) -> Origin:
        """Who recorded the run, with what every number is; to be asked when `groups` is through."""
        return Origin(
            self.log.program,
            source,
            self.log.version,
            tuple(self.log.notes),
            {name: metric.to_json() for name, metric in sorted(self.metrics.items())},
            {file.name: digest(file) for file in self.log.files},
            self.told,
            self.config,
        )

    def _row(self, step: int, place: int, columns: Mapping[str, Mapping[str, float]]) -> Iterator[Converted]:
        trained = {key: columns[key] for key in ("step", "update", "own") if columns[key]}
        if trained and place < 0:
            raise LabError(
                f"{self.log.files[0]}: it has numbers of training at step {step}, and {self._names.program} counts its "
                f"steps from {self._names.counts_from}; if another program wrote it, give --logged-by"
            )
        if "update" in trained or "own" in trained:
            own = dict(columns["own"]) or None
            update = self._typed(step, columns["update"])
            yield UpdateRecord(step=place, minibatch=AVERAGED, engine_metrics=own, **update)
        if trained:
            self.steps = place + 1
            yield StepRecord(step=place, **self._typed(step, columns["step"]))
        # Asked after the step's updates, which of a program that counts from 0 are one more than its step.
        after = step + 1 if self._names.counts_from == 0 else step
        for bench, score in columns["score"].items():
            self.largest[bench] = max(self.largest.get(bench, 0.0), abs(score))
            yield ScoreRecord(step=after, bench=bench, score=score)

    def _typed(self, step: int, values: Mapping[str, float]) -> dict[str, Any]:
        """Numbers as their columns have them. LabError where one that counts is not whole."""
        for name in values.keys() & WHOLE:
            if not values[name].is_integer() or abs(values[name]) >= MOST:
                raise LabError(
                    f"{self.log.files[0]}: {name} is {values[name]:g} at step {step}, and counts whole ones; a mean of "
                    "counts is none of the lab's columns: leave out its --map, or export the study again"
                )
        return {name: int(value) if name in WHOLE else value for name, value in values.items()}

    def _placed(self, name: str) -> list[tuple[str, str]]:
        """Where a name's numbers go: to a column or under their own name, and to a benchmark whose score they are."""
        metric, bench = self._names.metric(name, self._settings), self._names.bench(name)
        places = [] if bench is not None and metric.column is None else [self._column(name, metric)]
        if bench is not None:
            if self.benches.setdefault(bench, name) != name:
                raise LabError(f"{self.log.files[0]}: {self.benches[bench]} and {name} are both the score of {bench}")
            metric = replace(metric, meaning=metric.meaning or f"score of {bench}, as logged", score=bench)
            places.append(("score", bench))
        if ("own", name) in places:
            metric = replace(metric, column=None)
        self.metrics[name], self._places[name] = metric, places
        return places

    def _column(self, name: str, metric: Metric) -> tuple[str, str]:
        """The column of a name, if `--map` gives it to no other name and no name before had it (TRL logs old and new
        names of one number); else its own name."""
        column = metric.column
        place = ("update" if column in OF_UPDATES else "step", column or "")
        taken = any(place in places for places in self._places.values())
        if column is None or taken or (name not in self._names.mapped and column in self._names.mapped.values()):
            return "own", name
        return place

    def _answers(self) -> Iterator[Converted]:
        for one in self.log.answers:
            bench = one.bench or self._bench
            if bench is None:
                raise LabError(f"{self.log.files[0]}: of which benchmark? It has no column bench; give --bench NAME")
            self.benches.setdefault(bench, None)
            self.problems.setdefault(bench, set()).add(one.problem)
            step = self._at_end if one.step is None else one.step
            yield AnswerRecord(step=step, bench=bench, problem=one.problem, sample=one.sample, correct=one.correct)


WHOLE = {
    name
    for record in (StepRecord, UpdateRecord)
    for name, kind in record.__annotations__.items()
    if str(kind).startswith(("int", "<class 'int"))
}
