"""What no row of the library says: C04, C05, C09, C14, C15, C26, and parts of C12 and C13."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.claims.estimates import (
    Estimate,
    Estimates,
    Region,
    Untestable,
    condition,
    not_recorded,
)
from gspo_lab.analysis.claims.preconditions import Roles
from gspo_lab.analysis.findings.clip_fractions import active_share, saturated
from gspo_lab.analysis.readings import (
    Minibatch,
    Reading,
    Reduce,
    Steps,
    Window,
    average,
    by_layer,
    pooled,
)
from gspo_lab.analysis.readings.curves import band_counts
from gspo_lab.analysis.readings.reading import CLIP_EVERYWHERE
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.curve_summaries import (
    LEAST_POINTS,
    ScalingFit,
    fit_scaling,
    normalised_auc,
    time_to_threshold,
)
from gspo_lab.common.reason import Reason

PAIR = ("grpo", "gspo")
LEVEL = 10.0
"""The gap between the rules' clip fractions: one order of magnitude at least."""
DEEP = 48
"""Layers of the model whose 10 % of changed experts the paper reports."""
AGREEMENT = 1.4
"""Within this factor of 1/sqrt(L) the spread of a response's mean counts as that of independent
tokens.
"""


def clip_gap(data: ClaimData, roles: Roles) -> Estimates:
    """The clip fraction cf of each arm's own rule and range, token-weighted over all settled
    updates, GSPO / GRPO.
    """
    ratios = {}
    floors = []
    for seed in data.seeds(roles.values()):
        shares = (data.value(CLIP_EVERYWHERE, roles[role], seed) for role in PAIR)
        (grpo, grpo_tokens), (gspo, gspo_tokens) = (
            (round(share.total), share.weight) for share in shares
        )
        if grpo == gspo == 0:
            raise Untestable("nothing-clipped", f"neither arm clipped a token at seed {seed}")
        floors += [] if grpo else [seed]
        ratios[seed] = (max(gspo, 1) / gspo_tokens) / (max(grpo, 1) / grpo_tokens)
    reasons = [
        _ceiling(data, arm) for arm in (roles[role] for role in PAIR) if saturated(data.of, arm)
    ]
    if floors:
        text = (
            f"{roles['grpo']} clipped no token at seed {', '.join(map(str, floors))}: one token is"
            " assumed, so the ratio is a lower bound there"
        )
        reasons.append(Reason("lower-bound", text))
    gap = data.over_seeds(
        "cf GSPO / cf GRPO", ratios, Region(above=LEVEL), () if floors else None, ratio=True
    )
    published = data.over_seeds(
        "cf GSPO / cf GRPO, as published", ratios, Region(30, 1000), ratio=True
    )
    return Estimates((gap,), () if floors else (published,), tuple(reasons))


def _ceiling(data: ClaimData, arm: str) -> Reason:
    share = active_share(data.of, arm) or 0.0
    text = (
        f"{arm} is saturated: it clips {share:.3f} of the active tokens on mini-batches >= 1, so"
        " its cf is a ceiling and the ratio measures the other arm's"
    )
    return Reason("ceiling", text)


