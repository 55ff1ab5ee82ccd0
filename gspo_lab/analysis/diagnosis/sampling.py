"""Signals of the sampled responses: their rewards, lengths, age and routing."""

import numpy as np

from gspo_lab.analysis.diagnosis.log import TrainingLog
from gspo_lab.analysis.diagnosis.own_run import LAST
from gspo_lab.analysis.diagnosis.setup import NO_REPLAY, SAMPLER
from gspo_lab.analysis.diagnosis.signals import Case, Finding, share, signal

FEW_GROUPS = 0.5
HARDLY_GROUPS = 0.9
CUT = 0.1
MOSTLY_CUT = 0.5
MISMATCH_NOTE = {"mismatch_abs_mean": 0.01, "mismatch_k3": 1e-3, "mismatch_k1": 1e-3}
MISMATCH_WARN = {"mismatch_abs_mean": 0.05, "mismatch_k3": 1e-2, "mismatch_k1": 1e-2}
MOVES = 0.05
STILL = 0.005
ADVANTAGES = (
    ("critic/advantages/max", "critic/advantages/min"),
    ("ppo_actor/advantages/max", "ppo_actor/advantages/min"),
)
"""Names under which programs log the largest and the smallest advantage of a step."""


@signal(
    "no-signal",
    needs="the share of groups with equal rewards",
    usual=f"below {FEW_GROUPS}; it grows as prompts become always or never solved",
    source="2503.14476 section 3.2; the bounds are this program's choice",
)
def no_signal(case: Case) -> Finding:
    """Groups whose responses all earn the same, which train nothing."""
    groups = case.log.named("zero_variance_groups")
    if groups is None:
        found = _batches_without_signal(case.log)
        if found is None:
            return case.lacking("groups", "zero_variance_groups", "groups without variance")
        name, empty = found
        if empty < FEW_GROUPS:
            return Finding(
                "unknown",
                f"by group not recorded; {share(empty)} of the steps have"
                f" no advantage at all ({name})",
                case.setup.recorded_by("groups"),
            )
        level = "error" if empty > HARDLY_GROUPS else "warn"
        value = f"no advantage at all in {share(empty)} of the steps ({name})"
        return Finding(level, value, case.setup.key("groups"))
    end = groups.end()
    value = f"{share(end)} of the groups in the last fifth of the log ({groups.name})"
    if end <= FEW_GROUPS:
        return Finding("ok", value)
    level = "error" if end > HARDLY_GROUPS else "warn"
    return Finding(level, f"{value}{_solved(case.log)}", case.setup.key("groups"))


def _batches_without_signal(log: TrainingLog) -> tuple[str, float] | None:
    """The share of steps whose largest and smallest advantage are equal, with the name."""
    for largest_name, smallest_name in ADVANTAGES:
        largest = log.named(largest_name)
        smallest = log.named(smallest_name)
        if largest is not None and smallest is not None and len(largest) == len(smallest):
            return largest_name, float(np.mean(largest.values == smallest.values))
    return None


def _solved(log: TrainingLog) -> str:
    """Whether equal rewards are low or high ones, by the mean reward."""
    reward = log.named("reward_mean")
    return "" if reward is None else f"; mean reward {reward.end():.3g}"


@signal(
    "truncated",
    needs="the share of responses cut at the limit",
    usual=f"below {CUT}",
    source="2503.14476 section 3.4 on their noise; the bounds are this program's choice",
)
def truncated(case: Case) -> Finding:
    """Responses that the token limit cuts."""
    cut = case.log.named("truncated_responses") or case.log.quantity("truncation")
    if cut is None:
        return case.lacking("truncation", "truncated_responses", "truncation")
    end = cut.end()
    value = f"{share(end)} of the responses in the last fifth of the log ({cut.name})"
    if cut.hidden:
        value = f"{cut.mean_text} of the responses ({cut.name})"
        end = cut.low
    if end <= CUT:
        return Finding("ok", value)
    level = "error" if end > MOSTLY_CUT else "warn"
    return Finding(level, value, case.setup.key("limit"))


