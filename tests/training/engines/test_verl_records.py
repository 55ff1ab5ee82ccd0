"""From verl's output to the lab's records, computed by hand.

Two prompts, two responses each, one update a prompt.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from assertions import assert_fields
from calling import lab_error
from lottery import MakeRun

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records import AnswerRecord, StepRecord, UpdateRecord
from gspo_lab.study import Run
from gspo_lab.tasks import build_task
from gspo_lab.training.engines.external.attempt import Prompt, every_training_prompt
from gspo_lab.training.engines.external.records import (
    StepLines,
    bench_records,
    step_records,
    write_update,
)
from gspo_lab.training.engines.native.prompt_stream import PromptStream
from gspo_lab.training.engines.step_numbers import RunTotals
from gspo_lab.training.engines.verl import VerlEngine, row

LINE = {
    "actor/entropy": 2.5,
    "rollout_corr/kl": -1e-4,
    "rollout_corr/k3_kl": 2e-4,
    "timing_s/gen": 3.0,
    "timing_s/old_log_prob": 1.0,
    "timing_s/update_actor": 4.0,
    "timing_s/step": 10.0,
    "timing_s/save_checkpoint": 1.5,
}
REWARDS = {(0, 0): 1.0, (0, 1): 0.0, (1, 0): 1.0, (1, 1): 1.0}
TOKENS = {(0, 0): 4, (0, 1): 10, (1, 0): 6, (1, 1): 8}


@pytest.fixture
def run(make_run: MakeRun) -> Run:
    changes = (
        "engine=verl",
        "rollout.prompts_per_step=2",
        "rollout.group_size=2",
        "update.minibatches=2",
    )
    return make_run("gspo", *changes)


def answers(step: int) -> list[JsonObject]:
    """In the order in which they were finished, which is not that in which they were asked."""
    return [
        {
            "kind": "answer",
            "step": step,
            "bench": "rollout",
            "problem": f"p{place}",
            "sample": sample,
            "place": place,
            "ids": f"i{place}{sample}",
            "logprobs": "l",
            "text": f"p{place}",
            "reward": REWARDS[place, sample],
            "tokens": TOKENS[place, sample],
            "truncated": int(TOKENS[place, sample] == 10),
        }
        for place, sample in ((1, 1), (0, 1), (1, 0), (0, 0))
    ]


def updates(step: int, world: int = 1) -> list[JsonObject]:
    return [
        {
            "kind": "update",
            "step": step,
            "minibatch": k,
            "world": world,
            "loss": 0.5,
            "clipped_tokens": k,
        }
        for k in (0, 1)
    ]


def made(run: Run, step: int, totals: RunTotals, **changes: Any) -> list[Any]:
    task = build_task(run.settings.task.name, run.settings.task.options, Path(run.base))
    stream = PromptStream(task.problems("train"), run.seed, run.settings.rollout.prompts_per_step)
    ids = [record.id for record in stream.step(step)]
    group = run.settings.rollout.group_size
    bench_answers = [
        record
        for record in answers(step)
        if record["place"] < len(ids) and record["sample"] < group
    ]
    rows = [{**record, "problem": ids[record["place"]]} for record in bench_answers]
    inputs: JsonObject = {"answers": rows, "updates": updates(step), "world": 1} | changes
    output = VerlEngine().step_columns(LINE)
    return step_records(
        "verl",
        inputs["world"],
        run,
        step,
        output,
        inputs["answers"],
        inputs["updates"],
        totals,
        stream,
    )


def test_a_step_is_measured_from_its_answers(run: Run) -> None:
    records = made(run, 0, totals := RunTotals())
    (step,) = [record for record in records if isinstance(record, StepRecord)]
    assert_fields(
        step,
        prompts=2,
        responses=4,
        reward_mean=0.75,
        # the second prompt's responses both won
        zero_variance_groups=0.5,
        response_tokens_mean=7.0,
        truncated_responses=0.25,
        mismatch_k1=-1e-4,
        mismatch_k3=2e-4,
        entropy=2.5,
        # without the checkpoint
        seconds_step=8.5,
        tokens_sampled_total=28,
        updates_total=2,
        prompts_total=2,
    )
    assert [record.minibatch for record in records if isinstance(record, UpdateRecord)] == [0, 1]
    retained = [
        record for record in records if isinstance(record, AnswerRecord)
    ]  # the study keeps all, in the order of asking
    assert [(record.text, record.sample) for record in retained] == [
        ("p0", 0),
        ("p0", 1),
        ("p1", 0),
        ("p1", 1),
    ]
    later = next(record for record in made(run, 1, totals) if isinstance(record, StepRecord))
    assert_fields(later, tokens_sampled_total=56, updates_total=4, device_seconds_total=17.0)
    assert later.prompt_digest != step.prompt_digest


def test_a_step_of_a_single_response_has_no_spread(make_run: MakeRun) -> None:
    single = (
        "rollout.prompts_per_step=1",
        "rollout.group_size=1",
        "update.minibatches=1",
        "update.epochs=2",
    )
    run = make_run("gspo", "engine=verl", "objective.advantage=gae", *single)
    (step,) = [record for record in made(run, 0, RunTotals()) if isinstance(record, StepRecord)]
    assert_fields(
        step,
        reward_mean=1.0,
        reward_std=None,
        zero_variance_groups=None,
        response_tokens_mean=4.0,
        response_tokens_t1=4.0,
        response_tokens_t2=4.0,
    )


def test_a_resumed_run_counts_on(run: Run) -> None:
    start = next(item for item in made(run, 0, RunTotals()) if isinstance(item, StepRecord))
    totals = RunTotals.of({name: getattr(start, name) for name in StepRecord.__dataclass_fields__})
    resumed = next(item for item in made(run, 1, totals) if isinstance(item, StepRecord))
    assert resumed.tokens_sampled_total == 56


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"answers": answers(0)}, "asked 'p0' in step 0, which is not that step's prompt"),
        ({"answers": answers(0)[1:]}, "left 3 responses of step 0, not 4"),
        ({"updates": updates(0)[1:]}, "left 1 updates of step 0, not 2"),
        ({"world": 2}, "with 1 processes, not the 2 asked for"),
        (
            {
                "answers": [
                    {**answer, "reward": None, "error": "no brackets"} for answer in answers(0)
                ]
            },
            "the grader failed on 4 of 4 responses .* no brackets",
        ),
    ],
)
def test_what_is_missing_is_no_step(run: Run, changes: JsonObject, why: str) -> None:
    with lab_error(why):
        made(run, 0, RunTotals(), **changes)


def test_a_benchmark_s_answers_are_those_of_its_moment() -> None:
    bench_answers = [{**answer, "bench": "lottery"} for answer in (*answers(0), *answers(1))]
    actual = bench_records(1, [*bench_answers, *answers(1)])
    assert [(answer.step, answer.bench, answer.problem) for answer in actual] == [
        (1, "lottery", p) for p in ("p0", "p0", "p1", "p1")
    ]


def test_the_prompts_are_those_of_the_native_engine(run: Run) -> None:
    task = build_task(run.settings.task.name, run.settings.task.options, Path(run.base))
    prompts = list(every_training_prompt(run, task))
    rows = [row(prompt, place) for place, prompt in enumerate(prompts)]
    stream = PromptStream(task.problems("train"), run.seed, 2)
    assert len(rows) == run.settings.steps * 2
    assert [row["extra_info"]["problem"]["id"] for row in rows[2:4]] == [
        record.id for record in stream.step(1)
    ]
    read_back = Prompt.from_json(json.loads(json.dumps(rows[3]))["extra_info"])
    assert read_back == Prompt.from_json(rows[3]["extra_info"])
    assert read_back.problem.id == stream.step(1)[1].id
    assert (read_back.place, read_back.bench, read_back.max_tokens, len(read_back.stop)) == (
        1,
        "",
        10,
        26,
    )


def test_an_update_is_measured_on_rows_of_any_length(run: Run, tmp_path: Path) -> None:
    """Two responses of 2 and 1 tokens.

    The second one's ratio e^0.1 lies above GSPO's range, with A > 0.
    """
    rows = [
        (torch.zeros(2), torch.tensor([True, True]), torch.tensor([-1.0, -1.0])),
        (torch.tensor([0.1]), torch.tensor([True]), torch.tensor([1.0])),
    ]
    path = tmp_path / "updates.jsonl"
    for number, loss in ((3, 0.5), (4, math.inf)):
        write_update(
            path,
            run,
            number,
            rows,
            world=2,
            loss=loss,
            grad_norm=1.0,
            learning_rate=1e-3,
            seconds=2.0,
        )
    earlier, later = map(json.loads, path.read_text().splitlines())
    assert_fields(
        earlier,
        step=1,
        minibatch=1,
        world=2,
        loss=0.5,
        seconds=2.0,
        responses=2,
        response_tokens=3,
        clipped_tokens=1,
    )
    assert earlier["response_detail"]["length"] == [2, 1]
    assert earlier["log_ratio_max_abs"] == pytest.approx(0.1)
    assert (later["step"], later["minibatch"], earlier["nonfinite"], later["nonfinite"]) == (
        2,
        0,
        0,
        1,
    )


def test_lines_are_read_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "updates.jsonl"
    lines = StepLines(path)
    assert lines.since(0) == []
    path.write_text('{"step": 0}\n{"step": 1}\n{"st')
    assert lines.since(0) == [{"step": 0}, {"step": 1}]
    with path.open("a") as file:
        file.write('ep": 2}\n')
    assert lines.since(1) == [{"step": 1}, {"step": 2}]
