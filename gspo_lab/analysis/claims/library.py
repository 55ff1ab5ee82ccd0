"""The claims that a study may name or write: what a claim is, the grammar of its rows, and the
library.

library.toml says how to add a claim. Installed packages bring libraries of their own.
"""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from gspo_lab.analysis.claims import functions
from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.claims.estimates import (
    Estimate,
    Estimates,
    Region,
    Untestable,
    exact,
    not_recorded,
)
from gspo_lab.analysis.claims.preconditions import Roles
from gspo_lab.analysis.readings import Minibatch, Reading, Reduce, Steps, Window, by_minibatch
from gspo_lab.analysis.readings.curves import weights_within
from gspo_lab.analysis.readings.read import CURVES
from gspo_lab.common.reason import Reason
from gspo_lab.common.registry import look_up
from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.study import ClaimTable
from gspo_lab.study.claim_validation import library_files

EvidenceGrade = Literal["A", "A/B", "B", "C", "C/D", "D"]
"""A: exact identity. B: stable at toy scale. C: learning outcome. D: needs a large mixture of
experts or long responses."""

OF = "of"
AGAINST = "against"
"""The roles of a claim that is written in place."""

Read = Callable[[ClaimData, Roles], Estimate]
Evaluate = Callable[[ClaimData, Roles], Estimates]
Bound = float | Literal["margin", "reward margin", "1 + clip_high"]

FIGURES = {"clip_fraction_tokens": "m-clip", "reward_mean": "m-reward"}
"""Where a metric's figure is not named after it."""

EQUAL = 1e-6
"""Numbers of two arms that agree to this, relatively, are identical: training computes in float32.
"""

LAST_EVALUATIONS = "mean over the last evaluations"
"""The score of a run's end; without a metric that of the primary benchmark."""
RISE = "rise from mini-batch 1 to the last"
"""The mean over the updates of the last mini-batch less that of mini-batch 1."""
STATISTICS: Mapping[str, tuple[Window, Reduce]] = {
    "mean over updates": (Window(), Reduce.MEAN),
    "mean over updates with minibatch = 0": (Window(minibatch=Minibatch.FIRST), Reduce.MEAN),
    "mean over updates with minibatch >= 1": (Window(minibatch=Minibatch.LATER), Reduce.MEAN),
    "mean over steps": (Window(Steps.ALL), Reduce.MEAN),
    "mean over the last fifth": (Window(Steps.ALL), Reduce.LAST_FIFTH),
    "area under the curve": (Window(Steps.ALL), Reduce.AREA),
    "largest": (Window(Steps.ALL), Reduce.PEAK),
    "largest with minibatch = 0": (Window(Steps.ALL, Minibatch.FIRST), Reduce.LARGEST),
    "largest with minibatch >= 1": (Window(minibatch=Minibatch.LATER), Reduce.LARGEST),
}
"""How a metric becomes a number of one run: the rows that count, and their reduction. "Over
updates" means those after the learning rate's warm-up. A curve is the metric per step (of updates
their mean), or a benchmark's scores.
"""
OF_RESPONSES = {"responses clipped in part": "partly_clipped", "std within responses": "spread"}
"""Statistics without a metric, of the recorded responses of settled updates with minibatch >= 1."""


@dataclass(frozen=True)
class CounterEvidence:
    """Published evidence that speaks against a claim, or limits it."""

    text: str
    source: str


