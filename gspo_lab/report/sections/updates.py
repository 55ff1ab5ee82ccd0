"""What single updates did: clipped tokens, experts and their replay, and the diagnostics that
explain a difference.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gspo_lab.analysis.findings.clip_fractions import (
    NO_CLIP,
    SATURATED,
    active_share,
    clips,
    saturated,
)
from gspo_lab.analysis.findings.training_curves import course
from gspo_lab.analysis.readings import (
    RECORDED,
    Reading,
    Source,
    Steps,
    Window,
    average,
    by_layer,
    runs,
    summarise,
)
from gspo_lab.analysis.readings.curves import responses, shared_bounds, spread_by_length
from gspo_lab.analysis.readings.reading import (
    CHANGE_LATER,
    CLIP,
    CLIP_ACTIVE,
    CLIP_EVERYWHERE,
    LATER,
    WOULD_CLIP,
)
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.markup import format_number, h, percent
from gspo_lab.report.plotly_json import NEUTRAL_DARK, NEUTRAL_LIGHT
from gspo_lab.report.section import Part, Section, grid, paragraph
from gspo_lab.report.series import DOTS, curve, dots_by_arm, per_arm, per_minibatch
from gspo_lab.study import Arm, Declaration
from gspo_lab.study.dotted_keys import BAND, alike_but

COLUMNS = {
    "clip_fraction_tokens": ("all mini-batches", CLIP_EVERYWHERE),
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


def clipping(study: Source) -> Section | None:
    """Clip fractions by mini-batch index, the counterfactual of either rule, and a row per arm."""
    arms = {arm: arm for arm in study.arms}
    bands = study.declaration.reference_bands
    sampled = any(
        arm.settings.update.old_logprobs == "sampler" for arm in study.declaration.arms.values()
    )
    ranges = [
        f"{rule.upper()}'s range: 1 − {low:g} to 1 + {high:g}"
        for rule, (low, high) in sorted(bands.items())
    ]
    about = (
        "Mini-batches ≥ 1: what the token ratio in GRPO's range and the sequence ratio in GSPO's"
        " range would clip on the batches that the arm trained on, whichever rule it follows."
        f" {DOTS} {'; '.join(ranges)}"
    )
    both = (
        *per_arm(study, WOULD_CLIP["grpo"], "token rule (GRPO)", NEUTRAL_DARK, arms),
        *per_arm(study, WOULD_CLIP["gspo"], "sequence rule (GSPO)", NEUTRAL_LIGHT, arms),
    )
    look: dict[str, Any] = {"kind": "dots", "log": True, "share": True}
    by_minibatch = Chart(
        "m-clip-minibatch",
        "Clipped tokens by mini-batch",
        "mini-batch within the rollout batch",
        "share of tokens",
        per_minibatch(study, CLIP_EVERYWHERE),
        reading=CLIP_EVERYWHERE.key,
        note=f"{DOTS} {NOT_AT_ZERO if sampled else AT_ZERO}",
        **look,
    )
    counterfactual = Chart(
        "m-would-clip",
        "Both rules on the same batches",
        "arm whose batches these are",
        "share of tokens",
        both,
        reading=WOULD_CLIP["grpo"].key,
        note=about.strip() + "." * bool(ranges),
        **look,
    )
    rows: dict[str, dict[str, Any]] = {}
    warnings = []
    for arm in arms:
        shares = {
            name: summarise(study, reading, arm, RECORDED).mean
            for name, (_, reading) in COLUMNS.items()
        }
        note = "" if clips(study.declaration, arm) else NO_CLIP
        rows[arm] = {**shares, "note": "saturated" if saturated(study, arm) else note}
        if saturated(study, arm):
            warnings.append(
                f"{arm} is saturated: on mini-batches ≥ 1 it clips"
                f" {percent(active_share(study, arm))} of the tokens with an advantage (above"
                f" {SATURATED:.0%}). With a mean ratio near 1 a range cannot clip much more, so its"
                " clip fraction is a ceiling, not a measurement of the rule."
            )
    head = ["arm", *(title for title, _ in COLUMNS.values()), "note"]
    shown = [
        [
            arm,
            *(NO_CLIP if row["note"] == NO_CLIP else percent(row[name]) for name in COLUMNS),
            row["note"],
        ]
        for arm, row in rows.items()
    ]
    caption = "Share of tokens clipped after the learning rate's warm-up, mean over recorded runs"
    body: list[Part] = [by_minibatch, counterfactual, grid(head, shown, caption)]
    body += [paragraph(warning, "warn") for warning in warnings]
    readings = {name: reading.key for name, (_, reading) in COLUMNS.items()}
    data = {"arms": rows, "readings": readings, "seeds": RECORDED.label()}
    return Section("clipping", "Clipping", tuple(body), data)


EXPERT_CHANGE = (
    "Expert change: 1 − overlap / k of the router's natural top-k under the old policy and now,"
    " mean over tokens and layers. Replay's help is left out in every arm: replay forces the old"
    " experts in training, and the natural choice still moves."
)
COST = ("arm", "replay", "bytes kept per step", "seconds per step", "share of the step's time")
CHANGE = "expert_change"
REPLAY = "routing_replay"
LAYERS = Reading("expert_change_layers", LATER)


def experts(study: Source) -> Section | None:
    """Expert change by mini-batch and by layer, arms with and without replay, and replay's cost;
    None for dense models, which have no experts."""
    curves = course(study)
    if not curves.measured(CHANGE):
        return None
    layers = {
        run: dict(enumerate(values))
        for run, values in by_layer(study, LAYERS, curves.sampled).items()
    }
    charts = (
        Chart(
            "m-expert-minibatch",
            "Expert change by mini-batch",
            "mini-batch within the rollout batch",
            "share of experts",
            per_minibatch(study, Reading(CHANGE)),
            kind="dots",
            whole=True,
            share=True,
            note=f"After the learning rate's warm-up. {DOTS} Mini-batch 0 comes before any update of its batch.",  # noqa: E501
            reading=Reading(CHANGE).key,
        ),
        Chart(
            "m-expert-layer",
            "Expert change by layer",
            "mixture-of-experts layer, first to last",
            "share of experts",
            dots_by_arm(study, layers),
            kind="dots",
            whole=True,
            share=True,
            reading=LAYERS.key,
            note=f"{LAYERS.label().capitalize()}. {curves.sample_note}".strip(),
        ),
        *_replay(study),
    )
    rows = _cost(study)
    shown = [
        (
            arm,
            row["replay"],
            format_number(row["bytes"]),
            format_number(row["seconds"]),
            percent(row["share"]),
        )
        for arm, row in rows.items()
    ]
    cost = grid(COST, shown, "What replay costs, mean over steps, then over seeds")
    body: tuple[Part, ...] = (h("p", EXPERT_CHANGE), *charts, cost)
    return Section("experts", "Experts and routing replay", body, {"replay_cost": rows})


def replayed(arms: Mapping[str, Arm]) -> dict[str, dict[str, str]]:
    """Arm without replay -> replay -> the arm that differs in nothing else, which of imported arms
    is unknown.
    """
    arms = {name: arm for name, arm in arms.items() if arm.known is None}
    plain = {name: arm for name, arm in arms.items() if arm.settings.routing_replay == "none"}
    out: dict[str, dict[str, str]] = {}
    for name, arm in plain.items():
        # A range that a pilot finds is found for each arm.
        free = (REPLAY, *(BAND if arm.settings.objective.clip == "calibrated" else ()))
        for second, twin in arms.items():
            if second not in plain and alike_but(arm.resolved, twin.resolved, free):
                out.setdefault(name, {})[twin.settings.routing_replay] = second
    return out


def _replay(study: Source) -> list[Chart]:
    """Expert change and clipped tokens with and without replay, for arms that differ in nothing
    else.
    """
    pairs = replayed(study.declaration.arms)
    kinds = ["none", *dict.fromkeys(kind for twins in pairs.values() for kind in twins)]
    colours = [NEUTRAL_LIGHT, NEUTRAL_DARK, *range(len(kinds))]

    def chart(name: str, what: str, unit: str, reading: Reading) -> Chart:
        series: list[Series] = []
        for kind, colour in zip(kinds, colours, strict=False):
            label = "without replay" if kind == "none" else f"replay: {kind}"
            shown = {
                arm: arm if kind == "none" else twins.get(kind, "") for arm, twins in pairs.items()
            }
            series += per_arm(study, reading, label, colour, shown)
        note = f"{reading.label().capitalize()}. Arms that differ in nothing but the replay. {DOTS}"
        return Chart(
            f"m-replay-{name}",
            f"{what}, with and without replay",
            "arm",
            unit,
            tuple(series),
            kind="dots",
            log=name == "clip",
            whole=name != "clip",
            share=True,
            note=note,
            reading=reading.key,
        )

    both = (
        ("experts", "Expert change", "share of experts", CHANGE_LATER),
        ("clip", "Clipped tokens", "share of tokens", CLIP),
    )
    return [chart(*arguments) for arguments in both] if pairs else []


NAMED = {"bytes": "replay_bytes", "seconds": "seconds_replay", "step": "seconds_step"}
COSTS = {name: Reading(metric, Window(Steps.ALL)) for name, metric in NAMED.items()}


def _cost(study: Source) -> dict[str, dict[str, Any]]:
    rows = {}
    for name, arm in study.declaration.arms.items():
        cost = {key: summarise(study, reading, name, RECORDED) for key, reading in COSTS.items()}
        replay = cost["seconds"].by_seed
        whole = cost["step"].by_seed
        known = [seed for seed in replay if replay[seed].weight and whole[seed].total]
        rows[name] = {
            "replay": arm.settings.routing_replay,
            "bytes": cost["bytes"].mean,
            "seconds": cost["seconds"].mean,
            "share": average(replay[seed].total / whole[seed].total for seed in known),
            "reading": COSTS["seconds"].key,
        }
    return rows


LOG = {"log": True}
WHOLE = {"whole": True}
SHARE = {"whole": True, "share": True}
DIAGNOSTICS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("stale_k3", "Drift from the old policy, k3", "nats per token", LOG),
    ("mismatch_k3", "Trainer–sampler mismatch, k3", "nats per token", LOG),
    ("grad_norm", "Gradient norm", "L2 norm before clipping", {"log": True, "envelope": True}),
    (
        "ratio_max_negative",
        "Largest token ratio where A < 0",
        "ratio",
        {"log": True, "envelope": True},
    ),
    ("log_ratio_std_tokens", "Spread of the token log-ratio", "nats", WHOLE),
    ("log_ratio_std_responses", "Spread of the sequence log-ratio", "nats", WHOLE),
    ("entropy", "Entropy", "nats per token", WHOLE),
    ("response_tokens_mean", "Response length", "tokens", {}),
    ("truncated_responses", "Responses cut at the limit", "share of responses", SHARE),
    ("zero_variance_groups", "Groups without a signal", "share of groups", SHARE),
)
"""Metric, title, unit and look of each chart; its id is `m-` and the metric's name."""

