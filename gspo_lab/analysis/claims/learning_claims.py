"""The claims of the literature on what the rules learn: see library.py."""

from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from gspo_lab.analysis.claims.claim import claim
from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.claims.estimates import (
    Estimate,
    Estimates,
    Region,
    Untestable,
    condition,
)
from gspo_lab.analysis.claims.expectations import (
    final_score,
    mean_over_seeds,
)
from gspo_lab.analysis.claims.preconditions import (
    no_collapse,
    same_first_rollout,
    seeds,
    tuned_ranges,
    updates,
)
from gspo_lab.analysis.readings import (
    Reading,
    Steps,
    Window,
    average,
)
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.curve_summaries import (
    LEAST_POINTS,
    ScalingFit,
    fit_scaling,
    normalised_auc,
    time_to_threshold,
)
from gspo_lab.common.reason import Reason

ABOVE_0 = Region(above=0)


@claim(
    "C14-more-efficient",
    grade="C",
    source="2507.18071, Fig. 1",
    published="curves of one run per arm, without end figures",
    criterion="AUC of the score above, threshold no later; contradicted if the AUC is below",
    needs=(seeds(3), updates(2), tuned_ranges, same_first_rollout),
    figure="m-reward",
)
def more_efficient(data: ClaimData, grpo: str, gspo: str) -> Estimates:
    """GSPO learns more than GRPO from equal compute and equal queries.

    Area under the primary score against prompts, and the prompts until half of the common gain is
    made.
    """
    totals = {"prompts": "prompts_total", "tokens": "tokens_sampled_total", "FLOPs": "flops_total"}
    area = {
        axis: {seed: _area_gained(data, grpo, gspo, seed, total) for seed in data.seeds}
        for axis, total in totals.items()
    }
    name = "AUC of the score against prompts, GSPO - GRPO"
    of_prompts = data.over_seeds(name, area["prompts"], ABOVE_0)
    also = [
        data.over_seeds(f"the same against {axis}", area[axis], ABOVE_0)
        for axis in ("tokens", "FLOPs")
    ]
    margin = data.verdict.margin
    reasons = []
    if of_prompts.interval and Region(-margin, margin).contains(*of_prompts.interval):
        text = (
            f"equivalent within the margin: the whole interval lies inside the margin ±{margin:g}"
        )
        reasons.append(Reason("within-margin", text))
    return Estimates(
        (of_prompts, _prompts_to_half_the_gain(data, grpo, gspo)), tuple(also), tuple(reasons)
    )


def _prompts_to_half_the_gain(data: ClaimData, grpo: str, gspo: str) -> Estimate:
    curves = {
        arm: [_curve(data, arm, seed, "prompts_total") for seed in data.seeds]
        for arm in (grpo, gspo)
    }
    starts = []
    for of_seed in zip(*curves.values(), strict=True):
        starts += [scores[0] for _, scores in of_seed]
    start = average(starts) or 0.0
    finals = [average(data.final(arm, seed) for seed in data.seeds) or 0.0 for arm in curves]
    threshold = start + 0.5 * (min(finals) - start)
    prompts = {}
    for arm, of_arm in curves.items():
        reached = [
            time_to_threshold(spent, scores, threshold, float(spent[-1]))
            for spent, scores in of_arm
        ]
        prompts[arm] = average(reached) or 0.0
    text = (
        f"mean over seeds: {prompts[gspo]:.4g} against {prompts[grpo]:.4g} prompts (half of the"
        " common gain)"
    )
    return condition(
        f"prompts to a score of {threshold:.3g}, GSPO - GRPO",
        prompts[gspo] <= prompts[grpo],
        n=len(data.seeds),
        reason=Reason("prompts-needed", text),
        estimate=prompts[gspo] - prompts[grpo],
    )


def _curve(data: ClaimData, arm: str, seed: int, total: str) -> tuple[Floats, Floats]:
    """The primary score of a run against what it had consumed when it was evaluated."""
    steps, scores = data.scores(arm, seed)
    totals = data.curve(Reading(total, Window(Steps.ALL)), arm, seed)
    spent = {-1: 0.0, **dict(zip(totals.steps, totals.values, strict=True))}
    return np.asarray([spent[step - 1] for step in steps]), scores


def _area_gained(data: ClaimData, grpo: str, gspo: str, seed: int, total: str) -> float:
    """GSPO's normalised area minus GRPO's, up to where the smaller budget is spent."""
    curves = [_curve(data, arm, seed, total) for arm in (grpo, gspo)]
    end = min(spent[-1] for spent, _ in curves)
    areas = []
    for spent, scores in curves:
        within = spent < end
        at_end = float(np.interp(end, spent, scores))
        areas.append(normalised_auc([*spent[within], end], [*scores[within], at_end]))
    return areas[1] - areas[0]