@dataclass(frozen=True)
class Claim:
    """One entry of the library, or a claim that a study writes in place; `evaluate` reads it.

    An arm must play each of the `roles`. `needs` are preconditions (`preconditions.NEEDS`): unless
    all are met, the claim is not testable. An unmet one in `for_support` blocks only support. With
    `moe` only arms with a routed model play roles. `figure` is the figure of the report that shows
    the claim, linked if the study has it.
    """

    id: str
    grade: EvidenceGrade
    statement: str
    source: str
    value: str
    criterion: str
    evaluate: Callable[[ClaimData, Roles], Estimates]
    roles: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    for_support: tuple[str, ...] = ()
    counter: tuple[CounterEvidence, ...] = ()
    moe: bool = False
    figure: str | None = None

    @property
    def exact(self) -> bool:
        """Whether it is an identity, which has no test and is outside the family of Holm's rule."""
        return self.grade == "A"

    def as_data(self) -> dict[str, Any]:
        """Statement, source and preconditions as plain data."""
        return {
            "id": self.id,
            "grade": self.grade,
            "statement": self.statement,
            "source": self.source,
            "source_value": self.value,
            "criterion": self.criterion,
            "needs": [*self.needs, *(f"for support: {name}" for name in self.for_support)],
            "roles": list(self.roles),
            "counter_evidence": [vars(evidence) for evidence in self.counter],
        }


