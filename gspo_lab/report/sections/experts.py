"""Mixture of experts: how routing moves within a rollout batch, and what replaying it changes and costs."""

from collections.abc import Mapping
from typing import Any

from gspo_lab.findings.training_curves import course
from gspo_lab.readings import RECORDED, Reading, Source, Steps, Window, average, by_layer, summarise
from gspo_lab.readings.reading import CHANGE_LATER, CLIP, LATER
from gspo_lab.report.chart import Chart, Section, Series
from gspo_lab.report.markup import format_number, h, markdown_table, percent, table
from gspo_lab.report.palette import NEUTRAL_DARK, NEUTRAL_LIGHT
from gspo_lab.report.series import DOTS, dots_by_arm, per_arm, per_minibatch
from gspo_lab.study import Arm
from gspo_lab.study.dotted_keys import BAND, alike_but

INTRODUCTION = (
    "Expert change: 1 − overlap / k of the router's natural top-k under the old policy and now, mean over tokens and "
    "layers. Replay's help is left out in every arm: replay forces the old experts in training, and the natural choice "
    "still moves."
)
COST = ("arm", "replay", "bytes kept per step", "seconds per step", "share of the step's time")
CHANGE, REPLAY = "expert_change", "routing_replay"
LAYERS = Reading("expert_change_layers", LATER)


def experts(study: Source) -> Section | None:
    """Expert change by mini-batch and by layer, arms with and without replay, and replay's cost; None for dense models,
    which have no experts."""
    curves = course(study)
    if not curves.measured(CHANGE):
        return None
    layers = {run: dict(enumerate(values)) for run, values in by_layer(study, LAYERS, curves.sampled).items()}
    charts = (
        Chart("m-expert-minibatch", "Expert change by mini-batch", "mini-batch within the rollout batch",
              "share of experts", per_minibatch(study, Reading(CHANGE)), kind="dots", whole=True, share=True,
              note=f"After the learning rate's warm-up. {DOTS} Mini-batch 0 comes before any update of its batch.",
              reading=Reading(CHANGE).key),
        Chart("m-expert-layer", "Expert change by layer", "mixture-of-experts layer, first to last", "share of experts",
              dots_by_arm(study, layers), kind="dots", whole=True, share=True, reading=LAYERS.key,
              note=f"{LAYERS.label().capitalize()}. {curves.sample_note}".strip()),
        *_replay(study),
    )  # fmt: skip
    rows = _cost(study)
    shown = [
        (arm, row["replay"], format_number(row["bytes"]), format_number(row["seconds"]), percent(row["share"]))
        for arm, row in rows.items()
    ]
    cost = table(COST, shown, caption="What replay costs, mean over steps, then over seeds")
    return Section("experts", "Experts and routing replay", (h("p", INTRODUCTION), *charts, cost),
                   {"replay_cost": rows},
                   markdown_table(COST, shown))  # fmt: skip


def replayed(arms: Mapping[str, Arm]) -> dict[str, dict[str, str]]:
    """Arm without replay -> replay -> the arm that differs in nothing else, which of imported arms is unknown."""
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
    """Expert change and clipped tokens with and without replay, for arms that differ in nothing else."""
    pairs = replayed(study.declaration.arms)
    kinds = ["none", *dict.fromkeys(kind for twins in pairs.values() for kind in twins)]
    colours = [NEUTRAL_LIGHT, NEUTRAL_DARK, *range(len(kinds))]

    def chart(name: str, what: str, unit: str, reading: Reading) -> Chart:
        series: list[Series] = []
        for kind, colour in zip(kinds, colours, strict=False):
            label = "without replay" if kind == "none" else f"replay: {kind}"
            shown = {arm: arm if kind == "none" else twins.get(kind, "") for arm, twins in pairs.items()}
            series += per_arm(study, reading, label, colour, shown)
        note = f"{reading.label().capitalize()}. Arms that differ in nothing but the replay. {DOTS}"
        return Chart(f"m-replay-{name}", f"{what}, with and without replay", "arm", unit, tuple(series), kind="dots",
                     log=name == "clip", whole=name != "clip", share=True, note=note, reading=reading.key)  # fmt: skip

    both = (("experts", "Expert change", "share of experts", CHANGE_LATER),
            ("clip", "Clipped tokens", "share of tokens", CLIP))  # fmt: skip
    return [chart(*arguments) for arguments in both] if pairs else []


NAMED = {"bytes": "replay_bytes", "seconds": "seconds_replay", "step": "seconds_step"}
COSTS = {name: Reading(metric, Window(Steps.ALL)) for name, metric in NAMED.items()}


def _cost(study: Source) -> dict[str, dict[str, Any]]:
    rows = {}
    for name, arm in study.declaration.arms.items():
        cost = {key: summarise(study, reading, name, RECORDED) for key, reading in COSTS.items()}
        replay, whole = (cost[key].by_seed for key in ("seconds", "step"))
        known = [seed for seed in replay if replay[seed].weight and whole[seed].total]
        rows[name] = {
            "replay": arm.settings.routing_replay,
            "bytes": cost["bytes"].mean,
            "seconds": cost["seconds"].mean,
            "share": average(replay[seed].total / whole[seed].total for seed in known),
            "reading": COSTS["seconds"].key,
        }
    return rows
