"""What is recorded of an optimizer update.

Symbols (arXiv 2507.18071): l_t = log pi_theta(y_t) - log pi_old(y_t), w_t = exp(l_t), s =
exp(mean_t l_t) of a response, r = the ratio an arm really uses (w_t, or s spread over its tokens),
A = advantage, m = response mask, binds = (A > 0 and r > 1 + clip_high) or (A < 0 and r < 1 -
clip_low), as `policy_loss` has it; A = 0 never binds.

A field's rule makes its number from a mini-batch's arrays, for every engine
(`objectives.recorder.Recorder`). It names the numpy arrays that it reads: a loss's metrics by the
fields that they are for, the others (`tokens`, `active`, `log_ratio`, ...) as the recorder does.
Only methods of arrays are used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

from gspo_lab.common.plain_data import OptionalFloat, OptionalInt, OptionalText, Strings
from gspo_lab.recording.records.metric import key, metric, nine_quantiles

R = TypeVar("R")

BAND_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The factors on a clip range at which `band_counts` counts what would bind."""

RULES = {"grpo": "r = w_t and GRPO's range", "gspo": "r = s and GSPO's range"}
"""The ratio rules: name -> definition. Columns count what each would clip, whichever rule a run
follows. In `UpdateRecord` a field named `*_RULE` stands for one column per rule."""

CLIP_FRACTION = "clip_fraction_tokens"
"""The column of the tokens that lose their gradient; losses mark them by this name too."""
EVALUATED_TOKENS = "evaluated_tokens"
"""The weight of metrics that cover evaluated responses only: these responses' tokens. It is not a
column. If some responses were not evaluated it equals `active_tokens`, else `response_tokens`."""
RATE_COLUMN = "learning_rate"
OPTIMIZER_COLUMNS = ("grad_norm", RATE_COLUMN)
"""The columns that an optimizer's step fills in every engine."""


def optimizer_columns(*values: OptionalFloat) -> dict[str, OptionalFloat]:
    """The gradient's norm and the learning rate, by their columns."""
    return dict(zip(OPTIMIZER_COLUMNS, values, strict=True))


Array = Any


@dataclass(frozen=True, slots=True)
class Reduction:
    """A function with the names of the arrays that it reads; None if one is missing."""

    function: Callable[..., Any]
    arrays: Strings

    def __call__(self, arrays: Mapping[str, Array]) -> Any:
        """The function's value for a mini-batch with these arrays."""
        if not arrays.keys() >= set(self.arrays):
            return None
        return self.function(*(arrays[name] for name in self.arrays))

    def for_rule(self, rule: str) -> "Reduction":
        """This reduction with a ratio rule's own arrays in place of those named `*_RULE`."""
        return replace(self, arrays=tuple(name.replace("RULE", rule) for name in self.arrays))


def reduction(function: Callable[..., Any]) -> Callable[..., Reduction]:
    """Decorator: calling the decorated function with names of arrays returns its `Reduction`."""
    return lambda *arrays: Reduction(function, arrays)


@reduction
def unreduced(number: Any) -> Any:
    """A number that a loss or the recorder already states of the whole mini-batch, unchanged."""
    return number


@reduction
def count(flags: Array) -> int:
    """How many entries are True."""
    return int(flags.sum())


@reduction
def share(flags_BT: Array, over_BT: Array, within_BT: Array = True) -> OptionalFloat:
    """The number of flagged tokens in `within_BT`, divided by that of tokens in `over_BT`.

    None if `over_BT` has no token.
    """
    total = int(over_BT.sum())
    return int((flags_BT & within_BT).sum()) / total if total else None


@reduction
def share_of_sum(flags_BT: Array, size_BT: Array) -> OptionalFloat:
    """The sum of sizes at flagged tokens, divided by that at all tokens; None if that is 0."""
    total = float(size_BT.sum())
    return float(size_BT[flags_BT].sum()) / total if total else None


@reduction
def mean(number_BT: Array, over_BT: Array) -> OptionalFloat:
    """The mean over the tokens in `over_BT`; None without one."""
    return float(number_BT[over_BT].mean(dtype="float64")) if over_BT.any() else None


@reduction
def per_token(total: float, tokens_BT: Array) -> float:
    """A sum over tokens, divided by their number."""
    return total / int(tokens_BT.sum())


@reduction
def mean_share(flags_BT: Array, tokens_BT: Array) -> float:
    """The mean over responses of each one's share of tokens with the flag."""
    length_B = tokens_BT.sum(axis=1).clip(min=1)
    return float((flags_BT.sum(axis=1) / length_B).mean())


@reduction
def any_share(flags_BT: Array) -> float:
    """The share of responses with the flag at one token at least."""
    return float(flags_BT.any(axis=1).mean())