def run_statistic(
    data: ClaimData, arm: str, seed: int, statistic: str, metric: str | None = None
) -> float:
    """A run's number by a statistic's name, of a metric or benchmark where the statistic has one.

    May be Untestable.
    """
    if statistic == LAST_EVALUATIONS:
        return data.final(arm, seed, metric)
    if statistic in OF_RESPONSES:
        weights = weights_within(data.of, data.run(arm, seed))
        if weights is None:
            raise not_recorded("response_detail", arm, seed)
        return float(getattr(weights, OF_RESPONSES[statistic]))
    if statistic == RISE:
        last = data.number(Reading(metric or "", Window(minibatch=Minibatch.FINAL)), arm, seed)
        first = data.number(Reading(metric or "", Window(minibatch=Minibatch.SECOND)), arm, seed)
        return last - first
    window, reduce = STATISTICS[statistic]
    if metric in data.of.declaration.benches:
        return CURVES[reduce](*data.scores(arm, seed, metric))
    return data.number(Reading(metric or "", window, reduce), arm, seed)


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One number per seed, and the region that must hold its whole interval: `above`, `below` or
    `inside`.

    `statistic`, a name of this module, makes a number of each run, mostly of a `metric`. A seed's
    number is that of the arm in role `of`, minus or divided by that of `against` if there is one.
    Without `contradicted` the claim is contradicted outside the region of support. A bound is a
    number or one that the study declares: "margin" (score), "reward margin" (training reward), or
    "1 + clip_high" of the arm `of`. An undeclared bound makes an empty region.
    """

    name: str | None = None
    """None: made of metric, statistic and arms."""
    statistic: str
    metric: str | None = None
    of: str
    against: str | None = None
    comparison: Literal["difference", "ratio"] = "difference"
    above: Bound | None = None
    below: Bound | None = None
    inside: Sequence[float] | Bound | None = None
    contradicted: Sequence[Mapping[str, Any]] | None = None

    def __call__(self, data: ClaimData, roles: Roles) -> Estimate:
        """The estimate of the mean over seeds, and the side of the claim on which it lies."""
        arms = [roles[role] for role in (self.of, self.against) if role is not None]
        sign = " / " if self.comparison == "ratio" else " - "
        bounds = {"above": self.above, "below": self.below, "inside": self.inside}
        declared = {
            "margin": data.verdict.margin,
            "reward margin": data.verdict.reward_margin,
            "1 + clip_high": 1 + data.settings(arms[0]).objective.clip_high,
        }
        primary = (None, data.of.declaration.primary)
        against = [region(some, declared) for some in self.contradicted or ()]
        return data.over_seeds(
            self.name or f"{self.metric}, {self.statistic}: {sign.join(arms)}",
            {seed: self._number(data, arms, seed) for seed in data.seeds(roles.values())},
            region(bounds, declared),
            None if self.contradicted is None else [some for some in against if some],
            ratio=self.comparison == "ratio",
            scores_of=arms if self.statistic == LAST_EVALUATIONS and self.metric in primary else (),
        )

    def _number(self, data: ClaimData, arms: list[str], seed: int) -> float:
        values = [run_statistic(data, arm, seed, self.statistic, self.metric) for arm in arms]
        ratio = self.comparison == "ratio"
        if ratio and not all(value > 0 for value in values):
            measured = [f"{arm} has {value:g}" for arm, value in zip(arms, values, strict=True)]
            text = f"a ratio needs values above 0; at seed {seed} {' and '.join(measured)}"
            raise Untestable("ratio-of-nothing", text)
        if len(values) == 2 and math.isclose(*values, rel_tol=EQUAL):
            values = [values[0]] * 2
        value = values[0]
        for second in values[1:]:
            value = value / second if ratio else value - second
        if not np.isfinite(value):
            name = self.metric or self.name
            raise Untestable(
                "not-finite", f"{name} is not finite in {' or '.join(arms)}, seed {seed}"
            )
        return value


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A number that must be `at_most` so large in each run, or a difference of two arms that must
    be, seed by seed.

    Without `against`, `statistic` makes the number of each run of the arm `of` (without `of`, of
    all arms). With it the metric of both arms is compared in the "first update", or in each update
    of the "first rollout batch". A "relative difference" is taken wherever one of the two is above
    0.
    """

    name: str
    statistic: str
    metric: str | None = None
    of: str | None = None
    against: str | None = None
    comparison: Literal["difference", "relative difference"] = "difference"
    at_most: float

    def __call__(self, data: ClaimData, roles: Roles) -> Estimate:
        """The largest number over runs, or difference over seeds, against `at_most`.

        May be Untestable.
        """
        values = {}
        for seed in data.seeds(roles.values()):
            if self.against is None:
                for arm in roles.values() if self.of is None else [roles[self.of]]:
                    values[f"{arm}/s{seed}"] = run_statistic(
                        data, arm, seed, self.statistic, self.metric
                    )
            elif apart := self._apart(data, [roles[self.of or ""], roles[self.against]], seed):
                values[f"s{seed}"] = max(apart)
        if not values:  # no response had an advantage
            first = "mini-batch" if self.statistic == "first update" else "rollout batch"
            raise Untestable(
                "no-advantage",
                f"no response of any seed's first {first} had an advantage: the gradients compared"
                " are 0",
            )
        limit = f"at most {self.at_most:g}" if self.at_most else "exactly 0"
        return exact(self.name, values, self.at_most, unit=limit)

    def _apart(self, data: ClaimData, arms: Sequence[str], seed: int) -> list[float]:
        """The differences by mini-batch.

        Untestable where the arms have different numbers of mini-batches.
        """
        split = {data.settings(arm).update.minibatches for arm in arms}
        if len(split) > 1:
            counts = " and ".join(map(str, sorted(split)))
            raise Untestable(
                "other-minibatches",
                f"rollout batches are split into {counts} mini-batches: the first update is of"
                " other responses",
            )
        reading = Reading(self.metric or "", Window(Steps.STEP_0))
        estimates = []
        for arm in arms:
            data.value(Reading(reading.metric, Window(Steps.ALL)), arm, seed)
            estimates.append(by_minibatch(data.of, reading)[data.run(arm, seed)])
        first, second = estimates
        shared = [0] if self.statistic == "first update" else sorted(first.keys() & second.keys())
        pairs = [
            (first[index].value, second[index].value)
            for index in shared
            if index in first and index in second
        ]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if self.comparison == "difference":
            return [abs(a - b) for a, b in known]
        return [abs(a - b) / max(a, b) for a, b in known if max(a, b) > 0]


def region(bounds: Mapping[str, Any], declared: Mapping[str, float | None]) -> Region | None:
    """The region `above`, `below` or `inside` these bounds; None where the study does not declare a
    named bound.
    """
    inside = bounds.get("inside")
    if isinstance(inside, str):
        reach = declared[inside]
        return None if reach is None else Region(-reach, reach)
    named = inside or (bounds.get("above"), bounds.get("below"))
    low, high = (declared[bound] if isinstance(bound, str) else bound for bound in named)
    undeclared = any(isinstance(bound, str) and declared[bound] is None for bound in named)
    return None if undeclared else Region(low, high)