def gap_on_the_grid(data: ClaimData, roles: Roles) -> Estimates:
    """Both ranges x {1/4 .. 4} on the batches of both arms: the ratio that 80 % of the 25 cells
    reach, and half.

    A count of 0 stands as one token. A cell in which neither rule would clip counts as LEVEL: it is
    on neither side.
    """
    most: dict[int, float] = {}
    half: dict[int, float] = {}
    for seed in data.seeds(roles.values()):
        both: dict[str, Floats] = {}
        for role in PAIR:
            counts, _ = band_counts(data.of, data.run(roles[role], seed))
            if not counts:
                raise not_recorded("band_counts", roles[role], seed)
            both = {rule: counts[rule] + both.get(rule, 0) for rule in PAIR}
        cells = [(high, low) for high in both["gspo"] for low in both["grpo"]]
        ratios = sorted(max(high, 1) / max(low, 1) if high or low else LEVEL for high, low in cells)
        most[seed], half[seed] = float(ratios[len(ratios) // 5]), float(ratios[len(ratios) // 2])
    above = Region(above=LEVEL)
    name = "cf GSPO / cf GRPO that {} of the cells reach"
    return Estimates(
        (
            data.over_seeds(name.format("80 %"), most, above, (), ratio=True),
            data.over_seeds(name.format("half"), half, above, ratio=True),
        )
    )


def expert_change(data: ClaimData, roles: Roles) -> Estimates:
    """Share of the natural experts that one update changes (mini-batch 1), and its slope over the
    layers.
    """
    arm = roles["grpo"]
    one_update = Reading("expert_change", Window(minibatch=Minibatch.SECOND))
    last_update = Reading("expert_change", Window(minibatch=Minibatch.FINAL))
    after_one = {}
    last = {}
    slope = {}
    layers = 0
    for seed in data.seeds(roles.values()):
        after_one[seed] = data.number(one_update, arm, seed)
        last[seed] = data.number(last_update, arm, seed)
        changes = _by_layer(data, replace(one_update, metric="expert_change_layers"), arm, seed)
        layers = len(changes)
        slope[seed] = float(np.polyfit(np.arange(layers), changes, 1)[0]) if layers > 1 else 0.0
    above = Region(above=0)
    parts = [data.over_seeds("expert change after one update", after_one, above)]
    text = "one learning rate per arm: whether it rises with the learning rate is not judged"
    reasons = [Reason("one-learning-rate", text)]
    if layers > 1:
        parts.append(data.over_seeds("its slope over the layers", slope, above))
    also = [data.over_seeds("expert change at the last mini-batch", last, above)]
    if layers >= DEEP:
        parts.append(
            data.over_seeds("its magnitude after one update", after_one, Region(0.05, 0.15))
        )
    else:
        text = (
            f"direction only: the magnitude .05 to .15 is not testable here, the model has {layers}"
            f" routed layers and about {DEEP} are needed"
        )
        reasons.insert(0, Reason("few-layers", text))
    return Estimates(tuple(parts), tuple(also), tuple(reasons))


def _by_layer(data: ClaimData, reading: Reading, arm: str, seed: int) -> list[float]:
    layers = by_layer(data.of, reading, range(data.settings(arm).steps)).get(
        data.run(arm, seed), ()
    )
    if not layers or None in layers:
        raise not_recorded(reading.metric, arm, seed)
    return [float(value or 0.0) for value in layers]


def gained_by_grpo_alone(data: ClaimData, roles: Roles) -> Estimate:
    """(GRPO's gain by replay) - (GSPO's gain by replay), in area under the reward."""
    area = Reading("reward_mean", Window(Steps.ALL), Reduce.AREA)
    values = {}
    for seed in data.seeds(roles.values()):
        of = {role: data.number(area, arm, seed) for role, arm in roles.items()}
        values[seed] = (of["grpo-replay"] - of["grpo"]) - (of["gspo-replay"] - of["gspo"])
    return data.over_seeds(
        "what replay gives GRPO more than GSPO, reward AUC", values, Region(above=0)
    )


def fewer_collapses(data: ClaimData, roles: Roles) -> Estimate:
    """Runs that collapsed with routing replay less those without, on the seeds that all arms
    have.
    """
    pairs = data.seeds(roles.values())
    without = sum(data.stability(roles["grpo"], seed).collapse is not None for seed in pairs)
    replayed = sum(
        data.stability(roles["grpo-replay"], seed).collapse is not None for seed in pairs
    )
    text = (
        f"{replayed} of {len(pairs)} runs collapsed with replay, {without} of {len(pairs)} without"
    )
    counts = Reason("collapses", text)
    fewer = float(replayed - without)
    return condition(
        "collapses, with replay - without", fewer < 0, n=len(pairs), reason=counts, estimate=fewer
    )


def tolerates_precision(data: ClaimData, roles: Roles) -> Estimates:
    """The spread of a response's mean mismatch against independent tokens', and the clips that the
    other program's old log-probs would change, both rules on the same batches of both arms."""
    of_means, alone = (
        Reading(f"mismatch_std_{kind}", Window(Steps.ALL)) for kind in ("responses", "independent")
    )
    spread: dict[int, float] = {}
    flips: dict[str, dict[int, float]] = {rule: {} for rule in PAIR}
    for seed in data.seeds(roles.values()):
        ratios = [
            data.number(of_means, arm, seed) / data.number(alone, arm, seed)
            for arm in roles.values()
        ]
        spread[seed] = average(ratios) or 0.0
        for rule, by_seed in flips.items():
            shares = [
                data.value(Reading(f"flip_fraction_tokens_{rule}"), arm, seed)
                for arm in roles.values()
            ]
            by_seed[seed] = (
                pooled(*np.transpose([[share.value, share.weight] for share in shares])).value
                or 0.0
            )
    fewer = {seed: flips["gspo"][seed] - flips["grpo"][seed] for seed in spread}
    independent = "spread of a response's mean mismatch / that of independent tokens"
    changed = "share of tokens whose clip the other's log-probs change, GSPO - GRPO"
    above = Region(above=0)
    return Estimates(
        (
            data.over_seeds(independent, spread, Region(1 / AGREEMENT, AGREEMENT), (), ratio=True),
            data.over_seeds(changed, fewer, Region(below=0)),
        ),
        also=tuple(
            data.over_seeds(f"that share under {rule.upper()}", of, above)
            for rule, of in flips.items()
        ),
    )


def more_efficient(data: ClaimData, roles: Roles) -> Estimates:
    """Area under the primary score against prompts, and the prompts until half of the common gain
    is made.
    """
    pairs = data.seeds(roles.values())
    totals = {"prompts": "prompts_total", "tokens": "tokens_sampled_total", "FLOPs": "flops_total"}
    curves = {
        axis: {seed: [_curve(data, roles[role], seed, total) for role in PAIR] for seed in pairs}
        for axis, total in totals.items()
    }
    area = {
        axis: {seed: _area_gained(*both) for seed, both in by_seed.items()}
        for axis, by_seed in curves.items()
    }
    start = average(y[0] for both in curves["prompts"].values() for _, y in both) or 0.0
    finals = [average(data.final(roles[role], seed) for seed in pairs) or 0.0 for role in PAIR]
    threshold = start + 0.5 * (min(finals) - start)
    grpo, gspo = (
        average(time_to_threshold(x, y, threshold, float(x[-1])) for x, y in runs) or 0.0
        for runs in zip(*curves["prompts"].values(), strict=True)
    )
    margin = data.verdict.margin
    above = Region(above=0)
    first = data.over_seeds("AUC of the score against prompts, GSPO - GRPO", area["prompts"], above)
    within = first.interval is not None and Region(-margin, margin).contains(*first.interval)
    later = condition(
        f"prompts to a score of {threshold:.3g}, GSPO - GRPO",
        gspo <= grpo,
        n=len(pairs),
        reason=Reason(
            "prompts-needed",
            f"mean over seeds: {gspo:.4g} against {grpo:.4g} prompts (half of the common gain)",
        ),
        estimate=gspo - grpo,
    )
    also = [
        data.over_seeds(f"the same against {axis}", area[axis], above)
        for axis in ("tokens", "FLOPs")
    ]
    text = f"equivalent within the margin: the whole interval lies inside the margin ±{margin:g}"
    reasons = (Reason("within-margin", text),) if within else ()
    return Estimates((first, later), tuple(also), reasons)


def moves_efficiency(data: ClaimData, roles: Roles) -> Estimates:
    """The difference of the fitted asymptotes of the primary score against FLOPs, and the ratio of
    the midpoints.

    Beside them are the asymptote and exponent of both arms. Every other arm has its asymptote and
    its midpoint's ratio to GRPO's, on the seeds whose curve can be fitted.
    """
    seeds = data.seeds(roles.values())
    fits = {arm: {seed: _fitted(data, arm, seed) for seed in seeds} for arm in roles.values()}
    for arm in data.of.declaration.arms:
        if arm not in fits:
            fits[arm] = {}
            for seed in data.seeds([*roles.values(), arm]):
                with suppress(Untestable):
                    fits[arm][seed] = _fitted(data, arm, seed)

    def of(arm: str, name: str) -> dict[int, float]:
        return {seed: getattr(fit, name) for seed, fit in fits[arm].items()}

    grpo, gspo = (roles[role] for role in PAIR)
    first = of(grpo, "midpoint")
    later = {
        arm: {seed: mid / first[seed] for seed, mid in of(arm, "midpoint").items()} for arm in fits
    }
    apart = {
        seed: value - of(grpo, "asymptote")[seed] for seed, value in of(gspo, "asymptote").items()
    }
    also = [
        data.over_seeds("FLOPs until half of the gain, GSPO / GRPO", later[gspo], None, ratio=True),
        *(
            data.over_seeds(f"asymptote of {arm}", of(arm, "asymptote"), None)
            for arm in (grpo, gspo)
        ),
        *(
            data.over_seeds(f"exponent of {arm}", of(arm, "exponent"), None, ratio=True)
            for arm in (grpo, gspo)
        ),
    ]
    for arm in [arm for arm in fits if arm not in roles.values() and fits[arm]]:
        also.append(data.over_seeds(f"asymptote of {arm}", of(arm, "asymptote"), None))
        also.append(
            data.over_seeds(
                f"FLOPs until half of the gain, {arm} / {grpo}", later[arm], None, ratio=True
            )
        )
    within = Region(-data.verdict.margin, data.verdict.margin)
    return Estimates(
        (data.over_seeds("asymptote of the score, GSPO - GRPO", apart, within),), tuple(also)
    )


def _fitted(data: ClaimData, arm: str, seed: int) -> ScalingFit:
    fit = fit_scaling(*_curve(data, arm, seed, "flops_total"))
    if fit is None:
        steps, _ = data.scores(arm, seed)
        text = (
            f"{arm}, seed {seed}: {len(steps) - 1} evaluations after the start show too little of"
            f" the curve for an asymptote; {LEAST_POINTS} are needed, the last of them near its end"
        )
        raise Untestable("too-short-to-fit", text)
    return fit


def _curve(data: ClaimData, arm: str, seed: int, total: str) -> tuple[Floats, Floats]:
    """The primary score of a run against what it had consumed when it was evaluated."""
    steps, scores = data.scores(arm, seed)
    totals = data.curve(Reading(total, Window(Steps.ALL)), arm, seed)
    spent = {-1: 0.0, **dict(zip(totals.steps, totals.values, strict=True))}
    return np.asarray([spent[step - 1] for step in steps]), scores


def _area_gained(grpo: tuple[Floats, Floats], gspo: tuple[Floats, Floats]) -> float:
    """GSPO's normalised area minus GRPO's, up to where the smaller budget is spent."""
    end = min(x[-1] for x, _ in (grpo, gspo))
    areas = [
        normalised_auc([*x[x < end], end], [*y[x < end], float(np.interp(end, x, y))])
        for x, y in (gspo, grpo)
    ]
    return areas[0] - areas[1]
