"""C14, C19 and C21: outcomes of learning that no row of the grammar says."""

import numpy as np

from gspo_lab.claims.claim import Roles
from gspo_lab.claims.estimates import Estimates, Region, Untestable, condition, over_seeds
from gspo_lab.claims.recorded import Recorded
from gspo_lab.findings.findings import SIGNALS
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.series import normalised_auc, time_to_threshold
from gspo_lab.study.dotted import alike_but

BANDS = 5
RANGE = tuple(f"objective.{key}" for key in ("clip", "clip_low", "clip_high", "clip_target"))
FALSE_ALARMS = 0.1
LEAST_RUNS = 5


def more_efficient(recorded: Recorded, roles: Roles) -> Estimates:
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
    first = over_seeds("AUC of the score against prompts, GSPO - GRPO", area["prompts"], Region(above=0))
    notes = []
    if first.interval is not None and Region(-margin, margin).contains(*first.interval):
        notes.append(f"practically equivalent: the whole interval lies inside the margin ±{margin:g}")
    later = condition(
        f"prompts to a score of {threshold:.3g}, GSPO - GRPO",
        reached["gspo"] <= reached["grpo"],
        n=len(pairs),
        estimate=reached["gspo"] - reached["grpo"],
        said=f"mean over seeds: {reached['gspo']:.4g} against {reached['grpo']:.4g} prompts (half of the common gain)",
    )
    also = [over_seeds(f"the same against {axis}", area[axis], Region(above=0)) for axis in ("tokens", "FLOPs")]
    return Estimates((first, later), tuple(also), tuple(notes))


def band_insensitive(recorded: Recorded, roles: Roles) -> Estimates:
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
    wider, further, worse = {}, {}, {}
    for seed in pairs:
        final = {role: [recorded.final(arm, seed) for arm in arms] for role, arms in rungs.items()}
        spread = {role: max(scores) - min(scores) for role, scores in final.items()}
        middle = len(final["gspo"]) // 2
        wider[seed] = max(final["gspo"][middle:]) - min(final["gspo"][middle:])
        worse[seed] = final["gspo"][middle] - final["gspo"][0]
        further[seed] = spread["grpo"] - spread["gspo"]
    return Estimates(
        (
            over_seeds(
                "GSPO: spread of the final score, middle range and wider", wider, Region(below=recorded.margin), ()
            ),
            over_seeds("GSPO: final score, middle range - narrowest", worse, Region(above=0), ()),
            over_seeds("spread over all ranges, GRPO - GSPO", further, Region(above=0)),
        )
    )


def precursors(recorded: Recorded, roles: Roles) -> Estimates:
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
    return Estimates((part,), notes=("judged by counts of runs, without an interval",))


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
