"""C15 and C17: what the difference between sampler and trainer does to the two rules, and to training."""

import numpy as np

from gspo_lab.claims import needs
from gspo_lab.claims.claim import Claim, Counter, Roles
from gspo_lab.claims.parts import Reading, Region, condition, over_seeds
from gspo_lab.claims.recorded import Recorded
from gspo_lab.claims.routing import NUMERICS

AGREEMENT = 1.4
"""Within this factor of 1/sqrt(L) the spread of a response's mean counts as that of independent tokens."""

NARROW_RANGE = Counter(
    "GSPO's range is as narrow as the mismatch is wide: before any update responses may lie outside it",
    "derived from the recorded mismatch of a mixture, 1.5e-3 nats (2510.11370), against 3e-4",
)


def tolerates_precision(recorded: Recorded, roles: Roles) -> Reading:
    """The spread of a response's mean mismatch against independent tokens', and the clips that the other program's old
    log-probs would change, both rules on the same batches of both arms."""
    spread: dict[int, float] = {}
    flips: dict[str, dict[int, float]] = {"grpo": {}, "gspo": {}}
    for seed in recorded.seeds(roles.values()):
        ratios: list[float] = []
        counts = {"grpo": 0.0, "gspo": 0.0}
        tokens = 0.0
        for arm in roles.values():
            steps = recorded.of(arm, seed, "steps", "mismatch_std_responses", "mismatch_std_independent").dropna()
            ratios += list(steps["mismatch_std_responses"] / steps["mismatch_std_independent"])
            names = ("flip_fraction_tokens_grpo", "flip_fraction_tokens_gspo", "response_tokens")
            updates = recorded.settled(arm, seed, *names).dropna()
            tokens += float(updates["response_tokens"].sum())
            for rule in counts:
                counts[rule] += float((updates[f"flip_fraction_tokens_{rule}"] * updates["response_tokens"]).sum())
        spread[seed] = float(np.mean(ratios))
        for rule, count in counts.items():
            flips[rule][seed] = count / tokens
    fewer = {seed: flips["gspo"][seed] - flips["grpo"][seed] for seed in spread}
    above, below = Region(above=0), [Region(below=0)]
    return Reading(
        (
            over_seeds(
                "spread of a response's mean mismatch / that of independent tokens",
                spread,
                Region(1 / AGREEMENT, AGREEMENT),
                ratio=True,
            ),
            over_seeds(
                "share of tokens whose clip the other's log-probs change, GSPO - GRPO",
                fewer,
                Region(below=0),
                [Region(above=0)],
            ),
        ),
        also=tuple(
            over_seeds(f"that share under {rule.upper()}", found, above, below) for rule, found in flips.items()
        ),
    )


def needs_correction(recorded: Recorded, roles: Roles) -> Reading:
    """Steps until collapse (all planned steps where there is none), corrected - uncorrected; entropy before it."""
    gained: dict[int, float] = {}
    slopes: dict[str, float] = {}
    for seed in recorded.seeds(roles.values()):
        until = {}
        for role, arm in roles.items():
            onset = recorded.stability(arm, seed).collapse
            until[role] = float(recorded.settings[arm].steps if onset is None else onset)
            if role == "uncorrected" and onset is not None:
                entropy = recorded.of(arm, seed, "steps", "entropy").dropna()
                before = entropy[entropy["step"] < onset]
                if len(before) > 1:
                    slopes[f"{arm}/s{seed}"] = float(np.polyfit(before["step"], before["entropy"], 1)[0])
        gained[seed] = until["corrected"] - until["uncorrected"]
    falling = sum(slope < 0 for slope in slopes.values())
    return Reading(
        (
            over_seeds("steps until collapse, corrected - uncorrected", gained, Region(above=0), [Region(below=0)]),
            condition(
                "entropy falls before the collapse",
                bool(slopes) and falling == len(slopes),
                n=len(slopes),
                estimate=float(falling),
                said=f"it falls in {falling} of {len(slopes)} collapsed runs without the correction",
            ),
        )
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="C15-precision-tolerant",
        grade="B",
        statement="The sequence ratio suffers less from differences in precision.",
        source="2507.18071, sec. 5.4, without an experiment",
        value="stated without figures",
        criterion="std of mean differences / std of token differences within x1.4 of 1/sqrt(L); fewer flipped clips",
        roles=("grpo", "gspo"),
        needs=(needs.seeds(), needs.minibatches(), needs.other_numerics(), needs.trainer_old_logprobs()),
        counter=(NARROW_RANGE, NUMERICS),
        evaluate=tolerates_precision,
    ),
    Claim(
        id="C17-needs-is",
        grade="C/D",
        statement="Without an importance correction a low-precision rollout collapses training, entropy first.",
        source="2512.01374, Fig. 1",
        value="one curve",
        criterion="time to collapse longer with the correction; entropy falls first",
        roles=("uncorrected", "corrected"),
        needs=(needs.seeds(), needs.other_numerics(), needs.unstable("uncorrected")),
        counter=(NUMERICS,),
        evaluate=needs_correction,
    ),
)
