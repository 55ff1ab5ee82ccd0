"""Mixture of experts: how routing moves within a rollout batch, and what replaying it changes and costs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gspo_lab.findings import Findings
from gspo_lab.findings.clipped import weighted
from gspo_lab.findings.course import Track
from gspo_lab.report.bars import per_minibatch
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.frames import curve, groups, json_column, mean, value
from gspo_lab.report.markup import NOT_MEASURED, Html, h, markdown_table, number, percent, table
from gspo_lab.report.palette import NEUTRAL_DARK, NEUTRAL_LIGHT
from gspo_lab.report.published import EXPERT_CHANGE, EXPERT_CHANGE_ABOUT
from gspo_lab.report.section import Section
from gspo_lab.report.titles import from_first_to_last, one_over_other
from gspo_lab.study import Arm
from gspo_lab.study.dotted import BAND, alike_but

INTRODUCTION = (
    "The share of activated experts that the router would now choose differently than it did under the old policy: "
    "1 − overlap / k of the router's natural top-k, mean over tokens and layers. It is measured without the replay's "
    "help in every arm: replay forces the old experts in training, and the natural choice still moves."
)
COST = ["arm", "replay", "bytes kept per step", "seconds per step", "share of the step's time"]
CHANGE, CLIP, REPLAY = "expert_change", "clip_fraction_tokens", "routing_replay"


def experts(found: Findings) -> Section | None:
    """Expert change by mini-batch, by layer and over training; arms with and without replay; replay's cost."""
    order = found.arms
    own = found.course
    if not own.measured(CHANGE):
        said = f"Expert change: {NOT_MEASURED}. No arm of this study recorded expert choices; dense models have none."
        return Section("experts", "Experts and routing replay", (h("p", said, class_="missing"),))
    frame = found.evidence.by_minibatch(found.study, {CHANGE: "response_tokens", CLIP: "response_tokens"})
    layers = found.evidence.updates(found.study, ["expert_change_layers"], at=own.sampled)
    by_minibatch = Chart(
        "m-expert-minibatch",
        "Expert change by mini-batch",
        "mini-batch within the rollout batch",
        "share of experts",
        per_minibatch(frame, order, CHANGE),
        kind="bars",
        whole=True,
        note="Bars: mean over seeds; dots: seeds. Mini-batch 0 is trained on before any update of its batch.",
    )
    by_layer = Chart(
        "m-expert-layer",
        "Expert change by layer",
        "mixture-of-experts layer, first to last",
        "share of experts",
        _per_layer(layers[layers["minibatch"] > 0], order),
        kind="bars",
        whole=True,
        note=f"Mean over mini-batches ≥ 1. {own.sample_note}".strip(),
    )
    steps = curve(
        found,
        CHANGE,
        id="m-expert-change",
        title="Expert change over training",
        unit="share of experts",
        whole=True,
        note=f"Mean over the step's mini-batches. {EXPERT_CHANGE_ABOUT}",
        references=EXPERT_CHANGE,
    )
    by_minibatch, by_layer = (replace(one, finding=from_first_to_last(one)) for one in (by_minibatch, by_layer))
    rows = _cost(found)
    shown = [
        [row["arm"], row["replay"], *(number(row[key]) for key in ("bytes", "seconds")), percent(row["share"])]
        for row in rows
    ]
    cost = table(COST, shown, caption="What replay costs, mean over steps and seeds")
    data = {"replay_cost": {row.pop("arm"): row for row in [dict(row) for row in rows]}}
    body: tuple[Html | Chart, ...] = (
        h("p", INTRODUCTION),
        by_minibatch,
        by_layer,
        steps,
        *_replay(frame, found.declaration.arms),
        cost,
    )
    return Section("experts", "Experts and routing replay", body, data, markdown_table(COST, shown))


def replayed(arms: Mapping[str, Arm]) -> dict[str, dict[str, str]]:
    """Arm without replay -> replay -> the arm that differs in nothing else, which of imported arms is unknown."""
    arms = {name: arm for name, arm in arms.items() if arm.known is None}
    plain = {name: arm for name, arm in arms.items() if arm.settings.routing_replay == "none"}
    replaying = {name: arm for name, arm in arms.items() if name not in plain}
    out: dict[str, dict[str, str]] = {}
    for name, arm in plain.items():
        for other, twin in replaying.items():
            if alike_but(arm.resolved, twin.resolved, _own(arm)):
                out.setdefault(name, {})[twin.settings.routing_replay] = other
    return out


