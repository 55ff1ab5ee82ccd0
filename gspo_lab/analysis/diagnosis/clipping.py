"""Signals of the ratio: its rule, its range, and what it clips."""

from dataclasses import replace

from gspo_lab.analysis.diagnosis.own_run import FIRST, LATER
from gspo_lab.analysis.diagnosis.setup import SAMPLER
from gspo_lab.analysis.diagnosis.signals import Case, Finding, share, signal
from gspo_lab.common.plain_data import table_beside
from gspo_lab.study.lints import NARROW, SATURATED, WIDE
from gspo_lab.training.objectives.calibration import saturated_share

CLIP = "clip fraction"
FIRST_CLIP = f"{FIRST}clip_fraction_tokens"
DISTANCE = "distance to the old policy"
SEQUENCE = "sequence"
PUBLISHED = "seq-mean-token-mean"
LEAST = 0.01
"""A smaller clip fraction before any update harms nothing."""
SAME = 1e-6
"""Nats below which ratios count as 1."""


@signal("ratios")
def ratios(case: Case) -> Finding:
    """Ratios that are always 1, and why."""
    setup = case.setup
    moved = case.log.first_of("log_ratio_std_tokens", DISTANCE)
    advice = f"for later updates: {setup.keys('updates')}"
    for series in (case.clip, moved):
        if series is not None and series.values.any():
            return Finding("ok", f"ratios move: {series.name} is not 0")
    if setup.updates == 1 and setup.old != SAMPLER:
        unsure = "" if setup.old else ", if the old log-probs are the trainer's"
        value = (
            f"every ratio is 1: one update per rollout batch{unsure}; GRPO and GSPO are the same"
        )
        return Finding("warn" if setup.level == SEQUENCE else "note", value, advice)
    if moved is not None and not moved.hidden:
        return Finding("warn", f"every ratio is 1: {moved.name} is 0 in all rows", advice)
    if case.clip is None or case.clip.hidden:
        return case.not_recorded("distance", CLIP, DISTANCE)
    value = f"{case.clip.name} is 0 in all rows: every ratio is 1, or the range is wide"
    return Finding("note", value, advice)


@signal("clip-fraction")
def clip_fraction(case: Case) -> Finding:
    """The clip fraction against what is usual for the rule, its range and its old log-probs."""
    setup = case.setup
    clip = case.clip
    if clip is None:
        return case.not_recorded("clip", CLIP, "clip_fraction_tokens")
    value = f"{clip.mean_text} ({clip.name})"
    initial = case.log.first_of(FIRST_CLIP)
    later = case.log.first_of(f"{LATER}clip_fraction_tokens")
    if initial and later:
        value += f", mini-batch 0: {share(initial.low)}, later ones: {share(later.low)}"
    if not setup.clips:
        return Finding("ok", value, usual=f"not known for {setup.loss}")
    if setup.level is None or setup.widest is None:
        value += "; not judged: the level of the ratio or its range is not recorded"
        return Finding("unknown", value, setup.recorded_by("settings"))
    fitting = [
        entry
        for entry in table_beside(__file__, "references.toml")["clip"]
        if entry["level"] == setup.level and setup.widest >= entry["from"]
    ]
    reference = fitting[-1]
    finding = case.share_finding(value, clip.low, (reference["most"], 1.0), "rate", "range", "lag")
    return replace(finding, usual=reference["usual"], source=reference["source"])


@signal("old-log-probs")
def old_log_probs(case: Case) -> Finding:
    """Whether the old policy's log-probs are the sampler's."""
    setup = case.setup
    advice = setup.keys("old")
    if setup.old == SAMPLER:
        initial = case.log.first_of(FIRST_CLIP)
        clipped = "" if initial is None else f"; {share(initial.low)} is clipped before any update"
        narrow = setup.level == SEQUENCE and (setup.widest or WIDE) < NARROW
        clips = initial is None or initial.low > LEAST
        advice = setup.keys("old", "range")
        return Finding("warn" if narrow and clips else "note", f"the sampler's{clipped}", advice)
    spread = case.log.first_of(f"{FIRST}log_ratio_std_tokens")
    if spread is not None and spread.low > SAME:
        value = f"ratios of mini-batch 0 spread by {share(spread.low)} nats, not 0"
        return Finding("warn", value, advice)
    if setup.updates == 1 and case.clip is not None and case.clip.low > 0:
        value = f"not the policy's own: {case.clip.name} is not 0 with one update per rollout batch"
        return Finding("note", value, advice)
    return case.not_recorded("settings") if setup.old is None else Finding("ok", "the trainer's")


@signal("aggregation")
def aggregation(case: Case) -> Finding:
    """A sequence ratio with an aggregation of tokens."""
    setup = case.setup
    if setup.aggregation is None or (setup.level is None and setup.clips):
        return case.not_recorded("settings")
    value = f"{setup.aggregation}, {setup.level or 'unknown'} ratio"
    if setup.clips and setup.level == SEQUENCE and setup.aggregation != PUBLISHED:
        value += ": responses weigh by their length, as in no equation of GSPO"
        return Finding("warn", value, setup.keys("aggregation"))
    return Finding("ok", value)


@signal("range")
def clip_range(case: Case) -> Finding:
    """The range against the ratio's level and the response length."""
    setup = case.setup
    if not setup.clips:
        return Finding("ok", f"that of {setup.loss}", usual="its paper's")
    if setup.level is None or setup.widest is None:
        return case.not_recorded("settings")
    low = setup.low or setup.widest
    high = setup.high or setup.widest
    value = f"{setup.range_text}, {setup.level} ratio"
    advice = setup.keys("range")
    if setup.level != SEQUENCE:
        if min(low, high) < NARROW:
            return Finding("warn", f"{value}: a sequence ratio's range", advice)
        return Finding("ok", value)
    if setup.widest >= WIDE:
        return Finding("error", f"{value}: a token ratio's range, which hardly clips", advice)
    tokens = case.length or setup.max_tokens or 0
    expected = saturated_share(low, high, tokens)
    if tokens and expected > SATURATED:
        value += f", {tokens:.0f} tokens: it clips about {share(expected)} whatever the policy does"
        return Finding("note", value, advice)
    return Finding("ok", value)
