"""A declared contrast: weights over arms that sum to 0, so that one comparison uses every run of a
factorial design.

The rule averaged over replay is (gspo + gspo-replay) / 2 less (grpo + grpo-replay) / 2. A factor is
a set of settings whose values divide the weighted arms in the same way. A contrast is balanced if
it compares the values of one factor only: within each value of every other factor its weights sum
to 0. An interaction compares none.
"""

from collections.abc import Collection, Mapping

from gspo_lab.common.registry import unlisted
from gspo_lab.study.declaration import ArmsByName, Sweep
from gspo_lab.study.verdict_tables import VerdictTable

Weights = Mapping[str, float]
"""Arm -> its weight."""

ROUNDING = 1e-9
Levels = tuple[int, ...]
"""Per arm the index of its value of a factor, in the order in which the values first appear."""


def broken_contrast(
    verdict: VerdictTable, arms: ArmsByName, declared: Collection[str], swept: bool
) -> list[str]:
    """The mistake in `verdict.contrast` of a study that runs `arms`, out of those `declared` in its
    file.
    """
    weights = verdict.contrast
    names = verdict.names
    if names is not None and (
        weights is None or names[0] == names[1] or not all(map(str.strip, names))
    ):
        return [
            "verdict.names: two different names for the sides of verdict.contrast; declare both"
            " keys, or neither"
        ]
    if arm_twins := [name for name in names or () if name in declared]:
        return [
            f"verdict.names: '{arm_twins[0]}' is an arm; give the contrast's sides names of their"
            " own"
        ]
    if weights is None:
        return []
    key = "verdict.contrast"
    if verdict.question != "score" or swept:
        answer = "a sweep" if swept else f"question = {verdict.question!r}"
        return [
            f"{key}: a contrast is of final scores and answers question = 'score', not {answer};"
            " leave one of them out"
        ]
    for arm in weights:
        if arm not in declared:
            return [f"{key}: no arm {unlisted(arm, declared, 'this study has')}"]
        if arm not in arms:
            return [
                f"{key}: arm '{arm}' is declared and not run; add it to --arms, or leave the"
                " contrast out"
            ]
    if abs(sum(weights.values())) > ROUNDING or not any(weights.values()):
        total = sum(weights.values())
        return [
            f"{key}: the weights sum to {total:g}; let them sum to 0, e.g. half on each of two arms"
            " and minus half"
        ]
    compared = [
        (keys, levels) for levels, keys in factors({arm: arms[arm] for arm in weights}).items()
    ]
    unbalanced = [
        keys for keys, levels in compared if not _is_balanced(list(weights.values()), levels)
    ]
    if len(unbalanced) > 1:
        factor_names = " and ".join(f"'{keys[0]}'" for keys in unbalanced)
        return [
            f"{key}: unbalanced, it compares {factor_names} at once; weight every value of one of"
            " them to a sum of 0"
        ]
    return []


def broken_order(
    verdict: VerdictTable, arms: ArmsByName, declared: Collection[str], swept: bool
) -> list[str]:
    """The mistake in `verdict.order` of a study that runs `arms`, out of those `declared` in its
    file.
    """
    order = verdict.order
    key = "verdict.order"
    if order is None:
        return []
    if swept or verdict.contrast is not None:
        reason = (
            "a sweep has no arms to order"
            if swept
            else "a contrast is one comparison and has no order"
        )
        return [f"{key}: {reason}; leave one of them out"]
    baseline = verdict.baseline or next(iter(declared), None)
    for arm in order:
        if arm not in declared:
            return [f"{key}: no arm {unlisted(arm, declared, 'this study has')}"]
        if arm == baseline:
            return [f"{key}: '{arm}' is the baseline; name the arms that are compared with it"]
    missing = [arm for arm in arms if arm != baseline and arm not in order]
    if missing or len(set(order)) < len(order):
        mistake = f"'{missing[0]}' is missing" if missing else "an arm is named twice"
        return [f"{key}: {mistake}; name every arm but the baseline once"]
    return []


def broken_over(verdict: VerdictTable, sweep: Sweep | None, seeds: int) -> list[str]:
    """The mistake in `verdict.over`, which names the swept key."""
    if verdict.over is None:
        return []
    if sweep is None or sweep.key != verdict.over:
        swept = "nothing is swept" if sweep is None else f"the sweep is of {sweep.key}"
        example = f'"{verdict.over}" = [1e-4, 2e-4, 4e-4]'
        return [f"verdict.over: {swept}; give the values to compare over, [sweep] {example}"]
    if len(sweep.doses) < 3:
        return [f"verdict.over: {len(sweep.doses)} values show no peak; give three or more"]
    if seeds < 2:
        return ["verdict.over: one seed cannot choose a value for another; give two or more"]
    return []


def sides(weights: Weights) -> tuple[dict[str, float], dict[str, float]]:
    """The two weighted means that a contrast compares, negative weights first; each side's weights
    sum to 1.
    """
    size = sum(weight for weight in weights.values() if weight > 0)
    negative = {arm: -weight / size for arm, weight in weights.items() if weight < 0}
    return negative, {arm: weight / size for arm, weight in weights.items() if weight > 0}


def signed_sides(negative: Weights, positive: Weights) -> dict[str, float]:
    """The weights of the difference of two sides."""
    return {arm: -weight for arm, weight in negative.items()} | dict(positive)


def side_names(verdict: VerdictTable) -> tuple[str, str]:
    """The names of a contrast's two sides, the negative one first: as declared, else formulas."""
    if verdict.names is not None:
        return verdict.names[1], verdict.names[0]
    negative, positive = sides(verdict.contrast or {})
    return formula(negative), formula(positive)


def squared_weights(weights: Weights | None) -> float:
    """The variance of a contrast of independent arms, in units of one arm's variance; 2 for a pair
    (None).
    """
    if weights is None:
        return 2.0
    negative, positive = sides(weights)
    return sum(weight**2 for weight in (*negative.values(), *positive.values()))


def formula(side: Weights) -> str:
    """A weighted mean of arms in words: `(gspo + gspo-replay) / 2`."""
    if len(side) == 1:
        return next(iter(side))
    if max(side.values()) - min(side.values()) <= ROUNDING:
        return f"({' + '.join(side)}) / {len(side)}"
    return " + ".join(f"{weight:.3g} {arm}" for arm, weight in side.items())


def factors(arms: ArmsByName) -> dict[Levels, list[str]]:
    """The factors of these arms: levels by arm -> the settings with these levels."""
    resolved = [arm.flat_settings for arm in arms.values()]
    out: dict[Levels, list[str]] = {}
    for key in sorted(set().union(*resolved)):
        values = [repr(settings.get(key)) for settings in resolved]
        levels = tuple(list(dict.fromkeys(values)).index(value) for value in values)
        if any(levels):
            out.setdefault(levels, []).append(key)
    return out


def _is_balanced(weights: list[float], levels: Levels) -> bool:
    totals = dict.fromkeys(levels, 0.0)
    for weight, level in zip(weights, levels, strict=True):
        totals[level] += weight
    return all(abs(total) <= ROUNDING for total in totals.values())
