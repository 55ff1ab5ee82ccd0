"""What no row says of routing, precision and learning: C09, C14, C15, C19, C21, and parts of C12, C13 and C17."""

from dataclasses import replace
from itertools import combinations

import numpy as np

from gspo_lab.claims.claim import Roles
from gspo_lab.claims.estimates import Estimate, Estimates, Region, Untestable, condition
from gspo_lab.claims.recorded import Recorded
from gspo_lab.readings import Minibatch, Reading, Steps, Window, average, by_layer, pooled
from gspo_lab.readings.read import SIGNALS
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.series import normalised_auc, time_to_threshold
from gspo_lab.study.dotted import alike_but

DEEP = 48
"""Layers of the model whose 10 % of changed experts the paper reports."""
AGREEMENT = 1.4
"""Within this factor of 1/sqrt(L) the spread of a response's mean counts as that of independent tokens."""
BANDS = 5
RANGE = tuple(f"objective.{key}" for key in ("clip", "clip_low", "clip_high", "clip_target"))
FALSE_ALARMS = 0.1
LEAST_RUNS = 5


def expert_change(recorded: Recorded, roles: Roles) -> Estimates:
    """Share of the natural experts that one update changes (mini-batch 1), and its slope over the layers."""
    arm = roles["grpo"]
    one_update = Reading("expert_change", Window(minibatch=Minibatch.SECOND))
    per_layer = replace(one_update, metric="expert_change_layers")
    last_update = Reading("expert_change", Window(minibatch=Minibatch.FINAL))
    after_one, last, slope, layers = {}, {}, {}, 0
    for seed in recorded.seeds(roles.values()):
        after_one[seed] = recorded.number(one_update, arm, seed)
        last[seed] = recorded.number(last_update, arm, seed)
        changes = _by_layer(recorded, per_layer, arm, seed)
        layers = len(changes)
        slope[seed] = float(np.polyfit(np.arange(layers), changes, 1)[0]) if layers > 1 else 0.0
    above = Region(above=0)
    parts = [recorded.over_seeds("expert change after one update", after_one, above)]
    notes = ["one learning rate per arm: whether it rises with the learning rate is not judged"]
    if layers > 1:
        parts.append(recorded.over_seeds("its slope over the layers", slope, above))
    also = [recorded.over_seeds("expert change at the last mini-batch", last, above)]
    if layers >= DEEP:
        parts.append(recorded.over_seeds("its magnitude after one update", after_one, Region(0.05, 0.15)))
    else:
        unknown = f"not testable here, the model has {layers} routed layers and about {DEEP} are needed"
        notes.insert(0, f"direction only: the magnitude .05 to .15 is {unknown}")
    return Estimates(tuple(parts), tuple(also), tuple(notes))


def _by_layer(recorded: Recorded, reading: Reading, arm: str, seed: int) -> list[float]:
    layers = by_layer(recorded.found, reading, range(recorded.settings[arm].steps))
    values = layers.get(recorded.found.finished[arm, seed], ())
    if not values or None in values:
        raise Untestable(f"{reading.metric} was not recorded in {arm}, seed {seed}")
    return [float(value or 0.0) for value in values]


def gained_by_grpo_alone(recorded: Recorded, roles: Roles) -> Estimate:
    """(GRPO's gain by replay) - (GSPO's gain by replay), in area under the reward."""
    values = {}
    for seed in recorded.seeds(roles.values()):
        area = {role: normalised_auc(*recorded.reward(arm, seed)) for role, arm in roles.items()}
        values[seed] = (area["grpo-replay"] - area["grpo"]) - (area["gspo-replay"] - area["gspo"])
    return recorded.over_seeds("what replay gives GRPO more than GSPO, reward AUC", values, Region(above=0))


def fewer_collapses(recorded: Recorded, roles: Roles) -> Estimate:
    """Runs that collapsed with routing replay less those without, on the seeds that all arms have."""
    pairs = recorded.seeds(roles.values())
    without, replayed = (
        sum(recorded.stability(roles[role], seed).collapse is not None for seed in pairs)
        for role in ("grpo", "grpo-replay")
    )
    said = f"{replayed} of {len(pairs)} runs collapsed with replay, {without} of {len(pairs)} without"
    fewer = float(replayed - without)
    return condition("collapses, with replay - without", fewer < 0, n=len(pairs), said=said, estimate=fewer)