DRIFT = (
    "Drift: the policy being trained against the old policy, by the updates in between. Mismatch:"
    " the trainer's old policy against what the sampler said of the same tokens. Bands of largest"
    " values reach to single updates."
)
COVERED = (
    "Entropy, mismatch, drift and the spread of log-ratios cover the responses that the trainer"
    " evaluated: without a KL term only those with A ≠ 0, and with the sampler's old log-probs"
    " entropy and mismatch only mini-batch 0. As groups without a signal become more, these curves"
    " are of fewer, undecided prompts. Clip fractions are of all response tokens."
)
"""Where an arm skips responses without advantage."""

BINS = 8
LEAST = 20
"""Responses that a length bin must hold for its spread to be shown."""
DETAILS = 50
"""Steps whose responses are read, evenly over the run: each holds every response of its updates."""


def diagnostics(study: Source) -> Section | None:
    """One small chart per entry of `DIAGNOSTICS`, and the sequence ratio's spread by length."""
    body: list[Part] = [h("p", DRIFT)]
    if skipping(study.declaration):
        body.append(h("p", COVERED, class_="soft"))
    body += [
        curve(study, metric, title, unit, small=True, **look)
        for metric, title, unit, look in DIAGNOSTICS
    ]
    return Section("diagnostics", "Diagnostics", (*body, by_length(study)))