@reduction
def deviation(number_N: Array) -> float:
    """The standard deviation, divisor n."""
    return float(number_N.std())


@reduction
def largest_size(number_N: Array) -> float:
    """The largest absolute value."""
    return float(abs(number_N).max())


@reduction
def largest(number_BT: Array, over_BT: Array) -> OptionalFloat:
    """The largest number at the tokens in `over_BT`; None without one."""
    return float(number_BT[over_BT].max()) if over_BT.any() else None


quantiles = reduction(nine_quantiles)


@reduction
def effective_sample_size(ratio_N: Array) -> OptionalFloat:
    """(sum r)^2 / (n sum r^2); None where all squares are below the smallest double."""
    total = float(ratio_N.sum())
    squares = float(ratio_N @ ratio_N)
    return total * total / (squares * len(ratio_N)) if squares else None


@reduction
def chi_square(ratio_N: Array) -> float:
    """mean(r^2) - 1."""
    return float(ratio_N @ ratio_N) / len(ratio_N) - 1


@reduction
def k1(l_N: Array) -> float:
    """The mean of -l."""
    return float(-l_N.mean())


@reduction
def k3(l_N: Array, ratio_N: Array) -> float:
    """The mean of r - 1 - l."""
    return float((ratio_N - 1 - l_N).mean())


Layers = list[OptionalFloat] | None
"""A number of each MoE layer."""


def of_layers(column: str, unit: str = "-", *, per: OptionalText = None) -> Any:
    """What `column` is of each MoE layer, as a field `*_layers`."""
    return metric(f"{column} by MoE layer", unit, per=per)


