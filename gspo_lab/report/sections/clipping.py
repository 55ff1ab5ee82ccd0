"""How many tokens each arm clips, and what the other rule would have clipped on the same batches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gspo_lab.findings.clipped import NO_CLIP, SATURATED, active_share, clips, saturated
from gspo_lab.readings import RECORDED, Reading, Source, summarise
from gspo_lab.readings.named import CLIP, CLIP_ACTIVE, CLIP_EVERYWHERE, LATER, WOULD_CLIP
from gspo_lab.report.bars import per_arm, per_minibatch
from gspo_lab.report.chart import Chart
from gspo_lab.report.frames import curve
from gspo_lab.report.markup import h, markdown_table, percent, table
from gspo_lab.report.palette import NEUTRAL_DARK, NEUTRAL_LIGHT
from gspo_lab.report.published import CLIPPED, CLIPPED_ABOUT
from gspo_lab.report.section import Fold, Part, Section
from gspo_lab.report.titles import clip_gap, from_first_to_last, one_over_other

COLUMNS = {
    "clip_fraction_tokens": CLIP_EVERYWHERE,
    "clip_fraction_tokens_later": CLIP,
    "clip_fraction_tokens_high_later": Reading("clip_fraction_tokens_high", LATER),
    "clip_fraction_tokens_low_later": Reading("clip_fraction_tokens_low", LATER),
    "clip_fraction_active_tokens_later": CLIP_ACTIVE,
}
"""The columns of the table, as the report's JSON names them."""

INTRODUCTION = (
    "The share of response tokens whose term the clip really stops: A > 0 and ratio above the range, or A < 0 and "
    "ratio below it. Token by token for both rules, so that the arms stand on one scale. The axes are logarithmic; "
    "zero has a row of its own at the bottom."
)
AT_ZERO = (
    "Mini-batch 0 is exactly 0 by construction: it is trained on while the policy is still the one that the ratio "
    "compares it with, so every ratio is 1."
)
NOT_AT_ZERO = (
    "The ratio's old log-probs are the sampler's, so mini-batch 0 may clip: sampler and trainer differ a little even "
    "before the first update."
)


def clipping(found: Source) -> Section | None:
    """Clip fractions over the steps and by mini-batch index, and the counterfactual of either rule."""
    order = found.arms
    sampled = any(arm.settings.update.old_logprobs == "sampler" for arm in found.declaration.arms.values())
    by_construction = NOT_AT_ZERO if sampled else AT_ZERO
    steps = curve(
        found,
        "clip_fraction_tokens",
        id="m-clip",
        title="Clipped tokens over training",
        unit="share of tokens",
        log=True,
        note=f"Mean over the step's mini-batches, mini-batch 0 included. {CLIPPED_ABOUT}",
        references=CLIPPED,
    )
    if pair := _token_and_sequence(found):
        steps = replace(steps, finding=clip_gap(found, *pair) or steps.finding)
    by_minibatch = Chart(
        "m-clip-minibatch",
        "Clipped tokens by mini-batch",
        "mini-batch within the rollout batch",
        "share of tokens",
        per_minibatch(found, CLIP_EVERYWHERE),
        kind="bars",
        log=True,
        note=f"Bars: mean over seeds; dots: seeds. {by_construction}",
    )
    bands = found.declaration.reference_bands
    counterfactual = Chart(
        "m-would-clip",
        "Both rules on the same batches",
        "arm whose batches these are",
        "share of tokens",
        (
            *per_arm(found, WOULD_CLIP["grpo"], "token rule (GRPO)", NEUTRAL_DARK, {arm: arm for arm in order}),
            *per_arm(found, WOULD_CLIP["gspo"], "sequence rule (GSPO)", NEUTRAL_LIGHT, {arm: arm for arm in order}),
        ),
        kind="bars",
        log=True,
        note="Mini-batches ≥ 1: what the token ratio in GRPO's range and the sequence ratio in GSPO's range would clip "
        f"on the very batches that the arm trained on, whichever rule it follows.{_ranges(bands)}",
    )
    counterfactual = replace(counterfactual, finding=one_over_other(counterfactual))
    by_minibatch = replace(by_minibatch, finding=from_first_to_last(by_minibatch))
    rows = [_row(found, arm) for arm in order]
    head = [
        "arm",
        "all mini-batches",
        "mini-batches ≥ 1",
        "of which A > 0",
        "of which A < 0",
        "of active tokens",
        "note",
    ]
    shown = [
        [
            row["arm"],
            *(NO_CLIP if row["note"] == NO_CLIP else percent(row[key]) for key in list(row)[1:-1]),
            row["note"],
        ]
        for row in rows
    ]
    body: list[Part] = [h("p", INTRODUCTION), steps, by_minibatch]
    body += [h("p", _saturation(found, arm), class_="warn") for arm in order if saturated(found, arm)]
    body.append(
        table(head, shown, caption="Share of tokens clipped after the learning rate's warm-up, mean over recorded runs")
    )
    body.append(Fold("What either rule would have clipped on the same batches", (counterfactual,)))
    data = {
        "arms": {row.pop("arm"): row for row in [dict(row) for row in rows]},
        "readings": {name: reading.key for name, reading in COLUMNS.items()},
        "seeds": RECORDED.label(),
    }
    return Section("clipping", "Clipping", tuple(body), data, markdown_table(head, shown))


def _token_and_sequence(found: Source) -> tuple[str, str] | None:
    """The first arm of either rule, without replay."""
    plain = {
        name: arm.settings
        for name, arm in found.declaration.arms.items()
        if arm.settings.routing_replay == "none"
        and arm.settings.objective.policy_loss == "clip"
        and found.declaration.told(name, "objective.importance_sampling_level")
    }
    first = {one.objective.importance_sampling_level: name for name, one in reversed(plain.items())}
    return (first["token"], first["sequence"]) if {"token", "sequence"} <= first.keys() else None


def _ranges(bands: Mapping[str, tuple[float, float]]) -> str:
    said = [f"{rule.upper()}'s range: 1 − {low:g} to 1 + {high:g}" for rule, (low, high) in sorted(bands.items())]
    return f" {'; '.join(said)}." if said else ""


def _row(found: Source, arm: str) -> dict[str, Any]:
    return {
        "arm": arm,
        **{name: summarise(found, reading, arm, RECORDED).mean for name, reading in COLUMNS.items()},
        "note": "saturated" if saturated(found, arm) else "" if clips(found.declaration, arm) else NO_CLIP,
    }


def _saturation(found: Source, arm: str) -> str:
    share = percent(active_share(found, arm))
    return (
        f"{arm} is saturated: on mini-batches ≥ 1 it clips {share} of the tokens with an advantage (above "
        f"{SATURATED:.0%}); with a mean ratio near 1 a range cannot clip much more, so its clip fraction is a ceiling, "
        "not a measurement of the rule."
    )
