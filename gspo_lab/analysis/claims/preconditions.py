"""Preconditions of claims. An unmet one returns its measurement as a reason."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

from gspo_lab.analysis.claims.data import ClaimData, mixtures
from gspo_lab.analysis.claims.estimates import not_recorded
from gspo_lab.analysis.readings import Minibatch, Reading, Steps, Window
from gspo_lab.common.reason import Reason
from gspo_lab.study.dotted_keys import BAND

Roles = Mapping[str, str]
"""Role -> the arm that plays it, e.g. {"grpo": "grpo-tuned", "gspo": "gspo"}."""
Check = Callable[[ClaimData, Roles], Reason | None]
"""What is lacking; None: met."""

PAPER_BAND = (3e-4, 4e-4)
LONG = 500
"""Tokens: the paper's sequence range belongs to responses of thousands of tokens; below this it is
another range.
"""
LEAST_CHANGE = 0.05
EVERY_STEP = Window(Steps.ALL)


def _seeds(data: ClaimData, roles: Roles, least: int) -> Reason | None:
    count = len(data.seeds(roles.values()))
    if count >= least:
        return None
    return Reason("few-seeds", f"{count} seeds finished in every arm it needs; {least} are needed")


def _updates(data: ClaimData, arm: str, least: int) -> Reason | None:
    count = data.settings(arm).update.per_rollout_batch
    if count >= least:
        return None
    text = f"{arm} makes {count} updates per rollout batch; {least} are needed"
    return Reason("few-updates", text)


def _mixture(data: ClaimData, arm: str) -> Reason | None:
    if mixtures(data.of)[arm]:
        return None
    text = f"{arm} recorded no expert choices: {data.settings(arm).model} is dense"
    return Reason("dense-model", text)


def _trainer_old_logprobs(data: ClaimData, arm: str) -> Reason | None:
    if data.settings(arm).update.old_logprobs == "trainer":
        return None
    text = f"{arm} takes the sampler's log-probs as the old policy's, so mini-batch 0 may clip"
    return Reason("sampler-logprobs", text)


def _same_reinforce(data: ClaimData, arm: str) -> Reason | None:
    """Where both rules reduce to the same REINFORCE at ratio 1."""
    objective = data.settings(arm).objective
    if objective.aggregation != "seq-mean-token-mean":
        text = f"{arm} aggregates by {objective.aggregation}, not by seq-mean-token-mean"
        return Reason("another-aggregation", text)
    bound = objective.dual_clip
    return None if bound is None else Reason("dual-clip", f"{arm} has a dual clip at {bound:g}")


def _same_first_rollout(data: ClaimData, roles: Roles) -> Reason | None:
    """Match level 4: what the arms sampled before the first update is the same text, seed by
    seed.
    """
    evidence = data.of.evidence
    evidence.columns("steps", ["rollout_digest"])
    query = "SELECT rollout_digest FROM steps WHERE run_id = ? AND step = 0"
    for seed in data.seeds(roles.values()):
        digests = {arm: evidence.rows(query, (data.run(arm, seed),)) for arm in roles.values()}
        for arm, rows in digests.items():
            if rows in ([], [(None,)]):
                return not_recorded("rollout_digest", arm, seed).reason
        if len({rows[0] for rows in digests.values()}) > 1:
            text = f"the first rollouts of {' and '.join(roles)} differ at seed {seed}"
            return Reason("other-first-rollouts", text)
    return None


def _tuned_bands(data: ClaimData, arm: str) -> Reason | None:
    """The range is calibrated or chosen for this study; the paper's sequence range counts only at
    its lengths.

    A token ratio does not depend on length, so the paper's token range counts everywhere."""
    objective = data.settings(arm).objective
    chosen = objective.clip == "calibrated" or objective.importance_sampling_level == "token"
    if chosen or (objective.clip_low, objective.clip_high) != PAPER_BAND:
        return None
    length = data.of_arm(Reading("response_tokens_mean", EVERY_STEP), arm)
    if length >= LONG:
        return None
    text = (
        f"{arm} has the paper's range 3e-4/4e-4, tuned for thousands of tokens, on responses of"
        f" {length:.3g}; use clip = 'calibrated' or a range of its own"
    )
    return Reason("paper-range", text)


