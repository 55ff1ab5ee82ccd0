"""Problem by problem: where the noise of a difference comes from, and which problems changed sides."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gspo_lab.stats import PairedT, TwoWay, paired_t, two_way
from gspo_lab.stats.array_checks import Floats
from gspo_lab.stats.crossed_random_effects import items_variance
from gspo_lab.stats.passk import pass_at_k

if TYPE_CHECKING:
    import pandas as pd

SEED, PROBLEM, SAMPLING, INTERPLAY = "training seed", "problems", "sampling", "seed × problem"
UNSPLIT = "sampling, seed × problem"
"""With one answer per problem the two cannot be told apart."""


@dataclass(frozen=True)
class GradedAnswers:
    """One arm's graded answers to the problems that all compared runs answered.

    1 right, 0 wrong, NaN not graded; S seeds, E evaluations, I problems, K answers to each. `k` of pass@k.
    """

    seeds: tuple[int, ...]
    problems: tuple[str, ...]
    grade_SEIK: Floats
    k: int = 1

    def of(self, seeds: Sequence[int]) -> "GradedAnswers":
        """Of these seeds alone."""
        places = [self.seeds.index(seed) for seed in seeds]
        return replace(self, seeds=tuple(seeds), grade_SEIK=self.grade_SEIK[places])

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
        """Share of right answers, or pass@k, the evaluations averaged."""
        of_cell = self.correct_SEI / self.answers_SEI
        if self.k > 1:
            of_cell = pass_at_k(self.correct_SEI.ravel(), self.answers_SEI.ravel(), self.k).reshape(of_cell.shape)
        mean: Floats = of_cell.mean(axis=1)
        return mean

    @property
    def score_S(self) -> Floats:
        """The score of each seed's run: the mean over problems."""
        mean: Floats = self.rate_SI.mean(axis=1)
        return mean

    @property
    def samples(self) -> int:
        """Answers per problem and evaluation; the fewest where they differ."""
        return int(self.answers_SEI.min())


def sampling_variance(first: GradedAnswers, second: GradedAnswers) -> float | None:
    """Of the mean of `second` minus `first` over their seeds and problems; None of pass@k, or without two answers.

    The same answer of a seed and problem shares its random numbers over arms and evaluations, other answers do not. So
    answer k counts as one draw, z_k = mean over evaluations of second minus first, and var_k(z) / K is the variance of
    a cell. An answer that was not graded once is left out of its cell, and a cell without two from the mean.
    """
    if first.k > 1:
        return None
    z_SIK = (second.grade_SEIK - first.grade_SEIK).mean(axis=1)
    answers_SI = np.isfinite(z_SIK).sum(axis=-1)
    several = answers_SI > 1
    if not several.any():
        return None
    cells = np.nanvar(z_SIK[several], axis=-1, ddof=1) / answers_SI[several]
    return float(cells.mean() / answers_SI.size)


def graded(frame: "pd.DataFrame", arms: Sequence[str], steps: int, k: int = 1) -> dict[str, GradedAnswers]:
    """Per arm its runs as one block, over the problems of which every run has k grades in all of `steps` evaluations.

    `frame` is that of `store.answers.grades`. Arms without any run that was evaluated so often are left out.
    """
    known = frame[frame["correct"].notna() & frame["arm"].isin(arms)]
    if known.empty:
        return {}
    runs, run_of = _numbered(zip(known["arm"], known["seed"], strict=True))
    problems, problem_of = _numbered(known["problem"])
    moments, moment_of = _numbered(zip(run_of.tolist(), known["step"], strict=True))
    # How many evaluations each run has, and of each row the place of its own among them.
    evaluations = np.bincount([run for run, _ in moments], minlength=len(runs))
    step_of = moment_of - (evaluations.cumsum() - evaluations)[run_of]
    complete = evaluations == steps
    grades = np.zeros((len(runs), max(evaluations, default=0), len(problems)), dtype=np.intp)
    np.add.at(grades, (run_of, step_of, problem_of), 1)
    common = ((grades >= k).sum(axis=1)[complete] == steps).all(axis=0) & complete.any()
    if not common.any():
        return {}
    grade_REIK = np.full((len(runs), steps, len(problems), int(known["sample"].max()) + 1), np.nan)
    row = complete[run_of] & common[problem_of]
    index = (run_of[row], step_of[row], problem_of[row], known["sample"].to_numpy()[row])
    grade_REIK[index] = known["correct"].to_numpy(dtype=float)[row]
    names = tuple(str(problem) for problem, shared in zip(problems, common, strict=True) if shared)
    out = {}
    for arm in arms:
        places = [place for place, (of, _) in enumerate(runs) if of == arm and complete[place]]
        if places:
            seeds = tuple(int(runs[place][1]) for place in places)
            out[arm] = GradedAnswers(seeds, names, grade_REIK[places][:, :, common], k)
    return out


