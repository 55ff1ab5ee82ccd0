"""The meaning of a program's metric names: definitions, the lab's columns with the same definition,
and settings.

A metric that the table lacks is stored under its own name, noted as not understood, and never shown
as a lab column.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from itertools import product, starmap
from typing import Any

from pydantic import ValidationError

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import (
    JsonMapping,
    JsonObject,
    OptionalInt,
    OptionalText,
    table_beside,
)
from gspo_lab.common.registry import nearest
from gspo_lab.exchange.importers.base import bench_name
from gspo_lab.exchange.importers.config import model_name
from gspo_lab.exchange.importers.secrets import word_set
from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.study.dotted_keys import set_dotted
from gspo_lab.study.import_origin import filled
from gspo_lab.study.schema import KEYS

MAPPED = word_set("step arm seed run problem correct sample bench prompt_digest")
"""Keys of `--map` that are not columns."""
OURS = "gspo-lab"
COMMON = "common"


def _columns(record: type, *kinds: str) -> frozenset[str]:
    """The names of a record's fields of these kinds; lists of numbers are left out."""
    types = {entry.name: str(entry.type).removeprefix("<class '") for entry in fields(record)}
    return frozenset(name for name, kind in types.items() if kind.startswith(kinds))


OF_STEPS = _columns(StepRecord, "int", "float") - {"step"}
OF_UPDATES = _columns(UpdateRecord, "int", "float") - {"step", "minibatch"} - OF_STEPS
WHOLE = _columns(StepRecord, "int") | _columns(UpdateRecord, "int")
"""Columns that are counts."""
FATAL = ("loss", "grad_norm")
"""Columns that become NaN or infinite when an update does (`nonfinite`)."""
VALIDATION = word_set(
    "val-* val/* val_* valid/* validation/* eval/* eval_* eval-* test/* test_* *best@* *maj@*"
    " *std@* *num_turns* timing_s/testing"
)
"""Names of an evaluation's numbers, which never count as training."""
ENOUGH_NAMES = 3
"""Known names, its name of the step included, by which a log is recognised as a program's."""
SHORT = {
    "reward": "reward_mean",
    "clip_fraction": CLIP_FRACTION,
    "length": "response_tokens_mean",
}


MOST_NAMES = 500


@dataclass(frozen=True)
class Metric:
    """The meaning of a logged name; None if it is not understood.

    `column` has the same definition in the lab, if any. `quantity` joins several definitions of one
    quantity.
    """

    column: OptionalText = None
    meaning: OptionalText = None
    quantity: OptionalText = None
    score: OptionalText = None
    """The benchmark whose score it is."""

    def to_json(self) -> dict[str, str]:
        """The known fields as plain data."""
        return {key: value for key, value in vars(self).items() if value is not None}


REWARD = Metric("reward_mean", "the mean reward, by its name alone", "training reward")
"""`reward` in a log of no known program."""