def _own(arm: Arm) -> tuple[str, ...]:
    """What twins may differ in: the replay, and a range that a pilot finds for each arm."""
    return (REPLAY, *(BAND if arm.settings.objective.clip == "calibrated" else ()))


def _replay(frame: pd.DataFrame, arms: Mapping[str, Arm]) -> list[Chart]:
    """Expert change and clipped tokens with and without replay, for arms that differ in nothing else."""
    pairs = replayed(arms)
    if not pairs:
        return []
    later = frame[frame["minibatch"] > 0]
    means = {
        (str(arm), metric): {int(seed): weighted(run, metric) for seed, run in groups(own, "seed")}
        for arm, own in groups(later, "arm")
        for metric in (CHANGE, CLIP)
    }
    kinds = ["none", *dict.fromkeys(kind for found in pairs.values() for kind in found)]
    colours = [NEUTRAL_LIGHT, NEUTRAL_DARK, *range(len(kinds))]

    def series(metric: str) -> tuple[Series, ...]:
        out: list[Series] = []
        for kind, colour in zip(kinds, colours, strict=False):
            names = [arm if kind == "none" else found.get(kind, "") for arm, found in pairs.items()]
            runs = [means.get((name, metric), {}) for name in names]
            seeds = sorted({seed for run in runs for seed in run})
            label = "without replay" if kind == "none" else f"replay: {kind}"
            if len(seeds) > 1:
                columns = {seed: tuple(run.get(seed) for run in runs) for seed in seeds}
                out += [Series(label, colour, tuple(pairs), ys, seed=seed) for seed, ys in columns.items()]
            out.append(Series(label, colour, tuple(pairs), tuple(mean(list(run.values())) for run in runs)))
        return tuple(out)

    note = "Mini-batches ≥ 1. Arms that differ in nothing but the replay. Bars: mean over seeds; dots: seeds."
    charts = [
        Chart("m-replay-experts", "Expert change, with and without replay", "arm", "share of experts",
              series(CHANGE), kind="bars", whole=True, note=note),
        Chart("m-replay-clip", "Clipped tokens, with and without replay", "arm", "share of tokens",
              series(CLIP), kind="bars", log=True, note=note),
    ]  # fmt: skip
    return [replace(one, finding=one_over_other(one)) for one in charts]


def _per_layer(frame: pd.DataFrame, order: list[str]) -> tuple[Series, ...]:
    out: list[Series] = []
    for colour, arm in enumerate(order):
        runs: dict[int, list[float | None]] = {}
        for seed, own in groups(frame[frame["arm"] == arm], "seed"):
            lists = [layers for layers in json_column(own["expert_change_layers"]) if layers]
            if lists:
                runs[int(seed)] = [mean([value(one) for one in layer]) for layer in zip(*lists, strict=True)]
        if not runs:
            continue
        x = tuple(str(layer) for layer in range(len(next(iter(runs.values())))))
        if len(runs) > 1:
            out += [Series(arm, colour, x, tuple(layers), seed=seed) for seed, layers in runs.items()]
        out.append(Series(arm, colour, x, tuple(mean(list(layer)) for layer in zip(*runs.values(), strict=True))))
    return tuple(out)


def _cost(found: Findings) -> list[dict[str, Any]]:
    rows = []
    for name, arm in found.declaration.arms.items():
        tracks = [track for track in found.course.tracks if track.arm == name]
        replay, whole = _spans(tracks, "seconds_replay"), _spans(tracks, "seconds_step")
        timed = np.isfinite(replay) & np.isfinite(whole)
        share = replay[timed].sum() / whole[timed].sum() if whole[timed].sum() > 0 else None
        rows.append(
            {
                "arm": name,
                "replay": arm.settings.routing_replay,
                "bytes": _mean(_spans(tracks, "replay_bytes")),
                "seconds": _mean(replay),
                "share": value(share),
            }
        )
    return rows


def _spans(tracks: list[Track], metric: str) -> Any:
    return np.concatenate([track.columns[metric] for track in tracks]) if tracks else np.zeros(0)


def _mean(values: Any) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