@claim(
    "C23-stable-then-equal",
    grade="C",
    source="2512.01374, sec. 4.5; 2510.26788",
    published="similar peaks; run-to-run error ±.02 (2510.13786)",
    criterion="an equivalence test: the whole interval of the final scores' difference inside ±.02;"
    " contradicted if wholly outside",
    needs=(seeds(3), updates(2), no_collapse),
    figure="pairs",
)
def stable_then_equal(data: ClaimData, grpo: str, gspo: str) -> Estimates:
    """If both rules stay stable, they end at the same score."""
    difference = mean_over_seeds(
        data,
        "final score, GSPO - GRPO",
        final_score,
        (gspo, grpo),
        Region(-0.02, 0.02),
        final_scores=True,
    )
    return Estimates((difference,))


@claim(
    "C26-same-asymptote",
    grade="C",
    source="2510.13786, sec. 3: most choices move efficiency",
    published="the loss moves the asymptote, most other choices the compute that it takes",
    criterion="a sigmoid of the score against FLOPs by run: the difference of asymptotes lies"
    " inside the margin; contradicted if wholly outside",
    needs=(seeds(3), no_collapse, same_first_rollout),
    figure="m-reward",
)
def same_asymptote(data: ClaimData, grpo: str, gspo: str) -> Estimates:
    """The choice of ratio moves efficiency, not the asymptote.

    The difference of the fitted asymptotes of the primary score against FLOPs, and the ratio of the
    midpoints. Beside them are the asymptote and exponent of both arms. Every other arm has its
    asymptote and its midpoint's ratio to GRPO's, on the seeds whose curve can be fitted.
    """
    fits = {
        arm: {seed: _scaling_fit(data, arm, seed) for seed in data.seeds} for arm in (grpo, gspo)
    }
    for arm in data.source.declaration.arms:
        if arm not in fits:
            fits[arm] = {}
            for seed in data.seeds_of([grpo, gspo, arm]):
                with suppress(Untestable):
                    fits[arm][seed] = _scaling_fit(data, arm, seed)

    def measured(name: str, values: Mapping[int, float], *, ratio: bool = False) -> Estimate:
        return data.over_seeds(name, values, None, ratio=ratio)

    def fitted(arm: str, name: str) -> dict[int, float]:
        return {seed: getattr(fit, name) for seed, fit in fits[arm].items()}

    midpoints = fitted(grpo, "midpoint")
    later = {}
    for arm in fits:
        later[arm] = {seed: at / midpoints[seed] for seed, at in fitted(arm, "midpoint").items()}
    asymptotes = {arm: fitted(arm, "asymptote") for arm in fits}
    difference = {seed: asymptotes[gspo][seed] - asymptotes[grpo][seed] for seed in data.seeds}
    also = [measured("FLOPs until half of the gain, GSPO / GRPO", later[gspo], ratio=True)]
    also += [measured(f"asymptote of {arm}", asymptotes[arm]) for arm in (grpo, gspo)]
    for arm in (grpo, gspo):
        also.append(measured(f"exponent of {arm}", fitted(arm, "exponent"), ratio=True))
    for arm in fits:
        if arm not in (grpo, gspo) and fits[arm]:
            also.append(measured(f"asymptote of {arm}", asymptotes[arm]))
            name = f"FLOPs until half of the gain, {arm} / {grpo}"
            also.append(measured(name, later[arm], ratio=True))
    within = Region(-data.verdict.margin, data.verdict.margin)
    texts = (
        "a run too short for its curve to bend is not fitted: the claim is then not testable",
        "the fit is least squares against FLOPs, with all three numbers free; the paper searches a"
        " grid against GPU-hours",
    )
    return Estimates(
        (data.over_seeds("asymptote of the score, GSPO - GRPO", difference, within),),
        tuple(also),
        tuple(Reason("note", text) for text in texts),
    )


def _scaling_fit(data: ClaimData, arm: str, seed: int) -> ScalingFit:
    fit = fit_scaling(*_curve(data, arm, seed, "flops_total"))
    if fit is None:
        steps, _ = data.scores(arm, seed)
        text = (
            f"{arm}, seed {seed}: {len(steps) - 1} evaluations after the start show too little of"
            f" the curve for an asymptote; {LEAST_POINTS} are needed, the last of them near its end"
        )
        raise Untestable("too-short-to-fit", text)
    return fit
