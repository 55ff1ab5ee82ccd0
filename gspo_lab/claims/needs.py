"""The preconditions that claims share. Each one that is unmet says what was measured of it."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gspo_lab.claims.claim import Need, Roles
from gspo_lab.claims.recorded import Recorded, details
from gspo_lab.findings.clipped import SATURATED, active_share, saturated
from gspo_lab.readings import Minibatch, Reading, Reduce, Steps, Window, average
from gspo_lab.study.dotted import BAND

PAPER_BAND = (3e-4, 4e-4)
LONG = 500
"""Tokens: the paper's sequence range belongs to responses of thousands of tokens; below this it is another range."""

LEAST_BINS, LEAST_IN_BIN, LEAST_SPREAD = 5, 50, 4.0
START_GAP = 0.1
ACTIVE_GAP = 2.0
LEAST_CHANGE, MOST_CUT = 0.05, 0.1
UPDATES = ("update.minibatches", "update.epochs")

EVERY_STEP = Window(Steps.ALL)

Unmet = str | None
"""What is lacking, in words."""


def _seeds(recorded: Recorded, roles: Roles, least: int) -> Unmet:
    found = len(recorded.seeds(roles.values()))
    return f"{found} seeds finished in every arm it needs; {least} are needed" if found < least else None


def _minibatches(recorded: Recorded, arm: str, least: int) -> Unmet:
    found = recorded.settings[arm].update.per_rollout_batch
    return f"{arm} makes {found} updates per rollout batch; {least} are needed" if found < least else None


def _mixture(recorded: Recorded, arm: str) -> Unmet:
    dense = f"{arm} recorded no expert choices: {recorded.settings[arm].model} is dense"
    return None if recorded.mixtures[arm] else dense


def _trainer_old_logprobs(recorded: Recorded, arm: str) -> Unmet:
    other = f"{arm} takes the sampler's log-probs as the old policy's, so mini-batch 0 may clip"
    return None if recorded.settings[arm].update.old_logprobs == "trainer" else other


def _same_reinforce(recorded: Recorded, arm: str) -> Unmet:
    """Where both rules reduce to the same REINFORCE at ratio 1."""
    objective = recorded.settings[arm].objective
    if objective.aggregation != "seq-mean-token-mean":
        return f"{arm} aggregates by {objective.aggregation}, not by seq-mean-token-mean"
    return None if objective.dual_clip is None else f"{arm} has a dual clip at {objective.dual_clip:g}"


def _same_first_rollout(recorded: Recorded, roles: Roles) -> Unmet:
    """Match level 4: what the arms sampled before the first update is the same text, seed by seed."""
    for seed in recorded.seeds(roles.values()):
        every = [recorded.of(arm, seed, "steps", "rollout_digest") for arm in roles.values()]
        if len({rows[rows["step"] == 0]["rollout_digest"].iloc[0] for rows in every}) > 1:
            return f"the first rollouts of {' and '.join(roles)} differ at seed {seed}"
    return None


def _spread_of_lengths(recorded: Recorded, roles: Roles) -> Unmet:
    arm = _first(roles)
    for seed in recorded.seeds(roles.values()):
        length = details(recorded, arm, seed).length
        bins = length_bins(length)
        if len(bins) < LEAST_BINS:
            return (
                f"{len(length)} recorded responses of {arm}, seed {seed}, make {len(bins)} length bins of "
                f"{LEAST_IN_BIN}; {LEAST_BINS} are needed"
            )
        means = [float(length[one].mean()) for one in bins]
        if means[-1] / means[0] < LEAST_SPREAD:
            return (
                f"the longest bin of {arm}, seed {seed}, is {means[-1] / means[0]:.2g} times the shortest "
                f"({means[0]:.3g} to {means[-1]:.3g} tokens); {LEAST_SPREAD:g} are needed"
            )
    return None


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