def skipping(declared: Declaration) -> bool:
    """Whether an arm leaves responses with A = 0 out of its forward passes."""
    key = "update.skip_zero_advantage"
    known = [arm.settings for arm in declared.arms.values() if declared.is_known(arm.name, key)]
    return any(
        settings.update.skip_zero_advantage and not settings.objective.regularised
        for settings in known
    )


def by_length(study: Source) -> Chart:
    """Per arm the standard deviation of the sequence log-ratio, for responses of like length."""
    recorded = math.lcm(
        *(arm.settings.record.detail_every for arm in study.declaration.arms.values())
    )
    last = course(study).last
    stride = max(1, -(-(last + 1) // (recorded * DETAILS))) * recorded
    details = responses(study, ("length", "sum_log_ratio"), LATER, range(0, last + 1, stride))
    by_arm: dict[str, tuple[Floats, Floats]] = {}
    for arm in study.arms:
        parts = [
            details[run.id]
            for run in runs(study)
            if run.arm == arm and len(details[run.id]["length"])
        ]
        if parts:  # an update whose responses all had no advantage measured none
            lengths = np.concatenate([part["length"] for part in parts])
            sums = np.concatenate([part["sum_log_ratio"] for part in parts])
            by_arm[arm] = lengths, sums / np.maximum(lengths, 1)
    bounds = shared_bounds([lengths for lengths, _ in by_arm.values()], BINS) if by_arm else None
    series = []
    for arm, (lengths, ratios) in by_arm.items():
        if bounds is not None and (points := spread_by_length(lengths, ratios, bounds, LEAST)):
            x, y = zip(*points, strict=True)
            series.append(Series(arm, x, y))
    note = (
        "Standard deviation of log s over responses of like length, all seeds together; bins of at"
        f" least {LEAST} responses with bounds that all arms share. Read at every {stride}th step."
    )
    return Chart(
        "m-log-ratio-length",
        "Spread of the sequence log-ratio by response length",
        "tokens",
        "nats",
        tuple(series),
        whole=True,
        small=True,
        note=note,
        reading="sum_log_ratio.std.by-length",
    )
