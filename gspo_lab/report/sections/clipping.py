"""How many tokens each arm clips by mini-batch, and what the other rule would have clipped on the same batches."""

from typing import Any

from gspo_lab.findings.clip_fractions import NO_CLIP, SATURATED, active_share, clips, saturated
from gspo_lab.readings import RECORDED, Reading, Source, summarise
from gspo_lab.readings.reading import CLIP, CLIP_ACTIVE, CLIP_EVERYWHERE, LATER, WOULD_CLIP
from gspo_lab.report.chart import Chart, Part, Section
from gspo_lab.report.markup import h, markdown_table, percent, table
from gspo_lab.report.palette import NEUTRAL_DARK, NEUTRAL_LIGHT
from gspo_lab.report.series import DOTS, per_arm, per_minibatch

COLUMNS = {
    "clip_fraction_tokens": ("all mini-batches", CLIP_EVERYWHERE),
    "clip_fraction_tokens_later": ("mini-batches ≥ 1", CLIP),
    "clip_fraction_tokens_high_later": ("of which A > 0", Reading("clip_fraction_tokens_high", LATER)),
    "clip_fraction_tokens_low_later": ("of which A < 0", Reading("clip_fraction_tokens_low", LATER)),
    "clip_fraction_active_tokens_later": ("of active tokens", CLIP_ACTIVE),
}
"""The columns of the table, as the report's JSON names them."""

AT_ZERO = (
    "Mini-batch 0 is exactly 0 by construction: it is trained on while the policy is still the one that the ratio "
    "compares it with, so every ratio is 1."
)
NOT_AT_ZERO = (
    "The ratio's old log-probs are the sampler's, so mini-batch 0 may clip: sampler and trainer differ a little even "
    "before the first update."
)


def clipping(study: Source) -> Section | None:
    """Clip fractions by mini-batch index, the counterfactual of either rule, and a row per arm."""
    arms, bands = {arm: arm for arm in study.arms}, study.declaration.reference_bands
    sampled = any(arm.settings.update.old_logprobs == "sampler" for arm in study.declaration.arms.values())
    ranges = [f"{rule.upper()}'s range: 1 − {low:g} to 1 + {high:g}" for rule, (low, high) in sorted(bands.items())]
    about = (
        "Mini-batches ≥ 1: what the token ratio in GRPO's range and the sequence ratio in GSPO's range would clip on "
        f"the batches that the arm trained on, whichever rule it follows. {DOTS} {'; '.join(ranges)}"
    )
    both = (
        *per_arm(study, WOULD_CLIP["grpo"], "token rule (GRPO)", NEUTRAL_DARK, arms),
        *per_arm(study, WOULD_CLIP["gspo"], "sequence rule (GSPO)", NEUTRAL_LIGHT, arms),
    )
    look: dict[str, Any] = {"kind": "dots", "log": True, "share": True}
    by_minibatch = Chart("m-clip-minibatch", "Clipped tokens by mini-batch", "mini-batch within the rollout batch",
                         "share of tokens", per_minibatch(study, CLIP_EVERYWHERE), reading=CLIP_EVERYWHERE.key,
                         note=f"{DOTS} {NOT_AT_ZERO if sampled else AT_ZERO}", **look)  # fmt: skip
    counterfactual = Chart("m-would-clip", "Both rules on the same batches", "arm whose batches these are",
                           "share of tokens", both, reading=WOULD_CLIP["grpo"].key,
                           note=about.strip() + "." * bool(ranges), **look)  # fmt: skip
    rows = {arm: _row(study, arm) for arm in arms}
    head = ["arm", *(title for title, _ in COLUMNS.values()), "note"]
    shown = [
        [arm, *(NO_CLIP if row["note"] == NO_CLIP else percent(row[name]) for name in COLUMNS), row["note"]]
        for arm, row in rows.items()
    ]
    caption = "Share of tokens clipped after the learning rate's warm-up, mean over recorded runs"
    body: list[Part] = [by_minibatch, counterfactual, table(head, shown, caption=caption)]
    body += [h("p", _saturation(study, arm), class_="warn") for arm in arms if saturated(study, arm)]
    readings = {name: reading.key for name, (_, reading) in COLUMNS.items()}
    data = {"arms": rows, "readings": readings, "seeds": RECORDED.label()}
    return Section("clipping", "Clipping", tuple(body), data, markdown_table(head, shown))


def _row(study: Source, arm: str) -> dict[str, Any]:
    note = "saturated" if saturated(study, arm) else "" if clips(study.declaration, arm) else NO_CLIP
    shares = {name: summarise(study, reading, arm, RECORDED).mean for name, (_, reading) in COLUMNS.items()}
    return {**shares, "note": note}


def _saturation(study: Source, arm: str) -> str:
    share = percent(active_share(study, arm))
    return (
        f"{arm} is saturated: on mini-batches ≥ 1 it clips {share} of the tokens with an advantage (above "
        f"{SATURATED:.0%}). With a mean ratio near 1 a range cannot clip much more, so its clip fraction is a ceiling, "
        "not a measurement of the rule."
    )
