"""What explains a difference: spread of the ratios, mismatch, drift, entropy, length."""

from typing import NamedTuple

from gspo_lab.findings import Findings
from gspo_lab.report.chart import Chart
from gspo_lab.report.frames import curve
from gspo_lab.report.markup import Html, h
from gspo_lab.report.section import Section
from gspo_lab.report.spread import by_length, ribbon
from gspo_lab.study import Declaration


class Diagnostic(NamedTuple):
    """One recorded metric and how it is drawn; its chart's id is `m-` and the metric's name."""

    metric: str
    title: str
    unit: str
    log: bool = False
    whole: bool = False
    envelope: bool = False


GROUPS: dict[str, tuple[Diagnostic, ...]] = {
    "Trainer–sampler mismatch: the trainer's old policy against what the sampler said of the same tokens.": (
        Diagnostic("mismatch_k3", "Mismatch, k3", "nats per token", log=True),
        Diagnostic("mismatch_k1", "Mismatch, signed k1", "nats per token"),
        Diagnostic("mismatch_abs_max", "Largest trainer–sampler gap", "nats", log=True, envelope=True),
    ),
    "Staleness: the policy being trained against the old policy, by the updates in between.": (
        Diagnostic("stale_k3", "Drift from the old policy, k3", "nats per token", log=True),
        Diagnostic("stale_k1", "Drift from the old policy, signed k1", "nats per token"),
        Diagnostic("ratio_max_negative", "Largest token ratio where A < 0", "ratio", log=True, envelope=True),
    ),
    "What either rule would have clipped on the arm's own batches, and how many tokens keep a gradient.": (
        Diagnostic("would_clip_fraction_tokens_grpo", "The token rule would clip", "share of tokens", log=True),
        Diagnostic("would_clip_fraction_tokens_gspo", "The sequence rule would clip", "share of tokens", log=True),
        Diagnostic("effective_fraction_tokens", "Tokens with a gradient", "share of tokens", whole=True),
    ),
    "The policy and its answers.": (
        Diagnostic("entropy", "Entropy", "nats per token", whole=True),
        Diagnostic("response_tokens_mean", "Response length", "tokens"),
        Diagnostic("truncated_responses", "Responses cut at the limit", "share of responses", whole=True),
        Diagnostic("zero_variance_groups", "Groups without a signal", "share of groups", whole=True),
        Diagnostic("log_ratio_std_tokens", "Spread of the token log-ratio", "nats", whole=True),
        Diagnostic("log_ratio_std_responses", "Spread of the sequence log-ratio", "nats", whole=True),
    ),
}

RATIOS = "The importance ratio, token by token and response by response, on mini-batches ≥ 1."
COVERED = (
    "Entropy, mismatch, drift and the spread of log-ratios cover the responses that the trainer evaluated: without a "
    "KL term only those with A ≠ 0, and with the sampler's old log-probs entropy and mismatch only mini-batch 0. As "
    "groups without a signal become more, these curves tell of fewer, undecided prompts. Clip fractions and tokens "
    "with a gradient are of all response tokens."
)
"""Where an arm skips responses without advantage."""


def diagnostics(found: Findings) -> Section | None:
    """The ratios' ribbons and their spread by length, then one small chart per entry of `GROUPS`."""
    body: list[Html | Chart] = [
        h("p", RATIOS),
        *([h("p", COVERED, class_="soft")] if skipping(found.declaration) else []),
        ribbon(found, "tokens"),
        ribbon(found, "responses"),
        by_length(found),
    ]
    for introduction, charts in GROUPS.items():
        body.append(h("p", introduction))
        body += [
            curve(
                found,
                one.metric,
                id=f"m-{one.metric.replace('_', '-')}",
                title=one.title,
                unit=one.unit,
                log=one.log,
                whole=one.whole,
                envelope=one.envelope,
                small=True,
            )
            for one in charts
        ]
    return Section("diagnostics", "Diagnostics", tuple(body))


def skipping(declared: Declaration) -> bool:
    """Whether an arm leaves responses with A = 0 out of its forward passes."""
    every = [arm.settings for arm in declared.arms.values()]
    return any(one.update.skip_zero_advantage and not one.objective.kl_coef for one in every)
