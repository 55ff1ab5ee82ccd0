"""Signals of the ratio: its rule, its range, and what it clips."""

from gspo_lab.analysis.diagnosis.log import Series
from gspo_lab.analysis.diagnosis.own_run import FIRST, LATER
from gspo_lab.analysis.diagnosis.setup import SAMPLER, TRAINER, Setup
from gspo_lab.analysis.diagnosis.signals import Case, Finding, share, signal
from gspo_lab.study.lints import NARROW, SATURATED, WIDE
from gspo_lab.training.objectives.calibration import saturated_share

CLIP = ("clip_fraction_tokens", "clip_fraction_responses", "clip fraction")
PAPER_RANGE = 2e-3
"""A sequence range up to this one is the GSPO paper's."""
MOST_OF_GSPO = 0.6
MOST_OF_WIDER_GSPO = 0.4
MOST_OF_GRPO = 0.05
LEAST_OF_GSPO = 0.01
SAME = 1e-6
"""Nats below which ratios count as 1."""

PAPER_GSPO = (
    ".15 in the paper at thousands of tokens; .23 at 16 tokens to .50 at 1,024; .37 on a tiny"
    " mixture of experts"
)
PAPER_GSPO_SOURCE = (
    "2507.18071 figure 2; docs/results/response_length.md (3 seeds x 3 steps),"
    " docs/results/moe_stability.md (10 seeds x 24 steps)"
)
SAMPLER_GSPO = ", and .26 to .47 before any update with the sampler's log-probs"
SAMPLER_SOURCE = "docs/results/old_logprobs.md (3 seeds x 40 steps, tiny mixture of experts)"
WIDER_GSPO = ".02 to .23 with 10 to 100 times the paper's range"
TOKEN = ".0013 in the paper; .0016 on a tiny dense model, .017 on a tiny mixture of experts"
TOKEN_SOURCE = (
    "2507.18071 figure 2; docs/results/dense_baseline.md (3 seeds x 40 steps),"
    " docs/results/moe_stability.md"
)


@signal(
    "ratios",
    needs="the distance to the old policy, the clip fraction, or the updates per rollout batch",
    usual="not 1 from the second update of a rollout batch on",
    source="2507.18071 eq. 2 and 5; docs/reference/objectives.md",
)
def ratios(case: Case) -> Finding:
    """Ratios that are always 1, and why."""
    setup = case.setup
    moved = _moved(case)
    clip = case.clip
    clips = clip is not None and clip.high > 0
    advice = f"for later updates: {setup.key('updates')}"
    if setup.updates == 1 and setup.old != SAMPLER and not clips:
        level = "warn" if setup.level == "sequence" else "note"
        return Finding(
            level,
            "every ratio is 1: one update per rollout batch, and the old log-probs are the"
            " policy's own; GRPO and GSPO are the same program",
            advice,
        )
    if moved is not None and not moved.values.any() and not clips and not moved.hidden:
        return Finding("warn", f"every ratio is 1: {moved.name} is 0 in all rows", advice)
    if clips and clip is not None:
        return Finding("ok", f"ratios move: {clip.name} is not 0")
    if moved is not None and moved.values.any():
        return Finding("ok", f"ratios move: {moved.name} is not 0")
    if clip is None or clip.hidden:
        return case.lacking("distance", *CLIP, "distance to the old policy")
    return Finding(
        "note",
        f"{clip.name} is exactly 0 in all {len(clip)} rows: every ratio is 1, or the range is"
        " wider than they vary; the log does not tell which",
        f"record: {setup.recorded_by('distance')}; {advice}",
    )


def _moved(case: Case) -> Series | None:
    """How far ratios are from 1, as the log has it."""
    found = case.log.named("log_ratio_std_tokens", "stale_k3")
    return found or case.log.quantity("distance to the old policy")


@signal(
    "clip-fraction",
    needs="a clip fraction; the rule, to judge it",
    usual="depends on the rule and its range",
    source="2507.18071 figure 2",
)
def clip_fraction(case: Case) -> Finding:
    """The clip fraction against what is usual for the rule, its range and its old log-probs."""
    setup = case.setup
    clip = case.clip
    if clip is None:
        return case.lacking("clip", *CLIP)
    value = f"{clip.mean_text} ({clip.name}){_by_minibatch(case)}"
    if not setup.clips:
        reason = f"{value}; not judged: {setup.loss} clips otherwise than GRPO and GSPO"
        return Finding("ok", reason, usual="not known")
    if setup.level is None or setup.widest is None:
        lacks = "the level of the ratio" if setup.level is None else "the range"
        record = f"to record: {setup.recorded_by('settings')}"
        return Finding("unknown", f"{value}; not judged: {lacks} is not recorded", record)
    if setup.level == "token":
        return _token_clip(setup, clip, value)
    return _sequence_clip(setup, clip, value)


def _by_minibatch(case: Case) -> str:
    """The clip fraction by mini-batch, where the log has it."""
    first = case.log.named(f"{FIRST}clip_fraction_tokens")
    later = case.log.named(f"{LATER}clip_fraction_tokens")
    if first is not None and later is not None:
        return f", mini-batch 0: {share(first.low)}, later ones: {share(later.low)}"
    updates = case.setup.updates
    if updates is not None and updates > 1 and case.starts_at_one:
        return f", a mean over {updates} updates of which the first clips nothing"
    return ""


def _token_clip(setup: Setup, clip: Series, value: str) -> Finding:
    if setup.widest is not None and setup.widest < WIDE:
        return Finding("ok", f"{value}; not judged", usual="not known for so narrow a token range")
    if clip.low <= MOST_OF_GRPO:
        return Finding("ok", value, usual=TOKEN, source=TOKEN_SOURCE)
    older = "" if setup.old == TRAINER else f", {setup.key('lag')}"
    advice = f"the policy moves far within a rollout batch: {setup.key('rate')}{older}"
    return Finding("warn", value, advice, TOKEN, TOKEN_SOURCE)


