"""The native engine on tasks of several turns.

Credit computed by hand, records, and that a run resumes where it stopped.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from assertions import assert_fields
from lottery import Killed, Memory, components, final, recorded, train

from gspo_lab.common.plain_data import Strings
from gspo_lab.study import Run, load_study
from gspo_lab.tasks import Grade, Turn, build_task, grade_answer
from gspo_lab.tasks.evaluation.run_benchmark import turns_from_json
from gspo_lab.training.engines.native.experience import turn_credit, turn_fields
from gspo_lab.training.engines.native.loop import Loop
from gspo_lab.training.engines.native.step_record import CompletedStep, positions, sampled_positions
from gspo_lab.training.samplers import Request, Rollout
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler

STUDY = """
question = "does it go on behind a reply?"
model = "tiny-qwen3"
steps = 2
seeds = [0]
[task]
name = "guess"
max_turns = 3
[rollout]
prompts_per_step = 4
group_size = 4
max_tokens = 14
stop = ["{stop}"]
[update]
minibatches = 2
learning_rate = 1e-3
warmup_updates = 1
checkpoint_every = 10
[record]
rollouts = 1.0
[[bench]]
name = "guess"
problems = 4
every = 2
[arm.gspo]
objective = "gspo"
[arm.turns]
objective = "gspo-token"
turn_credit = "turn"
"""


def make(folder: Path, arm: str, task: str = "", overrides: Strings = ()) -> Run:
    folder.mkdir(exist_ok=True)
    text = STUDY.format(stop='", "'.join(map(chr, range(97, 123)))).replace(
        'name = "guess"\nmax', task + "\nmax" if task else 'name = "guess"\nmax'
    )
    (folder / "study.toml").write_text(text)
    return next(
        run
        for run in load_study(folder / "study.toml", overrides=overrides).runs()
        if run.arm == arm
    )


def rollout(turns: list[Turn], mask: list[int]) -> Rollout:
    request = Request("p", (1,), 0, 0)
    ids = list(range(len(mask)))
    return Rollout(
        request, ids, [0.0] * len(ids), "", False, loss_mask=list(map(bool, mask)), turns=turns
    )


OF_TWO_AND_THREE_TURNS = (
    rollout([Turn("a", "x", tokens=2), Turn("b", tokens=1)], [1, 1, 0, 0, 1]),
    rollout(
        [Turn("a", "x", tokens=1), Turn("b", "x", tokens=1), Turn("c", tokens=2)],
        [1, 0, 1, 0, 1, 1],
    ),
)


def test_each_turns_advantage_stands_on_its_tokens() -> None:
    rollouts = [
        *OF_TWO_AND_THREE_TURNS,
        replace(rollout([Turn("a", tokens=3)], [1, 1, 1]), loss_mask=None),
        rollout(
            [Turn("a", "", tokens=1), Turn("b", tokens=1)], [1, 1]
        ),  # an empty reply parts two turns too
    ]
    grades = [
        Grade(1.0, True, turn_rewards=(0.25, 0.75)),
        Grade(0.0, False),
        Grade(None, None, error="it broke"),
        Grade(3.0, True, turn_rewards=(2.0, 1.0)),
    ]
    adv_NT = turn_credit(rollouts, grades, torch.tensor([[1.0, 0.0, 0.0, 3.0]]), "group-mean")
    # First turns return 1, 0, 0, 3: mean 1. Second ones 0.75, 0, 1: mean 7/12. The third is alone.
    low = 0.75 - 7 / 12
    none = -7 / 12
    high = 1 - 7 / 12
    assert adv_NT.tolist() == [
        pytest.approx(row, abs=1e-6)
        for row in [
            [0, 0, 0, 0, low, 0],
            [-1, 0, none, 0, 0, 0],
            [-1, -1, -1, 0, 0, 0],
            [2, high, 0, 0, 0, 0],
        ]
    ]
    assert turn_fields(rollouts) == {"turns_mean": 2.0, "reply_tokens": 4 / 16}


def test_each_turn_reads_all_before_it_again() -> None:
    """Behind one prompt token.

    Turns that end at tokens 2 and 5 feed 1 + 2 and 1 + 5; trained on, it is fed once.
    """
    rollouts = [
        *OF_TWO_AND_THREE_TURNS,
        replace(rollout([Turn("a", "", tokens=1), Turn("b", tokens=1)], [1, 1]), loss_mask=None),
        replace(rollout([], [1, 1, 1]), loss_mask=None, turns=None),
    ]
    assert sampled_positions(rollouts) == [3 + 6, 2 + 4 + 7, 2 + 3, 4]
    assert positions(rollouts) == [6, 7, 3, 4]


@pytest.mark.parametrize(
    "overrides", [(), ("model=tiny-qwen3-moe", "routing_replay=rollout")], ids=["dense", "experts"]
)
def test_a_killed_run_goes_on_bit_for_bit_and_its_transcripts_are_kept(
    overrides: Strings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("update.checkpoint_every=1", *overrides)
    run = make(tmp_path / "study", "turns", overrides=settings)
    uninterrupted = train(run, tmp_path / "whole")
    memory = Memory()
    record = Loop.record

    def dies(loop: Loop, step: CompletedStep, updates: Any) -> None:
        if step.index == 1:
            raise Killed
        record(loop, step, updates)

    (tmp_path / "parts").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(Loop, "record", dies)
        loop = Loop(run, components(run), memory, tmp_path / "parts")
        with pytest.raises(Killed):
            loop.run(lambda: False)
    assert len(memory.steps) == 1
    later = train(run, tmp_path / "parts")
    assert recorded(memory, later) == recorded(uninterrupted)
    assert final(tmp_path / "whole") == final(tmp_path / "parts")

    task = build_task("guess", {"max_turns": 3})
    problems = {
        problem.id: problem for split in ("train", "held-out") for problem in task.problems(split)
    }
    assert {answer.bench for answer in uninterrupted.answers} == {"rollout", "guess"}
    for answer in uninterrupted.answers:
        turns = turns_from_json(answer.turns)
        again = grade_answer(
            task,
            problems[answer.problem],
            answer.text,
            truncated=bool(answer.truncated),
            turns=turns,
        )
        assert (again.reward, again.correct) == (answer.reward, bool(answer.correct))
        assert [turn["reward"] for turn in answer.turns] == list(again.turn_rewards)
        assert answer.tokens == sum(turn.tokens for turn in turns)
        for place, turn in enumerate(turns[:-1]):
            assert turn.reply == task.reply(problems[answer.problem], turns[: place + 1])
            assert turn.reply in answer.text
    train_answers = [answer for answer in uninterrupted.answers if answer.bench == "rollout"]
    of_step = [[a for a in train_answers if a.step == step.step] for step in uninterrupted.steps]
    for step, answers in zip(uninterrupted.steps, of_step, strict=True):
        assert step.turns_mean == sum(len(a.turns) for a in answers) / len(answers)
        assert step.response_tokens_mean == sum(a.tokens for a in answers) / len(answers)
        assert 0 < step.reply_tokens < 1
    assert sum(update.response_tokens for update in uninterrupted.updates) == sum(
        a.tokens for a in train_answers
    )


def test_turns_of_a_response_may_differ_in_their_advantage(tmp_path: Path) -> None:
    """Rewards of turns reach the gradient.

    The two ways to credit them differ from the first update on, not before.
    """
    complete = [
        train(make(tmp_path / "study", arm, overrides=("steps=1",)), tmp_path / arm)
        for arm in ("gspo", "turns")
    ]
    assert_fields(
        complete[0].steps[0],
        rollout_digest=complete[1].steps[0].rollout_digest,
        reward_mean=complete[1].steps[0].reward_mean,
    )
    assert complete[0].updates[0].grad_norm != complete[1].updates[0].grad_norm


MINE = """
def grade(problem, answer):
    return len(answer) % 2

