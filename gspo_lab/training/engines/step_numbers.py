"""What follows from a step's responses for every engine: whether they are graded, their numbers,
and a run's totals.

Shapes: P prompts, G responses to each."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalFloat
from gspo_lab.study import Settings
from gspo_lab.tasks.base import Problems
from gspo_lab.training.samplers.base import noise_key

if TYPE_CHECKING:
    from torch import Tensor


MOST_WORDS = 200
"""Characters of a grader's last error that are told."""


def need_grades(step: int, graded: Sequence[tuple[str | None, OptionalFloat]], most: float) -> None:
    """LabError where the grader failed on more than `most` of a step's responses; `graded` holds
    each one's error and reward."""
    failed = [error or "it gave no reward" for error, reward in graded if reward is None]
    if len(failed) > most * len(graded):
        last = failed[-1].strip().partition("\n")[0][:MOST_WORDS]
        raise LabError(
            f"the grader failed on {len(failed)} of {len(graded)} responses of step {step}, more"
            f" than rollout.max_grader_errors = {most:g} allows; the last time: {last}. Mend it and"
            " start the study again: the run goes on from its last checkpoint"
        )


def step_numbers(
    reward_PG: "Tensor", graded: Iterable[OptionalFloat], lengths: Iterable[int], truncated: int
) -> JsonObject:
    """The fields of a StepRecord that follow from its responses.

    `reward_PG` holds the rewards of the step's own prompts in float32, 0 where the grader failed;
    `graded` what the grader gave each response that it was asked about, None where it failed;
    `lengths` the tokens of each response trained on, `truncated` how many of these were cut. Left
    out is what these responses do not define.
    """
    tokens = sorted(lengths)
    out: JsonObject = {"responses": len(tokens)}
    if reward_PG.numel():
        out |= {
            "reward_mean": float(reward_PG.mean()),
            "reward_std": float(reward_PG.std()) if reward_PG.numel() > 1 else None,
            "grader_errors": sum(reward is None for reward in graded),
        }
    if reward_PG.numel() and reward_PG.shape[1] > 1:  # one response is no group
        equal_P = reward_PG.amax(dim=1) == reward_PG.amin(dim=1)
        out["zero_variance_groups"] = float(equal_P.float().mean())
    if tokens:
        out |= {
            "response_tokens_mean": sum(tokens) / len(tokens),
            "response_tokens_t1": float(tokens[len(tokens) // 3]),
            "response_tokens_t2": float(tokens[2 * len(tokens) // 3]),
            "truncated_responses": truncated / len(tokens),
        }
    return out


@dataclass(slots=True)
class RunTotals:
    """What a run counts from its first step on, by StepRecord's fields; part of every checkpoint of
    the native engine.
    """

    prompts_total: int = 0
    tokens_sampled_total: int = 0
    tokens_trained_total: int = 0
    device_seconds_total: float = 0.0
    prompt_digest: str = ""
    flops_total: OptionalFloat = None
    seconds_record: OptionalFloat = None

    @staticmethod
    def of(step: JsonMapping | None) -> "RunTotals":
        """As a step's record has them; without a record nothing is counted yet."""
        if step is None:
            return RunTotals()
        return RunTotals(**{entry.name: step[entry.name] for entry in fields(RunTotals)})

    def add(self, problems: Problems, *, sampled: int, trained: int, device_seconds: float) -> None:
        """Count a step: the problems that it set out with, its tokens sampled and trained on, its
        devices' seconds.
        """
        self.prompts_total += len(problems)
        self.tokens_sampled_total += sampled
        self.tokens_trained_total += trained
        self.device_seconds_total += device_seconds
        ids = [self.prompt_digest, *(problem.id for problem in problems)]
        self.prompt_digest = hashlib.sha256("\x1f".join(ids).encode()).hexdigest()


def keeps(settings: Settings, seed: int, step: int, place: int) -> bool:
    """Whether the study keeps the responses to the prompt at `place`: chosen by (seed, step, place)
    alone.
    """
    rollout = settings.rollout
    share = settings.record.rollouts
    return noise_key(seed, "keep", step, place * rollout.group_size) < share * 2**63