@dataclass(frozen=True)
class MetricNames:
    """The table of one program, and the options of one import."""

    program: str
    table: JsonMapping
    mapped: Mapping[str, str]
    """Columns of the lab by the source's names."""
    scored: Mapping[str, str]
    """Benchmarks by the source's names; if empty, the table's scores."""

    @property
    def counts_from(self) -> OptionalInt:
        """The step of its first row; None if unknown: its steps stay unchanged."""
        step: OptionalInt = self.table.get("counts_from")
        return step

    def plain(self, name: str) -> str:
        """The program's name of a metric, without the prefix that another writer added."""
        strip = self.table.get("strip")
        held_out = self.table.get("eval")
        if held_out and name.startswith(held_out):
            return f"eval_{name.removeprefix(held_out)}"
        return name.removeprefix(strip) if strip else name

    def metric(self, name: str, settings: JsonMapping) -> Metric:
        """The meaning of a name in a run with these settings."""
        if name in self.mapped:
            return Metric(self.mapped[name], "as the person who imported it says", None)
        if self.program == OURS and name in OF_STEPS | OF_UPDATES:
            return Metric(name, "the lab's own", None)
        if not self.table and name == "reward":
            return REWARD
        plain = self.plain(name)
        for entry in self.table.get("metric", ()):
            conditions = entry.get("when", {}).items()
            applies = all(settings.get(key) in values for key, values in conditions)
            if applies and fnmatchcase(plain, entry["name"]):
                return Metric(entry.get("column"), entry["meaning"], entry.get("quantity"))
        is_validation = self.is_validation(name) and self.table
        return Metric(meaning="a number of an evaluation, as logged" if is_validation else None)

    def is_validation(self, name: str) -> bool:
        """Whether it is a number of an evaluation."""
        names = (name, self.plain(name))
        return any(starmap(fnmatchcase, product(names, VALIDATION)))

    def becomes_nonfinite(self, name: str) -> bool:
        """Whether it is a loss or a gradient norm, which is not finite after an update that is not
        (`nonfinite`).
        """
        losses = self.table.get("losses", ())
        return self.metric(name, {}).column in FATAL or self.plain(name) in losses

    def bench(self, name: str) -> OptionalText:
        """The benchmark whose score this is; None if it is not a score."""
        if self.scored:
            return self.scored.get(name) or self.scored.get(self.plain(name))
        plain = self.plain(name)
        patterns = self.table.get("scores", ("score", "score/*"))
        is_score = any(fnmatchcase(plain, pattern) for pattern in patterns)
        return bench_name(plain.removeprefix("score/")) if is_score else None

    def planned(self, logged: JsonMapping) -> OptionalInt:
        """The number of steps that the run was to have, by its settings; None if not known."""
        values = map(logged.get, self.table.get("planned", ()))
        return next((value for value in values if isinstance(value, int) and value > 0), None)

    def settings(self, logged: JsonMapping) -> JsonObject:
        """A program's settings, by its dotted keys, as the lab's dotted settings.

        Values that the lab's setting cannot have are left out. For an unknown program the table
        with most of its keys is used, else that of common keys.
        """
        table = self.table if "settings" in self.table else _table_of(logged)
        values = table.get("values", {})
        settings: JsonObject = {}
        for key, names in table["settings"].items():
            if logged.get(key) is None:
                continue
            for name in names:
                value = values.get(name, {}).get(str(logged[key]), logged[key])
                value = model_name(value) if name == "model" else value
                if _fits(name, value):
                    settings[name] = value
        return settings


def _table_of(config: Collection[str]) -> JsonMapping:
    """The table of the program with most of these keys, at least three; else of common keys."""
    counts = {
        name: len(table.get("settings", {}).keys() & set(config))
        for name, table in tables().items()
    }
    best = max(counts, key=counts.__getitem__)
    common: JsonMapping = table_beside(__file__, "names.toml")[COMMON]
    return tables().get(best, common) if counts[best] >= ENOUGH_NAMES else common


def _fits(name: str, value: Any) -> bool:
    """Whether a setting can have this value."""
    table: JsonObject = {}
    set_dotted(table, name, value)
    try:
        filled(table)
    except ValidationError:
        return False
    return True


def metric_names(
    program: str, columns: Mapping[str, str], scores: Mapping[str, str]
) -> MetricNames:
    """The table of a program, empty for one that is not in it.

    LabError where `--map` names no column.
    """
    known_names = OF_STEPS | OF_UPDATES | SHORT.keys()
    for column in columns:
        if column not in known_names and column not in MAPPED:
            raise LabError(
                f"--map {column}=...: no column '{column}'{nearest(column, known_names)};"
                " docs/reference/metrics.md"
            )
    mapped = {
        name: SHORT.get(column, column) for column, name in columns.items() if column not in MAPPED
    }
    return MetricNames(program, tables().get(program, {}), mapped, scores)


@cache
def tables() -> JsonObject:
    """The tables of all programs, with the settings that the lab's keys name as theirs."""
    programs = dict(table_beside(__file__, "names.toml"))
    del programs[COMMON]
    for key, entry in KEYS.items():
        for program, name in entry.names.items():
            if name:
                programs[program]["settings"].setdefault(name, [key])
    return programs


def recognise(metrics: Collection[str], step_name: OptionalText) -> OptionalText:
    """The one program whose names a log has: at least three, and one with a slash.

    Names without a slash (`reward`, `entropy`) are many programs'. `step_name` is the log's name
    of the step, which counts too. Of very many names only some are looked at.
    """
    counts: dict[str, int] = {}
    for program, table in tables().items():
        names = metric_names(program, {}, {})
        known_names = [name for name in sorted(metrics)[:MOST_NAMES] if _is_known(names, name)]
        if step_name in table.get("axes", ()):
            known_names.append(step_name or "")
        if program != OURS and any("/" in name for name in known_names):
            counts[program] = len(known_names)
    best = max(counts.values(), default=0)
    programs = [program for program, count in counts.items() if count == best]
    return programs[0] if best >= ENOUGH_NAMES and len(programs) == 1 else None


def _is_known(names: MetricNames, name: str) -> bool:
    has_score = bool(names.table.get("scores")) and names.bench(name) is not None
    is_understood = names.metric(name, {}).meaning and not names.is_validation(name)
    return bool(is_understood) or has_score
