"""What is recorded of an optimizer update.

Symbols (arXiv 2507.18071): l_t = log pi_theta(y_t) - log pi_old(y_t), w_t = exp(l_t), s =
exp(mean_t l_t) of a response, r = the ratio an arm really uses (w_t, or s spread over its tokens),
A = advantage, m = response mask, binds = (A > 0 and r > 1 + clip_high) or (A < 0 and r < 1 -
clip_low), as `policy_loss` has it; A = 0 never binds.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from gspo_lab.recording.records.field import key, metric
from gspo_lab.recording.records.reduction import (
    Reduction,
    any_share,
    chi_square,
    count,
    deviation,
    effective_sample_size,
    k1,
    k3,
    known,
    largest,
    largest_size,
    mean,
    mean_share,
    per_token,
    quantiles,
    share,
    share_of_sum,
)

R = TypeVar("R")

BAND_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The factors on a clip range at which `band_counts` counts what would bind."""

RULES = {"grpo": "r = w_t and GRPO's range", "gspo": "r = s and GSPO's range"}
"""The ratio rules, each with columns of its own that count what it would clip, whichever rule a run
follows: in `UpdateRecord` a field named `*_RULE` stands for one of each."""


def _for_each_rule(cls: type[R]) -> type[R]:
    """Put a field for every rule in the place of each named `*_RULE`; `RULE` in its meaning becomes
    the rule's own.
    """
    annotations: dict[str, Any] = {}
    for name, kind in cls.__annotations__.items():
        if not name.endswith("_RULE"):
            annotations[name] = kind
            continue
        metadata = vars(cls)[name].metadata
        delattr(cls, name)
        for rule, definition in RULES.items():
            column = name.replace("RULE", rule)
            annotations[column] = kind
            entry = metric(
                metadata["unit"],
                metadata["meaning"].replace("RULE", definition),
                per=metadata["per"],
                rule=metadata["rule"].of_rule(rule),
            )
            setattr(cls, column, entry)
    cls.__annotations__ = annotations
    return cls


