"""`gspo-lab eval` and `grade` of a task of several turns, and what refuses such a task before it starts."""

import json
from pathlib import Path

import pytest
from asking import rows
from calling import gspo_lab

MINE = """\
def grade(problem, answer, turns=()):
    return float((len(answer) + len(turns)) % 2)


def reply(problem, turns):
    return None if turns[-1].text.startswith("a") else f"({len(turns)})"
"""
STUDY = """\
question = "Who can let an environment reply?"
model = "tiny-qwen3"
seeds = [0]
[task]
name = "mine.py:grade"
problems = "p.jsonl"
reply = "reply"
stop = ["e"]
max_tokens = 30
[arm.grpo]
objective = "grpo"
"""


@pytest.fixture
def mine(here: Path) -> Path:
    (here / "mine.py").write_text(MINE)
    (here / "p.jsonl").write_text("".join(json.dumps({"prompt": f"{n}?", "reference": ""}) + "\n" for n in range(30)))
    return here


def test_transcripts_are_kept_and_graded_again(here: Path) -> None:
    asked = gspo_lab("eval", "--bench", "guess", "--model", "tiny-qwen3", "--limit", 4, "--json")
    assert asked.code == 0, asked
    answers = rows(here / "runs", "select problem, text, turns, tokens, reward from answers")
    assert len(answers) == 4
    for _, text, turns, tokens, reward in answers:
        told = json.loads(turns)
        assert tokens == sum(turn["tokens"] for turn in told)
        assert reward == pytest.approx(sum(turn["reward"] for turn in told))
        assert told[0]["text"] in text
    graded = gspo_lab("regrade", "_subjects/" + rows(here / "runs", "select run_id from subjects")[0][0].split("/")[-1])
    assert graded.code == 0, graded
    assert "no verdict changed" in graded.out


def test_a_server_is_not_asked_for_turns(here: Path) -> None:
    server = ("--server", "http://127.0.0.1:9/v1", "--model", "any")
    said = gspo_lab("eval", "--bench", "guess", "--limit", 2, *server)
    assert said.code == 2
    assert "its answers have up to 5 turns, and a server is asked for one" in said.err
    assert not list((here / "runs").rglob("evaluation.json"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ('[engine]\nname = "verl"', "the engine 'verl' cannot train on or ask 'mine.py:grade', whose responses have"),
        ('[rollout]\nsampler = "old.py:Old"', "the sampler 'old.py:Old' does not go on with a response"),
    ],
)
def test_who_cannot_reply_is_refused_before_anything_starts(mine: Path, change: str, told: str) -> None:
    (mine / "old.py").write_text(
        "class Old:\n    def __init__(self, model, tokenizer, dtype, rows): pass\n"
        + "".join(f"    def {name}(self, *a, **k): pass\n" for name in ("sample", "refresh", "rest", "facts"))
    )
    (mine / "s.toml").write_text(f"{STUDY}{change}\n")
    said = gspo_lab("check", "s.toml")
    assert (said.code, said.out) == (2, "")
    assert told in said.err


def test_credit_by_turns_wants_turns_and_groups(mine: Path) -> None:
    credited = STUDY + 'turn_credit = "turn"\n'
    for text, told in [
        (
            credited.replace("reply =", "# reply ="),
            "'turn' with the task 'mine.py:grade', whose responses have one turn",
        ),
        (credited + 'advantage = "batch-std"\n', "turns are compared within their group"),
    ]:
        (mine / "s.toml").write_text(text)
        said = gspo_lab("check", "s.toml")
        assert said.code == 2
        assert told in said.err
    (mine / "s.toml").write_text(credited)
    assert gspo_lab("check", "s.toml").code == 0
