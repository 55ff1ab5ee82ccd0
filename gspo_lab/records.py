"""What crosses the wall between a worker and everything else: six records, and nothing besides.

An engine makes them, the journal carries them as JSON lines, the store's `ingest` turns them into rows. A field is a
column of its table under the same name, and its unit and meaning (below, once) become `docs/metrics.md`, the table
`metrics` of the database and the captions of the report. None means "not measured" and is NULL everywhere, never 0.

Symbols (arXiv 2507.18071): l_t = log pi_theta(y_t) - log pi_old(y_t), w_t = exp(l_t), s = exp(mean_t l_t) of a
response, r = the ratio an arm really uses (w_t, or s spread over its tokens), A = advantage, m = response mask,
binds = (A > 0 and r > 1 + clip_high) or (A < 0 and r < 1 - clip_low), as `policy_loss` has it; A = 0 never binds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar, get_args

R = TypeVar("R")
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
"""The nine quantiles of every recorded distribution."""

ROLLOUT = "rollout"
"""The bench under which training responses are stored."""

BAND_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The factors on a clip range at which `band_counts` counts what would bind."""


RULES = {"grpo": "r = w_t and GRPO's range", "gspo": "r = s and GSPO's range"}
"""The ratio rules, each with columns of its own that count what it would clip, whichever rule a run follows: in
`UpdateRecord` a field named `*_RULE` stands for one of each."""


def metric(unit: str, meaning: str, default: Any = None) -> Any:
    """A recorded number: its unit and its definition, kept beside the field."""
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


def _key(meaning: str) -> Any:
    return field(metadata={"unit": "-", "meaning": meaning})


