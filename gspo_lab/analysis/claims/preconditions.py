"""Preconditions of claims. An unmet one returns its measurement as a reason."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

from gspo_lab.analysis.claims.data import ClaimData, mixtures
from gspo_lab.analysis.readings import Minibatch, Reading, Steps, Window
from gspo_lab.analysis.stats.verdict import Reason
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
    return Reason("few seeds", {"count": count, "least": least}) if count < least else None


def _updates(data: ClaimData, arm: str, least: int) -> Reason | None:
    count = data.settings(arm).update.per_rollout_batch
    return (
        Reason("few updates", {"arm": arm, "count": count, "least": least})
        if count < least
        else None
    )


def _mixture(data: ClaimData, arm: str) -> Reason | None:
    return (
        None
        if mixtures(data.of)[arm]
        else Reason("dense model", {"arm": arm, "model": data.settings(arm).model})
    )


def _trainer_old_logprobs(data: ClaimData, arm: str) -> Reason | None:
    trainer = data.settings(arm).update.old_logprobs == "trainer"
    return None if trainer else Reason("the sampler's log-probs", {"arm": arm})


def _same_reinforce(data: ClaimData, arm: str) -> Reason | None:
    """Where both rules reduce to the same REINFORCE at ratio 1."""
    objective = data.settings(arm).objective
    if objective.aggregation != "seq-mean-token-mean":
        return Reason("another aggregation", {"arm": arm, "aggregation": objective.aggregation})
    bound = objective.dual_clip
    return None if bound is None else Reason("a dual clip", {"arm": arm, "bound": bound})


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
                return Reason(
                    "not recorded", {"metric": "rollout_digest", "arm": arm, "seed": seed}
                )
        if len({rows[0] for rows in digests.values()}) > 1:
            return Reason("other first rollouts", {"roles": tuple(roles), "seed": seed})
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
    return None if length >= LONG else Reason("the paper's range", {"arm": arm, "length": length})


def _routing_matters(data: ClaimData, roles: Roles) -> Reason | None:
    arm = next(iter(roles.values()))
    share = data.of_arm(Reading("expert_change", Window(minibatch=Minibatch.FINAL)), arm)
    least = {"arm": arm, "share": share, "least": LEAST_CHANGE}
    return None if share >= LEAST_CHANGE else Reason("routing hardly moves", least)


def _unstable(data: ClaimData, roles: Roles) -> Reason | None:
    """A run of any arm was unstable, not only of the arm that the claim expects, which another may
    have replaced.
    """
    counts = unstable(data, roles).values()
    judged = sum(judged for _, judged in counts)
    lacking = Reason("no unstable runs", {"arms": tuple(roles.values()), "judged": judged})
    return None if any(count for count, _ in counts) else lacking


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
            return Reason(
                "a collapse",
                {"arm": arm, "seed": seed, "step": known.collapse, "cause": known.cause},
            )
    return None


def _reward_margin(data: ClaimData, roles: Roles) -> Reason | None:
    return Reason("no reward margin") if data.verdict.reward_margin is None else None


def _other_numerics(data: ClaimData, arm: str) -> Reason | None:
    rollout = data.settings(arm).rollout
    update = data.settings(arm).update
    same = (rollout.dtype, rollout.float32_head) == (update.dtype, update.float32_head)
    if not same or rollout.sampler != "transformers":
        return None
    mismatch = data.of_arm(Reading("mismatch_k3", EVERY_STEP), arm)
    return Reason("the same numerics", {"arm": arm, "dtype": update.dtype, "mismatch": mismatch})


def _for_each_arm(check: Callable[..., Reason | None], *keys: str, **bounds: Any) -> Check:
    """The check of each arm in turn; its settings `keys` must be known."""

    def of_arm(data: ClaimData, arm: str) -> Reason | None:
        unknown = [key for key in keys if not data.of.declaration.is_known(arm, key)]
        return (
            Reason("unknown setting", {"arm": arm, "key": unknown[0]})
            if unknown
            else check(data, arm, **bounds)
        )

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
