"""What cannot be asked is refused before anything is trained."""

import json
from pathlib import Path

import pytest
from calling import lab_error
from lottery import MakeRun, components, train

from gspo_lab.common.errors import LabError
from gspo_lab.recording.records import AnswerRecord
from gspo_lab.study import load_study
from gspo_lab.tasks.base import Problem
from gspo_lab.training.engines.native.prompt_stream import check_fit
from gspo_lab.training.models.builtin_models import build, byte_tokenizer

PROBLEMS = [
    Problem("short", "1+1=", "2"),
    Problem("euros", "€" * 4, "€"),
    Problem("long", "9" * 12, "9"),
]
"""4, 12 and 12 bytes; the embedded tokenizer makes a token of each."""


def test_a_prompt_must_leave_room_for_a_token() -> None:
    check_fit(PROBLEMS, byte_tokenizer(), 13)
    check_fit(PROBLEMS, byte_tokenizer(), None)
    check_fit([], byte_tokenizer(), 1)
    with pytest.raises(LabError) as refused:
        check_fit(PROBLEMS, byte_tokenizer(), 12)
    assert (
        str(refused.value)
        == "2 of 3 training problems leave no room for an answer in the model's context of 12"
        " tokens; the longest, 'euros', has 12: leave them out, or take a model with a longer"
        " context"
    )


def test_a_run_with_a_prompt_beyond_its_model_s_context_does_not_start(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("gspo")
    with (tmp_path / "problems.jsonl").open("a") as problems:
        for place in range(8):  # enough for both splits
            far = {"prompt": "?" * 100_000 + str(place), "reference": "", "id": f"far-{place}"}
            problems.write("\n" + json.dumps(far))
    with lab_error(r"training problems leave no room .* 'far-\d', has 100001"):
        components(run)


IN_WORDS = """
question = "In words?"
model = "{}"
steps = 1
seeds = 1
[task]
name = "addition"
digits = 1
[rollout]
prompts_per_step = 2
group_size = 2
max_tokens = 2
[update]
minibatches = 2
[[bench]]
name = "addition"
problems = 2
[record]
rollouts = 1.0
[arm.gspo]
objective = "gspo"
"""


def test_a_chat_model_is_asked_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}{% endfor %}"
    )
    build("tiny-qwen3", 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    study = tmp_path / "words.toml"
    study.write_text(IN_WORDS.format(folder))
    (run,) = load_study(study).runs()
    answers = train(run, tmp_path / "run").of(AnswerRecord)
    assert {answer.bench for answer in answers} == {"rollout", "addition"}
    assert {(answer.prompt_version, answer.grader) for answer in answers} == {
        ("words/1", "addition-words/1")
    }
    assert all(answer.prompt.startswith("Calculate ") for answer in answers)
    (bare,) = load_study(study, overrides=["task.words=false"]).runs()
    assert components(bare).task.prompt_version == "bare/1"
