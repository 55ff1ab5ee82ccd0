"""Problem by problem: where the noise of a difference comes from, and which problems changed sides."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gspo_lab.stats import PairedT, TwoWay, paired_t, two_way
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.two_way import items_variance

if TYPE_CHECKING:
    import pandas as pd

SEED, PROBLEM, SAMPLING, INTERPLAY = "training seed", "problems", "sampling", "seed × problem"
UNSPLIT = "sampling, seed × problem"
"""With one answer per problem the two cannot be told apart."""


@dataclass(frozen=True)
class Graded:
    """One arm's graded answers to the problems that all compared runs answered.

    1 right, 0 wrong, NaN not graded; S seeds, E evaluations, I problems, K answers to each.
    """

    seeds: tuple[int, ...]
    problems: tuple[str, ...]
    grade_SEIK: Floats

    def of(self, seeds: Sequence[int]) -> "Graded":
        """Of these seeds alone."""
        return Graded(tuple(seeds), self.problems, self.grade_SEIK[[self.seeds.index(seed) for seed in seeds]])

    @property
    def answers_SEI(self) -> Floats:
        """How many answers were graded."""
        counts: Floats = np.isfinite(self.grade_SEIK).sum(axis=-1, dtype=np.float64)
        return counts

    @property
    def correct_SEI(self) -> Floats:
        """How many of them are right."""
        right: Floats = np.nansum(self.grade_SEIK, axis=-1)
        return right

    @property
    def rate_SI(self) -> Floats:
        """Share of right answers, the evaluations averaged."""
        mean: Floats = (self.correct_SEI / self.answers_SEI).mean(axis=1)
        return mean

    @property
    def samples(self) -> int:
        """Answers per problem and evaluation; the fewest where they differ."""
        return int(self.answers_SEI.min())


def sampling_variance(first: Graded, second: Graded) -> float | None:
    """Of the mean of `second` minus `first` over their seeds and problems; None where no problem has two answers.

    The same answer of a seed and problem shares its random numbers over arms and evaluations, other answers do not. So
    answer k counts as one draw, z_k = mean over evaluations of second minus first, and var_k(z) / K is the variance of
    a cell. An answer that was not graded once is left out of its cell, and a cell without two from the mean.
    """
    z_SIK = (second.grade_SEIK - first.grade_SEIK).mean(axis=1)
    answers_SI = np.isfinite(z_SIK).sum(axis=-1)
    several = answers_SI > 1
    if not several.any():
        return None
    cells = np.nanvar(z_SIK[several], axis=-1, ddof=1) / answers_SI[several]
    return float(cells.mean() / answers_SI.size)


def graded(frame: "pd.DataFrame", arms: Sequence[str], steps: int) -> dict[str, Graded]:
    """Per arm its runs as one block, over the problems of which every run has a grade in all of `steps` evaluations.

    `frame` is that of `store.answers.grades`. Arms without any run that was evaluated so often are left out.
    """
    known = frame[frame["correct"].notna() & frame["arm"].isin(arms)]
    found: dict[str, dict[int, pd.DataFrame]] = {}
    for (arm, seed), own in known.groupby(["arm", "seed"], sort=True):
        if own["step"].nunique() == steps:
            found.setdefault(str(arm), {})[int(str(seed))] = own
    counts = [own.groupby("problem")["step"].nunique() for seeds in found.values() for own in seeds.values()]
    common = set.intersection(*({str(p) for p, n in one.items() if n == steps} for one in counts)) if counts else set()
    if not common:
        return {}
    problems = tuple(sorted(common))
    samples = int(known["sample"].max()) + 1

    def block(runs: Collection["pd.DataFrame"]) -> Floats:
        grade_SEIK = np.full((len(runs), steps, len(problems), samples), np.nan)
        for grade_EIK, own in zip(grade_SEIK, runs, strict=True):
            asked = own[own["problem"].isin(common)]
            step, problem = (np.unique(asked[name], return_inverse=True)[1] for name in ("step", "problem"))
            grade_EIK[step, problem, asked["sample"].to_numpy()] = asked["correct"]
        return grade_SEIK

    return {
        arm: Graded(tuple(seeds), problems, block(seeds.values()))
        for arm, seeds in ((arm, found[arm]) for arm in arms if arm in found)
    }


@dataclass(frozen=True)
class Noise:
    """A difference on these problems and on new ones too, and the share of its variance that each source brings."""

    arm: str
    over_seeds: PairedT
    crossed: TwoWay
    shares: dict[str, float]


def noise(first: Graded, second: Graded, arm: str, alpha: float) -> Noise | None:
    """Of `second` minus `first`, over the seeds that both have; None without such a seed."""
    both = [seed for seed in first.seeds if seed in second.seeds]
    if not both:
        return None
    first, second = first.of(both), second.of(both)
    a, b = first.rate_SI, second.rate_SI
    scale = float(max(a.max(), b.max()))
    over_seeds, crossed = paired_t((b - a).mean(axis=1), alpha, scale=scale), two_way(b - a, alpha, scale=scale)
    parts = (crossed.var_seeds, crossed.var_items, crossed.var_residual)
    if any(part is None for part in parts):
        return Noise(arm, over_seeds, crossed, {})
    seeds, items, rest = (float(part or 0.0) for part in parts)
    split = {SEED: max(0.0, seeds - rest), PROBLEM: max(0.0, items - rest)}
    drawn = sampling_variance(first, second)
    if drawn is None:
        split[UNSPLIT] = rest
    else:
        sampling = min(rest, drawn)
        split |= {SAMPLING: sampling, INTERPLAY: rest - sampling}
    total = sum(split.values())
    return Noise(arm, over_seeds, crossed, {name: part / total for name, part in split.items()} if total else {})


def answers_variance(first: Graded, second: Graded) -> float | None:
    """Of one pair's difference, by finitely many answers alone, over the seeds that both have; None: not known."""
    both = [seed for seed in first.seeds if seed in second.seeds]
    return items_variance(second.of(both).rate_SI - first.of(both).rate_SI) if both else None


@dataclass(frozen=True)
class Flips:
    """How many problems each of two runs with one seed gets right, at the last evaluation."""

    arm: str
    seed: int
    both: int
    only_first: int
    only_second: int
    neither: int


def flips(first: Graded, second: Graded, arm: str) -> list[Flips]:
    """Seed by seed. A problem counts as right if at least half of its answers are."""
    out = []
    for seed in first.seeds:
        if seed in second.seeds:
            a, b = (_right(one, seed) for one in (first, second))
            counts = (int(one.sum()) for one in (a & b, a & ~b, ~a & b, ~a & ~b))
            out.append(Flips(arm, seed, *counts))
    return out


def _right(one: Graded, seed: int) -> NDArray[np.bool_]:
    place = one.seeds.index(seed)
    right: NDArray[np.bool_] = one.correct_SEI[place, -1] * 2 >= one.answers_SEI[place, -1]
    return right