def saturation(recorded: Recorded, arm: str) -> Unmet:
    """How much a saturated arm clips, in words; None for any other."""
    if not saturated(recorded.found, arm):
        return None
    share = active_share(recorded.found, arm)
    return f"{arm} is saturated: it clips {share:.3f} of the active tokens on mini-batches >= 1"


def _not_saturated(recorded: Recorded, roles: Roles) -> Unmet:
    said = saturation(recorded, roles["gspo"])
    return said and f"{said}, above {SATURATED}"


def _tuned_bands(recorded: Recorded, arm: str) -> Unmet:
    """Calibrated or chosen for this study; the paper's sequence range counts at the paper's lengths only. The token
    ratio does not depend on length, so the paper's tuned token range counts everywhere."""
    objective = recorded.settings[arm].objective
    own = objective.clip == "calibrated" or objective.importance_sampling_level == "token"
    if own or (objective.clip_low, objective.clip_high) != PAPER_BAND:
        return None
    length = recorded.mean(Reading("response_tokens_mean", EVERY_STEP), arm)
    if length >= LONG:
        return None
    return (
        f"{arm} has the paper's range 3e-4/4e-4, tuned for thousands of tokens, on responses of {length:.3g}; "
        "use clip = 'calibrated' or a range of its own"
    )


def _routing_matters(recorded: Recorded, roles: Roles) -> Unmet:
    arm = _first(roles)
    found = recorded.mean(Reading("expert_change", Window(minibatch=Minibatch.FINAL)), arm)
    still = f"routing hardly moves: {found:.3g} of {arm}'s experts change by the last mini-batch"
    return None if found >= LEAST_CHANGE else f"{still}; {LEAST_CHANGE:g} are needed"


def _unstable(recorded: Recorded, roles: Roles) -> Unmet:
    """Something can go wrong here: a run of any of the arms was unstable, of whichever the claim expects it. Asked of
    the one that should be alone, the need would hide that another one was in its place."""
    runs = [recorded.outcome(arm, seed) for arm, seed in product(roles.values(), recorded.seeds(roles.values()))]
    judged = [run for run in runs if run.fall_judged]
    stable = f"0 of {len(judged)} judged runs of {', '.join(roles.values())} were unstable"
    return None if any(run.fell for run in judged) else f"stability cannot be compared: {stable}"


def _no_collapse(recorded: Recorded, roles: Roles) -> Unmet:
    for arm, seed in product(roles.values(), recorded.seeds(roles.values())):
        found = recorded.stability(arm, seed)
        if found.collapse is not None:
            return f"{arm}, seed {seed}, collapsed at step {found.collapse} ({found.cause})"
    return None


def _reward_margin(recorded: Recorded, roles: Roles) -> Unmet:
    lacking = "the study declares no verdict.reward_margin: nothing says which training rewards are as good as equal"
    return lacking if recorded.verdict.reward_margin is None else None


def _little_truncation(recorded: Recorded, roles: Roles, role: str) -> Unmet:
    arm = roles[role]
    found = recorded.mean(Reading("truncated_responses", EVERY_STEP), arm)
    cut = f"{arm} has {found:.3g} of its responses cut at the limit; below {MOST_CUT:g} is needed"
    return None if found < MOST_CUT else cut


def _dense_control(recorded: Recorded, roles: Roles) -> Unmet:
    """Like active parameters and start scores, or the comparison is of two sizes of model."""
    pairs = recorded.seeds(roles.values())
    size, start = {}, {}
    for role in ("moe", "dense"):
        flops, tokens = (
            Reading(total, EVERY_STEP, Reduce.LARGEST) for total in ("flops_total", "tokens_sampled_total")
        )
        arm = roles[role]
        spent = average(recorded.number(flops, arm, seed) / recorded.number(tokens, arm, seed) for seed in pairs)
        begun = average(recorded.scores(arm, seed)["score"].iloc[0] for seed in pairs)
        assert spent is not None
        assert begun is not None
        size[role], start[role] = spent, begun
    times = size["moe"] / size["dense"]
    if not 1 / ACTIVE_GAP <= times <= ACTIVE_GAP:
        return f"the MoE arm computes {times:.2g} times as much per token as its dense control"
    if abs(start["moe"] - start["dense"]) > START_GAP:
        return f"the MoE arm starts at a score of {start['moe']:.3g}, its dense control at {start['dense']:.3g}"
    return None