@signal(
    "staleness",
    needs="the age of the policy that sampled, or its setting",
    usual="0; older rollouts need the sampler's log-probs or a correction",
    source="2110.00641; 2505.24298 section 5; docs/explanation/off-policy.md",
)
def staleness(case: Case) -> Finding:
    """Rollouts of an older policy, and what corrects them."""
    setup = case.setup
    age = case.log.named("version_lag_mean") or case.log.quantity("age of rollouts")
    if age is None and setup.staleness is None:
        return case.lacking("lag", "version_lag_mean")
    if age is None:
        if not setup.staleness:
            return Finding("ok", f"0 by the settings ({setup.key('lag')})")
        value = f"allowed up to {setup.staleness:g} by the settings; the age itself is not recorded"
        return Finding("unknown", value, setup.recorded_by("lag"))
    value = f"{age.end():.2g} rollout batches ({age.name})"
    if age.end() <= 0:
        return Finding("ok", value)
    if setup.old is None:
        return Finding(
            "note",
            f"{value}; whether it is corrected is not recorded",
            setup.recorded_by("settings"),
        )
    if setup.old == SAMPLER or setup.corrected:
        return Finding("note", f"{value}, with the sampler's log-probs or a correction")
    value += "; the ratio begins at 1 in every step, and nothing corrects for the older policy"
    return Finding("warn", value, f"{setup.key('old')}, {setup.key('correction')}")


@signal(
    "mismatch",
    needs="the trainer's against the sampler's log-probs",
    usual="|d| of .003 nats per token in bfloat16, 1e-6 in float32",
    source=(
        "logs of verl 0.9 and gspo-lab on tiny models; docs/results/old_logprobs.md; the bounds"
        " are this program's choice"
    ),
)
def mismatch(case: Case) -> Finding:
    """The difference of sampler and trainer on the same tokens and weights."""
    setup = case.setup
    name = next((name for name in MISMATCH_NOTE if case.log.rows.get(name)), None)
    if name is None:
        other = case.log.quantity("mismatch of sampler and trainer")
        if other is None:
            return case.lacking("mismatch", *MISMATCH_NOTE, "mismatch of sampler and trainer")
        return Finding("ok", f"{other.mean_text} ({other.name}); not judged", usual="not known")
    series = case.log.named(name)
    assert series is not None
    size = float(np.abs(series.values).mean())
    value = f"{size:.2g} ({series.name})"
    spread = case.log.named("mismatch_std_responses")
    if spread is not None and setup.level == "sequence" and setup.clip_low:
        value += f"; a response's mean spreads by {spread.low:.2g}, the range is {setup.clip_low:g}"
    age = case.log.named("version_lag_mean")
    if age is not None and age.high > 0:
        return Finding("note", f"{value}, the older policy's difference included")
    if size <= MISMATCH_NOTE[name]:
        return Finding("ok", value)
    handled = setup.corrected or setup.old == SAMPLER
    level = "warn" if size > MISMATCH_WARN[name] and not handled else "note"
    return Finding(level, value, "" if handled else setup.key("correction"))


@signal(
    "routing-replay",
    needs="a mixture of experts, the setting, and the share of experts that change",
    usual="1.5 to 6 % of the choices change within a rollout batch; below 5 % replay showed no"
    " effect",
    source="docs/results/routing.md (5 seeds x 24 steps), docs/results/moe_stability.md",
)
def routing_replay(case: Case) -> Finding:
    """Routing replay that does nothing, or that a token ratio lacks."""
    setup = case.setup
    changed = case.log.named(f"{LAST}expert_change", "expert_change")
    replays = setup.replay not in NO_REPLAY
    if setup.dense:
        if replays:
            return Finding(
                "warn", f"{setup.replay} on a dense model: nothing is routed", setup.key("replay")
            )
        return Finding("ok", "a dense model: nothing is routed", usual="")
    if replays and setup.updates == 1 and setup.replay in ("old-policy", "R2"):
        value = f"{setup.replay} with one update per rollout batch: no expert has changed yet"
        return Finding("warn", value, f"{setup.key('updates')}, or no {setup.key('replay')}")
    if changed is None or setup.replay is None:
        return case.lacking("experts", "expert_change")
    value = f"{100 * changed.low:.2g} % of the experts change by the last mini-batch"
    if replays and changed.low < STILL:
        advice = f"routing hardly moves, so replay changes little: {setup.key('replay')}"
        return Finding("note", f"{setup.replay}; {value}", advice)
    if not replays and changed.low >= MOVES and setup.level != "sequence":
        usual = "replay halves the spread of token ratios (.56, .51 to .61; replicated)"
        return Finding("warn", f"no replay; {value}", setup.key("replay"), usual)
    return Finding("ok", f"{setup.replay}; {value}")
