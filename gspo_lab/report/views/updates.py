"""What single updates did: clipped tokens, experts and their replay, and the diagnostics that
explain a difference.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gspo_lab.analysis.findings.clip_fractions import (
    NO_CLIP,
    SATURATED,
    active_share,
    clips,
    saturated,
)
from gspo_lab.analysis.findings.training_curves import course
from gspo_lab.analysis.readings.curves import responses, shared_bounds, spread_by_length
from gspo_lab.analysis.readings.reading import (
    CHANGE_LATER,
    CLIP,
    CLIP_ACTIVE,
    CLIP_EVERYWHERE,
    CLIP_GRADIENT,
    LATER,
    WOULD_CLIP,
    Reading,
    Steps,
    Window,
    average,
    by_layer,
    summarise,
)
from gspo_lab.analysis.readings.runs import RECORDED, Source, runs
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.plotly_json import NEUTRAL_DARK, NEUTRAL_LIGHT, STYLE
from gspo_lab.report.series import DOTS, curve, dots_by_arm, per_arm, per_minibatch
from gspo_lab.report.templating import NOT_RECORDED, percent
from gspo_lab.report.views.view import View, by_id
from gspo_lab.study import ArmsByName, Declaration
from gspo_lab.study.dotted_keys import BAND, alike_but

COLUMNS = {
    CLIP_FRACTION: ("all mini-batches", CLIP_EVERYWHERE),
    "clip_fraction_tokens_later": ("mini-batches ≥ 1", CLIP),
    "clip_fraction_tokens_high_later": (
        "of which A > 0",
        Reading("clip_fraction_tokens_high", LATER),
    ),
    "clip_fraction_tokens_low_later": (
        "of which A < 0",
        Reading("clip_fraction_tokens_low", LATER),
    ),
    "clip_fraction_active_tokens_later": ("of active tokens", CLIP_ACTIVE),
    "clip_fraction_gradient_later": ("of the gradient", CLIP_GRADIENT),
}
"""The columns of the table, as the report's JSON names them."""

AT_ZERO = (
    "Mini-batch 0 is exactly 0 by construction: it is trained on while the policy is still the one"
    " that the ratio compares it with, so every ratio is 1."
)
NOT_AT_ZERO = (
    "The ratio's old log-probs are the sampler's, so mini-batch 0 may clip: sampler and trainer"
    " differ a little even before the first update."
)
BOTH_RULES = (
    "Mini-batches ≥ 1: what the token ratio in GRPO's range and the sequence ratio in GSPO's range"
    " would clip on the batches that the arm trained on, whichever rule it follows. {dots}{ranges}"
)
CEILING = (
    "{arm} is saturated: on mini-batches ≥ 1 it clips {share} of the tokens with an advantage"
    " (above {limit:.0%}). With a mean ratio near 1 a range cannot clip much more, so its clip"
    " fraction is a ceiling, not a measurement of the rule."
)


@dataclass(frozen=True)
class ClippingView(View):
    """Clip fractions by mini-batch, the counterfactual of either rule, and each arm's shares."""

    id = "clipping"
    title = "Clipping"
    figures: dict[str, Chart]
    arms: dict[str, JsonObject]
    """Each arm's shares of `COLUMNS`, and a note: saturated, or without a clip."""
    warnings: list[str]
    readings: dict[str, str]
    seeds: str

    @property
    def head(self) -> list[str]:
        """The columns of the table of arms."""
        return ["arm", *(title for title, _ in COLUMNS.values()), "note"]

    @property
    def rows(self) -> list[list[str]]:
        """The table of arms."""
        rows = []
        for arm, values in self.arms.items():
            note = values["note"]
            shares = [percent(values[name]) for name in COLUMNS]
            if values["clip_fraction_gradient_later"] is None:
                shares[-1] = NOT_RECORDED
            rows.append([arm, *([NO_CLIP] * len(shares) if note == NO_CLIP else shares), note])
        return rows


def clipping_view(study: Source) -> ClippingView:
    """What the clip of each arm took away."""
    arms = {}
    warnings = []
    for arm in study.arms:
        arms[arm] = _shares(study, arm)
        if arms[arm]["note"] == "saturated":
            share = percent(active_share(study, arm))
            warnings.append(CEILING.format(arm=arm, share=share, limit=SATURATED))
    return ClippingView(
        by_id(_by_minibatch(study), _counterfactual(study)),
        arms,
        warnings,
        {name: reading.key for name, (_, reading) in COLUMNS.items()},
        RECORDED.label(),
    )


def _shares(study: Source, arm: str) -> JsonObject:
    """An arm's clip fractions in every window of `COLUMNS`."""
    clipped = clips(study.declaration, arm)
    shares: JsonObject = {}
    for name, (_, reading) in COLUMNS.items():
        shares[name] = summarise(study, reading, arm, RECORDED).mean
    note = "" if clipped else NO_CLIP
    return {**shares, "note": "saturated" if saturated(study, arm) else note}


