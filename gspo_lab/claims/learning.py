"""C14 and C19 to C23: outcomes of learning. They need seeds, and may come out the other way."""

import numpy as np

from gspo_lab.claims import needs
from gspo_lab.claims.claim import Claim, Counter, Roles
from gspo_lab.claims.clipping import DENSE_EQUAL, TOO_TIGHT
from gspo_lab.claims.parts import Reading, Region, Untestable, condition, over_seeds
from gspo_lab.claims.recorded import Recorded
from gspo_lab.claims.routing import BOTH_FALL, NUMERICS
from gspo_lab.findings.findings import SIGNALS
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.series import normalised_auc, time_to_threshold
from gspo_lab.study.dotted import alike_but

RUN_NOISE = 0.02
"""Run-to-run error of a fitted asymptote (ScaleRL, 2510.13786)."""
BANDS = 5
RANGE = tuple(f"objective.{key}" for key in ("clip", "clip_low", "clip_high", "clip_target"))
FALSE_ALARMS = 0.1
LEAST_RUNS = 5

LENGTH_DIVISOR = Counter(
    "Dividing by the length is called suboptimal: without it responses were 1.5 times as long and AIME'24 up 2.9 (7B) "
    "and 6.9 points (30B MoE)",
    "LUSPO, 2602.05261; MiniRL, 2512.01374",
)
DIVERGED = Counter(
    "GSPO diverged in the middle of several large runs, on Scout for good; CISPO ends slightly above it",
    "ScaleRL, 2510.13786",
)
ABOVE_DAPO = Counter(
    "Among stable runs GSPO and CISPO end well above DAPO, which clips token by token", "ScaleRL, 2510.13786"
)


def more_efficient(recorded: Recorded, roles: Roles) -> Reading:
    """Area under the primary score against prompts, and the prompts until half of the common gain is made."""
    pairs = recorded.seeds(roles.values())
    area: dict[str, dict[int, float]] = {"prompts": {}, "tokens": {}, "FLOPs": {}}
    totals = {"prompts": "prompts_total", "tokens": "tokens_sampled_total", "FLOPs": "flops_total"}
    curves = {}
    for axis, total in totals.items():
        for seed in pairs:
            found = {role: _curve(recorded, roles[role], seed, total) for role in ("grpo", "gspo")}
            curves[axis, seed] = found
            end = min(x[-1] for x, _ in found.values())
            area[axis][seed] = _area(*found["gspo"], end) - _area(*found["grpo"], end)
    every = [curves["prompts", seed][role] for seed in pairs for role in ("grpo", "gspo")]
    start = float(np.mean([y[0] for _, y in every]))
    finals = [np.mean([recorded.final(roles[role], seed) for seed in pairs]) for role in ("grpo", "gspo")]
    threshold = start + 0.5 * (float(min(finals)) - start)
    reached = {}
    for role in ("grpo", "gspo"):
        times = [
            time_to_threshold(*curves["prompts", seed][role], threshold, float(curves["prompts", seed][role][0][-1]))
            for seed in pairs
        ]
        reached[role] = float(np.mean([one.restricted_high for one in times]))
    margin = recorded.margin
    above, below = Region(above=0), [Region(below=0)]
    first = over_seeds("AUC of the score against prompts, GSPO - GRPO", area["prompts"], above, below)
    notes = []
    if first.low is not None and first.high is not None and Region(-margin, margin).contains(first.low, first.high):
        notes.append(f"practically equivalent: the whole interval lies inside the margin ±{margin:g}")
    later = condition(
        f"prompts to a score of {threshold:.3g}, GSPO - GRPO",
        reached["gspo"] <= reached["grpo"],
        n=len(pairs),
        estimate=reached["gspo"] - reached["grpo"],
        said=f"mean over seeds: {reached['gspo']:.4g} against {reached['grpo']:.4g} prompts (half of the common gain)",
    )
    also = [over_seeds(f"the same against {axis}", area[axis], above, below) for axis in ("tokens", "FLOPs")]
    return Reading((first, later), tuple(also), tuple(notes))