def _numbered(values: Iterable[Any]) -> tuple[list[Any], NDArray[np.intp]]:
    """The distinct values, sorted, and the index of each entry among them."""
    listed = list(values)
    distinct = sorted(set(listed))
    place = {value: number for number, value in enumerate(distinct)}
    return distinct, np.array([place[value] for value in listed], dtype=np.intp)


@dataclass(frozen=True)
class VarianceComponents:
    """A difference on these problems and on new ones too, and the share of its variance that each source brings."""

    arm: str
    over_seeds: PairedT
    crossed: TwoWay
    shares: dict[str, float]


def noise(first: GradedAnswers, second: GradedAnswers, arm: str, alpha: float) -> VarianceComponents | None:
    """Of `second` minus `first`, over the seeds that both have; None without such a seed."""
    both = [seed for seed in first.seeds if seed in second.seeds]
    if not both:
        return None
    first, second = first.of(both), second.of(both)
    a, b = first.rate_SI, second.rate_SI
    scale = float(max(a.max(), b.max()))
    crossed = two_way(b - a, alpha, scale=scale)
    over_seeds = paired_t((b - a).mean(axis=1), alpha, scale=scale, items_variance=items_variance(b - a))
    parts = (crossed.var_seeds, crossed.var_items, crossed.var_residual)
    if any(part is None for part in parts):
        return VarianceComponents(arm, over_seeds, crossed, {})
    seeds, items, residual = (float(part or 0.0) for part in parts)
    split = {SEED: max(0.0, seeds - residual), PROBLEM: max(0.0, items - residual)}
    drawn = sampling_variance(first, second)
    if drawn is None:
        split[UNSPLIT] = residual
    else:
        sampling = min(residual, drawn)
        split |= {SAMPLING: sampling, INTERPLAY: residual - sampling}
    total = sum(split.values())
    return VarianceComponents(
        arm, over_seeds, crossed, {name: part / total for name, part in split.items()} if total else {}
    )


@dataclass(frozen=True)
class Flips:
    """How many problems each of two runs with one seed gets right, at the last evaluation."""

    arm: str
    seed: int
    both: int
    only_first: int
    only_second: int
    neither: int


def flips(first: GradedAnswers, second: GradedAnswers, arm: str) -> list[Flips]:
    """Seed by seed. A problem counts as right if at least half of its answers are."""
    out = []
    for seed in first.seeds:
        if seed in second.seeds:
            a, b = (_right(answers, seed) for answers in (first, second))
            counts = (int(correct.sum()) for correct in (a & b, a & ~b, ~a & b, ~a & ~b))
            out.append(Flips(arm, seed, *counts))
    return out


def _right(answers: GradedAnswers, seed: int) -> NDArray[np.bool_]:
    place = answers.seeds.index(seed)
    right: NDArray[np.bool_] = answers.correct_SEI[place, -1] * 2 >= answers.answers_SEI[place, -1]
    return right
