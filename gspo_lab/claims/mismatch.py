"""C15, and what C17 says of entropy: the difference between sampler and trainer, and training under it."""

import numpy as np

from gspo_lab.claims.claim import Roles
from gspo_lab.claims.estimates import Estimate, Estimates, Region, condition, over_seeds
from gspo_lab.claims.recorded import Recorded

AGREEMENT = 1.4
"""Within this factor of 1/sqrt(L) the spread of a response's mean counts as that of independent tokens."""


def tolerates_precision(recorded: Recorded, roles: Roles) -> Estimates:
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
    within = Region(1 / AGREEMENT, AGREEMENT)
    return Estimates(
        (
            over_seeds(
                "spread of a response's mean mismatch / that of independent tokens", spread, within, (), ratio=True
            ),
            over_seeds("share of tokens whose clip the other's log-probs change, GSPO - GRPO", fewer, Region(below=0)),
        ),
        also=tuple(over_seeds(f"that share under {rule.upper()}", one, Region(above=0)) for rule, one in flips.items()),
    )


def entropy_falls_first(recorded: Recorded, roles: Roles) -> Estimate:
    """In how many collapsed runs without the correction entropy falls up to the collapse."""
    arm = roles["uncorrected"]
    slopes = []
    for seed in recorded.seeds(roles.values()):
        onset = recorded.stability(arm, seed).collapse
        if onset is not None:
            entropy = recorded.of(arm, seed, "steps", "entropy").dropna()
            before = entropy[entropy["step"] < onset]
            if len(before) > 1:
                slopes.append(float(np.polyfit(before["step"], before["entropy"], 1)[0]))
    falling = sum(slope < 0 for slope in slopes)
    return condition(
        "entropy falls before the collapse",
        bool(slopes) and falling == len(slopes),
        n=len(slopes),
        estimate=float(falling),
        said=f"it falls in {falling} of {len(slopes)} collapsed runs without the correction",
    )