def band_insensitive(recorded: Recorded, roles: Roles) -> Reading:
    """Final scores over five ranges of each rule: the spread of all five, of the wider three, and the narrowest."""
    rungs = {role: _ladder(recorded, roles[role]) for role in ("grpo", "gspo")}
    for role, arms in rungs.items():
        if len(arms) < BANDS:
            raise Untestable(
                f"{len(arms)} arms vary the range of {roles[role]} alone; {BANDS} are needed for each rule"
            )
    pairs = recorded.seeds([arm for arms in rungs.values() for arm in arms])
    if len(pairs) < 3:
        raise Untestable(f"{len(pairs)} seeds finished on every range; 3 are needed")
    wider, all_of, worse = {}, {}, {}
    for seed in pairs:
        final = {role: [recorded.final(arm, seed) for arm in arms] for role, arms in rungs.items()}
        spread = {role: max(scores) - min(scores) for role, scores in final.items()}
        middle = len(final["gspo"]) // 2
        wider[seed] = max(final["gspo"][middle:]) - min(final["gspo"][middle:])
        worse[seed] = final["gspo"][middle] - final["gspo"][0]
        all_of[seed] = spread["grpo"] - spread["gspo"]
    return Reading(
        (
            over_seeds("GSPO: spread of the final score, middle range and wider", wider, Region(below=recorded.margin)),
            over_seeds("GSPO: final score, middle range - narrowest", worse, Region(above=0)),
            over_seeds("spread over all ranges, GRPO - GSPO", all_of, Region(above=0), [Region(below=0)]),
        )
    )


