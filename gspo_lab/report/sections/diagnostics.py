"""Small charts of what explains a difference: mismatch, spread of the ratios, entropy, length."""

from typing import TYPE_CHECKING, NamedTuple

from gspo_lab.report.frames import curve
from gspo_lab.report.markup import h
from gspo_lab.report.section import Section

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


class Diagnostic(NamedTuple):
    """One recorded metric and how it is drawn; its chart's id is `m-` and the metric's name."""

    table: str
    metric: str
    title: str
    unit: str
    log: bool = False
    whole: bool = False


DIAGNOSTICS = (
    Diagnostic("steps", "mismatch_k3", "Trainer–sampler mismatch, k3", "nats per token", log=True),
    Diagnostic("steps", "mismatch_k1", "Trainer–sampler mismatch, signed k1", "nats per token"),
    Diagnostic("steps", "mismatch_abs_max", "Largest trainer–sampler gap", "nats", log=True),
    Diagnostic("steps", "entropy", "Entropy", "nats per token", whole=True),
    Diagnostic("steps", "response_tokens_mean", "Response length", "tokens"),
    Diagnostic("steps", "truncated_responses", "Responses cut at the limit", "share of responses", whole=True),
    Diagnostic("steps", "zero_variance_groups", "Groups without a signal", "share of groups", whole=True),
    Diagnostic("updates", "log_ratio_std_tokens", "Spread of the token log-ratio", "nats", whole=True),
    Diagnostic("updates", "log_ratio_std_responses", "Spread of the sequence log-ratio", "nats", whole=True),
    Diagnostic("updates", "ratio_max_negative", "Largest token ratio where A < 0", "ratio", log=True),
    Diagnostic("updates", "stale_k3", "Drift from the old policy, k3", "nats per token", log=True),
    Diagnostic("updates", "effective_fraction_tokens", "Tokens with a gradient", "share of tokens", whole=True),
)

INTRODUCTION = (
    "Mismatch compares the trainer's old policy with what the sampler said of the same tokens; drift compares the "
    "policy being trained with the old policy. The two are kept apart."
)


def diagnostics(evidence: "Evidence", study: str) -> Section | None:
    """One small chart per entry of `DIAGNOSTICS`."""
    charts = [
        curve(
            evidence,
            study,
            one.table,
            one.metric,
            id=f"m-{one.metric.replace('_', '-')}",
            title=one.title,
            unit=one.unit,
            log=one.log,
            whole=one.whole,
            small=True,
        )
        for one in DIAGNOSTICS
    ]
    return Section("diagnostics", "Diagnostics", (h("p", INTRODUCTION), *charts))