def tolerates_precision(recorded: Recorded, roles: Roles) -> Estimates:
    """The spread of a response's mean mismatch against independent tokens', and the clips that the other program's old
    log-probs would change, both rules on the same batches of both arms."""
    of_means, alone = (Reading(f"mismatch_std_{what}", Window(Steps.ALL)) for what in ("responses", "independent"))
    spread: dict[int, float] = {}
    flips: dict[str, dict[int, float]] = {"grpo": {}, "gspo": {}}
    for seed in recorded.seeds(roles.values()):
        ratios = [recorded.number(of_means, arm, seed) / recorded.number(alone, arm, seed) for arm in roles.values()]
        spread[seed] = average(ratios) or 0.0
        for rule, by_seed in flips.items():
            changed = Reading(f"flip_fraction_tokens_{rule}")
            shares = [recorded.read(changed, arm, seed) for arm in roles.values()]
            by_seed[seed] = pooled(*np.transpose([[share.value, share.weight] for share in shares])).value or 0.0
    fewer = {seed: flips["gspo"][seed] - flips["grpo"][seed] for seed in spread}
    within = Region(1 / AGREEMENT, AGREEMENT)
    said = "spread of a response's mean mismatch / that of independent tokens"
    return Estimates(
        (
            recorded.over_seeds(said, spread, within, (), ratio=True),
            recorded.over_seeds(
                "share of tokens whose clip the other's log-probs change, GSPO - GRPO", fewer, Region(below=0)
            ),
        ),
        also=tuple(
            recorded.over_seeds(f"that share under {rule.upper()}", one, Region(above=0)) for rule, one in flips.items()
        ),
    )


def entropy_falls_first(recorded: Recorded, roles: Roles) -> Estimate:
    """In how many collapsed runs without the correction entropy falls up to the collapse."""
    arm = roles["uncorrected"]
    slopes = []
    for seed in recorded.seeds(roles.values()):
        if (onset := recorded.stability(arm, seed).collapse) is not None:
            entropy = recorded.curve(Reading("entropy", Window(Steps.ALL)), arm, seed)
            before = (entropy.steps < onset) & np.isfinite(entropy.values)
            if before.sum() > 1:
                slopes.append(float(np.polyfit(entropy.steps[before], entropy.values[before], 1)[0]))
    falling = sum(slope < 0 for slope in slopes)
    said = f"it falls in {falling} of {len(slopes)} collapsed runs without the correction"
    holds = bool(slopes) and falling == len(slopes)
    return condition("entropy falls before the collapse", holds, n=len(slopes), estimate=float(falling), said=said)


def more_efficient(recorded: Recorded, roles: Roles) -> Estimates:
    """Area under the primary score against prompts, and the prompts until half of the common gain is made."""
    pairs = recorded.seeds(roles.values())
    totals = {"prompts": "prompts_total", "tokens": "tokens_sampled_total", "FLOPs": "flops_total"}
    curves = {
        axis: {seed: [_curve(recorded, roles[role], seed, total) for role in ("grpo", "gspo")] for seed in pairs}
        for axis, total in totals.items()
    }
    area = {axis: {seed: _area_gained(*both) for seed, both in found.items()} for axis, found in curves.items()}
    start = average(y[0] for both in curves["prompts"].values() for _, y in both) or 0.0
    finals = [average(recorded.final(roles[role], seed) for seed in pairs) or 0.0 for role in ("grpo", "gspo")]
    threshold = start + 0.5 * (min(finals) - start)
    grpo, gspo = (
        average(time_to_threshold(x, y, threshold, float(x[-1])).restricted_high for x, y in runs) or 0.0
        for runs in zip(*curves["prompts"].values(), strict=True)
    )
    margin = recorded.verdict.margin
    first = recorded.over_seeds("AUC of the score against prompts, GSPO - GRPO", area["prompts"], Region(above=0))
    notes = []
    if first.interval is not None and Region(-margin, margin).contains(*first.interval):
        notes.append(f"equivalent within the margin: the whole interval lies inside the margin ±{margin:g}")
    later = condition(
        f"prompts to a score of {threshold:.3g}, GSPO - GRPO",
        gspo <= grpo,
        n=len(pairs),
        estimate=gspo - grpo,
        said=f"mean over seeds: {gspo:.4g} against {grpo:.4g} prompts (half of the common gain)",
    )
    also = [
        recorded.over_seeds(f"the same against {axis}", area[axis], Region(above=0)) for axis in ("tokens", "FLOPs")
    ]
    return Estimates((first, later), tuple(also), tuple(notes))


