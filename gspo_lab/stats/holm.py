"""Several secondary results at once: Holm's step-down adjustment."""

from collections.abc import Sequence

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