@dataclass(frozen=True, slots=True, kw_only=True)
@_for_each_rule
class UpdateRecord:
    """One optimizer update on one mini-batch. Made by an engine; `minibatch` counts from 0 in every
    rollout batch.

    `UpdateRecord(step=3, minibatch=1, clip_fraction_tokens=0.31,
    would_clip_fraction_tokens_grpo=0.004, ...)`
    """

    kind: ClassVar[str] = "update"
    table: ClassVar[str] = "updates"

    step: int = key("index of the rollout batch, from 0")
    minibatch: int = key(
        "index of the update within its rollout batch, from 0 (counted on through the epochs); -1:"
        " a row of another program's log, the mean over its logging interval"
    )
    loss: float | None = metric("-", "the objective's loss on the mini-batch")
    kl: float | None = metric(
        "nats/token",
        "mean of objective.kl_estimate of KL(pi_theta, pi_ref); only with kl_coef > 0",
        per="response_tokens",
        rule=per_token("kl", "tokens"),
    )
    grad_norm: float | None = metric("-", "L2 norm of the gradient before clipping")
    weight_norm: float | None = metric(
        "-",
        "L2 norm of all trained weights after this update, beside which grad_norm has a size",
    )
    learning_rate: float | None = metric("-", "learning rate of this update")
    value_loss: float | None = metric(
        "reward^2",
        "the critic's loss on the mini-batch; this and the next three only with advantage = 'gae'",
    )
    value_mean: float | None = metric(
        "reward", "mean value over response tokens, before this update", per="response_tokens"
    )
    value_clip_fraction: float | None = metric(
        "share of response tokens", "values whose gradient value_clip takes", per="response_tokens"
    )
    critic_grad_norm: float | None = metric("-", "L2 norm of the critic's gradient before clipping")
    nonfinite: int | None = metric(
        "0 or 1",
        "1 if the model is dead: the loss or the gradient was not finite, and the update was"
        " skipped; or a trained weight of the policy or its critic was not finite after the update;"
        " or the sampler's log-prob of a token was not",
    )
    responses: int | None = metric(
        "responses", "responses in the mini-batch", rule=known("responses")
    )
    evaluated_responses: int | None = metric(
        "responses",
        "responses that went through the model: those with A != 0, or all with"
        " update.skip_zero_advantage = false or a KL or entropy term; log-ratios, ess, chi2,"
        " staleness and routing cover these, clip fractions cover all",
        rule=count("evaluated"),
    )
    response_tokens: int | None = metric(
        "tokens", "response tokens in the mini-batch: sum m", rule=count("tokens")
    )
    active_tokens: int | None = metric(
        "tokens", "response tokens with A != 0", rule=count("active")
    )
    clipped_tokens: int | None = metric(
        "tokens",
        "response tokens whose term the clip binds: sum m * binds",
        rule=count("clip_fraction_tokens"),
    )
    clip_fraction_tokens: float | None = metric(
        "share of response tokens",
        "the headline: sum m * binds / sum m",
        per="response_tokens",
        rule=share("clip_fraction_tokens", "tokens"),
    )
    clip_fraction_gradient: float | None = metric(
        "share of the gradient",
        "the share of the gradient that the clip takes: sum r abs(A) abs(e_y - p) over the tokens"
        " that it binds, divided by the same sum over all; abs(e_y - p)^2 = 1 - 2 p_y + sum p^2 is"
        " the squared norm of the gradient of log p_y by the logits, p the policy of this update."
        " A token that is certain has almost no gradient, so this and the headline may differ"
        " much. Engine native only; NULL without a clip, and for a loss with a ratio of its own",
        per="active_tokens",
        rule=share_of_sum("clip_fraction_tokens", "gradient"),
    )
    clip_fraction_tokens_high: float | None = metric(
        "share of response tokens",
        "the part of the headline with A > 0",
        per="response_tokens",
        rule=share("clip_fraction_tokens", "tokens", "positive"),
    )
    clip_fraction_tokens_low: float | None = metric(
        "share of response tokens",
        "the part of the headline with A < 0",
        per="response_tokens",
        rule=share("clip_fraction_tokens", "tokens", "negative"),
    )
    clip_fraction_active_tokens: float | None = metric(
        "share of active tokens",
        "sum m * binds / sum m * (A != 0)",
        per="active_tokens",
        rule=share("clip_fraction_tokens", "active"),
    )
    clip_fraction_positive_tokens: float | None = metric(
        "share of tokens with A > 0",
        "those whose term the clip binds; beside the next column it shows whether clipping depends"
        " on the sign of A",
        rule=share("clip_fraction_tokens", "positive", "positive"),
    )
    clip_fraction_negative_tokens: float | None = metric(
        "share of tokens with A < 0",
        "the same with A < 0",
        rule=share("clip_fraction_tokens", "negative", "negative"),
    )
    clip_fraction_responses: float | None = metric(
        "share of responses",
        "mean over responses of the response's own clipped share of tokens",
        per="responses",
        rule=mean_share("clip_fraction_tokens", "tokens"),
    )
    clip_any_responses: float | None = metric(
        "share of responses",
        "responses with at least one binding token",
        per="responses",
        rule=any_share("clip_fraction_tokens"),
    )
    would_clip_fraction_tokens_RULE: float | None = metric(
        "share of response tokens",
        "the headline recomputed on this batch's l_t, A and m with RULE",
        per="response_tokens",
        rule=share("would_clip_RULE", "tokens"),
    )
    would_clip_fraction_gradient_RULE: float | None = metric(
        "share of the gradient",
        "clip_fraction_gradient recomputed on this batch with RULE",
        per="active_tokens",
        rule=share_of_sum("would_clip_RULE", "gradient_RULE"),
    )
    dual_clip_fraction_tokens: float | None = metric(
        "share of response tokens",
        "tokens capped by the dual clip, never part of the headline; only with dual_clip",
        per="response_tokens",
        rule=share("dual_clip_fraction_tokens", "tokens"),
    )
    flip_fraction_tokens_RULE: float | None = metric(
        "share of response tokens",
        "tokens that bind with the trainer's old log-probs but not with the sampler's, or the"
        " reverse, with RULE; only with the trainer's old policy",
        per="response_tokens",
        rule=share("flip_RULE", "tokens"),
    )
    bapo_clip_low: float | None = metric(
        "-",
        "the mini-batch's range began at 1 - this; with policy_loss = 'bapo'",
        rule=known("bapo_clip_low"),
    )
    bapo_clip_high: float | None = metric(
        "-",
        "the mini-batch's range ended at 1 + this; with policy_loss = 'bapo'",
        rule=known("bapo_clip_high"),
    )
    gate_mean: float | None = metric(
        "-",
        "mean weight of A grad log pi / r at active tokens; only for a loss without a clip",
        per="active_tokens",
        rule=mean("gate_mean", "active"),
    )
    correction_weight_mean: float | None = metric(
        "-",
        "mean factor of active tokens' terms; with mismatch_correction or off_policy_mask",
        per="active_tokens",
        rule=mean("correction_weight_mean", "active"),
    )
    correction_masked_tokens: float | None = metric(
        "share of active tokens",
        "tokens whose factor is 0; only with objective.mismatch_correction or"
        " objective.off_policy_mask",
        per="active_tokens",
        rule=share("correction_masked_tokens", "active"),
    )
    effective_fraction_tokens: float | None = metric(
        "share of response tokens",
        "tokens with a non-zero policy gradient; a KL term reaches all tokens and is not counted",
        per="response_tokens",
        rule=share("effective", "tokens"),
    )
    log_ratio_std_tokens: float | None = metric(
        "nats",
        "standard deviation (divisor n) of l_t over response tokens",
        rule=deviation("log_ratio"),
    )
    log_ratio_std_responses: float | None = metric(
        "nats",
        "standard deviation (divisor n) of log s over responses",
        rule=deviation("log_ratio_responses"),
    )
    log_ratio_max_abs: float | None = metric(
        "nats", "largest |l_t|", rule=largest_size("log_ratio")
    )
    log_ratio_quantiles_tokens: list[float | None] | None = metric(
        "nats",
        "quantiles 0, 1, 5, 25, 50, 75, 95, 99, 100 % of l_t over response tokens (JSON)",
        rule=quantiles("log_ratio"),
    )
    log_ratio_quantiles_responses: list[float | None] | None = metric(
        "nats", "the same of log s over responses (JSON)", rule=quantiles("log_ratio_responses")
    )
    ratio_max_negative: float | None = metric(
        "-", "largest w_t at tokens with A < 0", rule=largest("ratio_BT", "negative")
    )
    ess_tokens: float | None = metric(
        "share of tokens",
        "effective sample size (sum w)^2 / (n sum w^2) over tokens; NULL if every w^2 underflows",
        rule=effective_sample_size("ratio"),
    )
    ess_responses: float | None = metric(
        "share of responses",
        "the same with s over responses",
        rule=effective_sample_size("ratio_responses"),
    )
    chi2_tokens: float | None = metric(
        "-", "mean(w^2) - 1 over tokens", per="response_tokens", rule=chi_square("ratio")
    )
    chi2_responses: float | None = metric(
        "-",
        "mean(s^2) - 1 over responses",
        per="evaluated_responses",
        rule=chi_square("ratio_responses"),
    )
    stale_k1: float | None = metric(
        "nats/token",
        "mean of -l_t over response tokens; signed",
        per="response_tokens",
        rule=k1("log_ratio"),
    )
    stale_k3: float | None = metric(
        "nats/token",
        "mean of exp(l_t) - 1 - l_t over response tokens",
        per="response_tokens",
        rule=k3("log_ratio", "ratio"),
    )
    expert_change: float | None = metric(
        "share of experts",
        "1 - overlap/k of the router's natural top-k, old policy vs now, mean over layers and"
        " tokens; MoE only",
        per="response_tokens",
    )
    expert_change_layers: list[float] | None = metric(
        "share of experts",
        "expert_change per MoE layer, first to last (JSON)",
        per="response_tokens",
    )
    expert_change_any_tokens: float | None = metric(
        "share of tokens",
        "response tokens whose natural experts changed in at least one layer; MoE only",
        per="response_tokens",
    )
    router_entropy: float | None = metric(
        "nats", "mean entropy of the router's softmax over experts; MoE only", per="response_tokens"
    )
    expert_load_cv: float | None = metric(
        "-",
        "standard deviation / mean of the natural tokens per expert, mean over layers; MoE only",
    )
    dead_experts: float | None = metric(
        "share of experts",
        "experts, over all layers, that no response token of the mini-batch chose; MoE only",
    )
    router_grad_norm: float | None = metric(
        "-",
        "L2 norm of the router weights' gradient before clipping; MoE only, NULL where they are"
        " frozen",
    )
    band_counts: dict[str, dict[str, list[int]]] | None = metric(
        "tokens",
        f"per rule ({', '.join(RULES)}) and side (low: A < 0, high: A > 0) the tokens that would"
        " bind with that side's reference range x 1/4, 1/2, 1, 2, 4 (JSON)",
        rule=known("band_counts"),
    )
    response_detail: dict[str, list[Any]] | None = metric(
        "-",
        "per evaluated response of the mini-batch: length, advantage, sum and sum of squares of"
        " l_t, largest |l_t|, clipped tokens (JSON); every record.detail_every steps; with"
        " record.token_detail also every l_t of a response",
    )
    seconds: float | None = metric(
        "s", "this update: forward, backward and optimizer, the critic's among it"
    )
    critic_seconds: float | None = metric(
        "s", "the critic's part of it; only with advantage = 'gae'"
    )
    engine_metrics: dict[str, float] | None = metric(
        "-", "another program's numbers, as it names them (JSON)"
    )


REDUCTIONS: dict[str, Reduction] = {
    entry.name: entry.metadata["rule"]
    for entry in fields(UpdateRecord)
    if entry.metadata["rule"] is not None
}
"""The rule of every field that follows from a mini-batch's tensors."""