def _routing_matters(data: ClaimData, roles: Roles) -> Reason | None:
    arm = next(iter(roles.values()))
    share = data.of_arm(Reading("expert_change", Window(minibatch=Minibatch.FINAL)), arm)
    if share >= LEAST_CHANGE:
        return None
    text = (
        f"routing hardly moves: {share:.3g} of {arm}'s experts change by the last mini-batch;"
        f" {LEAST_CHANGE:g} are needed"
    )
    return Reason("routing-hardly-moves", text)


def _unstable(data: ClaimData, roles: Roles) -> Reason | None:
    """A run of any arm was unstable, not only of the arm that the claim expects, which another may
    have replaced.
    """
    counts = unstable(data, roles).values()
    if any(count for count, _ in counts):
        return None
    judged = sum(judged for _, judged in counts)
    text = (
        f"stability cannot be compared: 0 of {judged} judged runs of {', '.join(roles.values())}"
        " were unstable"
    )
    return Reason("no-unstable-runs", text)


def unstable(data: ClaimData, roles: Roles) -> dict[str, tuple[int, int]]:
    """Per arm how many runs were unstable, of how many that could be judged."""
    seeds = data.seeds(roles.values())
    runs = {arm: [data.outcome(arm, seed) for seed in seeds] for arm in roles.values()}
    judged = {arm: [run for run in of_arm if run.stability_judged] for arm, of_arm in runs.items()}
    return {
        arm: (sum(run.unstable for run in of_arm), len(of_arm)) for arm, of_arm in judged.items()
    }


def _no_collapse(data: ClaimData, roles: Roles) -> Reason | None:
    for arm, seed in product(roles.values(), data.seeds(roles.values())):
        known = data.stability(arm, seed)
        if known.collapse is not None:
            text = f"{arm}, seed {seed}, collapsed at step {known.collapse} ({known.cause})"
            return Reason("collapse", text)
    return None


def _reward_margin(data: ClaimData, roles: Roles) -> Reason | None:
    if data.verdict.reward_margin is not None:
        return None
    text = (
        "the study declares no verdict.reward_margin: nothing says which training rewards are as"
        " good as equal"
    )
    return Reason("no-reward-margin", text)


def _other_numerics(data: ClaimData, arm: str) -> Reason | None:
    rollout = data.settings(arm).rollout
    update = data.settings(arm).update
    same = (rollout.dtype, rollout.float32_head) == (update.dtype, update.float32_head)
    if not same or rollout.sampler != "transformers":
        return None
    mismatch = data.of_arm(Reading("mismatch_k3", EVERY_STEP), arm)
    text = (
        f"{arm} samples with the trainer's own engine and precision ({update.dtype}); its"
        f" mismatch_k3 is {mismatch:.2g}"
    )
    return Reason("same-numerics", text)


def _for_each_arm(check: Callable[..., Reason | None], *keys: str, **bounds: Any) -> Check:
    """The check of each arm in turn; its settings `keys` must be known."""

    def of_arm(data: ClaimData, arm: str) -> Reason | None:
        unknown = [key for key in keys if not data.of.declaration.is_known(arm, key)]
        if unknown:
            return Reason("unknown-setting", f"{arm}: {unknown[0]} was not recorded")
        return check(data, arm, **bounds)

    return lambda data, roles: next(
        filter(None, (of_arm(data, arm) for arm in roles.values())), None
    )


UPDATES = ("update.minibatches", "update.epochs")
NEEDS: Mapping[str, Check] = {
    "1 seed": partial(_seeds, least=1),
    "3 seeds": partial(_seeds, least=3),
    "2 updates per rollout batch": _for_each_arm(_updates, *UPDATES, least=2),
    "4 updates per rollout batch": _for_each_arm(_updates, *UPDATES, least=4),
    "a mixture of experts": _for_each_arm(_mixture),
    "old log-probs from the trainer": _for_each_arm(_trainer_old_logprobs, "update.old_logprobs"),
    "a sampler of another engine or precision": _for_each_arm(
        _other_numerics, "rollout.sampler", "rollout.dtype", "update.dtype"
    ),
    "sequence-mean aggregation, no dual clip": _for_each_arm(
        _same_reinforce, "objective.aggregation", "objective.dual_clip"
    ),
    "the same first rollout": _same_first_rollout,
    "tuned clip ranges": _for_each_arm(_tuned_bands, *BAND),
    "expert change of 0.05 or more": _routing_matters,
    "an unstable run": _unstable,
    "no collapse in either arm": _no_collapse,
    "verdict.reward_margin": _reward_margin,
}
"""The preconditions of library entries. Routing is that of the arm in the claim's first role."""
