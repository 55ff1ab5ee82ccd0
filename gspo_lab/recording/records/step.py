"""What is recorded of a run itself, and of each of its rollout batches."""

from dataclasses import dataclass
from typing import ClassVar

from gspo_lab.common.plain_data import JsonObject, OptionalFloat, OptionalInt, OptionalText
from gspo_lab.recording.records.metric import key, metric


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Where a run stands.

    `RunStatus(state="started", step=20)`: a worker takes the run up at step 20. Whatever the
    journal held of later moments is void and will be recorded again: steps and updates with step >=
    20, training answers with step >= 20, benchmark answers with step > 20. Facts about the worker
    (versions, device, digests of weights and tokenizer) travel in `facts` with `started`; the
    worker signs with the run, the study's digest and, at the end, its journal's.
    """

    kind: ClassVar[str] = "status"
    table: ClassVar[str] = "statuses"

    state: str = key("started, stopped, finished or failed")
    step: int = key("complete steps at that moment")
    at: OptionalFloat = metric("time of writing", "s since 1970")
    message: OptionalText = metric("why the run failed, in one line")
    run: OptionalText = metric("with `started`: the run's place, study/arm/s<seed>")
    declaration: OptionalText = metric("with `started`: sha256 of what study.json locked")
    journal: OptionalText = metric("with `finished`: sha256 of the journal's lines before this one")
    model: OptionalText = metric("with `finished`: sha256 of the list of the trained model's files")
    facts: JsonObject | None = metric("the worker's code, packages, machine and digests")
    answers: dict[str, str] | None = metric(
        "with `finished`: per `bench@step` the sha256 of its answers as first graded"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One rollout batch, sampled, graded and trained on; made by an engine after its last update.

    `StepRecord(step=3, reward_mean=0.41, prompts=32, responses=256, ...)`
    """

    kind: ClassVar[str] = "step"
    table: ClassVar[str] = "steps"

    step: int = key("index of the rollout batch, from 0")
    prompts: int = metric("prompts asked", "prompts")
    responses: int = metric(
        "responses trained on: prompts x group_size; of completed groups with"
        " rollout.tokens_per_step, of kept groups with rollout.dynamic_sampling. Columns about"
        " responses cover these",
        "responses",
    )
    reward_mean: OptionalFloat = metric(
        "mean reward of the responses to the step's own prompts, before overlong_buffer lowers it",
        "reward",
        per="prompts",
    )
    reward_std: OptionalFloat = metric(
        "standard deviation (divisor n - 1) of the rewards in reward_mean", "reward"
    )
    rewards_mean: dict[str, float] | None = metric(
        "mean of each reward by name; tasks with such rewards only", "reward", per="responses"
    )
    correct_responses: OptionalFloat = metric(
        "correct ones among the graded", "share of responses", per="responses"
    )
    zero_variance_groups: OptionalFloat = metric(
        "groups of the step's own prompts whose rewards are all equal, before"
        " overlong_buffer; NULL with group_size = 1",
        "share of groups",
        per="prompts",
    )
    dropped_groups: OptionalInt = metric(
        "groups dropped for equal rewards; with rollout.dynamic_sampling only", "groups"
    )
    overlong_penalty: OptionalFloat = metric(
        "mean reward lost to length; with rollout.overlong_buffer only", "reward", per="responses"
    )
    response_tokens_mean: OptionalFloat = metric(
        "mean response length, end-of-sequence token included", "tokens", per="responses"
    )
    response_tokens_t1: OptionalFloat = metric(
        "lower tercile bound of the response length", "tokens"
    )
    response_tokens_t2: OptionalFloat = metric(
        "upper tercile bound of the response length", "tokens"
    )
    grader_errors: OptionalInt = metric(
        "responses, dropped groups included, that the grader failed on; they train with reward 0",
        "responses",
    )
    truncated_responses: OptionalFloat = metric(
        "responses cut at the token limit", "share of responses", per="responses"
    )
    turns_mean: OptionalFloat = metric(
        "mean number of turns, where there are several", "turns", per="responses"
    )
    reply_tokens: OptionalFloat = metric(
        "response tokens that the environment wrote; they are never trained on",
        "share of tokens",
    )
    evaluated_responses: OptionalInt = metric(
        "responses that entropy, mismatch_* and route_gap cover: those with A != 0, or all"
        " with update.skip_zero_advantage = false, a KL or an entropy term. With old_logprobs"
        " = 'sampler' and routes not replayed from the old policy, mini-batch 0 only",
        "responses",
    )
    entropy: OptionalFloat = metric(
        "mean entropy of the trainer's distribution at response tokens, after temperature,"
        " before top_p",
        "nats/token",
    )
    entropy_quantiles: list[OptionalFloat] | None = metric(
        "quantiles 0, 1, 5, 25, 50, 75, 95, 99, 100 % of the entropy at response tokens", "nats"
    )
    kl_to_start: OptionalFloat = metric(
        "mean of exp(d) - 1 - d, d = log pi_start - log pi_old, over mini-batch 0, at most a"
        " quarter of the responses; every record.detail_every steps with record.kl_to_start or a"
        " KL term. Engine native only",
        "nats/token",
    )
    mismatch_k1: OptionalFloat = metric(
        "mean of -d, d = log pi_old (trainer) - log mu (sampler). d includes the"
        " renormalisation by top_p and, with version_lag_mean > 0, older weights",
        "nats/token",
    )
    mismatch_k3: OptionalFloat = metric("mean of exp(d) - 1 - d", "nats/token")
    mismatch_abs_mean: OptionalFloat = metric("mean of |d|", "nats")
    mismatch_abs_max: OptionalFloat = metric("largest |d|", "nats")
    mismatch_outside_2: OptionalFloat = metric(
        "tokens with exp(d) outside [1/2, 2]", "share of tokens"
    )
    mismatch_std_tokens: OptionalFloat = metric(
        "standard deviation (divisor n) of d over response tokens", "nats"
    )
    mismatch_std_responses: OptionalFloat = metric(
        "standard deviation (divisor n) over responses of their mean d: what a sequence ratio sees",
        "nats",
    )
    mismatch_std_independent: OptionalFloat = metric(
        "mismatch_std_tokens x sqrt(mean of 1 / length): mismatch_std_responses if tokens err"
        " independently",
        "nats",
    )
    mismatch_abs_max_responses: OptionalFloat = metric("largest |mean of d| of a response", "nats")
    mismatch_outside_2_responses: OptionalFloat = metric(
        "responses with prod exp(d) outside [1/2, 2]",
        "share of responses",
        per="evaluated_responses",
    )
    route_gap: OptionalFloat = metric(
        "1 - overlap / k of the experts that sampler and trainer choose at the step's start,"
        " prompts included. With version_lag_max > 0 it includes older weights; MoE only",
        "share of experts",
    )
    version_lag_mean: OptionalFloat = metric(
        "mean over response tokens of step - version; version: rollout batches trained on"
        " when the token was drawn",
        "rollout batches",
    )
    version_lag_max: OptionalInt = metric(
        "largest step - version of a response token", "rollout batches"
    )
    mixed_version_share: OptionalFloat = metric(
        "responses with tokens of several versions; 0 without rollout.tokens_per_step",
        "share of responses",
        per="responses",
    )
    waiting_responses: OptionalInt = metric(
        "unfinished responses at the step's end; lost after the run's last step", "responses"
    )
    value_explained_variance: OptionalFloat = metric(
        "1 - var(return - value) / var(return) over response tokens before the updates;"
        " only with advantage = 'gae'"
    )
    prompts_total: OptionalInt = metric("prompts sampled for so far", "prompts")
    tokens_sampled_total: OptionalInt = metric("response tokens sampled so far", "tokens")
    tokens_trained_total: OptionalInt = metric(
        "response tokens trained on so far, once an epoch", "tokens"
    )
    updates_total: OptionalInt = metric("optimizer updates so far", "updates")
    flops_total: OptionalFloat = metric(
        "estimate so far: 2 x active parameters x tokens per forward pass, three times that"
        " per training pass. Every turn or piece reads all before it; a critic counts as a"
        " second model",
        "FLOP",
    )
    replay_bytes: OptionalInt = metric(
        "size of the expert choices kept for replay; MoE only", "bytes"
    )
    prompt_digest: OptionalText = metric(
        "rolling sha256 of the ids of the steps' own prompts so far, in order, without"
        " replacements of dropped groups"
    )
    rollout_digest: OptionalText = metric("sha256 of the sampled token ids")
    logprob_digest: OptionalText = metric("sha256 of the sampler's log-probs, bit for bit")
    seconds_rollout: OptionalFloat = metric("sampling", "s")
    seconds_grade: OptionalFloat = metric("grading", "s")
    seconds_values: OptionalFloat = metric(
        "the critic's values and the advantages; only with advantage = 'gae'", "s"
    )
    seconds_old_logprobs: OptionalFloat = metric("the old policy's forward passes", "s")
    seconds_update: OptionalFloat = metric("all updates", "s")
    seconds_replay: OptionalFloat = metric(
        "replay inside the routers: swapping experts, recomputing their weights; MoE only", "s"
    )
    seconds_record: OptionalFloat = metric(
        "measuring and writing the records of the step before", "s"
    )
    seconds_step: OptionalFloat = metric("the whole step without evaluation and checkpoint", "s")
    device_seconds_total: OptionalFloat = metric("seconds_step x devices, summed so far", "s")
    peak_memory_bytes: OptionalInt = metric(
        "peak memory of the GPU, or of the worker's process on a CPU under Linux", "bytes"
    )
