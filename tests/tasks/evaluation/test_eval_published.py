"""A published benchmark on a built-in model's run and on a server.

The score is honest and may be zero.
"""

import json
from pathlib import Path

import pytest
from asking import declared_runs, done, save_model
from assertions import assert_fields
from calling import gspo_lab, rows
from laboratory import json_of
from tiny_server import MODEL, serving

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
    ((_, folder),) = declared_runs(here, "small", STUDY, save_model(here / "start", 0))
    save_model(folder / "checkpoints" / "final", 1)
    return folder


def test_aime_of_an_embedded_models_run_is_an_honest_zero(
    here: Path, finished: Path, aime24: Path
) -> None:
    said = done(
        "eval", "--bench", "aime24", "--data", aime24, "--limit", 5, "--samples", 2, "--json"
    )
    shown = [
        (row["step"], row["problems"], row["answers"], row["score"]) for row in said.json["scores"]
    ]
    assert shown == [(0, 5, 10, 0.0), (4, 5, 10, 0.0)]
    (row, _) = said.json["scores"]
    assert row["limits"] == {
        "context": 4096,
        "lowest": 128,
        "highest": 128,
        "lowered_by": "embedded",
        "device": "cpu",
    }
    table = gspo_lab(
        "eval", "--bench", "aime24", "--data", aime24, "--limit", 5, "--samples", 2
    ).out
    assert "token limit 128 (instead of 38,912: all that an embedded model gets)" in " ".join(
        table.split()
    )
    (declared,) = [json_of(path) for path in finished.rglob("evaluation.json")]
    assert_fields(declared["asked"], prompt_version="boxed/1", temperature=0.6)
    assert declared["asked"]["data_digest"]
    stored = rows(here / "runs", "SELECT correct, reason, prompt_version, sample_seed FROM answers")
    assert len(stored) == 20
    assert all(
        correct == 0 and reason and version and seed for correct, reason, version, seed in stored
    )
    assert "addition" not in {bench for (bench,) in rows(here / "runs", "SELECT bench FROM scores")}


def test_the_same_copy_elsewhere_is_the_same_evaluation(
    here: Path, finished: Path, aime24: Path
) -> None:
    asked = ("eval", "--bench", "aime24", "--limit", 2, "--samples", 1, "--json")
    first = gspo_lab(*asked, "--data", aime24).json
    (here / "moved.jsonl").write_bytes(aime24.read_bytes())
    assert gspo_lab(*asked, "--data", "moved.jsonl").json == first
    assert len(list(finished.rglob("evaluation.json"))) == 1
    # Asked for in so many words, it gets what the context leaves.
    longer = gspo_lab(*asked, "--data", aime24, "--max-tokens", 200).json["scores"][0]
    assert longer["limits"]["highest"] == 200
    assert longer["evaluation"] != first["scores"][0]["evaluation"]


def test_a_server_is_asked_in_words_or_with_raw_prompts(here: Path, aime24: Path) -> None:
    with serving(context=1200) as server:
        command = (
            "eval",
            "--server",
            server.url,
            "--model",
            MODEL,
            "--max-tokens",
            4,
            "--limit",
            2,
            "--json",
        )
        for bench, words, end in (("aime24", "\\boxed{}", "."), ("addition", "Calculate", "=")):
            options = (
                "--bench",
                bench,
                *(("--data", aime24) if bench == "aime24" else ()),
                "--samples",
                1,
            )
            chat = gspo_lab(*command, *options, *()).json["scores"][0]
            plain = gspo_lab(*command, *options, *("--raw-prompts",)).json["scores"][0]
            assert_fields(chat, answers=2, score=0.0)
            assert chat["evaluation"] != plain["evaluation"]
            first = server.asked[-4]
            last = server.asked[-1]
            assert (first["path"], last["path"]) == ("/v1/chat/completions", "/v1/completions")
            assert words in first["messages"][0]["content"]
            assert last["prompt"][-1] == end
            if bench == "aime24":
                assert_fields(first, temperature=0.6, top_p=0.95)


def test_some_problems_of_aime_in_a_file_of_ones_own(here: Path) -> None:
    """A limit on the problems holds for the evaluation that declares it, and nowhere else.

    Regrading reads the same part.
    """
    lines = [
        json.dumps({"problem": f"What is {number}?", "answer": str(number)}) for number in range(10)
    ]
    (here / "some.jsonl").write_text("\n".join(lines))
    with serving() as server:
        asked = (
            "--server",
            server.url,
            "--model",
            MODEL,
            "--max-tokens",
            4,
            "--samples",
            1,
            "--json",
        )
        some = ("eval", "--bench", "aime24", "--data", "some.jsonl", *asked)
        said = done(*some, "--limit", 8)
        assert [(row["problems"], row["score"]) for row in said.json["scores"]] == [(8, 0.0)]
        assert gspo_lab("records", "regrade", said.json["scores"][0]["run_id"]).code == 0
        for limit in ((), ("--limit", 11)):
            refused = gspo_lab(*some, *limit)
            assert refused.code == 2
            assert "10 different problems in " in refused.err
            assert "not 30; name a whole copy, or evaluate some with --limit 10" in refused.err