def _for_each_rule(cls: type[R]) -> type[R]:
    """Put a field for every rule in the place of each named `*_RULE`; `RULE` in its meaning becomes the rule's own."""
    fields_of, cls.__annotations__ = dict(cls.__annotations__), {}
    for name, kind in fields_of.items():
        if not name.endswith("_RULE"):
            cls.__annotations__[name] = kind
            continue
        told = vars(cls)[name].metadata
        delattr(cls, name)
        for rule, how in RULES.items():
            own = name.replace("RULE", rule)
            cls.__annotations__[own] = kind
            setattr(cls, own, metric(told["unit"], told["meaning"].replace("RULE", how)))
    return cls


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One rollout batch, sampled, graded and trained on. Made by an engine after the step's last update.

    `StepRecord(step=3, reward_mean=0.41, prompts=32, responses=256, ...)`
    """

    kind: ClassVar[str] = "step"
    table: ClassVar[str] = "steps"

    step: int = _key("index of the rollout batch, from 0")
    prompts: int = metric("prompts", "prompts sampled for in this step")
    responses: int = metric("responses", "responses sampled in this step: prompts x group_size")
    reward_mean: float | None = metric("reward", "mean reward over the step's responses")
    reward_std: float | None = metric("reward", "standard deviation of the reward over the step's responses (n - 1)")
    zero_variance_groups: float | None = metric("share of groups", "groups whose rewards are all equal")
    response_tokens_mean: float | None = metric("tokens", "mean response length, end-of-sequence token included")
    response_tokens_t1: float | None = metric("tokens", "lower tercile bound of the response length")
    response_tokens_t2: float | None = metric("tokens", "upper tercile bound of the response length")
    grader_errors: int | None = metric("responses", "responses that the grader failed on; they train with reward 0")
    truncated_responses: float | None = metric("share of responses", "responses cut at the token limit")
    evaluated_responses: int | None = metric(
        "responses",
        "responses that the trainer's old policy was evaluated on, which entropy, mismatch_* and route_gap cover: "
        "those with A != 0, or all with update.skip_zero_advantage = false or a KL term; with old_logprobs = 'sampler' "
        "and no replay of the old policy's routes only those of mini-batch 0, whose own forward pass it is",
    )
    entropy: float | None = metric(
        "nats/token", "mean entropy of the trainer's distribution (temperature applied, top_p not) at response tokens"
    )
    mismatch_k1: float | None = metric(
        "nats/token",
        "mean of -d, d = log pi_old (trainer) - log mu (sampler); signed. With top_p < 1 "
        "mu is renormalised over the nucleus, which d then contains",
    )
    mismatch_k3: float | None = metric("nats/token", "mean of exp(d) - 1 - d")
    mismatch_abs_mean: float | None = metric("nats", "mean of |d|")
    mismatch_abs_max: float | None = metric("nats", "largest |d|")
    mismatch_outside_2: float | None = metric("share of tokens", "tokens with exp(d) outside [1/2, 2]")
    mismatch_std_tokens: float | None = metric("nats", "standard deviation (divisor n) of d over response tokens")
    mismatch_std_responses: float | None = metric(
        "nats", "standard deviation (divisor n) over responses of the response's mean of d: what a sequence ratio sees"
    )
    mismatch_std_independent: float | None = metric(
        "nats",
        "mismatch_std_tokens x sqrt(mean of 1 / length): what mismatch_std_responses is where tokens err independently",
    )
    mismatch_abs_max_responses: float | None = metric("nats", "largest |mean of d| of a response")
    mismatch_outside_2_responses: float | None = metric("share of responses", "those with prod exp(d) outside [1/2, 2]")
    route_gap: float | None = metric(
        "share of experts",
        "1 - overlap/k of the sampler's and the trainer's natural experts at equal weights, over all fed "
        "positions, prompts included; MoE only",
    )
    prompts_total: int | None = metric("prompts", "prompts sampled for so far")
    tokens_sampled_total: int | None = metric("tokens", "response tokens sampled so far")
    tokens_trained_total: int | None = metric("tokens", "response tokens trained on so far, counted once an epoch")
    updates_total: int | None = metric("updates", "optimizer updates so far")
    flops_total: float | None = metric(
        "FLOP",
        "estimate so far: 2 x active parameters x tokens per forward pass, 3 forwards' worth for a training pass",
    )
    replay_bytes: int | None = metric("bytes", "size of the expert choices kept for replay in this step; MoE only")
    prompt_digest: str | None = metric("-", "rolling sha256 of the ordered prompt ids up to and with this step")
    rollout_digest: str | None = metric(
        "-", "sha256 of this step's sampled token ids; equal in two runs that sampled the same text"
    )
    logprob_digest: str | None = metric("-", "sha256 of this step's sampler log-probs, bit for bit")
    seconds_rollout: float | None = metric("s", "sampling")
    seconds_grade: float | None = metric("s", "grading")
    seconds_old_logprobs: float | None = metric("s", "the old policy's forward passes")
    seconds_update: float | None = metric("s", "all optimizer updates of the step")
    seconds_replay: float | None = metric(
        "s", "inside the routers' replay: swapping the experts and computing their weights again; MoE only"
    )
    seconds_record: float | None = metric("s", "measuring, making and writing the records of the step before this one")
    seconds_step: float | None = metric("s", "the whole step, evaluation and checkpoint left out")
    device_seconds_total: float | None = metric("s", "sum of seconds_step so far x devices")
    peak_memory_bytes: int | None = metric(
        "bytes", "peak memory in this step: of the GPU, or of the worker's process on a CPU under Linux"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
@_for_each_rule
class UpdateRecord:
    """One optimizer update on one mini-batch. Made by an engine; `minibatch` counts from 0 in every rollout batch.

    `UpdateRecord(step=3, minibatch=1, clip_fraction_tokens=0.31, would_clip_fraction_tokens_grpo=0.004, ...)`
    """

    kind: ClassVar[str] = "update"
    table: ClassVar[str] = "updates"

    step: int = _key("index of the rollout batch, from 0")
    minibatch: int = _key(
        "index of the update within its rollout batch, from 0 (counted on through the epochs); -1: a row of another "
        "program's log, the mean over its logging interval"
    )
    loss: float | None = metric("-", "the objective's loss on the mini-batch")
    kl: float | None = metric("nats/token", "mean k3 estimate of KL(pi_theta, pi_ref); only with kl_coef > 0")
    grad_norm: float | None = metric("-", "L2 norm of the gradient before clipping")
    learning_rate: float | None = metric("-", "learning rate of this update")
    nonfinite: int | None = metric(
        "0 or 1",
        "1 if the loss or the gradient was not finite, and the update was skipped; or a trained weight was not, after "
        "the update; or the sampler's log-prob of a token of the mini-batch was not: the model is dead",
    )
    responses: int | None = metric("responses", "responses in the mini-batch")
    evaluated_responses: int | None = metric(
        "responses",
        "responses that went through the model: those with A != 0, or all with update.skip_zero_advantage = false or "
        "a KL term; log-ratios, ess, chi2, staleness and routing cover these, clip fractions always all",
    )
    response_tokens: int | None = metric("tokens", "response tokens in the mini-batch: sum m")
    active_tokens: int | None = metric("tokens", "response tokens with A != 0")
    clipped_tokens: int | None = metric("tokens", "response tokens whose term the clip binds: sum m * binds")
    clip_fraction_tokens: float | None = metric("share of response tokens", "the headline: sum m * binds / sum m")
    clip_fraction_tokens_high: float | None = metric("share of response tokens", "the part of the headline with A > 0")
    clip_fraction_tokens_low: float | None = metric("share of response tokens", "the part of the headline with A < 0")
    clip_fraction_active_tokens: float | None = metric("share of active tokens", "sum m * binds / sum m * (A != 0)")
    clip_fraction_positive_tokens: float | None = metric(
        "share of tokens with A > 0", "those whose term the clip binds; beside the next one: does clipping side with A?"
    )
    clip_fraction_negative_tokens: float | None = metric("share of tokens with A < 0", "the same with A < 0")
    clip_fraction_responses: float | None = metric(
        "share of responses", "mean over responses of the response's own clipped share of tokens"
    )
    clip_any_responses: float | None = metric("share of responses", "responses with at least one binding token")
    would_clip_fraction_tokens_RULE: float | None = metric(
        "share of response tokens", "the headline recomputed on this batch's l_t, A and m with RULE"
    )
    dual_clip_fraction_tokens: float | None = metric(
        "share of response tokens", "tokens capped by the dual clip, never part of the headline; only with dual_clip"
    )
    flip_fraction_tokens_RULE: float | None = metric(
        "share of response tokens",
        "tokens that bind with the trainer's old log-probs and not with the sampler's, or the reverse, with RULE; "
        "where the trainer evaluated the old policy",
    )
    gate_mean: float | None = metric("-", "of a loss without a clip: mean weight of A grad log pi / r at active tokens")
    correction_weight_mean: float | None = metric("-", "mean factor of active tokens' terms; with mismatch_correction")
    correction_masked_tokens: float | None = metric(
        "share of active tokens", "tokens whose factor is 0; only with objective.mismatch_correction"
    )
    effective_fraction_tokens: float | None = metric(
        "share of response tokens",
        "tokens with a non-zero policy gradient; a KL term reaches all tokens and is not counted",
    )
    log_ratio_std_tokens: float | None = metric("nats", "standard deviation (divisor n) of l_t over response tokens")
    log_ratio_std_responses: float | None = metric("nats", "standard deviation (divisor n) of log s over responses")
    log_ratio_max_abs: float | None = metric("nats", "largest |l_t|")
    log_ratio_quantiles_tokens: list[float | None] | None = metric(
        "nats", "quantiles 0, 1, 5, 25, 50, 75, 95, 99, 100 % of l_t over response tokens (JSON)"
    )
    log_ratio_quantiles_responses: list[float | None] | None = metric("nats", "the same of log s over responses (JSON)")
    ratio_max_negative: float | None = metric("-", "largest w_t at tokens with A < 0")
    ess_tokens: float | None = metric(
        "share of tokens",
        "effective sample size (sum w)^2 / (n sum w^2) over tokens; NULL where every w^2 is too small for a number",
    )
    ess_responses: float | None = metric("share of responses", "the same with s over responses")
    chi2_tokens: float | None = metric("-", "mean(w^2) - 1 over tokens")
    chi2_responses: float | None = metric("-", "mean(s^2) - 1 over responses")
    stale_k1: float | None = metric("nats/token", "mean of -l_t over response tokens; signed")
    stale_k3: float | None = metric("nats/token", "mean of exp(l_t) - 1 - l_t over response tokens")
    expert_change: float | None = metric(
        "share of experts",
        "1 - overlap/k of the router's natural top-k, old policy vs now, mean over layers and tokens; MoE only",
    )
    expert_change_layers: list[float] | None = metric(
        "share of experts", "expert_change per MoE layer, first to last (JSON)"
    )
    expert_change_any_tokens: float | None = metric(
        "share of tokens", "response tokens whose natural experts changed in at least one layer; MoE only"
    )
    router_entropy: float | None = metric("nats", "mean entropy of the router's softmax over experts; MoE only")
    expert_load_cv: float | None = metric(
        "-", "standard deviation / mean of the natural tokens per expert, mean over layers; MoE only"
    )
    router_grad_norm: float | None = metric("-", "L2 norm of the router weights' gradient before clipping; MoE only")
    band_counts: dict[str, dict[str, list[int]]] | None = metric(
        "tokens",
        f"per rule ({', '.join(RULES)}) and side (low: A < 0, high: A > 0) the tokens that would bind with that side's "
        "reference range x 1/4, 1/2, 1, 2, 4 (JSON)",
    )
    response_detail: dict[str, list[Any]] | None = metric(
        "-",
        "per evaluated response of the mini-batch: length, advantage, sum and sum of squares of l_t, largest |l_t|, "
        "clipped tokens (JSON); every record.detail_every steps; with record.token_detail also every l_t of a response",
    )
    seconds: float | None = metric("s", "this update: forward, backward and optimizer")
    engine_metrics: dict[str, float] | None = metric("-", "another program's numbers, as it names them (JSON)")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """One response to one problem, whole: a benchmark's answer, or a training rollout at the declared rate.

    `AnswerRecord(step=40, bench="addition", problem="add3-held-17", sample=0, text="...", tokens=22, reward=1.0, ...)`
    Scores are computed from these rows, never stored in their place.
    """

    kind: ClassVar[str] = "answer"
    table: ClassVar[str] = "answers"

    step: int = _key("rollout batches trained on before this answer was sampled; 0 is the starting model")
    bench: str = _key("the benchmark's name, or 'rollout' for a training response")
    problem: str = _key("the problem's id")
    sample: int = _key("index of the answer among those to the same problem")
    sample_seed: int | None = metric(
        "-", "a benchmark's answer: the seed of its random numbers; NULL for a training response"
    )
    prompt: str | None = metric("-", "the text that was asked, as the model saw it")
    prompt_version: str | None = metric("-", "name and version of the form in which the problem was asked")
    text: str | None = metric("-", "the response as text")
    tokens: int | None = metric("tokens", "response length, end-of-sequence token included")
    truncated: int | None = metric("0 or 1", "1 if the response was cut at the token limit")
    extracted: str | None = metric("-", "the part of the text that was graded; NULL if none was found")
    reference: str | None = metric("-", "the right answer")
    reward: float | None = metric("reward", "the grade; NULL if the grader failed, see `error`")
    correct: int | None = metric("0 or 1", "1 if the answer counts as right; NULL if the grader failed")
    reason: str | None = metric("-", "why it was graded so")
    error: str | None = metric("-", "what went wrong in the grader; such an answer is no wrong answer")
    grader: str | None = metric("-", "the grader's name and version")
    isolation: str | None = metric("-", "how well the answer's program was locked in; NULL where none was run")
    advantage: float | None = metric("-", "a training response's advantage; NULL for a benchmark's answer")
    answered_by: str | None = metric(
        "-", "the model that a server says has answered, where it is not the one that was asked for; else NULL"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord:
    """A benchmark's score as another program logged it, whose single answers it did not keep. Made by `importers`.

    `ScoreRecord(step=40, bench="gsm8k", score=0.71)`
    """

    kind: ClassVar[str] = "score"
    table: ClassVar[str] = "logged_scores"

    step: int = _key("steps trained, as the program counts them, before the model was asked; 0 is the starting model")
    bench: str = _key("the benchmark's name")
    score: float | None = metric("-", "the score as it was logged; by which rule, the run's origin says")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeRecord:
    """A later grade of a stored answer, by `gspo-lab grade --apply`. The answer keeps the grade that it got first.

    `GradeRecord(bench="aime24", step=0, problem="60", sample=3, correct=1, reward=1.0, grader="aime/2", at=1.7e9)`
    The last one of an answer is the grade in force: scores follow it.
    """

    kind: ClassVar[str] = "grade"
    table: ClassVar[str] = "grades"

    bench: str = _key("the answer's benchmark")
    step: int = _key("the answer's step")
    problem: str = _key("the answer's problem")
    sample: int = _key("the answer's index among those to the same problem")
    extracted: str | None = metric("-", "the part of the text that was graded; NULL if none was found")
    reward: float | None = metric("reward", "the grade; NULL if the grader failed, see `error`")
    correct: int | None = metric("0 or 1", "1 if the answer counts as right; NULL if the grader failed")
    reason: str | None = metric("-", "why it was graded so")
    error: str | None = metric("-", "what went wrong in the grader; such an answer is no wrong answer")
    grader: str | None = metric("-", "the grader's name and version")
    isolation: str | None = metric("-", "how well the answer's program was locked in; NULL where none was run")
    at: float | None = metric("s since 1970", "wall-clock time of grading")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Where a run stands. `state` is one of `started`, `stopped`, `finished`, `failed`.

    `RunStatus(state="started", step=20)`: a worker takes the run up at step 20. Whatever the journal held of later
    moments is void and will be recorded again: steps and updates with step >= 20, training answers with step >= 20,
    benchmark answers with step > 20. Facts about the worker (versions, device, digests of weights and tokenizer)
    travel in `facts` with `started`; the worker signs with the run, the study's digest and, at the end, its journal's.
    """

    kind: ClassVar[str] = "status"
    table: ClassVar[str] = "statuses"

    state: str = _key("started, stopped, finished or failed")
    step: int = _key("steps that were complete when this was written")
    at: float | None = metric("s since 1970", "wall-clock time of writing")
    message: str | None = metric("-", "one line for people: why it failed")
    run: str | None = metric("-", "with `started`: the run that the worker was started on, study/arm/s<seed>")
    declaration: str | None = metric("-", "with `started`: sha256 of what study.json locked at that moment")
    journal: str | None = metric("-", "with `finished`: sha256 of all lines of the journal before this one")
    facts: dict[str, Any] | None = metric("-", "what the worker found out about itself (JSON)")
    answers: dict[str, str] | None = metric(
        "-",
        "with `finished`: per benchmark and step, `bench@step`, the sha256 of its answers as first graded (JSON)",
    )


