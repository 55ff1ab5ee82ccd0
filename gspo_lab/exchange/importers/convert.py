"""Convert a log's rows to records: into a column with the same definition, else under the program's
own name.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gspo_lab.common.atomic_files import sha256_of
from gspo_lab.common.errors import LabError
from gspo_lab.exchange.importers.base import Log
from gspo_lab.exchange.importers.config import comparable_settings
from gspo_lab.exchange.importers.metric_names import OF_UPDATES, WHOLE, Metric, MetricNames
from gspo_lab.recording.records import AnswerRecord, ScoreRecord, StepRecord, UpdateRecord
from gspo_lab.study.import_origin import Origin

AVERAGED = -1
"""The mini-batch index of a row that is, or may be, a mean over several updates."""

MOST = 2**53
"""From this value on floats cannot represent every whole number."""

Converted = StepRecord | UpdateRecord | AnswerRecord | ScoreRecord


class Conversion:
    """One run's log as records. Its attributes are complete once `groups` is exhausted."""

    def __init__(
        self,
        log: Log,
        names: MetricNames,
        declared: Mapping[str, Any],
        bench: str | None = None,
        at_end: int = 1,
        ignored: Sequence[str] = (),
    ) -> None:
        self.log = log
        self.config = comparable_settings(log.settings, ignored)
        self.settings = names.settings(log.settings)
        """The dotted settings in the log."""
        self.metrics: dict[str, Metric] = {}
        self.benches: dict[str, str | None] = {}
        """Per benchmark the name of its score in the log; None if it follows from answers."""
        self.problems: dict[str, set[str]] = {}
        self.largest: dict[str, float] = {}
        """Per benchmark the largest absolute value of its logged scores."""
        self.steps = 0
        """The number of steps, counted from the program's first."""
        self._names = names
        self._bench = bench
        self._at_end = at_end
        self._settings = {**self.settings, **declared}
        self._places: dict[str, list[tuple[str, str]]] = {}
        self._groups: Iterator[list[Converted]] | None = None

    def groups(self) -> Iterator[list[Converted]]:
        """All records, row by row. A second call continues where the first one stopped."""
        if self._groups is None:
            self._groups = (group for group in self._convert_rows() if group)
        return self._groups

    def _convert_rows(self) -> Iterator[list[Converted]]:
        first = self._names.counts_from
        strange: dict[str, tuple[int, bool]] = {}
        for step, values in self.log.rows:
            columns: dict[str, dict[str, float]] = {
                "step": {},
                "update": {},
                "own": {},
                "score": {},
            }
            for name, value in values.items():
                if not math.isfinite(value):
                    if name not in strange:
                        strange[name] = step, self._names.fatal(name)
                    if strange[name][1]:
                        columns["update"]["nonfinite"] = 1.0
                    continue
                for table, column in self._places.get(name) or self._place(name):
                    columns[table][column] = value
            yield list(self._row(step, step - first if first else step, columns))
        self.log.notes += [
            f"{name} is NaN or infinite, first at step {step}"
            for name, (step, _) in strange.items()
        ]
        yield from ([answer] for answer in self._answers())
        if missing := self._names.mapped.keys() - self.metrics.keys():
            raise LabError(
                f"{self.log.files[0]}: no number under {', '.join(sorted(missing))}, which --map"
                f" names; it has {', '.join(sorted(self.metrics)[:20]) or 'none'}"
            )
        if missing := self._names.scored.keys() - {name for name in self.benches.values() if name}:
            raise LabError(
                f"{self.log.files[0]}: no number under {', '.join(sorted(missing))}, the score to"
                " read"
            )

    def origin(self, source: str) -> Origin:
        """The program that recorded the run, and the meaning of its numbers.

        Call it when `groups` is exhausted.
        """
        return Origin(
            self.log.program,
            source,
            self.log.version,
            tuple(self.log.notes),
            {name: metric.to_json() for name, metric in sorted(self.metrics.items())},
            {file.name: sha256_of(file) for file in self.log.files},
            self.settings,
            self.config,
        )

    def _row(
        self, step: int, place: int, columns: Mapping[str, Mapping[str, float]]
    ) -> Iterator[Converted]:
        trained = {key: columns[key] for key in ("step", "update", "own") if columns[key]}
        if trained and place < 0:
            raise LabError(
                f"{self.log.files[0]}: it has numbers of training at step {step}, and"
                f" {self._names.program} counts its steps from {self._names.counts_from}; if"
                " another program wrote it, give --logged-by"
            )
        if "update" in trained or "own" in trained:
            engine_metrics = dict(columns["own"]) or None
            update = self._typed(step, columns["update"])
            yield UpdateRecord(
                step=place, minibatch=AVERAGED, engine_metrics=engine_metrics, **update
            )
        if trained:
            self.steps = place + 1
            yield StepRecord(step=place, **self._typed(step, columns["step"]))
        # A score is measured after the step's updates: one more than the step of a program that
        # counts from 0.
        after = step + 1 if self._names.counts_from == 0 else step
        for bench, score in columns["score"].items():
            self.largest[bench] = max(self.largest.get(bench, 0.0), abs(score))
            yield ScoreRecord(step=after, bench=bench, score=score)

    def _typed(self, step: int, values: Mapping[str, float]) -> dict[str, Any]:
        """The values in their columns' types. LabError for a count that is not a whole number."""
        for name in values.keys() & WHOLE:
            if not values[name].is_integer() or abs(values[name]) >= MOST:
                raise LabError(
                    f"{self.log.files[0]}: {name} is {values[name]:g} at step {step}, but this"
                    " column is a count; the lab has no column for a mean of counts: leave out its"
                    " --map, or export the study again"
                )
        return {name: int(value) if name in WHOLE else value for name, value in values.items()}

    def _place(self, name: str) -> list[tuple[str, str]]:
        """(table, column) of a metric: a column of the lab or its own name, and the benchmark whose
        score it is.
        """
        metric = self._names.metric(name, self._settings)
        bench = self._names.bench(name)
        places = [] if bench is not None and metric.column is None else [self._column(name, metric)]
        if bench is not None:
            if self.benches.setdefault(bench, name) != name:
                raise LabError(
                    f"{self.log.files[0]}: {self.benches[bench]} and {name} are both the score of"
                    f" {bench}"
                )
            metric = replace(
                metric, meaning=metric.meaning or f"score of {bench}, as logged", score=bench
            )
            places.append(("score", bench))
        if ("own", name) in places:
            metric = replace(metric, column=None)
        self.metrics[name] = metric
        self._places[name] = places
        return places

    def _column(self, name: str, metric: Metric) -> tuple[str, str]:
        """A metric's column, unless `--map` or an earlier name took it:

        TRL logs old and new names of one number.
        """
        column = metric.column
        place = ("update" if column in OF_UPDATES else "step", column or "")
        taken = any(place in places for places in self._places.values())
        if (
            column is None
            or taken
            or (name not in self._names.mapped and column in self._names.mapped.values())
        ):
            return "own", name
        return place

    def _answers(self) -> Iterator[Converted]:
        for answer in self.log.answers:
            bench = answer.bench or self._bench
            if bench is None:
                raise LabError(
                    f"{self.log.files[0]}: of which benchmark? It has no column bench; give --bench"
                    " NAME"
                )
            self.benches.setdefault(bench, None)
            self.problems.setdefault(bench, set()).add(answer.problem)
            step = self._at_end if answer.step is None else answer.step
            yield AnswerRecord(
                step=step,
                bench=bench,
                problem=answer.problem,
                sample=answer.sample,
                correct=answer.correct,
            )