def length_bias(recorded: Recorded, roles: Roles) -> Reading:
    """Mean response length over the last fifth of the steps, without the division by L / with it."""
    found = {}
    for seed in recorded.seeds(roles.values()):
        means = []
        for role in ("luspo", "gspo"):
            length = recorded.of(roles[role], seed, "steps", "response_tokens_mean")["response_tokens_mean"]
            means.append(float(length.iloc[-max(1, len(length) // 5) :].mean()))
        found[seed] = means[0] / means[1]
    part = over_seeds("response length, LUSPO / GSPO", found, Region(above=1), [Region(below=1)], ratio=True)
    return Reading((part,), notes=("the correlation of length with gradient weight is not recorded",))


def precursors(recorded: Recorded, roles: Roles) -> Reading:
    """Which signals leave their range before the reward falls, in every collapsed run; and how often in stable ones."""
    onset = {run: recorded.stability(*run) for run in recorded.found.finished}
    collapsed = {run: one.collapse for run, one in onset.items() if one.collapse is not None}
    stable = [run for run, one in onset.items() if one.judged and one.collapse is None and one.regression is None]
    if len(collapsed) < LEAST_RUNS or len(stable) < LEAST_RUNS:
        raise Untestable(
            f"{len(collapsed)} runs collapsed and {len(stable)} stayed stable; {LEAST_RUNS} of each are needed"
        )
    leading, said = [], []
    for signal in SIGNALS:
        every = {run: recorded.found.onsets(recorded.found.finished[run], run[0]) for run in [*collapsed, *stable]}
        found = {run: one[signal].step for run, one in every.items() if signal in one and one[signal].judged}
        if len(found) < len(every):
            said.append(f"{signal}: not judged, too few steps after the warm-up or not recorded")
            continue
        leads = [at for run, fell in collapsed.items() if (at := found[run]) is not None and at < fell]
        alarms = sum(found[run] is not None for run in stable)
        said.append(f"{signal}: leads in {len(leads)} of {len(collapsed)}, false alarms in {alarms} of {len(stable)}")
        if len(leads) == len(collapsed) and alarms <= FALSE_ALARMS * len(stable):
            leading.append(signal)
    if all("not judged" in line for line in said):
        raise Untestable("; ".join(said))
    part = condition(
        "signals that lead in every collapsed run with few false alarms",
        bool(leading),
        n=len(onset),
        estimate=float(len(leading)),
        said="; ".join(said),
    )
    return Reading((part,), notes=("judged by counts of runs, without an interval",))


def equal_when_stable(recorded: Recorded, roles: Roles) -> Reading:
    """Final primary score, GSPO - GRPO, against the noise of a run."""
    found = {
        seed: recorded.final(roles["gspo"], seed) - recorded.final(roles["grpo"], seed)
        for seed in recorded.seeds(roles.values())
    }
    outside = [Region(below=-RUN_NOISE), Region(above=RUN_NOISE)]
    return Reading((over_seeds("final score, GSPO - GRPO", found, Region(-RUN_NOISE, RUN_NOISE), outside),))


def _curve(recorded: Recorded, arm: str, seed: int, total: str) -> tuple[Floats, Floats]:
    """The primary score of a run against what it had consumed when it was evaluated."""
    scores = recorded.scores(arm, seed)
    spent = recorded.of(arm, seed, "steps", total).set_index("step")[total]
    x = [0.0 if step == 0 else float(spent.loc[step - 1]) for step in scores["step"]]
    return np.asarray(x), scores["score"].to_numpy(dtype=np.float64)


def _area(x: Floats, y: Floats, end: float) -> float:
    """Normalised area up to `end`, where the other arm's budget is spent."""
    inside = x < end
    return normalised_auc([*x[inside], end], [*y[inside], float(np.interp(end, x, y))])


def _ladder(recorded: Recorded, arm: str) -> list[str]:
    """The arms that differ from `arm` in the clip range alone, narrow to wide, itself included."""
    declared = recorded.found.declaration.arms
    arms = [name for name, one in declared.items() if alike_but(one.resolved, declared[arm].resolved, RANGE)]
    width = {name: recorded.settings[name].objective.clip_low for name in arms}
    return sorted({width[name]: name for name in arms}.values(), key=lambda name: width[name])


_PAIR = (needs.seeds(), needs.minibatches())

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="C14-more-efficient",
        grade="C",
        statement="GSPO learns more than GRPO from equal compute and equal queries.",
        source="2507.18071, Fig. 1",
        value="curves of one run per arm, without end figures",
        criterion="AUC of the score above, threshold no later; contradicted if the AUC is below",
        roles=("grpo", "gspo"),
        needs=(*_PAIR, needs.tuned_bands(), needs.same_first_rollout("grpo", "gspo")),
        counter=(DENSE_EQUAL, NUMERICS, BOTH_FALL, TOO_TIGHT),
        evaluate=more_efficient,
    ),
    Claim(
        id="C19-band-insensitive",
        grade="C",
        statement="GSPO's result hardly depends on its clip range once that has the right order.",
        source="2510.13786",
        value="flat from 1e-3 on, worse at 1e-4, dense 8B",
        criterion="flat (inside the margin) from the middle of five ranges up, worse far below, GRPO spreads more",
        roles=("grpo", "gspo"),
        needs=_PAIR,
        counter=(DIVERGED,),
        evaluate=band_insensitive,
    ),
    Claim(
        id="C20-length-bias",
        grade="C",
        statement="Dividing by the response's length makes responses shorter than weighting by it.",
        source="2602.05261; 2512.01374",
        value="responses up to 1.5 times as long under LUSPO",
        criterion="mean length over the last fifth, LUSPO / GSPO above 1",
        roles=("luspo", "gspo"),
        needs=(needs.seeds(), needs.little_truncation()),
        counter=(LENGTH_DIVISOR,),
        evaluate=length_bias,
    ),
    Claim(
        id="C21-precursors",
        grade="C",
        statement="Collapse announces itself: KL, gradient norm, clipping or routing leave their range first.",
        source="2512.01374; 2510.23027",
        value="stated from curves",
        criterion="some signal leads in every collapsed run with at most 10 % false alarms",
        evaluate=precursors,
    ),
    Claim(
        id="C23-stable-then-equal",
        grade="C",
        statement="If both rules stay stable, they end at the same score.",
        source="2512.01374, sec. 4.5; 2510.26788",
        value="similar peaks; run-to-run error ±.02 (2510.13786)",
        criterion="final score inside ±.02; contradicted if wholly outside",
        roles=("grpo", "gspo"),
        needs=(needs.seeds(), needs.minibatches(), needs.no_collapse(), needs.small_enough_spread(RUN_NOISE)),
        counter=(ABOVE_DAPO, DIVERGED),
        evaluate=equal_when_stable,
    ),
)
