"""What is recorded of a rollout batch."""

from dataclasses import dataclass
from typing import ClassVar

from gspo_lab.records.field import key, metric


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One rollout batch, sampled, graded and trained on. Made by an engine after the step's last update.

    `StepRecord(step=3, reward_mean=0.41, prompts=32, responses=256, ...)`
    """

    kind: ClassVar[str] = "step"
    table: ClassVar[str] = "steps"

    step: int = key("index of the rollout batch, from 0")
    prompts: int = metric("prompts", "prompts asked in this step")
    responses: int = metric(
        "responses",
        "responses trained on in this step: prompts x group_size; with rollout.tokens_per_step those of the groups "
        "that were completed in it, whenever they were asked for, with rollout.dynamic_sampling those of the groups "
        "that were not dropped. What is said of responses is said of these, but that rewards and zero_variance_groups "
        "are of the responses to the step's own prompts, dropped ones included, and grader_errors of all that were "
        "graded",
    )
    reward_mean: float | None = metric(
        "reward",
        "mean reward over the step's responses, what an overlong_buffer takes from it not taken",
        per="prompts",
    )
    reward_std: float | None = metric("reward", "standard deviation of the reward over the step's responses (n - 1)")
    correct_responses: float | None = metric(
        "share of responses",
        "responses that the grader called correct, of those trained on that it graded",
        per="responses",
    )
    zero_variance_groups: float | None = metric(
        "share of groups",
        "groups whose rewards are all equal, before an overlong_buffer takes from them; none with group_size = 1",
        per="prompts",
    )
    dropped_groups: int | None = metric(
        "groups", "groups whose responses all earned the same, sampled and dropped; only with rollout.dynamic_sampling"
    )
    overlong_penalty: float | None = metric(
        "reward",
        "mean of what length took from the rewards of responses; only with rollout.overlong_buffer",
        per="responses",
    )
    response_tokens_mean: float | None = metric(
        "tokens", "mean response length, end-of-sequence token included", per="responses"
    )
    response_tokens_t1: float | None = metric("tokens", "lower tercile bound of the response length")
    response_tokens_t2: float | None = metric("tokens", "upper tercile bound of the response length")
    grader_errors: int | None = metric("responses", "responses that the grader failed on; they train with reward 0")
    truncated_responses: float | None = metric(
        "share of responses", "responses cut at the token limit", per="responses"
    )
    turns_mean: float | None = metric("turns", "mean turns of a response; tasks of several turns only", per="responses")
    reply_tokens: float | None = metric(
        "share of tokens",
        "tokens of responses that the environment put there: fed, never trained on; tasks of several turns only",
    )
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
        "mu is renormalised over the nucleus, which d then contains; where tokens were drawn by older weights "
        "(version_lag_mean > 0) d holds the weights' difference too",
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
    mismatch_outside_2_responses: float | None = metric(
        "share of responses", "those with prod exp(d) outside [1/2, 2]", per="evaluated_responses"
    )
    route_gap: float | None = metric(
        "share of experts",
        "1 - overlap/k of the sampler's and the trainer's natural experts at the step's start, over all fed positions, "
        "prompts included; where version_lag_max > 0 it holds the weights' difference too; MoE only",
    )
    version_lag_mean: float | None = metric(
        "rollout batches",
        "mean over response tokens of step - version, the rollout batches trained on when the token was drawn: how old "
        "the policy is that wrote them",
    )
    version_lag_max: int | None = metric("rollout batches", "largest step - version of a response token")
    mixed_version_share: float | None = metric(
        "share of responses",
        "responses whose tokens are of more than one version; 0 without rollout.tokens_per_step",
        per="responses",
    )
    waiting_responses: int | None = metric(
        "responses", "responses asked for and not over when the step ended; after a run's last step they are lost"
    )
    value_explained_variance: float | None = metric(
        "-",
        "1 - var(return - value) / var(return) over response tokens, of the critic's values before the step's updates: "
        "1 is a perfect critic, 0 as good as a constant; only with advantage = 'gae'",
    )
    prompts_total: int | None = metric("prompts", "prompts sampled for so far")
    tokens_sampled_total: int | None = metric("tokens", "response tokens sampled so far")
    tokens_trained_total: int | None = metric("tokens", "response tokens trained on so far, counted once an epoch")
    updates_total: int | None = metric("updates", "optimizer updates so far")
    flops_total: float | None = metric(
        "FLOP",
        "estimate so far: 2 x active parameters x tokens per forward pass, 3 forwards' worth for a training pass; to "
        "sample, each response reads its prompt, and each turn or piece of one all that stands before it again; a "
        "critic counts as another model of this size, with a forward and the training passes",
    )
    replay_bytes: int | None = metric("bytes", "size of the expert choices kept for replay in this step; MoE only")
    prompt_digest: str | None = metric(
        "-",
        "rolling sha256 of the ordered ids of the steps' own prompts, up to and with this step; those asked in a "
        "dropped group's place are not in it",
    )
    rollout_digest: str | None = metric(
        "-", "sha256 of this step's sampled token ids; equal in two runs that sampled the same text"
    )
    logprob_digest: str | None = metric("-", "sha256 of this step's sampler log-probs, bit for bit")
    seconds_rollout: float | None = metric("s", "sampling")
    seconds_grade: float | None = metric("s", "grading")
    seconds_values: float | None = metric("s", "the critic's values and the advantages; only with advantage = 'gae'")
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
