"""Preconditions of claims. An unmet one returns its measurement as a reason."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from gspo_lab.analysis.claims.data import ClaimData, mixtures
from gspo_lab.analysis.claims.estimates import not_recorded
from gspo_lab.analysis.readings import Minibatch, Reading, Steps, Window
from gspo_lab.common.reason import Reason
from gspo_lab.common.text import counted
from gspo_lab.study.dotted_keys import BAND

Check = Callable[[ClaimData], Reason | None]
"""What is lacking; None: met."""
ArmCheck = Callable[[ClaimData, str], Reason | None]
"""A check of one arm: what is lacking; None: met."""

PAPER_BAND = (3e-4, 4e-4)
LONG = 500
"""Tokens: the paper's sequence range belongs to responses of thousands of tokens; below this it is
another range.
"""
LEAST_CHANGE = 0.05
"""Share of the experts: half of the 10 % that the GSPO paper reports for one update."""
EVERY_STEP = Window(Steps.ALL)


@dataclass(frozen=True)
class Need:
    """A precondition of claims: its text for readers, and the check of a study's arms."""

    text: str
    check: Check


def need(text: str) -> Callable[[Check], Need]:
    """Makes a precondition of a check of all arms of a claim."""
    return lambda check: Need(text, check)


def need_of_each_arm(text: str, *keys: str) -> Callable[[ArmCheck], Need]:
    """Makes a precondition of a check of one arm, whose settings `keys` must be known."""

    def decorate(check: ArmCheck) -> Need:
        def check_arms(data: ClaimData) -> Reason | None:
            for arm in data.arms:
                for key in keys:
                    if not data.source.declaration.is_known(arm, key):
                        return Reason("unknown-setting", f"{arm}: {key} was not recorded")
                reason = check(data, arm)
                if reason is not None:
                    return reason
            return None

        return Need(text, check_arms)

    return decorate


def seeds(least: int) -> Need:
    """Seeds that finished in every arm of the claim."""

    @need(counted(least, "seed"))
    def enough(data: ClaimData) -> Reason | None:
        count = len(data.seeds)
        if count >= least:
            return None
        text = f"{count} seeds finished in every arm it needs; {least} are needed"
        return Reason("few-seeds", text)

    return enough


def updates(least: int) -> Need:
    """Updates per rollout batch of each arm."""

    @need_of_each_arm(f"{least} updates per rollout batch", "update.minibatches", "update.epochs")
    def enough(data: ClaimData, arm: str) -> Reason | None:
        count = data.settings(arm).update.per_rollout_batch
        if count >= least:
            return None
        text = f"{arm} makes {count} updates per rollout batch; {least} are needed"
        return Reason("few-updates", text)

    return enough


@need_of_each_arm("a mixture of experts")
def mixture(data: ClaimData, arm: str) -> Reason | None:
    """The arm's model routed tokens to experts."""
    if mixtures(data.source)[arm]:
        return None
    text = f"{arm} recorded no expert choices: {data.settings(arm).model} is dense"
    return Reason("dense-model", text)


@need_of_each_arm("old log-probs from the trainer", "update.old_logprobs")
def trainer_old_logprobs(data: ClaimData, arm: str) -> Reason | None:
    """Every ratio is 1 on mini-batch 0."""
    if data.settings(arm).update.old_logprobs == "trainer":
        return None
    text = f"{arm} takes the sampler's log-probs as the old policy's, so mini-batch 0 may clip"
    return Reason("sampler-logprobs", text)


@need_of_each_arm(
    "sequence-mean aggregation, no dual clip", "objective.aggregation", "objective.dual_clip"
)
def same_reinforce(data: ClaimData, arm: str) -> Reason | None:
    """Both rules reduce to the same REINFORCE at ratio 1."""
    objective = data.settings(arm).objective
    if objective.aggregation != "seq-mean-token-mean":
        text = f"{arm} aggregates by {objective.aggregation}, not by seq-mean-token-mean"
        return Reason("another-aggregation", text)
    bound = objective.dual_clip
    return None if bound is None else Reason("dual-clip", f"{arm} has a dual clip at {bound:g}")


