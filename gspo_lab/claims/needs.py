"""The preconditions that claims share. Each one that is unmet says what was measured of it."""

import math

import numpy as np
from numpy.typing import NDArray

from gspo_lab.claims.claim import Need, Roles
from gspo_lab.claims.parts import Untestable
from gspo_lab.claims.recorded import Recorded
from gspo_lab.findings.clipped import ACTIVE, SATURATED
from gspo_lab.stats.power import largest_equivalent_sd

PAPER_BAND = (3e-4, 4e-4)
LONG = 500
"""Tokens: the paper's sequence range belongs to responses of thousands of tokens; below this it is another range."""

LEAST_BINS, LEAST_IN_BIN, LEAST_SPREAD = 5, 50, 4.0
START_GAP = 0.1
ACTIVE_GAP = 2.0


def seeds(least: int = 3) -> Need:
    def check(recorded: Recorded, roles: Roles) -> None:
        found = len(recorded.seeds(roles.values()))
        if found < least:
            raise Untestable(f"{found} seeds finished in every arm it needs; {least} are needed")

    return Need(f"n >= {least} seeds", check)


def minibatches(least: int = 2) -> Need:
    def check(recorded: Recorded, roles: Roles) -> None:
        for arm in roles.values():
            found = recorded.settings[arm].update.per_rollout_batch
            if found < least:
                raise Untestable(f"{arm} makes {found} updates per rollout batch; {least} are needed")

    return Need(f"N >= {least} updates per rollout batch", check)


def mixture() -> Need:
    def check(recorded: Recorded, roles: Roles) -> None:
        for arm in roles.values():
            if not recorded.mixtures[arm]:
                raise Untestable(f"{arm} recorded no expert choices: {recorded.settings[arm].model} is dense")

    return Need("a mixture of experts", check)


def trainer_old_logprobs() -> Need:
    def check(recorded: Recorded, roles: Roles) -> None:
        for arm in roles.values():
            if recorded.settings[arm].update.old_logprobs != "trainer":
                raise Untestable(f"{arm} takes the sampler's log-probs as the old policy's, so mini-batch 0 may clip")

    return Need("old log-probs from the trainer's own forward", check)


def same_reinforce() -> Need:
    """Where both rules reduce to the same REINFORCE at ratio 1."""

    def check(recorded: Recorded, roles: Roles) -> None:
        for arm in roles.values():
            objective = recorded.settings[arm].objective
            if objective.aggregation != "seq-mean-token-mean":
                raise Untestable(f"{arm} aggregates by {objective.aggregation}, not by seq-mean-token-mean")
            if objective.dual_clip is not None:
                raise Untestable(f"{arm} has a dual clip at {objective.dual_clip:g}")

    return Need("sequence-mean aggregation, no dual clip", check)


def same_first_rollout(*names: str) -> Need:
    """Match level 4: what the arms sampled before the first update is the same text, seed by seed."""

    def check(recorded: Recorded, roles: Roles) -> None:
        for seed in recorded.seeds(roles.values()):
            found = set()
            for arm in (roles[name] for name in names):
                rows = recorded.of(arm, seed, "steps", "rollout_digest")
                found.add(rows[rows["step"] == 0]["rollout_digest"].iloc[0])
            if len(found) > 1:
                raise Untestable(f"the first rollouts of {' and '.join(names)} differ at seed {seed}")

    return Need("the same first rollout", check)


def spread_of_lengths(role: str) -> Need:
    def check(recorded: Recorded, roles: Roles) -> None:
        for seed in recorded.seeds(roles.values()):
            length = recorded.details(roles[role], seed).length
            bins = length_bins(length)
            if len(bins) < LEAST_BINS:
                raise Untestable(
                    f"{len(length)} recorded responses of {roles[role]}, seed {seed}, make {len(bins)} length bins of "
                    f"{LEAST_IN_BIN}; {LEAST_BINS} are needed"
                )
            means = [float(length[one].mean()) for one in bins]
            if means[-1] / means[0] < LEAST_SPREAD:
                raise Untestable(
                    f"the longest bin of {roles[role]}, seed {seed}, is {means[-1] / means[0]:.2g} times the shortest "
                    f"({means[0]:.3g} to {means[-1]:.3g} tokens); {LEAST_SPREAD:g} are needed"
                )

    return Need(
        f">= {LEAST_BINS} length bins of >= {LEAST_IN_BIN} responses, longest/shortest >= {LEAST_SPREAD:g}", check
    )


