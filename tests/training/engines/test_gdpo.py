"""GDPO from a grader's rewards by name to the advantages that train.

Also what is refused before a run.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from assertions import assert_fields
from calling import lab_error
from lottery import STUDY, run_of, train, write_study

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Strings
from gspo_lab.study import Run
from gspo_lab.study.settings_validation import broken_within
from gspo_lab.tasks import build_task, grade_answer
from gspo_lab.training.engines.check import check_engine, check_tasks
from gspo_lab.training.objectives import decoupled

GRADER = """
from gspo_lab.tasks import Grade


def grade(problem, answer):
    parts = {"even": float(len(answer) % 2 == 0), "sum": float(sum(answer.encode()) % 5)}
    if answer.startswith("?"):
        parts.pop("sum")
    return Grade(sum(parts.values()), parts["even"] == 1, rewards=parts)
"""
NAMED = ('task.rewards=["even","sum"]', "arm.gdpo.advantage=gdpo")
Make = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    study = write_study(tmp_path)
    (tmp_path / "lottery.py").write_text(GRADER)
    study.write_text(STUDY + '[arm.gdpo]\nobjective = "grpo"\nclip_high = 0.3\n')

    def of(*overrides: str) -> Run:
        return run_of(study, "gdpo", overrides)

    return of


def test_rewards_by_name_are_recorded_and_train(make: Make, tmp_path: Path) -> None:
    """Advantages of stored answers are those of their stored rewards.

    Other weights give other advantages.
    """
    runs = {}
    for weight in (1.0, 5.0):
        memory = train(
            make(*NAMED, "steps=1", f"objective.reward_weights={{sum = {weight}}}"),
            tmp_path / f"w{weight}",
        )
        answers = [answer for answer in memory.answers if answer.bench == "rollout"]
        rewards = [answer.rewards or {"even": 0.0, "sum": 0.0} for answer in answers]
        reward_KPG = torch.tensor(
            [[row[name] for row in rewards] for name in ("even", "sum")]
        ).view(2, 4, 4)
        expected = decoupled(reward_KPG, (1.0, weight)).flatten().tolist()
        assert [answer.advantage for answer in answers] == pytest.approx(expected, abs=1e-6)
        assert memory.steps[0].rewards_mean == {
            name: pytest.approx(sum(row[name] for row in rewards) / 16) for name in ("even", "sum")
        }
        runs[weight] = expected
    assert runs[1.0] != runs[5.0]
    plain = train(make(NAMED[0], "steps=1"), tmp_path / "plain")
    answers = [answer for answer in plain.answers if answer.bench == "rollout"]
    assert answers[0].rewards is not None
    assert [answer.advantage for answer in answers] != pytest.approx(runs[1.0], abs=1e-6), (
        "of the sum"
    )


def test_a_grade_has_the_rewards_that_the_task_names(make: Make, tmp_path: Path) -> None:
    run = make(*NAMED)
    task = build_task(run.settings.task.name, run.settings.task.options, tmp_path)
    assert task.reward_names == ("even", "sum")
    problem = task.problems("train")[0]
    assert grade_answer(task, problem, "ab", truncated=False).rewards == {
        "even": 1.0,
        "sum": (97 + 98) % 5,
    }
    odd = grade_answer(task, problem, "?", truncated=False)
    assert_fields(
        odd,
        reward=None,
        rewards=None,
        error="the grader returned rewards named even, and the task names even, sum",
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["arm.gdpo.advantage=gdpo"],
            "advantage = 'gdpo' with the task 'lottery.py:grade', which has one reward",
        ),
        (
            [*NAMED, "objective.reward_weights={sun = 1.0}"],
            "has no reward 'sun' (did you mean 'sum'?); it has even, sum",
        ),
    ],
)
def test_what_the_task_lacks_is_refused(
    make: Make, tmp_path: Path, overrides: list[str], message: str
) -> None:
    run = make(*overrides)
    task = build_task(run.settings.task.name, run.settings.task.options, tmp_path)
    with pytest.raises(LabError) as caught:
        check_tasks("gdpo", run.settings, [task], tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "extra"),
    [
        pytest.param("trl", (), marks=pytest.mark.trl),
        ("verl", ()),
        ("areal", ("objective.aggregation=token-mean",)),
    ],
)
def test_engines_that_are_given_one_reward_refuse_it(
    make: Make, tmp_path: Path, engine: str, extra: Strings
) -> None:
    if engine == "trl":
        pytest.importorskip("trl")
    with lab_error("gdpo"):
        check_engine("gdpo", make(*NAMED, f"engine={engine}", *extra).settings, tmp_path)


@pytest.mark.parametrize("values", [{"dynamic_sampling": 1}, {"overlong_buffer": 2}])
def test_what_reads_the_one_reward_is_refused_beside_it(make: Make, values: dict[str, int]) -> None:
    settings = make(*NAMED).settings
    assert not list(broken_within(settings))
    (line,) = broken_within(settings.replace(rollout=settings.rollout.replace(**values)))
    assert f"rollout.{next(iter(values))}" in line
    assert "with advantage = 'gdpo'" in line


def test_names_are_a_list_of_different_ones(make: Make, tmp_path: Path) -> None:
    for names in ("even", ["even", "even"], [1]):
        with lab_error("must be a list of different names"):
            build_task(
                "lottery.py:grade", {"problems": "problems.jsonl", "rewards": names}, tmp_path
            )
