"""What a program's names mean: its definitions, the lab's columns that have the same, and its words for settings.

A name that the table lacks keeps its own, is told to be not understood, and is never shown as a column of the lab.
"""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gspo_lab.errors import LabError
from gspo_lab.importers.config import model_name
from gspo_lab.records import StepRecord, UpdateRecord
from gspo_lab.registry import nearest
from gspo_lab.study.dotted import BAND, flat, set_dotted
from gspo_lab.study.origin import filled
from gspo_lab.study.schema import KEYS

TABLE = Path(__file__).with_name("names.toml")
MAPPED = ("step", "arm", "seed", "run", "problem", "correct", "sample", "bench")
"""What `--map` may name beside columns."""
OURS = "gspo-lab"


def _columns(record: type) -> frozenset[str]:
    """The names of a record's numbers; lists of them are none."""
    kinds = {entry.name: str(entry.type).removeprefix("<class '") for entry in fields(record)}
    return frozenset(name for name, kind in kinds.items() if kind.startswith(("int", "float")))


OF_STEPS = _columns(StepRecord) - {"step"}
OF_UPDATES = _columns(UpdateRecord) - {"step", "minibatch", *(n for n in _columns(UpdateRecord) if n in OF_STEPS)}
FATAL = ("loss", "grad_norm")
"""Columns whose number is finite while updates are (`nonfinite`)."""
COMMON: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("model", "model_name", "model_name_or_path", "base_model", "model.path"), ("model",)),
    **dict.fromkeys(("clip", "clip_range", "clip_ratio", "eps_clip", "epsilon"), BAND),
    **dict.fromkeys(("learning_rate", "lr", "optim.lr", "optimizer.lr", "train.lr"), ("update.learning_rate",)),
    **dict.fromkeys(("group_size", "num_generations", "n_samples", "rollout.n"), ("rollout.group_size",)),
    **dict.fromkeys(("clip_low", "clip_ratio_low", "eps_clip_low"), ("objective.clip_low",)),
    **dict.fromkeys(("clip_high", "clip_ratio_high", "eps_clip_high"), ("objective.clip_high",)),
    "temperature": ("rollout.temperature",),
}
"""Keys of configurations whose program is not known, and the settings that they name wherever they stand."""
SHORT = {"reward": "reward_mean", "clip_fraction": "clip_fraction_tokens", "length": "response_tokens_mean"}


@dataclass(frozen=True)
class Metric:
    """What a logged name stands for. `column` is None where no column of the lab has this definition, `meaning` where
    it is not understood; `quantity` names what several definitions are of."""

    column: str | None = None
    meaning: str | None = None
    quantity: str | None = None
    score: str | None = None
    """The benchmark whose score it is."""

    def to_json(self) -> dict[str, str]:
        """What is known of it, as plain data."""
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Names:
    """The table of one program, and what the person who imports has said."""

    program: str
    table: Mapping[str, Any]
    mapped: Mapping[str, str]
    """Columns of the lab by the source's names."""
    scored: Mapping[str, str]
    """Benchmarks by the source's names; empty: those that the table calls scores."""

    @property
    def counts_from(self) -> int | None:
        """The step of its first row; None: not known, its steps stay as they are."""
        found: int | None = self.table.get("counts_from")
        return found

    def plain(self, name: str) -> str:
        """A name as the program itself has it, without what another writer put before it."""
        strip, held_out = self.table.get("strip"), self.table.get("eval")
        if held_out and name.startswith(held_out):
            return f"eval_{name.removeprefix(held_out)}"
        return name.removeprefix(strip) if strip else name

    def metric(self, name: str, settings: Mapping[str, Any]) -> Metric:
        """What a name stands for in a run of which these settings are known."""
        if name in self.mapped:
            return Metric(self.mapped[name], "as the person who imported it says", None)
        if self.program == OURS and name in OF_STEPS | OF_UPDATES:
            return Metric(name, "the lab's own", None)
        plain = self.plain(name)
        for entry in self.table.get("metric", ()):
            wanted = entry.get("when", {}).items()
            if fnmatchcase(plain, entry["name"]) and all(settings.get(key) in values for key, values in wanted):
                return Metric(entry.get("column"), entry["meaning"], entry.get("quantity"))
        return Metric()

    def fatal(self, name: str) -> bool:
        """Whether it is a loss or a gradient's norm: where that is not finite, an update was not (`nonfinite`)."""
        return self.metric(name, {}).column in FATAL or self.plain(name) in self.table.get("losses", ())

    def bench(self, name: str) -> str | None:
        """The benchmark whose score this is; None: no score."""
        if self.scored:
            return self.scored.get(name) or self.scored.get(self.plain(name))
        plain = self.plain(name)
        if any(fnmatchcase(plain, pattern) for pattern in self.table.get("scores", ("score", "score/*"))):
            return bench_name(plain.removeprefix("score/"))
        return None

    def settings(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """The lab's dotted settings that a program's own say, in the lab's words; what none of them can be is left out.

        A configuration whose program is not known is read by the table that has most of its keys, else by COMMON.
        """
        config = flat(dict(told)) if told else {}
        table = self.table if "settings" in self.table else _table_of(config)
        values = table.get("values", {})
        out: dict[str, Any] = {}
        for key, dotted in table["settings"].items():
            value = config.get(key)
            for name in dotted if value is not None else ():
                known = values.get(name)
                word = value if known is None else known.get(value)
                word = model_name(word) if name == "model" else word
                if word is not None and _fits(name, word):
                    out[name] = word
        return out


def _table_of(config: Collection[str]) -> Mapping[str, Any]:
    """The table of the program that has most of these keys, and at least three; else what many programs say."""
    counts = {name: len(table.get("settings", {}).keys() & set(config)) for name, table in tables().items()}
    best = max(counts, key=lambda name: counts[name])
    return tables()[best] if counts[best] >= 3 else {"settings": COMMON}


def _fits(name: str, value: Any) -> bool:
    """Whether a setting can have this value."""
    table: dict[str, Any] = {}
    set_dotted(table, name, value)
    try:
        filled(table)
    except ValidationError:
        return False
    return True


def names(program: str, columns: Mapping[str, str], scores: Mapping[str, str]) -> Names:
    """The table of a program, empty for one that is not in it. LabError where `--map` names no column."""
    known = OF_STEPS | OF_UPDATES | SHORT.keys()
    for column in columns:
        if column not in known and column not in MAPPED:
            raise LabError(
                f"--map {column}=...: no column '{column}'{nearest(column, known)}; docs/reference/metrics.md"
            )
    mapped = {name: SHORT.get(column, column) for column, name in columns.items() if column not in MAPPED}
    return Names(program, tables().get(program, {}), mapped, scores)


@cache
def tables() -> dict[str, Any]:
    """The tables of all programs; to a program's settings come those that the lab's keys name as its own."""
    found = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    for key, known in KEYS.items():
        for program, name in known.names.items():
            if name:
                found[program]["settings"].setdefault(name, [key])
    return found


def likely(metrics: Collection[str]) -> str | None:
    """The program whose table knows the most of these names, if it knows at least three."""
    counts = {
        program: sum(bool(found.metric(name, {}).meaning) for name in metrics)
        for program in tables()
        if (found := names(program, {}, {}))
    }
    best = max(counts, key=lambda program: counts[program])
    return best if counts[best] >= 3 else None


def bench_name(text: str) -> str:
    """A name that a benchmark may have, of a metric's."""
    kept = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in text)
    return kept.strip("._-")[:100] or "score"
