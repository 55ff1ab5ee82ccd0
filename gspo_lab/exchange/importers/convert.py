"""Convert a log's rows to records: into a column with the same definition, else under the program's
own name.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gspo_lab.common.atomic_files import sha256_of
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalText
from gspo_lab.common.text import first_few
from gspo_lab.exchange.importers.base import (
    AT_END,
    CALLS,
    EXACT,
    Log,
    RunSpec,
    first_entry,
    parse_number,
)
from gspo_lab.exchange.importers.config import comparable_settings
from gspo_lab.exchange.importers.metric_buffer import MetricBuffer, Number, as_number
from gspo_lab.exchange.importers.metric_names import (
    OF_UPDATES,
    WHOLE,
    Metric,
    MetricNames,
    metric_names,
    recognise,
    tables,
)
from gspo_lab.exchange.importers.secrets import public_settings, without_home
from gspo_lab.recording.records import AnswerRecord, ScoreRecord, StepRecord, UpdateRecord
from gspo_lab.study.import_origin import Origin

AVERAGED = -1
"""The mini-batch index of a row that is, or may be, a mean over several updates."""
LARGEST = 3.4e38
"""The largest number of float32, in which trainers compute."""
REWARD = "training reward"
PROMPTS = "prompt_digest"
PROMPT_NAMES = ("prompts_digest", "prompt_hash", "prompts", "prompt")
"""Usual names of a row's prompts, or of their digest."""
COUNTS = ("prompts", "prompt")
"""Those of `PROMPT_NAMES` that count prompts if they hold a number."""
EPOCHS = ("train/epoch", "epoch")
SUMMARY = "train_runtime"
"""A metric of the last row of a transformers trainer, which holds totals of the whole run."""

Converted = StepRecord | UpdateRecord | AnswerRecord | ScoreRecord


@dataclass
class _Row:
    """One row's numbers, by the record that each belongs to."""

    step: dict[str, float] = field(default_factory=dict)
    update: dict[str, float] = field(default_factory=dict)
    unnamed: dict[str, float] = field(default_factory=dict)
    """Under the program's names."""
    score: dict[str, float] = field(default_factory=dict)
    trained: bool = False
    """Whether a number is of training, not of an evaluation."""


