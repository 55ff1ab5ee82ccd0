"""What is recorded of a run itself, and of each of its rollout batches."""

from dataclasses import dataclass
from typing import Any, ClassVar

from gspo_lab.recording.records.field import key, metric


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Where a run stands. `state` is one of `started`, `stopped`, `finished`, `failed`.

    `RunStatus(state="started", step=20)`: a worker takes the run up at step 20. Whatever the
    journal held of later moments is void and will be recorded again: steps and updates with step >=
    20, training answers with step >= 20, benchmark answers with step > 20. Facts about the worker
    (versions, device, digests of weights and tokenizer) travel in `facts` with `started`; the
    worker signs with the run, the study's digest and, at the end, its journal's.
    """

    kind: ClassVar[str] = "status"
    table: ClassVar[str] = "statuses"

    state: str = key("started, stopped, finished or failed")
    step: int = key("steps that were complete when this was written")
    at: float | None = metric("s since 1970", "wall-clock time of writing")
    message: str | None = metric("-", "one line for people: why it failed")
    run: str | None = metric(
        "-", "with `started`: the run that the worker was started on, study/arm/s<seed>"
    )
    declaration: str | None = metric(
        "-", "with `started`: sha256 of what study.json locked at that moment"
    )
    journal: str | None = metric(
        "-", "with `finished`: sha256 of all lines of the journal before this one"
    )
    model: str | None = metric(
        "-", "with `finished`: sha256 of the list of the trained model's files"
    )
    facts: dict[str, Any] | None = metric(
        "-", "what the worker found out about itself: code, packages, machine, digests (JSON)"
    )
    answers: dict[str, str] | None = metric(
        "-",
        "with `finished`: per benchmark and step, `bench@step`, the sha256 of its answers as first"
        " graded (JSON)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One rollout batch, sampled, graded and trained on. Made by an engine after the step's last
    update.

    `StepRecord(step=3, reward_mean=0.41, prompts=32, responses=256, ...)`
    """

    kind: ClassVar[str] = "step"
    table: ClassVar[str] = "steps"

    step: int = key("index of the rollout batch, from 0")
    prompts: int = metric("prompts", "prompts asked in this step")
    responses: int = metric(
        "responses",
        "responses trained on in this step: prompts x group_size; with rollout.tokens_per_step"
        " those of the groups that were completed in it, with rollout.dynamic_sampling those of the"
        " groups that were not dropped. Other columns about responses cover the same, with two"
        " exceptions: rewards and zero_variance_groups cover the step's own prompts, dropped groups"
        " included; grader_errors covers all graded responses",
    )
    reward_mean: float | None = metric(
        "reward",
        "mean reward over the step's responses, before an overlong_buffer lowers it",
        per="prompts",
    )
    reward_std: float | None = metric(
        "reward", "standard deviation of the reward over the step's responses (n - 1)"
    )
    rewards_mean: dict[str, float] | None = metric(
        "reward",
        "mean of each reward by name over the responses trained on; only for a task that names them"
        " (JSON)",
        per="responses",
    )
    correct_responses: float | None = metric(
        "share of responses",
        "correct responses among those that were trained on and graded",
        per="responses",
    )
    zero_variance_groups: float | None = metric(
        "share of groups",
        "groups whose rewards are all equal, before an overlong_buffer lowers them; NULL with"
        " group_size = 1",
        per="prompts",
    )
    dropped_groups: int | None = metric(
        "groups",
        "sampled groups that were dropped for equal rewards; only with rollout.dynamic_sampling",
    )
    overlong_penalty: float | None = metric(
        "reward",
        "mean reward that responses lost by their length; only with rollout.overlong_buffer",
        per="responses",
    )
    response_tokens_mean: float | None = metric(
        "tokens", "mean response length, end-of-sequence token included", per="responses"
    )
    response_tokens_t1: float | None = metric(
        "tokens", "lower tercile bound of the response length"
    )
    response_tokens_t2: float | None = metric(
        "tokens", "upper tercile bound of the response length"
    )
    grader_errors: int | None = metric(
        "responses", "responses that the grader failed on; they train with reward 0"
    )
    truncated_responses: float | None = metric(
        "share of responses", "responses cut at the token limit", per="responses"
    )
    turns_mean: float | None = metric(
        "turns", "mean turns of a response; tasks of several turns only", per="responses"
    )
    reply_tokens: float | None = metric(
        "share of tokens",
        "tokens of responses that the environment wrote, which are never trained on; tasks of"
        " several turns only",
    )
    evaluated_responses: int | None = metric(
        "responses",
        "responses on which the trainer evaluated the old policy, the ones that entropy, mismatch_*"
        " and route_gap cover: those with A != 0, or all with update.skip_zero_advantage = false or"
        " a KL or entropy term; with old_logprobs = 'sampler' and without replay of the old"
        " policy's routes, only those of mini-batch 0",
    )
    entropy: float | None = metric(
        "nats/token",
        "mean entropy of the trainer's distribution (temperature applied, top_p not) at response"
        " tokens",
    )
    entropy_quantiles: list[float | None] | None = metric(
        "nats",
        "quantiles 0, 1, 5, 25, 50, 75, 95, 99, 100 % of that entropy over response tokens (JSON)",
    )
    mismatch_k1: float | None = metric(
        "nats/token",
        "mean of -d, d = log pi_old (trainer) - log mu (sampler); signed. With top_p < 1 d includes"
        " the renormalisation of mu over the nucleus; with tokens of older weights"
        " (version_lag_mean > 0) also the weights' difference",
    )
    mismatch_k3: float | None = metric("nats/token", "mean of exp(d) - 1 - d")
    mismatch_abs_mean: float | None = metric("nats", "mean of |d|")
    mismatch_abs_max: float | None = metric("nats", "largest |d|")
    mismatch_outside_2: float | None = metric(
        "share of tokens", "tokens with exp(d) outside [1/2, 2]"
    )
    mismatch_std_tokens: float | None = metric(
        "nats", "standard deviation (divisor n) of d over response tokens"
    )
    mismatch_std_responses: float | None = metric(
        "nats",
        "standard deviation (divisor n) over responses of the response's mean of d: what a sequence"
        " ratio sees",
    )
    mismatch_std_independent: float | None = metric(
        "nats",
        "mismatch_std_tokens x sqrt(mean of 1 / length): the value of mismatch_std_responses if"
        " tokens err independently",
    )
    mismatch_abs_max_responses: float | None = metric("nats", "largest |mean of d| of a response")
    mismatch_outside_2_responses: float | None = metric(
        "share of responses", "those with prod exp(d) outside [1/2, 2]", per="evaluated_responses"
    )
    route_gap: float | None = metric(
        "share of experts",
        "1 - overlap/k of the sampler's and the trainer's natural experts at the step's start, over"
        " all positions with prompts; with version_lag_max > 0 it includes the weights' difference;"
        " MoE only",
    )
    version_lag_mean: float | None = metric(
        "rollout batches",
        "age of the policy that drew the tokens: mean over response tokens of step - version, the"
        " rollout batches trained on when the token was drawn",
    )
    version_lag_max: int | None = metric(
        "rollout batches", "largest step - version of a response token"
    )
    mixed_version_share: float | None = metric(
        "share of responses",
        "responses whose tokens are of more than one version; 0 without rollout.tokens_per_step",
        per="responses",
    )
    waiting_responses: int | None = metric(
        "responses",
        "responses that were unfinished at the step's end; after a run's last step they are lost",
    )
    value_explained_variance: float | None = metric(
        "-",
        "1 - var(return - value) / var(return) over response tokens, of the critic's values before"
        " the step's updates: 1 is a perfect critic, 0 as good as a constant; only with advantage ="
        " 'gae'",
    )
    prompts_total: int | None = metric("prompts", "prompts sampled for so far")
    tokens_sampled_total: int | None = metric("tokens", "response tokens sampled so far")
    tokens_trained_total: int | None = metric(
        "tokens", "response tokens trained on so far, counted once an epoch"
    )
    updates_total: int | None = metric("updates", "optimizer updates so far")
    flops_total: float | None = metric(
        "FLOP",
        "estimate so far: 2 x active parameters x tokens per forward pass, three times as much per"
        " training pass. To sample, each response reads its prompt, and each of its turns or pieces"
        " all that precedes it. A critic counts as a second model of this size, with a forward and"
        " the training passes",
    )
    replay_bytes: int | None = metric(
        "bytes", "size of the expert choices kept for replay in this step; MoE only"
    )
    prompt_digest: str | None = metric(
        "-",
        "rolling sha256 of the ordered ids of the steps' own prompts, up to and with this step,"
        " without those that replace dropped groups",
    )
    rollout_digest: str | None = metric(
        "-", "sha256 of this step's sampled token ids; equal in two runs that sampled the same text"
    )
    logprob_digest: str | None = metric("-", "sha256 of this step's sampler log-probs, bit for bit")
    seconds_rollout: float | None = metric("s", "sampling")
    seconds_grade: float | None = metric("s", "grading")
    seconds_values: float | None = metric(
        "s", "the critic's values and the advantages; only with advantage = 'gae'"
    )
    seconds_old_logprobs: float | None = metric("s", "the old policy's forward passes")
    seconds_update: float | None = metric("s", "all optimizer updates of the step")
    seconds_replay: float | None = metric(
        "s",
        "inside the routers' replay: swapping the experts and computing their weights again; MoE"
        " only",
    )
    seconds_record: float | None = metric(
        "s", "measuring, making and writing the records of the step before this one"
    )
    seconds_step: float | None = metric("s", "the whole step without evaluation and checkpoint")
    device_seconds_total: float | None = metric("s", "sum of seconds_step so far x devices")
    peak_memory_bytes: int | None = metric(
        "bytes",
        "peak memory in this step: of the GPU, or of the worker's process on a CPU under Linux",
    )