def _sequence_clip(setup: Setup, clip: Series, value: str) -> Finding:
    widest = setup.widest or 0.0
    if widest >= WIDE:
        return Finding("ok", value, usual="almost 0 with a token ratio's range: see range")
    is_paper = widest <= PAPER_RANGE
    usual = PAPER_GSPO if is_paper else WIDER_GSPO
    source = PAPER_GSPO_SOURCE if is_paper else "docs/results/clip_range.md (3 seeds x 20 steps)"
    if is_paper and setup.old != TRAINER:
        usual += SAMPLER_GSPO
        source = f"{source}; {SAMPLER_SOURCE}"
    most = MOST_OF_GSPO if is_paper else MOST_OF_WIDER_GSPO
    if clip.low > most:
        advice = f"widen {setup.key('range')}, or less movement: {setup.key('rate')}"
        return Finding("warn", value, advice, usual, source)
    if is_paper and clip.high < LEAST_OF_GSPO and setup.updates != 1:
        advice = f"see ratios; {setup.key('updates')}"
        return Finding("note", f"{value}: far less than usual", advice, usual, source)
    return Finding("ok", value, usual=usual, source=source)


@signal(
    "old-log-probs",
    needs="the settings, or mini-batch 0 of gspo-lab",
    usual="the trainer's: ratios of mini-batch 0 are 1",
    source=SAMPLER_SOURCE,
)
def old_log_probs(case: Case) -> Finding:
    """Whether the old policy's log-probs are the sampler's."""
    setup = case.setup
    clip = case.clip
    first = case.log.named(f"{FIRST}clip_fraction_tokens")
    if setup.old == SAMPLER:
        before = "" if first is None else f"; {share(first.low)} is clipped before any update"
        value = f"the sampler's{before}"
        if setup.level == "sequence" and (setup.widest or 1.0) < NARROW:
            advice = f"{setup.key('old')}, or a wider range: {setup.key('range')}"
            usual = "with 3e-4/4e-4 .26 to .47 of the active tokens is clipped before any update"
            return Finding("warn", value, advice, usual)
        return Finding("note", value, setup.key("old"))
    spread = case.log.named(f"{FIRST}log_ratio_std_tokens")
    if spread is not None and spread.high > SAME:
        value = f"ratios of mini-batch 0 spread by {spread.high:.2g} nats, not 0"
        return Finding("warn", value, setup.key("old"))
    if setup.updates == 1 and clip is not None and clip.low > 0:
        value = (
            f"not the policy's own: {clip.name} is {clip.mean_text} with one update per rollout"
            " batch"
        )
        return Finding("note", value, setup.key("old"))
    if setup.old == TRAINER:
        return Finding("ok", "the trainer's")
    return case.missing("settings")


@signal(
    "aggregation",
    needs="the level of the ratio and the aggregation",
    usual="the mean over responses of token means",
    source="2507.18071 eq. 5",
)
def aggregation(case: Case) -> Finding:
    """A sequence ratio with an aggregation of tokens."""
    setup = case.setup
    if not setup.clips:
        value = f"{setup.aggregation or 'not recorded'}, with {setup.loss}"
        return Finding("ok", value, usual="its paper's")
    if setup.level is None or setup.aggregation is None:
        return case.missing("settings")
    if setup.level == "token" or setup.aggregation == "seq-mean-token-mean":
        return Finding("ok", f"{setup.aggregation} with a {setup.level} ratio")
    weight = "long responses weigh more" if setup.aggregation != "constant" else "length weighs"
    return Finding(
        "warn",
        f"{setup.aggregation} with a sequence ratio: {weight} than in GSPO's equation",
        setup.key("aggregation"),
    )


@signal(
    "range",
    needs="the level of the ratio, its range, the response length",
    usual=".2/.27 for a token ratio, 3e-4/4e-4 for a sequence ratio of thousands of tokens",
    source="2507.18071 section 5.1; docs/results/moe_stability.md (7 seeds, 6 executions)",
)
def clip_range(case: Case) -> Finding:
    """The range against the ratio's level and the response length."""
    setup = case.setup
    if not setup.clips:
        return Finding("ok", f"{setup.loss} has a range of its own, or none", usual="its paper's")
    if setup.level is None or setup.widest is None:
        return case.missing("settings")
    low = setup.widest if setup.clip_low is None else setup.clip_low
    high = setup.widest if setup.clip_high is None else setup.clip_high
    value = f"{low:g} / {high:g} with a {setup.level} ratio"
    key = setup.key("range")
    if setup.level == "token":
        if min(low, high) < NARROW:
            return Finding("warn", f"{value}: a sequence ratio's range", f"{key}, e.g. .2/.27")
        return Finding("ok", value)
    if setup.widest >= WIDE:
        usual = "so wide a range made 6 or 7 of 7 runs of a tiny mixture of experts unstable"
        return Finding(
            "error", f"{value}: a token ratio's range, which hardly ever clips", key, usual
        )
    tokens = case.length or setup.max_tokens
    if tokens is None:
        return Finding("ok", f"{value}; response length not recorded")
    expected = saturated_share(low, high, tokens)
    if expected > SATURATED:
        return Finding(
            "note",
            f"{value} and {tokens:.0f} tokens: about {expected:.2f} of the active tokens clip"
            " whatever the policy does",
            f"for a clip fraction that tells something, widen {key}; gspo-lab plan --advise",
            source="formula of gspo-lab plan; 2509.09177; docs/results/clip_range.md",
        )
    return Finding("ok", f"{value}, {tokens:.0f} tokens")
