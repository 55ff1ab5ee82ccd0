"""What explains a difference: drift and mismatch, the spread of the ratios, the policy and its answers.

Drawn is what something is decided by: a signal that leaves its range before a run falls, a flag beside its collapse, a
number that a claim of the papers reads, the signal that advice looks at. The database has every other metric.
"""

from typing import NamedTuple

from gspo_lab.readings import Source
from gspo_lab.report.frames import curve
from gspo_lab.report.markup import h
from gspo_lab.report.section import Part, Section
from gspo_lab.report.spread import by_length
from gspo_lab.study import Declaration


class Diagnostic(NamedTuple):
    """One recorded metric and how it is drawn; its chart's id is `m-` and the metric's name."""

    metric: str
    title: str
    unit: str
    log: bool = False
    whole: bool = False
    envelope: bool = False


DIAGNOSTICS = (
    Diagnostic("stale_k3", "Drift from the old policy, k3", "nats per token", log=True),
    Diagnostic("mismatch_k3", "Trainer–sampler mismatch, k3", "nats per token", log=True),
    Diagnostic("ratio_max_negative", "Largest token ratio where A < 0", "ratio", log=True, envelope=True),
    Diagnostic("log_ratio_std_tokens", "Spread of the token log-ratio", "nats", whole=True),
    Diagnostic("log_ratio_std_responses", "Spread of the sequence log-ratio", "nats", whole=True),
    Diagnostic("entropy", "Entropy", "nats per token", whole=True),
    Diagnostic("response_tokens_mean", "Response length", "tokens"),
    Diagnostic("truncated_responses", "Responses cut at the limit", "share of responses", whole=True),
    Diagnostic("zero_variance_groups", "Groups without a signal", "share of groups", whole=True),
)

INTRODUCTION = (
    "Drift: the policy being trained against the old policy, by the updates in between. Mismatch: the trainer's old "
    "policy against what the sampler said of the same tokens."
)
COVERED = (
    "Entropy, mismatch, drift and the spread of log-ratios cover the responses that the trainer evaluated: without a "
    "KL term only those with A ≠ 0, and with the sampler's old log-probs entropy and mismatch only mini-batch 0. As "
    "groups without a signal become more, these curves tell of fewer, undecided prompts. Clip fractions are of all "
    "response tokens."
)
"""Where an arm skips responses without advantage."""


def diagnostics(found: Source) -> Section | None:
    """One small chart per entry of `DIAGNOSTICS`, and the sequence ratio's spread by length."""
    body: list[Part] = [h("p", INTRODUCTION)]
    if skipping(found.declaration):
        body.append(h("p", COVERED, class_="soft"))
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
        for one in DIAGNOSTICS
    ]
    return Section("diagnostics", "Diagnostics", (*body, by_length(found)))


def skipping(declared: Declaration) -> bool:
    """Whether an arm leaves responses with A = 0 out of its forward passes."""
    every = [arm.settings for name, arm in declared.arms.items() if declared.told(name, "update.skip_zero_advantage")]
    return any(one.update.skip_zero_advantage and not one.objective.kl_coef for one in every)