def _other_numerics(recorded: Recorded, arm: str) -> Unmet:
    rollout, update = recorded.settings[arm].rollout, recorded.settings[arm].update
    if rollout.dtype != update.dtype or rollout.sampler != "transformers":
        return None
    return (
        f"{arm} samples with the trainer's own engine and precision ({update.dtype}); its mismatch_k3 is "
        f"{recorded.mean(Reading('mismatch_k3', EVERY_STEP), arm):.2g}"
    )


def _first(roles: Roles) -> str:
    return next(iter(roles.values()))


def _each(unmet: Callable[..., Unmet], *keys: str, **bounds: Any) -> Callable[[Recorded, Roles], Unmet]:
    """Asks of one arm after the other, of which the settings `keys` must be known."""

    def of_arm(recorded: Recorded, arm: str) -> Unmet:
        unknown = [key for key in keys if not recorded.found.declaration.told(arm, key)]
        return f"{arm}: {unknown[0]} was not recorded" if unknown else unmet(recorded, arm, **bounds)

    def of_any(recorded: Recorded, roles: Roles) -> Unmet:
        return next(filter(None, (of_arm(recorded, arm) for arm in roles.values())), None)

    return of_any


NEEDS: Mapping[str, Need] = {
    "1 seed": Need("n >= 1 seeds", partial(_seeds, least=1)),
    "3 seeds": Need("n >= 3 seeds", partial(_seeds, least=3)),
    "2 minibatches": Need("N >= 2 updates per rollout batch", _each(_minibatches, *UPDATES, least=2)),
    "4 minibatches": Need("N >= 4 updates per rollout batch", _each(_minibatches, *UPDATES, least=4)),
    "a mixture": Need("a mixture of experts", _each(_mixture)),
    "a dense control": Need(
        f"dense control: active compute within x{ACTIVE_GAP:g}, start score within {START_GAP:g}", _dense_control
    ),
    "the trainer's log-probs": Need(
        "old log-probs from the trainer's own forward", _each(_trainer_old_logprobs, "update.old_logprobs")
    ),
    "other numerics": Need(
        "sampler of another engine or precision",
        _each(_other_numerics, "rollout.sampler", "rollout.dtype", "update.dtype"),
    ),
    "the same reinforce": Need(
        "sequence-mean aggregation, no dual clip",
        _each(_same_reinforce, "objective.aggregation", "objective.dual_clip"),
    ),
    "the same first rollout": Need("the same first rollout", _same_first_rollout),
    "a spread of lengths": Need(
        f">= {LEAST_BINS} length bins of >= {LEAST_IN_BIN} responses, longest/shortest >= {LEAST_SPREAD:g}",
        _spread_of_lengths,
    ),
    "not saturated": Need(
        f"gspo not saturated (<= {SATURATED} of the active tokens on mini-batches >= 1)", _not_saturated
    ),
    "tuned ranges": Need("both clip ranges tuned", _each(_tuned_bands, *BAND)),
    "routing that matters": Need(f"routing matters: expert change >= {LEAST_CHANGE:g}", _routing_matters),
    "instability": Need(
        "an unstable run (collapsed, regressed, or a final score below half of its best)", _unstable, "no unstable runs"
    ),
    "no collapse": Need("no collapse in either arm", _no_collapse),
    "a reward margin": Need("a margin of training reward (verdict.reward_margin)", _reward_margin),
    **{
        f"little truncation of {role}": Need(
            f"truncation of {role} < {MOST_CUT:g}", partial(_little_truncation, role=role)
        )
        for role in ("gspo", "luspo")
    },
}
"""What an entry of the library may ask for. Lengths and routing are those of the arm that plays the first of the
claim's roles."""
