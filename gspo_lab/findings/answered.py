"""The graded answers of a study's arms, and what finitely many of them leave uncertain."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gspo_lab.findings.asked import Asked, asked
from gspo_lab.findings.noise import Graded, graded, variance_of_answers
from gspo_lab.readings import Source, once
from gspo_lab.stats.two_way import items_variance
from gspo_lab.store.answers import grades

if TYPE_CHECKING:
    from pandas import DataFrame


def answered(
    of: Source,
    benchmark: Asked,
    arms: Sequence[str],
    seeds: Sequence[int] | None = None,
    *,
    counted_wrong: bool = False,
) -> dict[str, Graded]:
    """Per arm the graded answers to a benchmark, over the problems that all runs of these arms and seeds (None:
    all) answered; those that could not be graded are left out, or `counted_wrong`."""
    frame = _grades(of, benchmark)
    chosen = frame if seeds is None else frame[frame["seed"].isin(seeds)]
    chosen = chosen.fillna({"correct": 0.0}) if counted_wrong else chosen
    return graded(chosen, arms, len(benchmark.steps))


@once
def _grades(of: Source, benchmark: Asked) -> "DataFrame":
    return grades(of.evidence, of.study, benchmark.bench, benchmark.steps, benchmark.evaluation)


def in_training(of: Source, bench: str | None) -> Asked | None:
    """A benchmark as it was asked while training; None where no finished run answered it."""
    return next((one for one in asked(of) if one.bench == bench and not one.evaluation), None)


def answers_variance(
    of: Source,
    first: str,
    second: str,
    seeds: Sequence[int],
    *,
    bench: str | None = None,
    counted_wrong: bool = False,
) -> float | None:
    """What finitely many answers alone would vary in the difference of one pair of these arms' runs, in the final score
    of a benchmark (None: the primary one), answers without a grade left out or `counted_wrong`; None where their
    answers are not stored."""
    benchmark = in_training(of, bench or of.declaration.primary)
    blocks = {} if benchmark is None else answered(of, benchmark, (first, second), seeds, counted_wrong=counted_wrong)
    return variance_of_answers(blocks[first], blocks[second]) if {first, second} <= blocks.keys() else None


def contrast_variance(
    of: Source, weights: Mapping[str, float], seeds: Sequence[int], *, counted_wrong: bool = False
) -> float | None:
    """The same of a weighted sum of these arms' runs of one seed, in the primary score."""
    benchmark = in_training(of, of.declaration.primary)
    blocks = {} if benchmark is None else answered(of, benchmark, list(weights), seeds, counted_wrong=counted_wrong)
    if not weights.keys() <= blocks.keys() or any(list(blocks[arm].seeds) != list(seeds) for arm in weights):
        return None
    return items_variance(sum(weight * blocks[arm].rate_SI for arm, weight in weights.items()))
