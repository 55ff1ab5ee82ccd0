"""Mixture of experts: how routing moves within a rollout batch, and what replaying it changes and costs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gspo_lab.findings.training_curves import course
from gspo_lab.readings import RECORDED, Reading, Source, Steps, Window, average, by_layer, runs, summarise
from gspo_lab.readings.named import CHANGE_LATER, CLIP, LATER
from gspo_lab.report.bars import bars_of, per_arm, per_minibatch
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.frames import curve
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
CHANGE, REPLAY = "expert_change", "routing_replay"
LAYERS = Reading("expert_change_layers", LATER)


def experts(found: Source) -> Section | None:
    """Expert change by mini-batch, by layer and over training; arms with and without replay; replay's cost."""
    own = course(found)
    if not own.measured(CHANGE):
        said = f"Expert change: {NOT_MEASURED}. No arm of this study recorded expert choices; dense models have none."
        return Section("experts", "Experts and routing replay", (h("p", said, class_="missing"),))
    by_minibatch = Chart(
        "m-expert-minibatch",
        "Expert change by mini-batch",
        "mini-batch within the rollout batch",
        "share of experts",
        per_minibatch(found, Reading(CHANGE)),
        kind="bars",
        whole=True,
        note="After the learning rate's warm-up. Bars: mean over seeds; dots: seeds. Mini-batch 0 is trained on before "
        "any update of its batch.",
    )
    by_layer = Chart(
        "m-expert-layer",
        "Expert change by layer",
        "mixture-of-experts layer, first to last",
        "share of experts",
        _per_layer(found),
        kind="bars",
        whole=True,
        note=f"{LAYERS.label().capitalize()}. {own.sample_note}".strip(),
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
    cost = table(COST, shown, caption="What replay costs, mean over steps, then over seeds")
    data = {"replay_cost": {row.pop("arm"): row for row in [dict(row) for row in rows]}}
    body: tuple[Html | Chart, ...] = (
        h("p", INTRODUCTION),
        by_minibatch,
        by_layer,
        steps,
        *_replay(found),
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


def _replay(found: Source) -> list[Chart]:
    """Expert change and clipped tokens with and without replay, for arms that differ in nothing else."""
    pairs = replayed(found.declaration.arms)
    if not pairs:
        return []
    kinds = ["none", *dict.fromkeys(kind for twins in pairs.values() for kind in twins)]
    colours = [NEUTRAL_LIGHT, NEUTRAL_DARK, *range(len(kinds))]

    def series(reading: Reading) -> tuple[Series, ...]:
        out: list[Series] = []
        for kind, colour in zip(kinds, colours, strict=False):
            label = "without replay" if kind == "none" else f"replay: {kind}"
            shown = {arm: arm if kind == "none" else twins.get(kind, "") for arm, twins in pairs.items()}
            out += per_arm(found, reading, label, colour, shown)
        return tuple(out)

    note = (
        f"{CLIP.label().capitalize()}. Arms that differ in nothing but the replay. Bars: mean over seeds; dots: seeds."
    )
    charts = [
        Chart("m-replay-experts", "Expert change, with and without replay", "arm", "share of experts",
              series(CHANGE_LATER), kind="bars", whole=True, note=note),
        Chart("m-replay-clip", "Clipped tokens, with and without replay", "arm", "share of tokens",
              series(CLIP), kind="bars", log=True, note=note),
    ]  # fmt: skip
    return [replace(one, finding=one_over_other(one)) for one in charts]


def _per_layer(found: Source) -> tuple[Series, ...]:
    layers = by_layer(found, LAYERS, course(found).sampled)
    out: list[Series] = []
    for colour, arm in enumerate(found.arms):
        seeds = {
            run.seed: {str(layer): share for layer, share in enumerate(layers[run.id])}
            for run in runs(found)
            if run.arm == arm and run.id in layers
        }
        out += bars_of(arm, colour, max((list(bars) for bars in seeds.values()), key=len, default=[]), seeds)
    return tuple(out)


def _cost(found: Source) -> list[dict[str, Any]]:
    every = Window(Steps.ALL)
    names = {"bytes": "replay_bytes", "seconds": "seconds_replay", "step": "seconds_step"}
    rows = []
    for name, arm in found.declaration.arms.items():
        cost = {key: summarise(found, Reading(metric, every), name, RECORDED) for key, metric in names.items()}
        replay, whole = (cost[key].by_seed for key in ("seconds", "step"))
        shares = [
            replay[seed].total / whole[seed].total for seed in replay if replay[seed].weight and whole[seed].total
        ]
        rows.append(
            {
                "arm": name,
                "replay": arm.settings.routing_replay,
                "bytes": cost["bytes"].mean,
                "seconds": cost["seconds"].mean,
                "share": average(shares),
            }
        )
    return rows
