"""C09 to C13 and C16: mixtures of experts, how their routing moves, and whether replaying it is needed."""

import json
from collections.abc import Mapping

import numpy as np

from gspo_lab.claims import needs
from gspo_lab.claims.claim import Claim, Counter, Roles
from gspo_lab.claims.parts import Part, Reading, Region, condition, over_seeds
from gspo_lab.claims.recorded import Recorded
from gspo_lab.stats.series import normalised_auc

DEEP = 48
"""Layers of the model whose 10 % the paper reports."""

SMALL_CASE = Counter(
    "Nearly all results on mixtures are of one seed, and none is published at 1 to 5 M parameters that shows the "
    "contrast of replay",
    "survey of the sources; R3's reviews",
)
NUMERICS = Counter(
    "In FP16 the mismatch goes away on a dense 1.5B model and all algorithms end alike, near 99 %", "2510.26788"
)
REPLAY_HELPS_GSPO = Counter(
    "8 mini-batches: GRPO 48.84 (crash), GSPO 66.76, GRPO + R3 68.05, GSPO + R3 69.00: not needed for stability, and "
    "still worth points",
    "R3, 2510.11370",
)
BOTH_FALL = Counter("In the GSPO paper's own setting GSPO and GRPO with replay both collapse early", "SAPO, 2511.20347")
BEATEN = Counter("GSPO 35.76 ends below GRPO with R2, 37.55", "PR2, 2606.00395")


def expert_change(recorded: Recorded, roles: Roles) -> Reading:
    """Share of the natural experts that one update changes (mini-batch 1), and its slope over the layers."""
    arm = roles["grpo"]
    after_one, last, slope, layers = {}, {}, {}, 0
    for seed in recorded.seeds(roles.values()):
        rows = recorded.settled(arm, seed, "expert_change", "expert_change_layers", later=True).dropna()
        first = rows[rows["minibatch"] == 1]
        after_one[seed] = float(first["expert_change"].mean())
        last[seed] = float(rows[rows["minibatch"] == rows["minibatch"].max()]["expert_change"].mean())
        by_layer = np.mean([json.loads(text) for text in first["expert_change_layers"]], axis=0)
        layers = len(by_layer)
        slope[seed] = float(np.polyfit(np.arange(layers), by_layer, 1)[0]) if layers > 1 else 0.0
    above, below = Region(above=0), [Region(below=0)]
    parts = [over_seeds("expert change after one update", after_one, above, below)]
    notes = ["one learning rate per arm: whether it rises with the learning rate is not judged"]
    if layers > 1:
        parts.append(over_seeds("its slope over the layers", slope, above, below))
    also = [over_seeds("expert change at the last mini-batch", last, above, below)]
    if layers >= DEEP:
        magnitude = [Region(below=0.05), Region(above=0.15)]
        parts.append(over_seeds("its magnitude after one update", after_one, Region(0.05, 0.15), magnitude))
    else:
        notes.insert(
            0,
            f"direction only: the magnitude .05 to .15 is not testable here, the model has {layers} routed layers and "
            f"about {DEEP} are needed",
        )
    return Reading(tuple(parts), tuple(also), tuple(notes))


def noisier_tokens(recorded: Recorded, roles: Roles) -> Reading:
    """Median over responses of the variance of l_t within the response, MoE / dense."""
    found: dict[int, float] = {}
    for seed in recorded.seeds(roles.values()):
        medians = []
        for role in ("moe", "dense"):
            one = recorded.details(roles[role], seed)
            long = one.length > 1
            mean = one.total[long] / one.length[long]
            medians.append(float(np.median(one.squares[long] / one.length[long] - mean**2)))
        found[seed] = medians[0] / medians[1]
    part = over_seeds("Var(l_t), MoE / dense", found, Region(above=1), [Region(below=1)], ratio=True)
    return Reading((part,))


def grpo_needs_replay(recorded: Recorded, roles: Roles) -> Reading:
    """Area under the training reward, with replay minus without, and the collapses of both."""
    gain = _gain(recorded, roles, "grpo")
    margin = recorded.margin
    area = over_seeds(
        "reward AUC, GRPO with replay - without", gain, Region(above=0), [Region(below=0), Region(-margin, margin)]
    )
    return Reading((area, _fewer_collapses(recorded, roles)))


def gspo_needs_none(recorded: Recorded, roles: Roles) -> Reading:
    """(GRPO's gain by replay) - (GSPO's gain by replay) on reward AUC, and GSPO's own gain against the margin."""
    grpo, gspo = _gain(recorded, roles, "grpo"), _gain(recorded, roles, "gspo")
    margin = recorded.margin
    return Reading(
        (
            over_seeds(
                "what replay gives GRPO more than GSPO, reward AUC",
                {seed: grpo[seed] - gspo[seed] for seed in grpo},
                Region(above=0),
                [Region(below=0)],
            ),
            over_seeds("what replay gives GSPO, reward AUC", gspo, Region(-margin, margin), [Region(above=margin)]),
        ),
        also=(over_seeds("what replay gives GRPO, reward AUC", grpo, Region(above=0), [Region(below=0)]),),
    )