def reply(problem, turns):
    if len(turns) == 2 and len(turns[0].text) % 3 == 0:
        raise ValueError("no more")
    return "abc"
"""


def test_what_an_environment_fails_at_trains_with_reward_0_and_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "mine.py").write_text(MINE)
    (folder / "p.jsonl").write_text(
        "\n".join(f'{{"prompt": "{n}?", "reference": ""}}' for n in range(20))
    )
    run = make(folder, "gspo", 'name = "mine.py:grade"\nreply = "reply"\nproblems = "p.jsonl"')
    memory = train(run, tmp_path / "run")
    failed = [answer for answer in memory.answers if answer.error is not None]
    assert failed
    for answer in failed:
        assert answer.error == "no reply: ValueError: no more (mine.py:7)"
        assert answer.turns[-1]["error"] == answer.error
        assert (answer.reward, answer.correct) == (None, None)
    for step in memory.steps:
        assert step.grader_errors == sum(
            a.step == step.step and a.bench == "rollout" for a in failed
        )


def test_the_flops_of_turns_are_of_all_that_the_sampler_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[int] = []
    actual: list[tuple[float, float]] = []
    draw = TransformersSampler.sample
    record = Loop.record

    def noted(
        self: TransformersSampler, requests: Sequence[Request], *args: Any, **options: Any
    ) -> list[Rollout]:
        drawn = draw(self, requests, *args, **options)
        fed.append(
            sum(
                len(item.fed_ids) + len(new.response_ids)
                for item, new in zip(requests, drawn, strict=True)
            )
        )
        return drawn

    def held(loop: Loop, step: CompletedStep, updates: Any) -> None:
        calls = max(
            len(item.turns or ()) for item in step.drawn
        )  # the last ones, behind those of the benchmark
        record(loop, step, updates)
        flops = 2 * loop.components.active_parameters * (sum(fed[-calls:]) + step.trainer_positions)
        actual.append((loop.totals.flops_total, flops))

    monkeypatch.setattr(TransformersSampler, "sample", noted)
    monkeypatch.setattr(Loop, "record", held)
    memory = train(make(tmp_path / "study", "gspo", overrides=("steps=1",)), tmp_path / "run")
    [(counted, flops)] = actual
    assert memory.steps[0].turns_mean > 1
    assert counted == memory.steps[0].flops_total == flops