def length_bins(length: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """Indices of the responses in each bin, short to long: whole lengths put together until a bin holds an eighth of
    all responses, and LEAST_IN_BIN at least."""
    least = max(LEAST_IN_BIN, math.ceil(len(length) / 8))
    bins: list[NDArray[np.intp]] = []
    waiting = np.zeros(0, dtype=np.intp)
    for value in np.unique(length):
        waiting = np.concatenate([waiting, np.flatnonzero(length == value)])
        if len(waiting) >= least:
            bins.append(waiting)
            waiting = waiting[:0]
    if len(waiting) >= LEAST_IN_BIN:
        bins.append(waiting)
    elif len(waiting) and bins:
        bins[-1] = np.concatenate([bins[-1], waiting])
    return bins


def saturation(recorded: Recorded, arm: str) -> str | None:
    """How much a saturated arm clips, in words; None for any other."""
    clipped = recorded.found.clipped
    if not clipped.saturated(arm):
        return None
    return f"{arm} is saturated: it clips {clipped.share(arm, ACTIVE):.3f} of the active tokens on mini-batches >= 1"


def not_saturated(role: str) -> Need:
    def check(recorded: Recorded, roles: Roles) -> None:
        said = saturation(recorded, roles[role])
        if said:
            raise Untestable(f"{said}, above {SATURATED}")

    return Need(f"{role} not saturated (<= {SATURATED} of the active tokens on mini-batches >= 1)", check)


def tuned_bands() -> Need:
    """Calibrated or chosen for this study; the paper's sequence range counts at the paper's lengths only. The token
    ratio does not depend on length, so the paper's tuned token range counts everywhere."""

    def check(recorded: Recorded, roles: Roles) -> None:
        for role in ("grpo", "gspo"):
            arm = roles[role]
            objective = recorded.settings[arm].objective
            own = objective.clip == "calibrated" or objective.importance_sampling_level == "token"
            if own or (objective.clip_low, objective.clip_high) != PAPER_BAND:
                continue
            rows = recorded.frame("steps", "response_tokens_mean")
            length = float(rows[rows["arm"] == arm]["response_tokens_mean"].mean())
            if not length >= LONG:
                raise Untestable(
                    f"{arm} has the paper's range 3e-4/4e-4, tuned for thousands of tokens, on responses of "
                    f"{length:.3g}; use clip = 'calibrated' or a range of its own"
                )

    return Need("both clip ranges tuned", check)


def routing_matters(least: float = 0.05) -> Need:
    def check(recorded: Recorded, roles: Roles) -> None:
        arm = roles["grpo"]
        last = recorded.settings[arm].update.per_rollout_batch - 1
        found = []
        for seed in recorded.seeds([arm]):
            rows = recorded.settled(arm, seed, "expert_change")
            found.append(float(rows[rows["minibatch"] == last]["expert_change"].mean()))
        if not np.mean(found) >= least:
            raise Untestable(
                f"routing hardly moves: {np.mean(found):.3g} of {arm}'s experts change by the last mini-batch; "
                f"{least:g} are needed"
            )

    return Need(f"routing matters: expert change >= {least:g}", check)


def unstable(*names: str) -> Need:
    """The regime in which something can go wrong: a run of these arms fell back."""

    def check(recorded: Recorded, roles: Roles) -> None:
        every = [recorded.stability(roles[name], seed) for name in names for seed in recorded.seeds(roles.values())]
        judged = [one for one in every if one.judged or one.collapse is not None]
        fallen = [one for one in judged if one.collapse is not None or one.regression is not None]
        if not fallen:
            raise Untestable(
                f"the unstable regime was not reached: 0 of {len(judged)} judged runs of "
                f"{', '.join(roles[name] for name in names)} collapsed or fell back"
            )

    return Need("unstable regime reached (a run collapsed or fell back)", check)


def no_collapse() -> Need:
    def check(recorded: Recorded, roles: Roles) -> None:
        for arm in roles.values():
            for seed in recorded.seeds(roles.values()):
                found = recorded.stability(arm, seed)
                if found.collapse is not None:
                    raise Untestable(f"{arm}, seed {seed}, collapsed at step {found.collapse} ({found.cause})")

    return Need("no collapse in either arm", check)


def small_enough_spread(margin: float) -> Need:
    """The sd of the pair difference at which these seeds could call an estimate of 0 equivalent."""

    def check(recorded: Recorded, roles: Roles) -> None:
        pairs = recorded.seeds(roles.values())
        if len(pairs) < 3:
            return  # another need's matter: there is no interval at all
        d = [recorded.final(roles["gspo"], seed) - recorded.final(roles["grpo"], seed) for seed in pairs]
        sd, most = float(np.std(d, ddof=1)), largest_equivalent_sd(len(pairs), margin)
        if sd > most:
            raise Untestable(
                f"the pair difference has sd {sd:.3g} over {len(pairs)} seeds; {most:.2g} at most can show it"
            )

    return Need("sd of the pair difference <= .008 at n = 3, <= .016 at n = 5", check)


def little_truncation(most: float = 0.1) -> Need:
    def check(recorded: Recorded, roles: Roles) -> None:
        frame = recorded.frame("steps", "truncated_responses")
        for arm in roles.values():
            found = float(frame[frame["arm"] == arm]["truncated_responses"].mean())
            if not found < most:
                raise Untestable(f"{arm} has {found:.3g} of its responses cut at the limit; below {most:g} is needed")

    return Need(f"truncation < {most:g}", check)


def dense_control() -> Need:
    """Like active parameters and start scores, or the comparison is of two sizes of model."""

    def check(recorded: Recorded, roles: Roles) -> None:
        size, start = {}, {}
        for role in ("moe", "dense"):
            arm = roles[role]
            per_token, scores = [], []
            for seed in recorded.seeds(roles.values()):
                rows = recorded.of(arm, seed, "steps", "flops_total", "tokens_sampled_total")
                per_token.append(float(rows["flops_total"].iloc[-1] / rows["tokens_sampled_total"].iloc[-1]))
                scores.append(float(recorded.scores(arm, seed)["score"].iloc[0]))
            size[role], start[role] = float(np.mean(per_token)), float(np.mean(scores))
        times = size["moe"] / size["dense"]
        if not 1 / ACTIVE_GAP <= times <= ACTIVE_GAP:
            raise Untestable(f"the MoE arm computes {times:.2g} times as much per token as its dense control")
        if abs(start["moe"] - start["dense"]) > START_GAP:
            raise Untestable(
                f"the MoE arm starts at a score of {start['moe']:.3g}, its dense control at {start['dense']:.3g}"
            )

    return Need(f"dense control: active compute within x{ACTIVE_GAP:g}, start score within {START_GAP:g}", check)


def other_numerics() -> Need:
    def check(recorded: Recorded, roles: Roles) -> None:
        for arm in roles.values():
            rollout, update = recorded.settings[arm].rollout, recorded.settings[arm].update
            if rollout.dtype == update.dtype and rollout.sampler == "transformers":
                frame = recorded.frame("steps", "mismatch_k3")
                found = float(frame[frame["arm"] == arm]["mismatch_k3"].mean())
                raise Untestable(
                    f"{arm} samples with the trainer's own engine and precision ({update.dtype}); "
                    f"its mismatch_k3 is {found:.2g}"
                )

    return Need("sampler of another engine or precision", check)
