"""Mixture of experts: how routing moves within a rollout batch, and what replaying it changes and costs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gspo_lab.claims.clipped import weighted
from gspo_lab.matching.settings import flat
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.course import Track, course
from gspo_lab.report.frames import arms, curve, groups, json_column, mean, value
from gspo_lab.report.markup import NOT_MEASURED, Html, h, markdown_table, number, table
from gspo_lab.report.section import Section
from gspo_lab.report.sections.clipping import per_minibatch
from gspo_lab.report.svg import NEUTRAL_DARK, NEUTRAL_LIGHT
from gspo_lab.study.dotted import BAND

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

INTRODUCTION = (
    "The share of activated experts that the router would now choose differently than it did under the old policy: "
    "1 − overlap / k of the router's natural top-k, mean over tokens and layers. It is measured without the replay's "
    "help in every arm: replay forces the old experts in training, and the natural choice still moves."
)
COST = ["arm", "replay", "bytes kept per step", "seconds per step", "share of the step's time"]
CHANGE, CLIP, REPLAY = "expert_change", "clip_fraction_tokens", "routing_replay"


def experts(evidence: "Evidence", study: str) -> Section | None:
    """Expert change by mini-batch, by layer and over training; arms with and without replay; replay's cost."""
    order = arms(evidence, study)
    own = course(evidence, study)
    if not own.measured(CHANGE):
        said = f"Expert change: {NOT_MEASURED}. No arm of this study recorded expert choices; dense models have none."
        return Section("experts", "Experts and routing replay", (h("p", said, class_="missing"),))
    frame = evidence.by_minibatch(study, {CHANGE: "response_tokens", CLIP: "response_tokens"})
    layers = evidence.updates(study, ["expert_change_layers"], at=own.sampled)
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
        evidence,
        study,
        CHANGE,
        id="m-expert-change",
        title="Expert change over training",
        unit="share of experts",
        whole=True,
        note="Mean over the step's mini-batches.",
    )
    entropy = curve(
        evidence,
        study,
        "router_entropy",
        id="m-router-entropy",
        title="Router entropy over training",
        unit="nats",
        note="Of the router's softmax over experts, mean over tokens and layers; single layers are not recorded.",
    )
    rows = _cost(evidence, study, order)
    shown = [[row["arm"], row["replay"], *(number(row[key]) for key in list(row)[2:])] for row in rows]
    cost = table(COST, shown, caption="What replay costs, mean over steps and seeds")
    data = {"replay_cost": {row.pop("arm"): row for row in [dict(row) for row in rows]}}
    settings = {arm: entry["settings"] for arm, entry in evidence.study(study)["arms"].items()}
    body: tuple[Html | Chart, ...] = (
        h("p", INTRODUCTION),
        by_minibatch,
        by_layer,
        steps,
        entropy,
        *_replay(frame, settings),
        cost,
    )
    return Section("experts", "Experts and routing replay", body, data, markdown_table(COST, shown))


def replayed(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Arm without replay -> replay -> the arm that differs from it in nothing else."""

    def others(one: Mapping[str, Any]) -> dict[str, Any]:
        own = flat(dict(one))
        found = {
            REPLAY,
            *(BAND if own.get("objective.clip") == "calibrated" else ()),
        }  # a pilot finds each arm's own range
        return {key: entry for key, entry in own.items() if key not in found}

    return {
        arm: found
        for arm, one in settings.items()
        if one[REPLAY] == "none"
        and (
            found := {
                str(other[REPLAY]): name
                for name, other in settings.items()
                if other[REPLAY] != "none" and others(other) == others(one)
            }
        )
    }


def _replay(frame: pd.DataFrame, settings: Mapping[str, Mapping[str, Any]]) -> list[Chart]:
    """Expert change and clipped tokens with and without replay, for arms that differ in nothing else."""
    pairs = replayed(settings)
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
    return [
        Chart("m-replay-experts", "Expert change, with and without replay", "arm", "share of experts",
              series(CHANGE), kind="bars", whole=True, note=note),
        Chart("m-replay-clip", "Clipped tokens, with and without replay", "arm", "share of tokens",
              series(CLIP), kind="bars", log=True, note=note),
    ]  # fmt: skip


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


def _cost(evidence: "Evidence", study: str, order: list[str]) -> list[dict[str, Any]]:
    declared = evidence.study(study)["arms"]
    rows = []
    for arm in order:
        tracks = [track for track in course(evidence, study).tracks if track.arm == arm]
        replay, whole = _spans(tracks, "seconds_replay"), _spans(tracks, "seconds_step")
        timed = np.isfinite(replay) & np.isfinite(whole)
        share = replay[timed].sum() / whole[timed].sum() if whole[timed].sum() > 0 else None
        rows.append(
            {
                "arm": arm,
                "replay": declared[arm]["settings"][REPLAY],
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