@need("the same first rollout")
def same_first_rollout(data: ClaimData) -> Reason | None:
    """Match level 4: seed by seed the arms sampled the same text before the first update."""
    evidence = data.source.evidence
    query = "SELECT rollout_digest FROM steps WHERE run_id = ? AND step = 0"
    for seed in data.seeds:
        digests = {arm: evidence.rows(query, (data.run(arm, seed),)) for arm in data.arms}
        for arm, rows in digests.items():
            if rows in ([], [(None,)]):
                return not_recorded("rollout_digest", arm, seed).reason
        if len({rows[0] for rows in digests.values()}) > 1:
            text = f"the first rollouts of {' and '.join(data.roles)} differ at seed {seed}"
            return Reason("other-first-rollouts", text)
    return None


@need_of_each_arm("tuned clip ranges", *BAND)
def tuned_ranges(data: ClaimData, arm: str) -> Reason | None:
    """The range is calibrated or chosen for this study; the paper's sequence range counts only at
    its lengths.

    A token ratio does not depend on length, so the paper's token range counts everywhere."""
    objective = data.settings(arm).objective
    chosen = objective.clip == "calibrated" or objective.importance_sampling_level == "token"
    if chosen or objective.clip_range != PAPER_BAND:
        return None
    length = data.mean_of_arm(Reading("response_tokens_mean", EVERY_STEP), arm)
    if length >= LONG:
        return None
    text = (
        f"{arm} has the paper's range 3e-4/4e-4, tuned for thousands of tokens, on responses of"
        f" {length:.3g}; use clip = 'calibrated' or a range of its own"
    )
    return Reason("paper-range", text)


@need(f"expert change of {LEAST_CHANGE:g} or more")
def routing_moves(data: ClaimData) -> Reason | None:
    """The change is that at the last mini-batch, in the arm of the claim's first role."""
    arm = data.arms[0]
    share = data.mean_of_arm(Reading("expert_change", Window(minibatch=Minibatch.FINAL)), arm)
    if share >= LEAST_CHANGE:
        return None
    text = (
        f"routing hardly moves: {share:.3g} of {arm}'s experts change by the last mini-batch;"
        f" {LEAST_CHANGE:g} are needed"
    )
    return Reason("routing-hardly-moves", text)


@need("an unstable run")
def unstable_run(data: ClaimData) -> Reason | None:
    """A run of any arm was unstable, not only of the arm that the claim expects, which another may
    have replaced.
    """
    counts = unstable_runs(data).values()
    if any(count for count, _ in counts):
        return None
    judged = sum(judged for _, judged in counts)
    text = (
        f"stability cannot be compared: 0 of {judged} judged runs of {', '.join(data.arms)}"
        " were unstable"
    )
    return Reason("no-unstable-runs", text)


def unstable_runs(data: ClaimData) -> dict[str, tuple[int, int]]:
    """Per arm how many runs were unstable, of how many that could be judged."""
    counts = {}
    for arm in data.arms:
        outcomes = [data.outcome(arm, seed) for seed in data.seeds]
        judged = [run for run in outcomes if run.stability_judged]
        counts[arm] = (sum(run.unstable for run in judged), len(judged))
    return counts


@need("no collapse in either arm")
def no_collapse(data: ClaimData) -> Reason | None:
    """No run of the claim's arms collapsed."""
    for arm, seed in product(data.arms, data.seeds):
        stability = data.stability(arm, seed)
        if stability.collapse is not None:
            text = f"{arm}, seed {seed}, collapsed at step {stability.collapse} ({stability.cause})"
            return Reason("collapse", text)
    return None


@need("verdict.reward_margin")
def reward_margin(data: ClaimData) -> Reason | None:
    """The study says which training rewards are as good as equal."""
    if data.verdict.reward_margin is not None:
        return None
    text = (
        "the study declares no verdict.reward_margin: nothing says which training rewards are as"
        " good as equal"
    )
    return Reason("no-reward-margin", text)


@need_of_each_arm(
    "a sampler of another engine or precision", "rollout.sampler", "rollout.dtype", "update.dtype"
)
def other_numerics(data: ClaimData, arm: str) -> Reason | None:
    """Sampler and trainer compute differently."""
    rollout = data.settings(arm).rollout
    update = data.settings(arm).update
    same = (rollout.dtype, rollout.float32_head) == (update.dtype, update.float32_head)
    if not same or rollout.sampler != "transformers":
        return None
    mismatch = data.mean_of_arm(Reading("mismatch_k3", EVERY_STEP), arm)
    text = (
        f"{arm} samples with the trainer's own engine and precision ({update.dtype}); its"
        f" mismatch_k3 is {mismatch:.2g}"
    )
    return Reason("same-numerics", text)