def mismatch_on_mixtures(recorded: Recorded, roles: Roles) -> Reading:
    """mismatch_k3 before any update of the step, MoE / dense; where an arm replays the rollout's routing, R3 / none."""
    by_arm: dict[str, Mapping[int, float]] = {}
    pairs = recorded.seeds(roles.values())
    for role, arm in roles.items():
        found = {seed: recorded.of(arm, seed, "steps", "mismatch_k3")["mismatch_k3"] for seed in pairs}
        by_arm[role] = {seed: float(values.mean()) for seed, values in found.items()}
    ratio = {seed: by_arm["moe"][seed] / by_arm["dense"][seed] for seed in pairs}
    replayed = {seed: by_arm["moe-rollout-replay"][seed] / by_arm["moe"][seed] for seed in pairs}
    left = {seed: by_arm["moe-rollout-replay"][seed] / by_arm["dense"][seed] for seed in pairs}
    above, below = Region(above=1), Region(below=1)
    return Reading(
        (
            over_seeds("mismatch_k3, MoE / dense", ratio, above, [below], ratio=True),
            over_seeds("mismatch_k3, R3 / none on the MoE", replayed, below, [above], ratio=True),
        ),
        also=(over_seeds("mismatch_k3, MoE with R3 / dense", left, below, [above], ratio=True),),
    )


def _gain(recorded: Recorded, roles: Roles, role: str) -> dict[int, float]:
    with_replay, without = roles[f"{role}-replay"], roles[role]
    return {
        seed: normalised_auc(*recorded.reward(with_replay, seed)) - normalised_auc(*recorded.reward(without, seed))
        for seed in recorded.seeds(roles.values())
    }


def _fewer_collapses(recorded: Recorded, roles: Roles) -> Part:
    pairs = recorded.seeds(roles.values())
    fell = {
        role: sum(recorded.stability(roles[role], seed).collapse is not None for seed in pairs)
        for role in ("grpo", "grpo-replay")
    }
    said = f"{fell['grpo-replay']} of {len(pairs)} runs collapsed with replay, {fell['grpo']} of {len(pairs)} without"
    return condition(
        "collapses, with replay - without",
        fell["grpo-replay"] < fell["grpo"],
        n=len(pairs),
        said=said,
        estimate=float(fell["grpo-replay"] - fell["grpo"]),
    )


_C = (needs.seeds(), needs.minibatches(), needs.mixture())

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="C09-expert-change",
        grade="B",
        statement="Routing moves with every update, more in later layers; on 48 layers about a tenth of the experts.",
        source="2507.18071, sec. 5.3",
        value="about 10 % per update on 48 layers, more in deeper models",
        criterion="magnitude .05 to .15 on 48 layers; below that the direction: above 0 and rising with depth",
        roles=("grpo",),
        needs=_C,
        moe=True,
        evaluate=expert_change,
    ),
    Claim(
        id="C10-flips-cause-noise",
        grade="B",
        statement="Changed routing drives the noise of token ratios, and replay (R2) lowers it.",
        source="2507.18071, sec. 5.3; 2512.01374",
        value="stated without figures",
        criterion="sigma_tok with R2 / without below 1, changed tokens noisier",
        unrecorded="it needs the same rollouts and weights evaluated with and without replay, and l_t of changed and "
        "unchanged tokens apart; runs record each update under its own routing only",
        moe=True,
    ),
    Claim(
        id="C11-moe-noisier",
        grade="B",
        statement="Token ratios are noisier on a mixture of experts than on a dense model.",
        source="2511.20347",
        value="Var(l_t) within a response typically below .02",
        criterion="median variance, MoE / dense above 1",
        roles=("moe", "dense"),
        needs=(needs.seeds(), needs.minibatches(), needs.dense_control()),
        evaluate=noisier_tokens,
    ),
    Claim(
        id="C12-grpo-needs-replay",
        grade="C/D",
        statement="On a mixture of experts GRPO needs routing replay to converge.",
        source="2507.18071, Fig. 3; 2512.01374 for N >= 2; 2510.11370",
        value="GRPO without replay does not converge; a crash at step 120 in R3's paper",
        criterion="reward AUC higher and fewer collapses with replay; contradicted if lower or equivalent",
        roles=("grpo", "grpo-replay"),
        needs=(*_C, needs.routing_matters(), needs.unstable("grpo")),
        counter=(SMALL_CASE, NUMERICS),
        moe=True,
        evaluate=grpo_needs_replay,
    ),
    Claim(
        id="C13-gspo-no-replay",
        grade="C",
        statement="GSPO does not need routing replay.",
        source="2507.18071, Fig. 1 and sec. 5.3",
        value="stable curves without replay, one run each",
        criterion="replay gives GRPO more than GSPO, and GSPO no more than the margin",
        roles=("grpo", "grpo-replay", "gspo", "gspo-replay"),
        needs=(*_C, needs.routing_matters(), needs.unstable("grpo")),
        counter=(REPLAY_HELPS_GSPO, BOTH_FALL, BEATEN, SMALL_CASE),
        moe=True,
        evaluate=gspo_needs_none,
    ),
    Claim(
        id="C16-moe-mismatch",
        grade="B",
        statement="Sampler and trainer disagree more on a mixture of experts, and R3 removes the excess.",
        source="2510.11370",
        value="KL 1.5e-3 on MoE, 6.4e-4 dense, 7.5e-4 on MoE with R3",
        criterion="mismatch_k3 MoE / dense above 1, and lower with R3",
        roles=("moe", "dense", "moe-rollout-replay"),
        needs=(needs.seeds(), needs.other_numerics()),
        counter=(NUMERICS,),
        evaluate=mismatch_on_mixtures,
    ),
)
