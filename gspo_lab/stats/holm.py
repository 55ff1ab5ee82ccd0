"""Several results at once: Holm's step-down, as adjusted p-values and as the level at which each was tested."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gspo_lab.errors import LabError


def holm(p_values: Sequence[float | None], family: int | None = None) -> list[float | None]:
    """Adjusted p in the order given: sorted, p_(j) becomes max over i <= j of min(1, (m - i + 1) p_(i)) (Holm 1979).

    None (nothing could be tested) stays None. m is `family`, the number of tests declared before the run, and
    without it the number of p-values that are there.
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    if any(not 0 <= p <= 1 for p, _ in tested):
        raise LabError(f"Holm: a p-value lies between 0 and 1; given {[p for p, _ in tested]}")
    size = len(tested) if family is None else family
    if size < len(tested):
        raise LabError(f"Holm: {len(tested)} p-values in a family of {size}; declare the whole family")
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(tested):
        highest = max(highest, min(1.0, (size - rank) * p))
        adjusted[place] = highest
    return adjusted


class Step(NamedTuple):
    """Whether a hypothesis was rejected, and at which level it was tested."""

    rejected: bool
    level: float


def fixed_sequence(p_values: Sequence[float | None], order: Sequence[int], level: float) -> list[Step]:
    """Each hypothesis in the declared `order` (places) at the whole level, until one is not rejected (Maurer, Hothorn
    and Lehmacher 1995): the chance of any false rejection is at most `level`."""
    rejected, going = set(), True
    for place in order:
        p = p_values[place]
        going = going and p is not None and p < level
        rejected |= {place} if going else set()
    return [Step(place in rejected, level) for place in range(len(p_values))]


def step_down(
    p_values: Sequence[float | None], alpha: float, level: Callable[[float], float] = lambda alpha: alpha
) -> list[Step]:
    """Holm's decisions in the order given: the k-th smallest of m p-values is held against level(alpha / (m - k + 1)).

    The first that is not below its level ends the rejections; it and all later ones were tested there. None (nothing
    could be tested) counts in m and is never rejected. `level` spends its argument over looks at growing data.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    rejected: dict[int, Step] = {}
    for p, place in order:
        own = level(alpha / (len(p_values) - len(rejected)))
        if p >= own:
            break
        rejected[place] = Step(True, own)
    last = Step(False, level(alpha / max(1, len(p_values) - len(rejected))))
    return [rejected.get(place, last) for place in range(len(p_values))]