Record = StepRecord | UpdateRecord | AnswerRecord | ScoreRecord | GradeRecord | RunStatus
RECORDS: dict[str, type[Record]] = {cls.kind: cls for cls in get_args(Record)}


def voided(record: Mapping[str, Any], step: int) -> bool:
    """Whether `started` at `step` voids what an earlier worker has written: the rule of `RunStatus`, told once.

    A benchmark asked after `step` steps stands, for its moment lies before; whatever else is of `step` is made again.
    """
    kind = record.get("kind")
    if kind == ScoreRecord.kind or (kind == AnswerRecord.kind and record["bench"] != ROLLOUT):
        return bool(record["step"] > step)
    return kind in (StepRecord.kind, UpdateRecord.kind, AnswerRecord.kind) and bool(record["step"] >= step)


def is_time(name: str) -> bool:
    """Whether a field is a time or depends on the machine's load: the only columns in which twin runs may differ."""
    return "seconds" in name or name in {"at", "peak_memory_bytes"}


def to_dict(record: Record) -> dict[str, Any]:
    """A JSON-able dictionary with the record's kind; None fields are left out, non-finite floats are None too."""
    out: dict[str, Any] = {"kind": record.kind}
    for name in _names(type(record)):
        value = getattr(record, name)
        if value is not None and not (isinstance(value, float) and not math.isfinite(value)):
            out[name] = value
    return out


def from_dict(data: dict[str, Any]) -> Record:
    """The record of `to_dict`; fields this version does not know are ignored."""
    cls = RECORDS[data["kind"]]
    names = _names(cls)
    return cls(**{name: value for name, value in data.items() if name in names})


_NAMES: dict[type, tuple[str, ...]] = {}


def _names(cls: type) -> tuple[str, ...]:
    if cls not in _NAMES:
        _NAMES[cls] = tuple(f.name for f in fields(cls))
    return _NAMES[cls]