def _for_each_rule(cls: type[R]) -> type[R]:
    """Replace each field named `*_RULE` by one field per rule.

    In the field's meaning `RULE` becomes the rule's definition.
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
                metadata["meaning"].replace("RULE", definition),
                metadata["unit"],
                per=metadata["per"],
                rule=metadata["rule"].for_rule(rule),
            )
            setattr(cls, column, entry)
    cls.__annotations__ = annotations
    return cls


@dataclass(frozen=True, slots=True, kw_only=True)
@_for_each_rule
class UpdateRecord:
    """One optimizer update on one mini-batch, made by an engine.

    `UpdateRecord(step=3, minibatch=1, clip_fraction_tokens=0.31,
    would_clip_fraction_tokens_grpo=0.004, ...)`
    """

    kind: ClassVar[str] = "update"
    table: ClassVar[str] = "updates"

    step: int = key("index of the rollout batch, from 0")
    minibatch: int = key(
        "index of the update in its rollout batch, from 0 and through all epochs; -1: another"
        " program's log, a mean over its logging interval"
    )
    loss: OptionalFloat = metric("the objective's loss on the mini-batch")
    kl: OptionalFloat = metric(
        "mean estimate (objective.kl_estimate) of KL(pi_theta, pi_ref); only with kl_coef > 0",
        "nats/token",
        per="response_tokens",
        rule=per_token("kl", "tokens"),
    )
    grad_norm: OptionalFloat = metric("L2 norm of the gradient before clipping")
    weight_norm: OptionalFloat = metric("L2 norm of all trained weights after the update")
    relative_update_norm: OptionalFloat = metric(
        "L2 norm of the update of all trained weights / of these before it; every"
        " record.detail_every steps. Engine native only; NULL with adamw-8bit"
    )
    learning_rate: OptionalFloat = metric("learning rate of this update")
    value_loss: OptionalFloat = metric("the critic's loss; only with advantage = 'gae'", "reward^2")
    value_mean: OptionalFloat = metric(
        "the critic's mean value over response tokens before the update",
        "reward",
        per="response_tokens",
    )
    value_clip_fraction: OptionalFloat = metric(
        "the critic's values whose gradient value_clip removes",
        "share of response tokens",
        per="response_tokens",
    )
    critic_grad_norm: OptionalFloat = metric("L2 norm of the critic's gradient before clipping")
    nonfinite: OptionalInt = metric(
        "1: the loss or gradient (update skipped), a trained weight after the update (critic"
        " included) or a sampler log-prob was not finite",
        "0 or 1",
    )
    responses: OptionalInt = metric(
        "responses in the mini-batch", "responses", rule=unreduced("responses")
    )
    evaluated_responses: OptionalInt = metric(
        "responses that went through the model: those with A != 0, or all with"
        " update.skip_zero_advantage = false, a KL or an entropy term. Log-ratios, ess, chi2,"
        " staleness and routing cover these; evaluated_tokens are theirs",
        "responses",
        rule=count("evaluated"),
    )
    response_tokens: OptionalInt = metric(
        "response tokens in the mini-batch: sum m", "tokens", rule=count("tokens")
    )
    active_tokens: OptionalInt = metric(
        "response tokens with A != 0", "tokens", rule=count("active")
    )
    clipped_tokens: OptionalInt = metric(
        "response tokens whose gradient the clip removes: sum m * binds",
        "tokens",
        rule=count("clip_fraction_tokens"),
    )
    clip_fraction_tokens: OptionalFloat = metric(
        "the headline: sum m * binds / sum m",
        "share of response tokens",
        per="response_tokens",
        rule=share("clip_fraction_tokens", "tokens"),
    )
    clip_fraction_gradient: OptionalFloat = metric(
        "sum r abs(A) abs(e_y - p) over clipped tokens / over all, abs(e_y - p)^2 = 1 - 2 p_y"
        " + sum p^2. Engine native only; NULL without a clip or for a loss with its own ratio",
        "share of the gradient",
        per="active_tokens",
        rule=share_of_sum("clip_fraction_tokens", "gradient"),
    )
    clip_fraction_tokens_high: OptionalFloat = metric(
        "the part of clip_fraction_tokens with A > 0",
        "share of response tokens",
        per="response_tokens",
        rule=share("clip_fraction_tokens", "tokens", "positive"),
    )
    clip_fraction_tokens_low: OptionalFloat = metric(
        "the part of clip_fraction_tokens with A < 0",
        "share of response tokens",
        per="response_tokens",
        rule=share("clip_fraction_tokens", "tokens", "negative"),
    )
    clip_fraction_active_tokens: OptionalFloat = metric(
        "sum m * binds / sum m * (A != 0)",
        "share of active tokens",
        per="active_tokens",
        rule=share("clip_fraction_tokens", "active"),
    )
    clip_fraction_positive_tokens: OptionalFloat = metric(
        "tokens that the clip binds",
        "share of tokens with A > 0",
        rule=share("clip_fraction_tokens", "positive", "positive"),
    )
    clip_fraction_negative_tokens: OptionalFloat = metric(
        "tokens that the clip binds",
        "share of tokens with A < 0",
        rule=share("clip_fraction_tokens", "negative", "negative"),
    )
    clip_fraction_responses: OptionalFloat = metric(
        "mean over responses of their clipped share of tokens",
        "share of responses",
        per="responses",
        rule=mean_share("clip_fraction_tokens", "tokens"),
    )
    clip_any_responses: OptionalFloat = metric(
        "responses with at least one binding token",
        "share of responses",
        per="responses",
        rule=any_share("clip_fraction_tokens"),
    )
    would_clip_fraction_tokens_RULE: OptionalFloat = metric(
        "clip_fraction_tokens recomputed with RULE",
        "share of response tokens",
        per="response_tokens",
        rule=share("would_clip_RULE", "tokens"),
    )
    would_clip_fraction_gradient_RULE: OptionalFloat = metric(
        "clip_fraction_gradient recomputed with RULE",
        "share of the gradient",
        per="active_tokens",
        rule=share_of_sum("would_clip_RULE", "gradient_RULE"),
    )
    dual_clip_fraction_tokens: OptionalFloat = metric(
        "tokens capped by the dual clip, not in clip_fraction_tokens; only with dual_clip",
        "share of response tokens",
        per="response_tokens",
        rule=share("dual_clip_fraction_tokens", "tokens"),
    )
    flip_fraction_tokens_RULE: OptionalFloat = metric(
        "tokens that bind by the trainer's old log-probs or by the sampler's, not both, with"
        " RULE; needs the trainer's",
        "share of response tokens",
        per="response_tokens",
        rule=share("flip_RULE", "tokens"),
    )
    bapo_clip_low: OptionalFloat = metric(
        "the range began at 1 - this; with policy_loss = 'bapo'", rule=unreduced("bapo_clip_low")
    )
    bapo_clip_high: OptionalFloat = metric(
        "the range ended at 1 + this; with policy_loss = 'bapo'", rule=unreduced("bapo_clip_high")
    )
    gate_mean: OptionalFloat = metric(
        "mean weight of A grad log pi / r at active tokens; only for a loss without a clip",
        per="active_tokens",
        rule=mean("gate_mean", "active"),
    )
    correction_weight_mean: OptionalFloat = metric(
        "mean factor of the terms; with mismatch_correction or off_policy_mask",
        per="active_tokens",
        rule=mean("correction_weight_mean", "active"),
    )
    correction_masked_tokens: OptionalFloat = metric(
        "tokens whose factor is 0; with mismatch_correction or off_policy_mask",
        "share of active tokens",
        per="active_tokens",
        rule=share("correction_masked_tokens", "active"),
    )
    effective_fraction_tokens: OptionalFloat = metric(
        "tokens with a non-zero policy gradient, a KL term's aside",
        "share of response tokens",
        per="response_tokens",
        rule=share("effective", "tokens"),
    )
    log_ratio_std_tokens: OptionalFloat = metric(
        "standard deviation (divisor n) of l_t over response tokens",
        "nats",
        rule=deviation("log_ratio"),
    )
    log_ratio_std_responses: OptionalFloat = metric(
        "standard deviation (divisor n) of log s over responses",
        "nats",
        rule=deviation("log_ratio_responses"),
    )
    log_ratio_max_abs: OptionalFloat = metric(
        "largest |l_t|", "nats", rule=largest_size("log_ratio")
    )
    log_ratio_quantiles_tokens: list[OptionalFloat] | None = metric(
        "quantiles 0, 1, 5, 25, 50, 75, 95, 99, 100 % of l_t", "nats", rule=quantiles("log_ratio")
    )
    log_ratio_quantiles_responses: list[OptionalFloat] | None = metric(
        "the same of log s over responses", "nats", rule=quantiles("log_ratio_responses")
    )
    ratio_max_negative: OptionalFloat = metric(
        "largest w_t at tokens with A < 0", rule=largest("ratio_BT", "negative")
    )
    ess_tokens: OptionalFloat = metric(
        "effective sample size (sum w)^2 / (n sum w^2) over tokens; NULL if every w^2 underflows",
        "share of tokens",
        rule=effective_sample_size("ratio"),
    )
    ess_responses: OptionalFloat = metric(
        "the same with s over responses",
        "share of responses",
        rule=effective_sample_size("ratio_responses"),
    )
    chi2_tokens: OptionalFloat = metric(
        "mean(w^2) - 1 over tokens", per=EVALUATED_TOKENS, rule=chi_square("ratio")
    )
    chi2_responses: OptionalFloat = metric(
        "mean(s^2) - 1 over responses",
        per="evaluated_responses",
        rule=chi_square("ratio_responses"),
    )
    stale_k1: OptionalFloat = metric(
        "mean of -l_t; signed",
        "nats/token",
        per=EVALUATED_TOKENS,
        rule=k1("log_ratio"),
    )
    stale_k3: OptionalFloat = metric(
        "mean of exp(l_t) - 1 - l_t",
        "nats/token",
        per=EVALUATED_TOKENS,
        rule=k3("log_ratio", "ratio"),
    )
    expert_change: OptionalFloat = metric(
        "1 - overlap / k of the experts that the router itself chooses, old policy vs now,"
        " mean over layers and tokens; MoE only",
        "share of experts",
        per=EVALUATED_TOKENS,
    )
    expert_change_layers: Layers = of_layers(
        "expert_change", "share of experts", per=EVALUATED_TOKENS
    )
    expert_change_any_tokens: OptionalFloat = metric(
        "tokens whose experts changed in at least one layer; MoE only",
        "share of tokens",
        per=EVALUATED_TOKENS,
    )
    router_entropy: OptionalFloat = metric(
        "mean entropy of the router's softmax over experts; MoE only", "nats", per=EVALUATED_TOKENS
    )
    router_entropy_layers: Layers = of_layers("router_entropy", "nats", per=EVALUATED_TOKENS)
    expert_load_cv: OptionalFloat = metric(
        "standard deviation / mean of the tokens per expert, by the router's own choice, mean"
        " over layers; MoE only"
    )
    expert_load_cv_layers: Layers = of_layers("expert_load_cv")
    dead_experts: OptionalFloat = metric(
        "experts of all layers that no response token chose; MoE only", "share of experts"
    )
    dead_experts_layers: Layers = of_layers("dead_experts", "share of experts")
    router_grad_norm: OptionalFloat = metric(
        "L2 norm of the routers' gradient before clipping; NULL where they are frozen; MoE only"
    )
    router_grad_norm_layers: Layers = of_layers("router_grad_norm")
    band_counts: dict[str, dict[str, list[int]]] | None = metric(
        f"tokens that would bind per rule ({', '.join(RULES)}) and side (low: A < 0, high: A >"
        " 0), at 1/4, 1/2, 1, 2, 4 times the reference range",
        "tokens",
        rule=unreduced("band_counts"),
    )
    response_detail: dict[str, list[Any]] | None = metric(
        "per evaluated response: length, advantage, sum and sum of squares of l_t, largest"
        " |l_t|, clipped tokens; every record.detail_every steps. record.token_detail adds"
        " every l_t"
    )
    seconds: OptionalFloat = metric(
        "the update: forward, backward and optimizer, the critic's included", "s"
    )
    critic_seconds: OptionalFloat = metric(
        "the critic's part of seconds; only with advantage = 'gae'", "s"
    )
    engine_metrics: dict[str, float] | None = metric("another program's numbers, by its names")


REDUCTIONS: dict[str, Reduction] = {
    entry.name: entry.metadata["rule"]
    for entry in fields(UpdateRecord)
    if entry.metadata["rule"] is not None
}
"""The rule of every field that follows from a mini-batch's tensors."""
