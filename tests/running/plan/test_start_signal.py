"""What the starting model earns, with a grader whose rewards are known."""

import json
from pathlib import Path

import pytest
from calling import gspo_lab

from gspo_lab.training.models.builtin_models import build, byte_tokenizer

GRADER = """def grade(problem, response):
    return {"easy": 1.0, "hard": 0.0, "long": len(response) / 100}[problem.reference]
"""
STUDY = """question = "Does it start?"
model = "start"
seeds = [0, 1, 2]
steps = 2
[task]
name = "known.py:grade"
problems = "train.jsonl"
[rollout]
prompts_per_step = 4
group_size = 8
max_tokens = 8
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
[arm.short]
objective = "gspo"
rollout = {max_tokens = 4}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    build("tiny-qwen3", 0).save_pretrained(tmp_path / "start")
    byte_tokenizer().save_pretrained(tmp_path / "start")
    (tmp_path / "known.py").write_text(GRADER)
    file = tmp_path / "begin.toml"
    file.write_text(STUDY)
    return file


def problems(folder: Path, answer: str) -> None:
    lines = [json.dumps({"prompt": f"{number}:", "reference": answer}) for number in range(4)]
    (folder / "train.jsonl").write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("answer", "rewards", "signal"),
    [
        ("easy", (1.0, 1.0), 0.0),  # every response earns the same
        ("hard", (0.0, 0.0), 0.0),
        ("long", (0.0, 0.08), 1.0),  # at most eight tokens of one character
    ],
)
def test_the_first_batch_is_sampled_and_graded_before_training(
    study: Path, answer: str, rewards: tuple[float, float], signal: float
) -> None:
    problems(study.parent, answer)
    runs = study.parent / "runs"
    result = gspo_lab("plan", study, "--start", "--json", "--runs", runs)
    of_both, of_short = result.json["start"]
    assert (of_both["arms"], of_short["arms"]) == (["grpo", "gspo"], ["short"])
    assert (of_both["responses"], of_both["signal_groups"]) == (32, signal)
    assert rewards[0] <= of_both["reward"] <= rewards[1]
    assert not runs.exists(), "a plan leaves nothing behind"


def test_a_start_without_signal_is_told(study: Path) -> None:
    problems(study.parent, "hard")
    result = gspo_lab("plan", study, "--start", "--arms", "grpo", "--runs", study.parent / "runs")
    line = "start of grpo: mean reward 0, and 0% of the groups have a signal (32 responses)"
    assert line in result.out


def test_a_warm_start_that_is_still_to_be_made_is_named(study: Path) -> None:
    problems(study.parent, "easy")
    study.write_text(study.read_text().replace('"start"', '"tiny-qwen3"'))
    result = gspo_lab("plan", study, "--start", "--runs", study.parent)
    assert result.code == 2
    assert "this warm start is not made yet; gspo-lab run begin makes it first" in result.err
