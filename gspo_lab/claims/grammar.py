"""The grammar of claims: the rows of the library's entries, and the claims that a study writes in place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gspo_lab.claims.claim import Claim, Roles
from gspo_lab.claims.estimates import Estimate, Estimates, Region, Untestable, exact
from gspo_lab.claims.needs import NEEDS
from gspo_lab.claims.recorded import Recorded
from gspo_lab.claims.statistics import LAST_EVALUATIONS, number
from gspo_lab.records import StepRecord, UpdateRecord
from gspo_lab.study import ClaimTable

if TYPE_CHECKING:
    from pandas import Series

OF, AGAINST = "of", "against"
"""The roles of a claim that is written in place."""

Read = Callable[[Recorded, Roles], Estimate]
Evaluate = Callable[[Recorded, Roles], Estimates]
Bound = float | Literal["margin", "reward margin", "1 + clip_high"]

FIGURES = {"clip_fraction_tokens": "m-clip", "reward_mean": "m-reward"}
"""Where a metric's figure is not named after it."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One number per seed, and where its whole interval is expected: `above`, `below` or `inside`.

    `statistic`, a name of statistics.py, makes a number of each run, mostly of a `metric`. A seed's number is that of
    the arm that plays `of` minus that of `against`, or divided by it; without `against` it stands alone. What
    contradicts is, unless it is given, what lies outside of what supports. A bound is a number or the study's own: its
    "margin" of equivalence in score, its "reward margin" in training reward, or "1 + clip_high" of the arm that plays
    `of`. A region with a bound that the study does not declare holds nothing.
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

    def __call__(self, recorded: Recorded, roles: Roles) -> Estimate:
        """One number per seed, of an arm or of one against another, and the regions that decide on their mean."""
        arms = [roles[role] for role in (self.of, self.against) if role is not None]
        sign = " / " if self.comparison == "ratio" else " - "
        bounds = {"above": self.above, "below": self.below, "inside": self.inside}
        own = {
            "margin": recorded.verdict.margin,
            "reward margin": recorded.verdict.reward_margin,
            "1 + clip_high": 1 + recorded.settings[arms[0]].objective.clip_high,
        }
        primary = (None, recorded.found.declaration.primary)
        return recorded.over_seeds(
            self.name or f"{self.metric}, {self.statistic}: {sign.join(arms)}",
            {seed: self._number(recorded, arms, seed) for seed in recorded.seeds(roles.values())},
            region(bounds, own),
            None if self.contradicted is None else [one for some in self.contradicted if (one := region(some, own))],
            ratio=self.comparison == "ratio",
            scores_of=arms if self.statistic == LAST_EVALUATIONS and self.metric in primary else (),
        )

    def _number(self, recorded: Recorded, arms: list[str], seed: int) -> float:
        value, *other = values = [number(recorded, arm, seed, self.statistic, self.metric) for arm in arms]
        ratio = self.comparison == "ratio"
        if ratio and not all(value > 0 for value in values):
            found = " and ".join(f"{arm} {value:g}" for arm, value in zip(arms, values, strict=True))
            raise Untestable(f"a ratio needs values above 0; at seed {seed} {found.replace(' ', ' has ', 1)}")
        for one in other:
            value = value / one if ratio else value - one
        if not np.isfinite(value):
            raise Untestable(f"{self.metric or self.name} is not finite in {' or '.join(arms)}, seed {seed}")
        return value


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A number that is `at_most` so large in every run, or that differs so little between two arms, seed by seed.

    Without `against` a run's number is made by `statistic`, a name of statistics.py, in the arm that plays `of` (in
    every arm where none is named). Else the metric of `of` and `against` is compared in their "first update", or in
    each of the "first rollout batch", where the weights agree as long as the gradients did. The "relative difference"
    is taken wherever one of the two is above 0.
    """

    name: str
    statistic: str
    metric: str | None = None
    of: str | None = None
    against: str | None = None
    comparison: Literal["difference", "relative difference"] = "difference"
    at_most: float

    def __call__(self, recorded: Recorded, roles: Roles) -> Estimate:
        """One number per run, or per seed how far two arms are apart, held against `at_most`. May be Untestable."""
        values = {}
        for seed in recorded.seeds(roles.values()):
            if self.against is None:
                for arm in roles.values() if self.of is None else [roles[self.of]]:
                    values[f"{arm}/s{seed}"] = number(recorded, arm, seed, self.statistic, self.metric)
            else:
                apart = self._apart(recorded, roles, seed)
                if len(apart):
                    values[f"s{seed}"] = float(apart.max())
        if not values:  # no response had an advantage
            where = "mini-batch" if self.statistic == "first update" else "rollout batch"
            raise Untestable(f"no response of any seed's first {where} had an advantage: the gradients compared are 0")
        what = f"at most {self.at_most:g}" if self.at_most else "exactly 0"
        return exact(self.name, values, self.at_most, what=what)

    def _apart(self, recorded: Recorded, roles: Roles, seed: int) -> "Series[float]":
        """The difference by minibatch. Untestable where the arms split their rollout batches otherwise."""
        found = []
        split = {recorded.settings[roles[role]].update.minibatches for role in (self.of or "", self.against or "")}
        if len(split) > 1:
            shown = " and ".join(map(str, sorted(split)))
            raise Untestable(
                f"rollout batches are split into {shown} mini-batches: the first update is of other responses"
            )
        for role in (self.of or "", self.against or ""):
            rows = recorded.of(roles[role], seed, "updates", self.metric or "")
            first = rows[(rows["step"] == 0) & ((rows["minibatch"] == 0) | (self.statistic != "first update"))]
            found.append(first.set_index("minibatch")[self.metric])
        a, b = found[0].align(found[1], join="inner")
        if self.comparison == "difference":
            return (a - b).abs()
        larger = a.where(a > b, b)
        return ((a - b).abs() / larger)[larger > 0]


def region(bounds: Mapping[str, Any], own: Mapping[str, float | None]) -> Region | None:
    """Of `above`, `below` or `inside`; a bound may be the name of one of the study's `own`, None where the study has
    none."""
    inside = bounds.get("inside")
    if isinstance(inside, str):
        reach = own[inside]
        return None if reach is None else Region(-reach, reach)
    named = inside or (bounds.get("above"), bounds.get("below"))
    low, high = (own[bound] if isinstance(bound, str) else bound for bound in named)
    undeclared = any(isinstance(bound, str) and own[bound] is None for bound in named)
    return None if undeclared else Region(low, high)


def all_of(parts: Sequence[Read], also: Sequence[Read] = (), notes: Sequence[str] = ()) -> Evaluate:
    """A claim that needs all of its parts; what `also` and `notes` say beside them decides nothing."""

    def evaluate(recorded: Recorded, roles: Roles) -> Estimates:
        read, beside = (tuple(one(recorded, roles) for one in some) for some in (parts, also))
        return Estimates(read, beside, tuple(notes))

    return evaluate


def from_table(table: ClaimTable) -> Claim:
    """The claim of a `[[claim]]` table that names a metric; the table has passed the study's own checks."""
    metric, statistic = table.metric, table.statistic
    assert metric is not None
    assert statistic is not None
    assert table.comparison is not None
    bounds: dict[str, Any] = {"above": table.above, "below": table.below, "inside": table.inside}
    expected = region(bounds, {})
    assert expected is not None
    row = Expectation(metric=metric, statistic=statistic, of=OF, against=AGAINST, comparison=table.comparison, **bounds)
    named = FIGURES.get(metric, f"m-{metric.replace('_', '-')}")
    recorded = {*UpdateRecord.__dataclass_fields__, *StepRecord.__dataclass_fields__}
    return Claim(
        id=table.name,
        grade="C",
        statement=f"{metric}, {statistic}: the {table.comparison} of the two arms lies {expected}.",
        source=table.source or "this study",
        value="its own expectation",
        criterion=f"{expected}; contradicted {' or '.join(str(region) for region in expected.outside)}",
        roles=(OF, AGAINST),
        needs=(NEEDS["3 seeds"],),
        evaluate=all_of([row]),
        figure=named if metric in recorded else "scores",
    )