def all_of(parts: Sequence[Read], also: Sequence[Read] = ()) -> Evaluate:
    """A claim that needs all of its parts; `also` is only shown."""

    def evaluate(data: ClaimData, roles: Roles) -> Estimates:
        read = tuple(row(data, roles) for row in parts)
        beside = tuple(row(data, roles) for row in also)
        return Estimates(read, beside)

    return evaluate


def noted(evaluate: Evaluate, notes: Sequence[str]) -> Evaluate:
    """The same claim; `notes` are shown beside its numbers."""

    def with_notes(data: ClaimData, roles: Roles) -> Estimates:
        reading = evaluate(data, roles)
        return replace(
            reading, reasons=(*reading.reasons, *(Reason("note", text) for text in notes))
        )

    return with_notes


def from_table(table: ClaimTable) -> Claim:
    """The claim of a `[[claim]]` table that names a metric; the table has passed the study's own
    checks.
    """
    metric = table.metric
    statistic = table.statistic
    assert metric is not None
    assert statistic is not None
    assert table.comparison is not None
    bounds: dict[str, Any] = {"above": table.above, "below": table.below, "inside": table.inside}
    expected = region(bounds, {})
    assert expected is not None
    row = Expectation(
        metric=metric,
        statistic=statistic,
        of=OF,
        against=AGAINST,
        comparison=table.comparison,
        **bounds,
    )
    named = FIGURES.get(metric, f"m-{metric.replace('_', '-')}")
    recorded = {*UpdateRecord.__dataclass_fields__, *StepRecord.__dataclass_fields__}
    return Claim(
        id=table.name,
        grade="C",
        statement=f"{metric}, {statistic}: the {table.comparison} of the two arms lies {expected}.",
        source=table.source or "this study",
        value="the study's own expectation",
        criterion=(
            f"{expected}; contradicted {' or '.join(str(region) for region in expected.outside)}"
        ),
        evaluate=all_of([row]),
        roles=(OF, AGAINST),
        needs=("3 seeds",),
        figure=named if metric in recorded else "scores",
    )


def read_library(text: str) -> dict[str, Claim]:
    """The claims of a text like library.toml, by name, in the order of the names."""
    entries = tomllib.loads(text)
    entries.pop("untested", None)
    counter = {name: CounterEvidence(**entry) for name, entry in entries.pop("counter", {}).items()}
    return {name: _claim(name, counter, entries[name]) for name in sorted(entries)}


def _claim(name: str, counter: Mapping[str, CounterEvidence], entry: dict[str, Any]) -> Claim:
    code = entry.pop("code", None)
    notes = entry.pop("notes", ())
    rows = [_row(row) for row in entry.pop("rows", ())]
    also = [_row(row) for row in entry.pop("also", ())]
    listed: dict[str, Any] = {
        key: tuple(entry.pop(key, ())) for key in ("roles", "needs", "for_support")
    }
    against = tuple(counter[key] for key in entry.pop("counter", ()))
    evaluate = noted(_function(code) if code else all_of(rows, also), notes)
    return Claim(id=name, evaluate=evaluate, counter=against, **listed, **entry)


def _row(row: Any) -> Read:
    read: Read = (
        _function(row)
        if isinstance(row, str)
        else (Identity if "at_most" in row else Expectation)(**row)
    )
    return read


def _function(name: str) -> Any:
    """A function of functions.py, or "module:function" of another package: of a whole claim, or of
    one row.
    """
    return look_up("function of a claim", name, {}) if ":" in name else getattr(functions, name)


TEXTS = [path.read_text(encoding="utf-8") for path in library_files()]
_claims = {name: claim for text in reversed(TEXTS) for name, claim in read_library(text).items()}
LIBRARY: Mapping[str, Claim] = {name: _claims[name] for name in sorted(_claims)}
UNTESTED: Mapping[str, str] = tomllib.loads(TEXTS[0])["untested"]
"""Statements of the literature that gspo-lab cannot test, each with what a test lacks.

Studies may name them.
"""
