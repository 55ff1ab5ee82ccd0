"""Mixture of experts: how routing moves within a rollout batch, and what replaying it costs."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.frames import arms, curve, groups, json_column, mean, value
from gspo_lab.report.markup import NOT_MEASURED, h, markdown_table, number, table
from gspo_lab.report.section import Section
from gspo_lab.report.sections.clipping import per_minibatch

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

INTRODUCTION = (
    "The share of activated experts that the router would now choose differently than it did under the old policy: "
    "1 − overlap / k of the router's natural top-k, mean over tokens and layers. It is measured without the replay's "
    "help in every arm: replay forces the old experts in training, and the natural choice still moves."
)
COST = ["arm", "replay", "bytes kept per step", "seconds per step", "share of the step's time"]


def experts(evidence: "Evidence", study: str) -> Section | None:
    """Expert change by mini-batch, by layer and over training; replay's bytes and seconds."""
    order = arms(evidence, study)
    frame = evidence.updates(study, ["expert_change", "expert_change_layers", "response_tokens"])
    if frame["expert_change"].isna().all():
        said = f"Expert change: {NOT_MEASURED}. No arm of this study recorded expert choices; dense models have none."
        return Section("experts", "Experts and routing replay", (h("p", said, class_="missing"),))
    by_minibatch = Chart(
        "m-expert-minibatch",
        "Expert change by mini-batch",
        "mini-batch within the rollout batch",
        "share of experts",
        per_minibatch(frame, order, "expert_change", "response_tokens"),
        kind="bars",
        whole=True,
        note="Bars: mean over seeds; dots: seeds. Mini-batch 0 is trained on before any update of its batch.",
    )
    by_layer = Chart(
        "m-expert-layer",
        "Expert change by layer",
        "mixture-of-experts layer, first to last",
        "share of experts",
        _per_layer(frame[frame["minibatch"] > 0], order),
        kind="bars",
        whole=True,
        note="Mean over mini-batches ≥ 1.",
    )
    steps = curve(
        evidence,
        study,
        "updates",
        "expert_change",
        id="m-expert-change",
        title="Expert change over training",
        unit="share of experts",
        whole=True,
        note="Mean over the step's mini-batches.",
    )
    rows = _cost(evidence, study, order)
    shown = [[row["arm"], row["replay"], *(number(row[key]) for key in list(row)[2:])] for row in rows]
    cost = table(COST, shown, caption="What replay costs, mean over steps and seeds")
    data = {"replay_cost": {row.pop("arm"): row for row in [dict(row) for row in rows]}}
    body = (h("p", INTRODUCTION), by_minibatch, by_layer, steps, cost)
    return Section("experts", "Experts and routing replay", body, data, markdown_table(COST, shown))


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
    frame = evidence.steps(study, ["replay_bytes", "seconds_replay", "seconds_step"])
    declared = evidence.study(study)["arms"]
    rows = []
    for arm in order:
        own = frame[frame["arm"] == arm].astype({"replay_bytes": float, "seconds_replay": float, "seconds_step": float})
        timed = own[own["seconds_replay"].notna() & own["seconds_step"].notna()]
        whole = timed["seconds_step"].sum()
        rows.append(
            {
                "arm": arm,
                "replay": declared[arm]["settings"]["routing_replay"],
                "bytes": value(own["replay_bytes"].mean()),
                "seconds": value(own["seconds_replay"].mean()),
                "share": value(timed["seconds_replay"].sum() / whole) if whole > 0 else None,
            }
        )
    return rows
