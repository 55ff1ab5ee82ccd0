"""The tables of a study's TOML that say what is asked: the task, how a step's responses are sampled, the benchmarks."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gspo_lab.study.table import COLDEST, HUGE, MANY, Dtype, Name, Share, Table, Text


class TaskTable(BaseModel):
    """The task's name and its own options, which only the task knows."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(description="a built-in task, or `my_file.py:grade`")

    @property
    def options(self) -> dict[str, Any]:
        """The keys beside the known ones."""
        return dict(self.model_extra or {})


class RolloutTable(Table):
    """How each step's responses are sampled."""

    prompts_per_step: int = Field(32, ge=1, le=10**6, description="prompts in a rollout batch")
    group_size: int = Field(
        8,
        ge=1,
        le=10**6,
        description="responses per prompt; 1 where the advantage needs no group (gae, batch-mean-std)",
    )
    temperature: float = Field(
        1.0,
        ge=COLDEST,
        le=1e3,
        description="sampling temperature; the trainer's log-probs are those of logits / temperature",
    )
    top_p: float = Field(
        1.0, gt=0, le=1, description="nucleus sampling; < 1 cannot be combined with old_logprobs = 'sampler'"
    )
    max_tokens: int | None = Field(None, ge=1, le=MANY, description="token limit of a response; unset: the task's own")
    stop: list[Text] | None = Field(None, description="texts that end a response; unset: the task's own")
    sampler: str = Field(
        "transformers", description="who samples: `transformers`, `vllm`, or an outsider as of `engine.name`"
    )
    dtype: Dtype = Field("float32", description="precision of the sampler's weights and arithmetic")
    at_a_time: int = Field(
        512, ge=1, le=MANY, description="responses that are drawn at a time: bounds the sampler's memory"
    )
    staleness: int = Field(
        0,
        ge=0,
        le=MANY,
        description="rollout batches by which the weights that a batch is drawn from are older than those it trains; "
        "those of the start until there were as many. Benchmarks are asked of the newest weights",
    )
    tokens_per_step: int | None = Field(
        None,
        ge=1,
        le=MANY,
        description="new tokens that a response gets in one step; one that is not over goes on under the next step's "
        "weights, and its group trains in the step in which its last response ends. Unset: all are drawn whole",
    )
    dynamic_sampling: int = Field(
        0,
        ge=0,
        le=1000,
        description="rounds of prompts that a step may ask: a group whose responses all earned the same is dropped, "
        "and the next round asks as many other prompts as groups are missing (DAPO's dynamic sampling); 0: nothing is "
        "dropped, every group trains",
    )
    overlong_buffer: int | None = Field(
        None,
        ge=1,
        le=MANY,
        description="so many tokens before the token limit a response's reward begins to fall, in a line, by "
        "`overlong_penalty` at the limit (DAPO's soft overlong punishment); unset: length costs nothing",
    )
    overlong_penalty: float = Field(
        1.0, gt=0, le=HUGE, description="what a response of the token limit loses of its reward to overlong_buffer"
    )
    thinking: bool | None = Field(
        None,
        description="for chat templates that know it: whether the model is asked to think before it answers; unset: "
        "the template's own default",
    )
    max_grader_errors: Share = Field(
        0.5,
        description="a run stops at a step on whose responses the grader failed in a larger share than this; "
        "below it they train with reward 0, which is told wherever the run is shown",
    )
    coupled: bool = Field(
        True, description="arms of one seed draw the same random numbers per (step, prompt, sample, position)"
    )

    @property
    def varying(self) -> bool:
        """Whether the groups that a step trains on follow from what was sampled: they wait, or some are dropped."""
        return self.tokens_per_step is not None or self.dynamic_sampling > 0


class BenchTable(Table):
    """A benchmark: a task's held-out problems and how they are asked."""

    name: Name = Field(description="the benchmark's name in records and reports")
    task: TaskTable | None = Field(None, description="the task that asks and grades; unset: the study's own")
    problems: int | None = Field(
        None, ge=1, le=MANY, description="how many held-out problems, from the first; unset: all"
    )
    samples: int = Field(1, ge=1, le=10**6, description="answers per problem; the score is their mean (avg@k)")
    temperature: float = Field(1.0, ge=0, le=1e3, description="sampling temperature; 0: greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling")
    max_tokens: int | None = Field(None, ge=1, le=MANY, description="token limit; unset: the task's own")
    every: int = Field(
        10, ge=1, le=MANY, description="steps between evaluations; the start and the end are always evaluated"
    )
    decisive_samples: int | None = Field(
        None,
        ge=1,
        le=10**6,
        description="answers per problem at the last evaluations, those that make the final score; unset: `samples`",
    )
    decisive_evaluations: int | None = Field(
        None,
        ge=1,
        le=MANY,
        description="with decisive_samples: how many last evaluations those are; unset: `verdict.last`",
    )

    def moments(self, steps: int) -> list[int]:
        """After how many of a run's `steps` it is asked: at the start, every `every` steps, and at the end."""
        return sorted({0, *range(self.every, steps + 1, self.every), steps})

    def samples_at(self, step: int, steps: int) -> int:
        """Answers per problem after `step` of a run's `steps`; the start never decides."""
        if self.decisive_samples is None or step == 0:
            return self.samples
        later = sum(moment > step for moment in self.moments(steps))
        return self.decisive_samples if later < (self.decisive_evaluations or 1) else self.samples

    @staticmethod
    def with_decisive(benches: Any, last: int) -> Any:
        """A study's tables; those that are asked more often at their decisive evaluations say how many these are, for a
        run, which knows no verdict, must know when."""
        if not isinstance(benches, list):
            return benches
        return [
            {"decisive_evaluations": last, **one} if isinstance(one, dict) and "decisive_samples" in one else one
            for one in benches
        ]
