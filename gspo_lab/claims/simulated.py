"""Simulated studies for the rule that gives claims their words (`over_seeds`, `weigh`, Holm), for `calibrate`."""

from functools import partial

from numpy.random import Generator

from gspo_lab.claims.estimates import Region, over_seeds, weigh
from gspo_lab.stats import holm
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.cells import Cell, Conclusion, Method
from gspo_lab.stats.simulate import NOISE, UNEVEN, several


def _any_word(a_S: Floats, b_MS: Floats, alpha: float, rng: Generator) -> Conclusion:
    """Of M claims "this arm ends above the baseline", declared together, whether any is supported or contradicted."""
    differences = [dict(enumerate((b_S - a_S).tolist())) for b_S in b_MS]
    p_values = [weigh((over_seeds("difference", d, Region(above=0.0), alpha=alpha),))[1] for d in differences]
    return Conclusion(any(p is not None and p < alpha for p in holm(p_values, len(p_values))), None)


EVEN = Method("4 claims, any with a word, Holm", _any_word, "at most the band")
STATED = Method("4 claims, any with a word, means equal", _any_word, "stated")

CLAIM_CELLS = tuple(
    Cell(f"4 claims, {name}", n, partial(several, arms=4, seeds=n, noise=noise), (method,))
    for name, noise, method in (
        ("normal", NOISE["normal"], EVEN),
        *((name, noise, STATED) for name, noise in UNEVEN.items()),
    )
    for n in (3, 5, 8)
)
