"""How far two arms lie apart: one rule for every number that is compared."""

from collections.abc import Collection, Mapping

from gspo_lab.readings.source import Source
from gspo_lab.stats import paired_t
from gspo_lab.stats.paired import PairedT


def apart(
    of: Source,
    values: Mapping[tuple[str, int], float],
    first: str,
    second: str,
    seeds: Collection[int],
    *,
    answers: float | None = None,
) -> PairedT:
    """`second` minus `first`, paired by seed, of a number per (arm, seed), at the study's own `verdict.alpha`.

    `answers` is what finitely many answers alone would vary in one pair: it goes in wherever the number is a score
    whose answers are stored (`readings.answers.answers_variance`)."""
    both = [seed for seed in seeds if (first, seed) in values and (second, seed) in values]
    pairs = [(values[first, seed], values[second, seed]) for seed in both]
    scale = max((abs(value) for pair in pairs for value in pair), default=0.0)
    alpha = of.declaration.verdict.alpha
    return paired_t([b - a for a, b in pairs], alpha, scale=scale, items_variance=answers)