class Conversion:
    """One run's log as records. Its attributes are complete once `records` is exhausted."""

    def __init__(
        self,
        log: Log,
        spec: RunSpec,
        declared: JsonMapping,
        at_end: int = 1,
        config: JsonMapping | None = None,
    ) -> None:
        self.log = log
        self.where = str(log.files[0])
        self.metrics: dict[str, Metric] = {}
        self.benches: dict[str, OptionalText] = {}
        """Per benchmark the name of its score in the log; None if it follows from answers."""
        self.problems: dict[str, set[str]] = {}
        self.largest: dict[str, float] = {}
        """Per benchmark the largest absolute value of its logged scores."""
        self.evaluated: dict[str, set[int]] = {}
        """Per benchmark the steps of its logged scores."""
        self.steps = 0
        """The number of steps, counted from the program's first."""
        self._spec = spec
        self._at_end = at_end
        self._prompts: dict[int, bytes] = {}
        """Per step the sha256 of the prompts that its row names."""
        self._stream = b""
        self._counts_steps = log.reached > 0
        """Whether the log tells how many steps the run has made."""
        self._buffer = self._read_rows()
        public, count = public_settings({**log.settings, **(config or {})})
        self.public = public
        """The program's own settings, without secrets."""
        self.secrets = count + len(self._buffer.left_out if self._buffer else ())
        """How many values were left out as secret or personal."""
        self.names = self._names()
        self.config = comparable_settings(public, spec.ignore)
        self.settings = self.names.settings(public)
        """The dotted settings in the log."""
        self.planned = log.planned or self._planned_steps(public)
        self._settings = {**self.settings, **declared}
        self._places: dict[str, tuple[tuple[str, str], ...]] = {}
        self._taken: set[tuple[str, str]] = set()
        self._nonfinite: dict[str, int] = {}
        self.rounded: dict[str, tuple[str, int]] = {}
        self._untrained: set[str] = set()
        self._interval = 1
        """The largest number of steps between two rows of training."""

    def _read_rows(self) -> MetricBuffer | None:
        """All rows, sorted; None for a log of answers."""
        buffer = MetricBuffer(self.where, self.log.notes)
        empty = True
        for step, entries in self.log.rows:
            empty = False
            self.log.reached = max(self.log.reached, step)
            if entries.get(SUMMARY) not in (None, ""):
                self.log.notes.append("the summary of the whole run, its last row, is left out")
            else:
                buffer.add(step, self._without_prompts(step, entries))
        if self.log.rows_by_calls:
            self.log.notes.append(
                "rows without the trainer's step are left out (W&B's _step counts calls of log):"
                f" {self.log.rows_by_calls}"
            )
        if empty and self.log.answers:
            return None
        buffer.finish()
        return buffer

    def _without_prompts(self, step: int, entries: JsonMapping) -> JsonMapping:
        """A row without its prompts or their digest, which `_prompts` keeps as a digest."""
        name, prompts = first_entry(entries, self._spec.names_of(PROMPTS, *PROMPT_NAMES))
        is_count = name in COUNTS and parse_number(prompts) is not None
        if not name or is_count:
            return entries
        self._prompts[step] = hashlib.sha256(json.dumps(prompts).encode()).digest()
        return {key: value for key, value in entries.items() if key != name}

    def _names(self) -> MetricNames:
        """The names of the program that wrote the log, recognised by them if nothing states it."""
        spec = self._spec
        program = spec.logged_by or self.log.program
        if spec.logged_by is None and program not in tables() and self._buffer is not None:
            recognised = recognise(self._buffer.first_steps, self.log.step_name)
            if recognised is not None:
                self.log.notes.append(f"read as a log of {recognised}, by its names (--logged-by)")
                program = recognised
        if program in tables():
            self.log.program = program
        names = metric_names(program, spec.map, spec.scores)
        of_training = names.table.get("from_0_by", "")
        if self._buffer is not None and self._buffer.first_steps.get(of_training) == 0:
            self.log.notes.append("its steps count from 0, as in older versions")
            return replace(names, table={**names.table, "counts_from": 0})
        return names

    def _planned_steps(self, public: JsonMapping) -> int | None:
        """The number of steps that the run was to have, by its settings or its last epoch."""
        planned = self.names.planned(public)
        epochs = parse_number(public.get(self.names.table.get("epochs", "")))
        _, epoch = first_entry(self._buffer.last_values if self._buffer else {}, EPOCHS)
        if planned or not epochs or not epoch:
            return planned
        estimate = round(self.log.reached * epochs / as_number(epoch))
        # A finished epoch may lack its last, smaller batch, and its number is rounded.
        unsure = max(epochs, estimate / 100)
        return None if estimate - self.log.reached <= unsure else estimate

    def records(self) -> Iterator[Converted]:
        """All records, row by row, then the answers."""
        if self._buffer is not None:
            yield from self._rows(self._buffer)
        yield from self._answers()
        self._check_names()
        if self.secrets:
            self.log.notes.append(
                f"values that may be secret or personal are not stored: {self.secrets}"
            )

    @property
    def has_no_rows(self) -> bool:
        """Whether the log holds answers alone."""
        return self._buffer is None

    @property
    def stopped(self) -> bool:
        """Whether the run has made fewer steps than it was to have.

        A log of every tenth step may end nine steps earlier.
        """
        if self.planned is None or not self.steps:
            return False
        interval = 1 if self._counts_steps else self._interval
        return self.planned - self._done >= interval

    @property
    def _done(self) -> int:
        """How many steps the run has made. Step 0 is one of them where the program counts from 0,
        or where its first number is not known and the log has one of step 0.
        """
        first_step = self.names.counts_from
        if first_step is None and self._buffer is not None:
            first_step = min(self._buffer.first_steps.values(), default=None)
        return self.steps if first_step == 0 else self.log.reached

    def _rows(self, buffer: MetricBuffer) -> Iterator[Converted]:
        first_step = self.names.counts_from or 0
        for step, values in buffer.rows():
            yield from self._row(step, step - first_step, self._sort(step, values))
        notes = self.log.notes
        for name, nonfinite_at in self._nonfinite.items():
            notes.append(f"{name} is not finite in float32, first at step {nonfinite_at}")
        for name, (text, count) in self.rounded.items():
            below = f"{text.lstrip('-')[1:]}5"
            notes.append(
                f"{name} is printed as {text} at {count} steps: below {below}, but not known"
            )
        if self._untrained:
            notes.append(
                "numbers before the first step of training are left out, scores excepted:"
                f" {first_few(sorted(self._untrained))}"
            )
        if self._interval > 1 and self.names.table.get("averaged"):
            notes.append(f"rows are means over up to {self._interval} steps")
        if self.stopped:
            notes.append(f"the run stopped at step {self._done} of {self.planned}")

    def _sort(self, step: int, values: Mapping[str, Number]) -> _Row:
        row = _Row()
        for name, logged in values.items():
            places = self._places.get(name) or self._place(name)
            value = as_number(logged)
            if not abs(value) <= LARGEST:
                self._nonfinite.setdefault(name, step)
                if self.names.becomes_nonfinite(name):
                    row.update["nonfinite"] = 1.0
                    row.trained = True
                continue
            is_score = ("score", self.names.bench(name)) in places
            if isinstance(logged, str) and not is_score and not self._is_reward(name):
                text, count = self.rounded.get(name, (logged, 0))
                self.rounded[name] = (text, count + 1)
                continue
            for table, column in places:
                getattr(row, table)[column] = value
                is_training = table != "score" and not self.names.is_validation(name)
                row.trained = row.trained or is_training
        return row

    def _is_reward(self, name: str) -> bool:
        metric = self.metrics[name]
        return metric.quantity == REWARD or metric.column == "reward_mean"

    def _row(self, step: int, place: int, row: _Row) -> Iterator[Converted]:
        if row.trained and place < 0:
            columns = sorted(row.step) + sorted(row.update)
            if columns:
                remedy = "if another program wrote it, give --logged-by"
                if self.log.step_name == CALLS:
                    remedy = "W&B's _step counts calls of log: name the steps, --map step=NAME"
                raise LabError(
                    f"{self.where}: it has numbers of training at step {step}"
                    f" ({first_few(columns)}), and"
                    f" {self.names.program} counts its steps from {self.names.counts_from};"
                    f" {remedy}"
                )
        if place >= 0 and (row.update or row.unnamed):
            yield UpdateRecord(
                step=place,
                minibatch=AVERAGED,
                engine_metrics=row.unnamed or None,
                **self._convert_types(step, row.update),
            )
        elif row.unnamed:
            self._untrained.update(row.unnamed.keys())
        if row.trained and place >= 0:
            self._interval = max(self._interval, place + 1 - self.steps)
            self.steps = place + 1
            yield StepRecord(
                step=place, prompt_digest=self._digest(step), **self._convert_types(step, row.step)
            )
        # A score is measured after the step's updates: one more than the step of a program that
        # counts from 0.
        steps_done = step + 1 if self.names.counts_from == 0 else step
        for bench, score in row.score.items():
            self.largest[bench] = max(self.largest.get(bench, 0.0), abs(score))
            self.evaluated.setdefault(bench, set()).add(steps_done)
            yield ScoreRecord(step=steps_done, bench=bench, score=score)

    def _digest(self, step: int) -> OptionalText:
        """The digest of the prompts of all rows up to and with this step's; None without any."""
        prompts = self._prompts.get(step)
        if prompts is None:
            return None
        self._stream = hashlib.sha256(self._stream + prompts).digest()
        return self._stream.hex()

    def _convert_types(self, step: int, values: Mapping[str, float]) -> JsonObject:
        """The values in their columns' types. LabError for a count that is not a whole number."""
        for name in values.keys() & WHOLE:
            if not values[name].is_integer() or abs(values[name]) >= EXACT:
                raise LabError(
                    f"{self.where}: {name} is {values[name]:g} at step {step}, but this"
                    " column is a count; the lab has no column for a mean of counts: leave out its"
                    " --map, or export the study again"
                )
        return {name: int(value) if name in WHOLE else value for name, value in values.items()}

    def _place(self, name: str) -> tuple[tuple[str, str], ...]:
        """(table, column) of a metric: a column of the lab or its own name, and the benchmark whose
        score it is.
        """
        metric = self.names.metric(name, self._settings)
        bench = self.names.bench(name)
        column = self._column(name, metric)
        places = (column,) if bench is None or metric.column is not None else ()
        if bench is not None:
            if self.benches.setdefault(bench, name) != name:
                raise LabError(
                    f"{self.where}: {self.benches[bench]} and {name} are both the score of {bench}"
                )
            meaning = metric.meaning or f"score of {bench}, as logged"
            metric = replace(metric, meaning=meaning, score=bench)
            places = (*places, ("score", bench))
        if ("unnamed", name) in places:
            metric = replace(metric, column=None)
        self._taken.update(places)
        self.metrics[name] = metric
        self._places[name] = places
        return places

    def _column(self, name: str, metric: Metric) -> tuple[str, str]:
        """A metric's column, or its own name if `--map` or an earlier name took the column.

        TRL logs old and new names of one number.
        """
        column = metric.column
        if column is None:
            return "unnamed", name
        place = ("update" if column in OF_UPDATES else "step", column)
        mapped_elsewhere = name not in self.names.mapped and column in self.names.mapped.values()
        return ("unnamed", name) if place in self._taken or mapped_elsewhere else place

    def _answers(self) -> Iterator[AnswerRecord]:
        for answer in self.log.answers:
            bench = answer.bench or self._spec.bench
            if bench is None:
                raise LabError(
                    f"{self.where}: of which benchmark? It has no column bench; give --bench NAME"
                )
            self.benches.setdefault(bench, None)
            self.problems.setdefault(bench, set()).add(answer.problem)
            step = self._at_end if answer.step == AT_END else answer.step
            yield replace(answer, bench=bench, step=step)

    def _check_names(self) -> None:
        """LabError where the log has no number under a name that the import states."""
        scored = {name for name in self.benches.values() if name}
        missing = {
            "which --map names": self.names.mapped.keys() - self.metrics.keys(),
            "the score to read": self.names.scored.keys() - scored,
        }
        for purpose, names in missing.items():
            if names:
                raise LabError(
                    f"{self.where}: no number under {first_few(sorted(names))}, {purpose}; it has"
                    f" {first_few(sorted(self.metrics), 20) or 'none'}"
                )

    def origin(self, source: str) -> Origin:
        """The program that recorded the run, and the meaning of its numbers.

        Call it when `records` is exhausted.
        """
        return Origin(
            self.log.program,
            without_home(source),
            self.log.version,
            tuple(self.log.notes),
            {name: metric.to_json() for name, metric in sorted(self.metrics.items())},
            {file.name: sha256_of(file) for file in self.log.files},
            self.settings,
            self.config,
        )
