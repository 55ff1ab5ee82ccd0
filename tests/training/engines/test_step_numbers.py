"""A step's numbers from its responses, by pencil and in both engines' ways."""

from pathlib import Path

import pytest
import torch
from lottery import MakeRun, train

from gspo_lab.recording.journal import to_dict
from gspo_lab.recording.records import StepRecord
from gspo_lab.tasks import build_task
from gspo_lab.training.engines.external.records import step_records
from gspo_lab.training.engines.native.prompt_stream import PromptStream
from gspo_lab.training.engines.step_numbers import RunTotals, step_numbers

SAME = (
    "prompts",
    "responses",
    "reward_mean",
    "reward_std",
    "zero_variance_groups",
    "grader_errors",
    "response_tokens_mean",
    "response_tokens_t1",
    "response_tokens_t2",
    "truncated_responses",
    "evaluated_responses",
    "prompts_total",
    "tokens_sampled_total",
    "tokens_trained_total",
    "updates_total",
    "prompt_digest",
)


def test_by_pencil() -> None:
    # The third response waited: it is trained on and graded, and its reward belongs to another
    # step's prompts.
    numbers = step_numbers(
        torch.tensor([[1.0, 0.0], [0.0, 0.0]]), [1.0, 0.0, 0.0, None, 1.0], [9, 1, 5, 3], 1
    )
    assert numbers.pop("reward_std") == pytest.approx(0.5)  # (.75^2 + 3 x .25^2) / 3 = .25
    assert numbers == {
        "responses": 4,
        "reward_mean": 0.25,
        "zero_variance_groups": 0.5,
        "grader_errors": 1,
        "response_tokens_mean": 4.5,
        "response_tokens_t1": 3.0,
        "response_tokens_t2": 5.0,
        "truncated_responses": 0.25,
    }


def test_what_no_response_defines_is_left_out() -> None:
    assert step_numbers(torch.zeros(0, 2), [], [], 0) == {"responses": 0}
    assert step_numbers(torch.zeros(3, 1), [0.0, 0.0, 0.0], [], 0).keys() == {
        *("responses", "reward_mean", "reward_std", "grader_errors")
    }


def test_two_engines_answers_give_one_record(make_run: MakeRun, tmp_path: Path) -> None:
    """A native run's answers, read as another program's, give the native run's numbers.

    They are equal bit for bit.
    """
    run = make_run(
        "gspo", "rollout.group_size=3", "update.skip_zero_advantage=false", "update.epochs=2"
    )
    memory = train(run, tmp_path / "run")
    task = build_task(run.settings.task.name, run.settings.task.options, Path(run.base))
    stream = PromptStream(task.problems("train"), run.seed, 4)
    totals = RunTotals()
    rows = [
        {**to_dict(answer), "place": index // 3 % 4, "ids": "", "logprobs": ""}
        for index, answer in enumerate(
            answer for answer in memory.answers if answer.bench == "rollout"
        )
    ]
    updates = [{**to_dict(update), "world": 1} for update in memory.updates]
    for native in memory.steps:
        records = step_records(
            "verl", 1, run, native.step, {"seconds_step": 1.0}, rows, updates, totals, stream
        )
        (step,) = [record for record in records if isinstance(record, StepRecord)]
        assert {name: getattr(step, name) for name in SAME} == {
            name: getattr(native, name) for name in SAME
        }
    assert len({step.reward_mean for step in memory.steps} - {0.0, 1.0}) == 2, (
        "rewards that tell roundings apart"
    )
