"""Signals of the sampled responses: their rewards, lengths, age and routing."""

from dataclasses import replace

import numpy as np

from gspo_lab.analysis.diagnosis.own_run import LAST
from gspo_lab.analysis.diagnosis.setup import NO_REPLAY, SAMPLER
from gspo_lab.analysis.diagnosis.signals import Case, Finding, share, signal

EQUAL_GROUPS = (0.5, 0.9)
CUT = (0.1, 0.5)
"""A larger share than the first is a warning, than the second an error."""
MISMATCHES = {
    "mismatch_abs_mean": (0.01, 0.05),
    "mismatch_k3": (1e-3, 1e-2),
    "mismatch_k1": (1e-3, 1e-2),
}
"""A larger mismatch than the first is a note, than the second a warning."""
MISMATCH = "mismatch of sampler and trainer"
MOVES = 0.05
STILL = 0.005
ADVANTAGES = ("critic/advantages", "ppo_actor/advantages")
"""Names under which programs log the largest and the smallest advantage of a step."""


@signal("no-signal")
def no_signal(case: Case) -> Finding:
    """Groups whose responses all earn the same, which train nothing."""
    groups = case.log.first_of("zero_variance_groups")
    if groups is not None:
        reward = case.log.first_of("reward_mean")
        value = f"{share(groups.end)} of the groups ({groups.name})"
        value += "" if reward is None else f", mean reward {reward.end:.3g}"
        return case.share_finding(value, groups.end, EQUAL_GROUPS, "groups")
    for name in ADVANTAGES:
        largest = case.log.first_of(f"{name}/max")
        smallest = case.log.first_of(f"{name}/min")
        if largest is not None and smallest is not None:
            empty = float(np.mean(largest.values == smallest.values))
            value = f"no advantage at all in {share(empty)} of the steps ({name})"
            finding = case.share_finding(value, empty, EQUAL_GROUPS, "groups")
            # Steps with an advantage may still have many groups without.
            return replace(finding, level="unknown") if finding.level == "ok" else finding
    return case.not_recorded("groups", "zero_variance_groups")


@signal("truncated")
def truncated(case: Case) -> Finding:
    """Responses that the token limit cuts."""
    cut = case.log.first_of("truncated_responses", "truncation")
    if cut is None:
        return case.not_recorded("truncation", "truncated_responses", "truncation")
    size = cut.low if cut.hidden else cut.end
    value = f"{share(size)} of the responses ({cut.name})"
    metric = case.log.metrics.get(cut.name)
    if metric and not metric.column:
        value += f": {metric.meaning}"
    return case.share_finding(value, size, CUT, "limit")


@signal("staleness")
def staleness(case: Case) -> Finding:
    """Rollouts of an older policy, and what corrects them."""
    setup = case.setup
    age = case.log.first_of("version_lag_mean", "age of rollouts")
    if age is None:
        if setup.staleness == 0:
            return Finding("ok", "0 by the settings")
        allowed = f"; {setup.staleness:g} allowed by the settings" if setup.staleness else ""
        return Finding("unknown", f"not recorded{allowed}", setup.recorded_by("lag"))
    value = f"{age.end:.2g} rollout batches ({age.name})"
    if age.end <= 0:
        return Finding("ok", value)
    if setup.old == SAMPLER or setup.corrected:
        return Finding("note", f"{value}, with the sampler's log-probs or a correction")
    if setup.old is None:
        return Finding("note", value, setup.recorded_by("settings"))
    value += ", and nothing corrects for the older policy"
    return Finding("warn", value, setup.keys("old", "correction"))


@signal("mismatch")
def mismatch(case: Case) -> Finding:
    """The difference of sampler and trainer on the same tokens."""
    setup = case.setup
    name = next((name for name in MISMATCHES if name in case.log.rows), None)
    series = case.log.first_of(name or MISMATCH)
    if series is None:
        return case.not_recorded("mismatch", MISMATCH)
    size = float(np.abs(series.values).mean())
    value = f"{share(size)} ({series.name})"
    if name is None:
        return Finding("ok", value, usual="not known for this measure")
    least, most = MISMATCHES[name]
    age = case.log.first_of("version_lag_mean")
    is_older = age is not None and age.low > 0
    handled = is_older or setup.corrected or setup.old == SAMPLER
    if size <= least:
        return Finding("ok", value)
    advice = setup.keys("correction")
    return Finding("note" if size <= most or handled else "warn", value, advice)


@signal("routing-replay")
def routing_replay(case: Case) -> Finding:
    """Routing replay that does nothing, or that a token ratio lacks."""
    setup = case.setup
    changed = case.log.first_of(f"{LAST}expert_change", "expert_change")
    replays = setup.replay not in NO_REPLAY
    advice = setup.keys("replay")
    if setup.dense:
        value = f"{setup.replay or 'none'}, on a dense model"
        return Finding("warn" if replays else "ok", value, advice if replays else "")
    if replays and setup.updates == 1 and setup.replay in ("old-policy", "R2"):
        value = f"{setup.replay} with one update per rollout batch: no expert has changed yet"
        return Finding("warn", value, advice)
    if changed is None or setup.replay is None:
        return case.not_recorded("experts")
    value = f"{setup.replay}; {100 * changed.low:.2g} % of the choices change"
    if replays and changed.low < STILL:
        return Finding("note", f"{value}, so replay does little", advice)
    if not replays and changed.low >= MOVES and setup.level != "sequence":
        return Finding("warn", value, advice)
    return Finding("ok", value)
