"""A published benchmark asked of an embedded model's run and of a server: an honest score, which may be zero."""

import json
from pathlib import Path

import pytest
from asking import rows
from calling import gspo_lab
from tiny_server import MODEL, serving

from gspo_lab.atomic_files import write_json
from gspo_lab.conduct.study_lock import declare
from gspo_lab.models.builtin_models import build, byte_tokenizer
from gspo_lab.paths import RUN
from gspo_lab.study import load_study

STUDY = """\
question = "Does it know any mathematics?"
model = "tiny-qwen3"
task = "addition"
steps = 4
seeds = [0]

[arm.gspo]
objective = "gspo"
"""


@pytest.fixture
def finished(here: Path) -> Path:
    """The folder of a finished run whose model nobody has trained."""
    (here / "small.toml").write_text(STUDY)
    study = load_study(here / "small.toml")
    declare(study, here / "runs" / study.name)
    (run,) = study.runs()
    folder = run.folder(here / "runs")
    for place, seed in ((here / "start", 0), (folder / "checkpoints" / "final", 1)):
        build("tiny-qwen3", seed).save_pretrained(place)
        byte_tokenizer().save_pretrained(place)
    write_json(folder / RUN, {**run.to_json(), "warm_start": str(here / "start")})
    return folder


def test_aime_of_an_embedded_models_run_is_an_honest_zero(here: Path, finished: Path, aime24: Path) -> None:
    said = gspo_lab("eval", "--bench", "aime24", "--data", aime24, "--limit", 5, "--samples", 2, "--json")
    assert said.code == 0, said
    assert [(row["step"], row["problems"], row["answers"], row["score"]) for row in said.json["scores"]] == [
        (0, 5, 10, 0.0),
        (4, 5, 10, 0.0),
    ]
    (row, _) = said.json["scores"]
    assert row["limits"] == {"context": 4096, "lowest": 128, "highest": 128, "lowered_by": "embedded", "device": "cpu"}
    table = gspo_lab("eval", "--bench", "aime24", "--data", aime24, "--limit", 5, "--samples", 2).out
    assert "token limit 128 (instead of 38,912: all that an embedded model gets)" in " ".join(table.split())
    (declared,) = [json.loads(path.read_text()) for path in finished.rglob("evaluation.json")]
    assert declared["asked"]["prompt_version"] == "boxed/1"
    assert declared["asked"]["temperature"] == 0.6
    assert declared["asked"]["data_digest"]
    stored = rows(here / "runs", "SELECT correct, reason, prompt_version, sample_seed FROM answers")
    assert len(stored) == 20
    assert all(correct == 0 and reason and version and seed for correct, reason, version, seed in stored)
    assert "addition" not in {bench for (bench,) in rows(here / "runs", "SELECT bench FROM scores")}


def test_the_same_copy_elsewhere_is_the_same_evaluation(here: Path, finished: Path, aime24: Path) -> None:
    asked = ("eval", "--bench", "aime24", "--limit", 2, "--samples", 1, "--json")
    first = gspo_lab(*asked, "--data", aime24).json
    (here / "moved.jsonl").write_bytes(aime24.read_bytes())
    assert gspo_lab(*asked, "--data", "moved.jsonl").json == first
    assert len(list(finished.rglob("evaluation.json"))) == 1
    # Asked for in so many words, it gets what the context leaves.
    longer = gspo_lab(*asked, "--data", aime24, "--max-tokens", 200).json["scores"][0]
    assert longer["limits"]["highest"] == 200
    assert longer["evaluation"] != first["scores"][0]["evaluation"]


def test_aime_of_a_server(here: Path, aime24: Path) -> None:
    with serving(context=1200) as server:
        options = ("--data", aime24, "--limit", 3, "--samples", 2, "--max-tokens", 60, "--json")
        said = gspo_lab("eval", "--bench", "aime24", "--server", server.url, "--model", MODEL, *options)
        assert said.code == 0, said
        (row,) = said.json["scores"]
        assert (row["answers"], row["score"]) == (6, 0.0)
        assert {asked["path"] for asked in server.asked} == {"/v1/chat/completions"}
        assert all("\\boxed{}" in asked["messages"][0]["content"] for asked in server.asked)
        assert {(asked["temperature"], asked["top_p"]) for asked in server.asked} == {(0.6, 0.95)}
        plain = gspo_lab(
            "eval", "--bench", "aime24", "--server", server.url, "--model", MODEL, "--raw-prompts", *options
        )
        assert plain.json["scores"][0]["evaluation"] != row["evaluation"]
        assert server.asked[-1]["path"] == "/v1/completions"


def test_some_problems_of_aime_in_a_file_of_ones_own(here: Path) -> None:
    """A part of the problems is evaluated where a limit says so, and nowhere else; regrading reads the same part."""
    lines = [json.dumps({"problem": f"What is {number}?", "answer": str(number)}) for number in range(10)]
    (here / "some.jsonl").write_text("\n".join(lines))
    with serving() as server:
        asked = ("--server", server.url, "--model", MODEL, "--max-tokens", 4, "--samples", 1, "--json")
        some = ("eval", "--bench", "aime24", "--data", "some.jsonl", *asked)
        said = gspo_lab(*some, "--limit", 8)
        assert said.code == 0, said
        assert [(row["problems"], row["score"]) for row in said.json["scores"]] == [(8, 0.0)]
        assert gspo_lab("regrade", said.json["scores"][0]["run_id"]).code == 0
        for limit in ((), ("--limit", 11)):
            refused = gspo_lab(*some, *limit)
            assert refused.code == 2
            assert "10 different problems in " in refused.err
            assert "not 30; name a whole copy, or evaluate some with --limit 10" in refused.err


def test_a_server_s_chat_model_is_asked_a_built_in_task_in_words(here: Path) -> None:
    with serving() as server:
        asked = ("--bench", "addition", "--server", server.url, "--model", MODEL, "--limit", 1, "--max-tokens", 4)
        assert gspo_lab("eval", *asked).code == 0
        assert gspo_lab("eval", *asked, "--raw-prompts").code == 0
        chat, plain = server.asked
    assert (chat["path"], chat["messages"][0]["content"][:9]) == ("/v1/chat/completions", "Calculate")
    assert (plain["path"], plain["prompt"][-1]) == ("/v1/completions", "=")
