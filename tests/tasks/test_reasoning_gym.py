"""Tasks of reasoning-gym by name; skipped where the package is not installed."""

import json
from pathlib import Path
from typing import Any

import pytest
from calling import gspo_lab, lab_error
from case_tables import cases

pytest.importorskip("reasoning_gym")

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.tasks import Problem, build_task, task_key

ONE_DIGIT = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def task(name: str, **options: Any) -> Any:
    return build_task(f"reasoning_gym:{name}", {"train": 20, "held_out": 10, **options})


@pytest.mark.parametrize(
    "name", ["basic_arithmetic", "chain_sum", "gcd", "spell_backward", "simple_equations"]
)
def test_problems_are_seeded_distinct_and_their_references_correct(name: str) -> None:
    made = task(name)
    again = task(name)
    other = task(name, seed=1)
    prompts = {split: [p.prompt for p in made.problems(split)] for split in ("train", "held-out")}
    assert [p.prompt for p in again.problems("train")] == prompts["train"]
    assert [p.prompt for p in other.problems("train")] != prompts["train"]
    assert (len(set(prompts["train"])), len(set(prompts["held-out"]))) == (20, 10)
    assert not set(prompts["train"]) & set(prompts["held-out"])
    for problem in (*made.problems("train"), *made.problems("held-out")):
        assert made.grade(problem, f"It is {problem.reference}.").correct is True
        assert made.grade(problem, "I do not know").correct is False


def test_problems_that_repeat_count_once() -> None:
    """Two numbers of one digit with one sign: fewer problems than are wanted."""
    made = task("chain_sum", train=500, held_out=30, **ONE_DIGIT)
    train = [problem.prompt for problem in made.problems("train")]
    held_out = [problem.prompt for problem in made.problems("held-out")]
    assert 50 < len(train) < 500
    assert len({*train, *held_out}) == len(train) + 30


@pytest.mark.parametrize(
    ("answer", "reference", "response", "prepared"),
    cases(__file__, "prepared"),
)
def test_the_answer_is_prepared_as_documented(
    answer: str, reference: str, response: str, prepared: str
) -> None:
    made = task("chain_sum", answer=answer)
    problem = made.problems("train")[0]
    grade = made.grade(Problem(problem.id, problem.prompt, reference), response)
    assert grade.extracted == (prepared or None)


def test_a_grade_needs_no_generated_problems_before() -> None:
    problem = task("chain_sum").problems("held-out")[3]
    assert task("chain_sum").grade(problem, problem.reference).correct is True


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("chain_sums", {}, r"no task 'chain_sums' \(did you mean 'chain_sum'\?\); see its list"),
        ("chain_sum", {"digits": 2}, "unexpected keyword argument 'digits'"),
        ("chain_sum", {"min_terms": 9, "max_terms": 2}, "max_terms must be >= min_terms"),
        ("chain_sum", {"answer": "number"}, "must be one of , last number, last word, raw"),
        ("chain_sum", {"train": 0}, "train = 0 must be a whole number from 1"),
    ],
)
def test_what_is_wrong_is_one_line(name: str, options: JsonObject, message: str) -> None:
    with lab_error(message) as refused:
        task(name, **options)
    assert "\n" not in str(refused.value)


def test_a_key_names_the_dataset_and_its_options() -> None:
    key = json.loads(task_key("reasoning_gym:gcd", {"train": 5}))
    assert key["options"]["dataset"] == "gcd"
    assert task_key("reasoning_gym:gcd", {}) != task_key("reasoning_gym:lcm", {})


@pytest.mark.parametrize("name", ["basic_arithmetic", "count_bits", "spell_backward"])
def test_a_study_trains_on_it(tmp_path: Path, name: str) -> None:
    study = tmp_path / "gym.toml"
    study.write_text(f"""
question = "Does it train?"
model = "tiny-qwen3"
seeds = 1
steps = 1
[task]
name = "reasoning_gym:{name}"
train = 16
held_out = 4
max_tokens = 4
[rollout]
prompts_per_step = 4
group_size = 2
[arm.gspo]
objective = "gspo"
[[bench]]
name = "held-out"
problems = 2
""")
    done = gspo_lab("run", study, "--runs", tmp_path / "runs")
    assert done.code == 0, done.err