def band_insensitive(recorded: Recorded, roles: Roles) -> Estimates:
    """Final scores over five ranges of each rule: GSPO's wider three two by two, its narrowest, the spread of all five.

    Two by two, because the largest of three scores minus the smallest is above 0 by luck alone, and no interval of it
    could tell a difference from noise.
    """
    rungs = {role: _ladder(recorded, roles[role]) for role in ("grpo", "gspo")}
    for role, arms in rungs.items():
        if len(arms) < BANDS:
            said = f"{len(arms)} arms vary the range of {roles[role]} alone"
            raise Untestable(f"{said}; {BANDS} are needed for each rule")
    pairs = recorded.seeds([arm for arms in rungs.values() for arm in arms])
    if len(pairs) < 3:
        raise Untestable(f"{len(pairs)} seeds finished on every range; 3 are needed")
    equal = Region(-recorded.verdict.margin, recorded.verdict.margin)
    middle = len(rungs["gspo"]) // 2
    apart: dict[tuple[str, str], dict[int, float]] = {two: {} for two in combinations(rungs["gspo"][middle:], 2)}
    further, worse = {}, {}
    for seed in pairs:
        final = {role: [recorded.final(arm, seed) for arm in arms] for role, arms in rungs.items()}
        spread = {role: max(scores) - min(scores) for role, scores in final.items()}
        for narrow, wide in apart:
            apart[narrow, wide][seed] = recorded.final(wide, seed) - recorded.final(narrow, seed)
        worse[seed] = final["gspo"][middle] - final["gspo"][0]
        further[seed] = spread["grpo"] - spread["gspo"]
    flat = [
        recorded.over_seeds(f"final score, {wide} - {narrow}", found, equal, scores_of=(wide, narrow))
        for (narrow, wide), found in apart.items()
    ]
    return Estimates(
        (
            *flat,
            recorded.over_seeds(
                "GSPO: final score, middle range - narrowest",
                worse,
                Region(above=0),
                (),
                scores_of=(rungs["gspo"][middle], rungs["gspo"][0]),
            ),
            recorded.over_seeds("spread over all ranges, GRPO - GSPO", further, Region(above=0)),
        )
    )


def precursors(recorded: Recorded, roles: Roles) -> Estimates:
    """Which signals leave their range before the reward falls, in every collapsed run; and how often in stable ones."""
    onset = {run: recorded.stability(*run) for run in recorded.found.deciding}
    collapsed = {run: one.collapse for run, one in onset.items() if one.collapse is not None}
    stable = [run for run, one in onset.items() if one.judged and one.collapse is None and one.regression is None]
    if len(collapsed) < LEAST_RUNS or len(stable) < LEAST_RUNS:
        counted = f"{len(collapsed)} runs collapsed and {len(stable)} stayed stable"
        raise Untestable(f"{counted}; {LEAST_RUNS} of each are needed")
    every = {run: recorded.found.onsets(recorded.found.deciding[run]) for run in [*collapsed, *stable]}
    leading, said, judged = [], [], False
    for signal in SIGNALS:
        found = {run: one[signal].step for run, one in every.items() if signal in one and one[signal].judged}
        if len(found) < len(every):
            said.append(f"{signal}: not judged, too few steps after the warm-up or not recorded")
            continue
        judged = True
        leads = [at for run, fell in collapsed.items() if (at := found[run]) is not None and at < fell]
        alarms = sum(found[run] is not None for run in stable)
        said.append(f"{signal}: leads in {len(leads)} of {len(collapsed)}, false alarms in {alarms} of {len(stable)}")
        if len(leads) == len(collapsed) and alarms <= FALSE_ALARMS * len(stable):
            leading.append(signal)
    if not judged:
        raise Untestable("; ".join(said))
    name = "signals that lead in every collapsed run with few false alarms"
    part = condition(name, bool(leading), n=len(onset), estimate=float(len(leading)), said="; ".join(said))
    return Estimates((part,), notes=("judged by counts of runs, without an interval",))


def _curve(recorded: Recorded, arm: str, seed: int, total: str) -> tuple[Floats, Floats]:
    """The primary score of a run against what it had consumed when it was evaluated."""
    scores = recorded.scores(arm, seed)
    totals = recorded.curve(Reading(total, Window(Steps.ALL)), arm, seed)
    spent = {-1: 0.0, **dict(zip(totals.steps, totals.values, strict=True))}
    x = [spent[step - 1] for step in scores["step"]]
    return np.asarray(x), scores["score"].to_numpy(dtype=np.float64)


def _area_gained(grpo: tuple[Floats, Floats], gspo: tuple[Floats, Floats]) -> float:
    """GSPO's normalised area minus GRPO's, up to where the smaller budget is spent."""
    end = min(x[-1] for x, _ in (grpo, gspo))
    areas = [normalised_auc([*x[x < end], end], [*y[x < end], float(np.interp(end, x, y))]) for x, y in (gspo, grpo)]
    return areas[0] - areas[1]


def _ladder(recorded: Recorded, arm: str) -> list[str]:
    """The arms that differ from `arm` in the clip range alone, narrow to wide, itself included."""
    declared = recorded.found.declaration.arms
    arms = [name for name, one in declared.items() if alike_but(one.resolved, declared[arm].resolved, RANGE)]
    width = {name: recorded.settings[name].objective.clip_low for name in arms}
    return sorted({width[name]: name for name in arms}.values(), key=lambda name: width[name])