def _by_minibatch(study: Source) -> Chart:
    old_logprobs = [arm.settings.update.old_logprobs for arm in study.declaration.arms.values()]
    minibatch_zero = NOT_AT_ZERO if "sampler" in old_logprobs else AT_ZERO
    return Chart(
        "m-clip-minibatch",
        "Clipped tokens by mini-batch",
        "mini-batch within the rollout batch",
        "share of tokens",
        per_minibatch(study, CLIP_EVERYWHERE),
        reading=CLIP_EVERYWHERE.key,
        note=f"{DOTS} {minibatch_zero}",
        kind="dots",
        log=True,
    )


def _counterfactual(study: Source) -> Chart:
    arms = {arm: arm for arm in study.arms}
    ranges = []
    for rule, (low, high) in sorted(study.declaration.reference_bands.items()):
        ranges.append(f"{rule.upper()}'s range: 1 − {low:g} to 1 + {high:g}")
    listed = f" {'; '.join(ranges)}." if ranges else ""
    return Chart(
        "m-would-clip",
        "Both rules on the same batches",
        "arm whose batches these are",
        "share of tokens",
        (
            *per_arm(study, WOULD_CLIP["grpo"], "token rule (GRPO)", NEUTRAL_DARK, arms),
            *per_arm(study, WOULD_CLIP["gspo"], "sequence rule (GSPO)", NEUTRAL_LIGHT, arms),
        ),
        reading=WOULD_CLIP["grpo"].key,
        note=BOTH_RULES.format(dots=DOTS, ranges=listed),
        kind="dots",
        log=True,
    )


CHANGE = "expert_change"
REPLAY = "routing_replay"
LAYERS = Reading("expert_change_layers", LATER)
COSTS = {
    "bytes": Reading("replay_bytes", Window(Steps.ALL)),
    "seconds": Reading("seconds_replay", Window(Steps.ALL)),
    "step": Reading("seconds_step", Window(Steps.ALL)),
}


@dataclass(frozen=True)
class ExpertsView(View):
    """Expert change by mini-batch and by layer, arms with and without replay, and replay's cost."""

    id = "experts"
    title = "Experts and routing replay"
    figures: dict[str, Chart]
    replay_cost: dict[str, JsonObject]
    """Each arm's cost of replay: replay, bytes, seconds, share of the step's time, reading."""


def experts_view(study: Source) -> ExpertsView | None:
    """What the router did; None for dense models, which have no experts."""
    curves = course(study)
    if not curves.measured(CHANGE):
        return None
    layers = {}
    for run, values in by_layer(study, LAYERS, curves.sampled).items():
        layers[run] = dict(enumerate(values))
    by_minibatch = Chart(
        "m-expert-minibatch",
        "Expert change by mini-batch",
        "mini-batch within the rollout batch",
        "share of experts",
        per_minibatch(study, Reading(CHANGE)),
        kind="dots",
        note=f"After the learning rate's warm-up. {DOTS}"
        " Mini-batch 0 comes before any update of its batch.",
        reading=Reading(CHANGE).key,
    )
    layer_by_layer = Chart(
        "m-expert-layer",
        "Expert change by layer",
        "mixture-of-experts layer, first to last",
        "share of experts",
        dots_by_arm(study, layers),
        kind="dots",
        reading=LAYERS.key,
        note=f"{LAYERS.label().capitalize()}. {curves.sample_note}".strip(),
    )
    return ExpertsView(by_id(by_minibatch, layer_by_layer, *_replay(study)), _cost(study))


def replayed(arms: ArmsByName) -> dict[str, dict[str, str]]:
    """Arm without replay -> replay -> the arm that differs in nothing else, which of imported arms
    is unknown.
    """
    resolved = {name: arm for name, arm in arms.items() if arm.recorded_keys is None}
    pairs: dict[str, dict[str, str]] = {}
    for name, arm in resolved.items():
        if arm.settings.routing_replay != "none":
            continue
        # A range that a pilot finds is found for each arm.
        free = (REPLAY, *BAND) if arm.settings.objective.clip == "calibrated" else (REPLAY,)
        for twin_name, twin in resolved.items():
            replay = twin.settings.routing_replay
            if replay != "none" and alike_but(arm.resolved, twin.resolved, free):
                pairs.setdefault(name, {})[replay] = twin_name
    return pairs


def _replay(study: Source) -> list[Chart]:
    """Expert change and clipped tokens with and without replay, for arms that differ in nothing
    else.
    """
    pairs = replayed(study.declaration.arms)
    if not pairs:
        return []
    return [
        _replay_chart(study, pairs, CHANGE_LATER, "m-replay-experts", "Expert change", "experts"),
        _replay_chart(study, pairs, CLIP, "m-replay-clip", "Clipped tokens", "tokens"),
    ]


def _replay_chart(
    study: Source,
    pairs: Mapping[str, Mapping[str, str]],
    reading: Reading,
    name: str,
    title: str,
    unit: str,
) -> Chart:
    """One reading of the arms with and without replay; shares of tokens on a logarithmic axis."""
    kinds: dict[str, None] = {}
    for twins in pairs.values():
        kinds |= dict.fromkeys(twins)
    arms = {arm: arm for arm in pairs}
    series = [*per_arm(study, reading, "without replay", NEUTRAL_LIGHT, arms)]
    for kind, colour in zip(kinds, (NEUTRAL_DARK, *range(len(kinds))), strict=False):
        twins_of_kind = {arm: twins.get(kind, "") for arm, twins in pairs.items()}
        series += per_arm(study, reading, f"replay: {kind}", colour, twins_of_kind)
    return Chart(
        name,
        f"{title}, with and without replay",
        "arm",
        f"share of {unit}",
        tuple(series),
        kind="dots",
        log=unit == "tokens",
        note=f"{reading.label().capitalize()}. Arms that differ in nothing but the replay. {DOTS}",
        reading=reading.key,
    )


def _cost(study: Source) -> dict[str, JsonObject]:
    rows = {}
    for name, arm in study.declaration.arms.items():
        cost = {key: summarise(study, reading, name, RECORDED) for key, reading in COSTS.items()}
        replay = cost["seconds"].by_seed
        step = cost["step"].by_seed
        timed = [seed for seed in replay if replay[seed].weight and step[seed].total]
        rows[name] = {
            "replay": arm.settings.routing_replay,
            "bytes": cost["bytes"].mean,
            "seconds": cost["seconds"].mean,
            "share": average(replay[seed].total / step[seed].total for seed in timed),
            "reading": COSTS["seconds"].key,
        }
    return rows


DIAGNOSTICS = STYLE["diagnostics"]
"""Metric, title and look of each chart; its id is `m-` and the metric's name."""

BINS = 8
LEAST = 20
"""Responses that a length bin must hold for its spread to be shown."""
DETAILS = 50
"""Steps whose responses are read, evenly over the run: each holds every response of its updates."""
BY_LENGTH = (
    "Standard deviation of log s over responses of like length, all seeds together; bins of at"
    " least {least} responses with bounds that all arms share. Read at every {stride}th step."
)


@dataclass(frozen=True)
class DiagnosticsView(View):
    """One small chart per entry of `DIAGNOSTICS`, and the sequence ratio's spread by length."""

    id = "diagnostics"
    title = "Diagnostics"
    figures: dict[str, Chart]
    skips: bool
    """Whether an arm leaves responses with A = 0 out of its forward passes."""


def diagnostics_view(study: Source) -> DiagnosticsView:
    """What explains a difference."""
    charts = []
    for metric, title, look in DIAGNOSTICS:
        charts.append(curve(study, metric, title, small=True, **look))
    return DiagnosticsView(by_id(*charts, by_length(study)), skipping(study.declaration))


def skipping(declared: Declaration) -> bool:
    """Whether an arm leaves responses with A = 0 out of its forward passes."""
    key = "update.skip_zero_advantage"
    settings_of_arms = [
        arm.settings for arm in declared.arms.values() if declared.is_known(arm.name, key)
    ]
    return any(
        settings.update.skip_zero_advantage and not settings.objective.regularised
        for settings in settings_of_arms
    )


def by_length(study: Source) -> Chart:
    """Per arm the standard deviation of the sequence log-ratio, for responses of like length."""
    every = math.lcm(*(arm.settings.record.detail_every for arm in study.declaration.arms.values()))
    last = course(study).last
    stride = max(1, -(-(last + 1) // (every * DETAILS))) * every
    by_arm = _length_and_log_ratio(study, range(0, last + 1, stride))
    bounds = shared_bounds([lengths for lengths, _ in by_arm.values()], BINS) if by_arm else None
    series = []
    for arm, (lengths, ratios) in by_arm.items():
        points = () if bounds is None else spread_by_length(lengths, ratios, bounds, LEAST)
        if points:
            x, y = zip(*points, strict=True)
            series.append(Series(arm, x, y))
    return Chart(
        "m-log-ratio-length",
        "Spread of the sequence log-ratio by response length",
        "tokens",
        "nats",
        tuple(series),
        from_zero=True,
        small=True,
        note=BY_LENGTH.format(least=LEAST, stride=stride),
        reading="sum_log_ratio.std.by-length",
    )


def _length_and_log_ratio(study: Source, steps: range) -> dict[str, tuple[Floats, Floats]]:
    """The length and the sequence log-ratio of each response, by arm.

    An arm whose responses all had no advantage measured none.
    """
    details = responses(study, ("length", "sum_log_ratio"), LATER, steps)
    by_arm: dict[str, tuple[Floats, Floats]] = {}
    for arm in study.arms:
        recorded = [details[run.id] for run in runs(study) if run.arm == arm]
        filled = [detail for detail in recorded if len(detail["length"])]
        if filled:
            lengths = np.concatenate([detail["length"] for detail in filled])
            sums = np.concatenate([detail["sum_log_ratio"] for detail in filled])
            by_arm[arm] = lengths, sums / np.maximum(lengths, 1)
    return by_arm
