"""`gspo-lab eval --server` against a real server on loopback.

It answers, fails, is killed in the middle, and finishes.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from asking import ANSWERS, BENCH, done, kept, stopped_after
from assertions import assert_fields
from calling import environment, gspo_lab, rows
from laboratory import json_of
from tiny_server import MODEL, TinyServer, free_port, serving

from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.common.text import UNSEEN


@contextmanager
def answering_only(server: TinyServer, answers: int) -> Iterator[None]:
    """Within the block the server gives that many answers and then none.

    Its client is there to be stopped.
    """
    server.faults.extend([0.0] * answers)
    server.always = "wait"
    try:
        yield
    finally:
        server.always = None
        server.go_on.set()


def asking(server: TinyServer, *more: object) -> tuple[object, ...]:
    options = (
        "--data",
        "problems.jsonl",
        "--samples",
        2,
        "--max-tokens",
        6,
        "--top-p",
        0.9,
        "--json",
    )
    return ("eval", "--bench", BENCH, "--server", server.url, "--model", MODEL, *options, *more)


def test_a_server_is_asked_and_its_answers_are_kept(
    server: TinyServer, problems: Path, here: Path
) -> None:
    said = done(*asking(server))
    (row,) = said.json["scores"]
    wanted = 2 * row["problems"]
    assert row["answers"] == wanted == len(server.asked) > 10
    assert row["run_id"].startswith("_subjects/tiny-")
    assert 0 <= row["low"] < row["score"] < row["high"] <= 1
    assert row["pass_at_k"] > row["score"]
    assert row["limits"] == {"context": 4096, "lowest": 6, "highest": 6, "lowered_by": None}

    answers = rows(here / "runs", ANSWERS)
    assert len({seed for _, _, seed, *_ in answers}) == wanted
    for _, _, seed, text, tokens, truncated, correct, _ in answers:
        (asked,) = [one for one in server.asked if one["seed"] == seed % 2**31]
        rollout = server.rollout(asked["prompt"], asked)
        assert (text, tokens, truncated) == (
            rollout.text,
            len(rollout.response_ids),
            int(rollout.truncated),
        )
        assert correct == int(sum(text.encode()) % 2 == 0)
    assert row["score"] == pytest.approx(sum(answer[6] for answer in answers) / wanted)

    (declared,) = [json_of(path) for path in (here / "runs").rglob("evaluation.json")]
    assert declared["subject"] == {"kind": "server", "name": MODEL, "url": server.url}
    assert_fields(declared["asked"], samples=2, grader=answers[0][-1])
    assert gspo_lab(*asking(server)).json == said.json
    assert len(server.asked) == wanted, "what is answered is not asked again"


def test_answers_of_another_model_than_was_asked_are_kept_and_told(
    server: TinyServer, problems: Path, here: Path
) -> None:
    for limit, name, others in ((3, MODEL, 0), (4, None, 0), (5, "other-8b", 10)):
        server.answers_as = name
        said = done(*asking(server, "--limit", limit))
        (row,) = said.json["scores"]
        assert_fields(row, by_others=others, answered_by=name if others else None)
        assert said.err.count("as the server says") == bool(others)
    told = (
        f"10 of 10 answers are, as the server says, by 'other-8b' and not by '{MODEL}', which was"
        " asked"
    )
    assert told in said.err
    named = rows(
        here / "runs",
        "SELECT answered_by, COUNT(*) FROM answers GROUP BY answered_by ORDER BY answered_by",
    )
    assert named == [(None, 14), ("other-8b", 10)]
    again = gspo_lab(*(word for word in asking(server, "--limit", 5) if word != "--json"))
    assert "other-8b" in again.out, "shown with the result, whenever that is asked for"


def test_names_and_errors_of_a_server_do_not_steer_the_terminal(
    server: TinyServer, problems: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "\x1b]0;OWNED\x07\x1b[31m\u202e"
    server.answers_as = f"other{hostile}"
    words = [word for word in asking(server, "--limit", 2) if word != "--json"]
    said = gspo_lab(*words)
    assert "other[U+001B]]0;OWNED[U+0007]" in said.out
    monkeypatch.setattr(server, "error", f"broken{hostile}")
    server.always = 404
    refused = gspo_lab(*words, "--seed", 7)
    for text in (said.out, said.err, refused.out, refused.err):
        assert UNSEEN.findall(text) == []


def test_the_key_comes_from_the_environment_and_goes_nowhere(
    problems: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    with serving(key="sk-very-secret") as server:
        said = done(*asking(server, "--api-key-env", "MY_KEY", "--limit", 2))
        refused = gspo_lab(*asking(server, "--limit", 3))
        assert refused.code == 2
        assert "refuses the key" in refused.err
    assert rows(here / "runs", "SELECT COUNT(*) FROM answers") == [(4,)]
    assert "secret" not in said.out + said.err + refused.err
    for path in here.rglob("*"):
        assert not path.is_file() or b"secret" not in path.read_bytes(), path


def test_what_fails_is_missing_and_asked_again(
    server: TinyServer, problems: Path, here: Path
) -> None:
    calm = gspo_lab(*asking(server, "--runs", "calm", "--seed", 3))
    everything = len(server.asked)
    server.asked.clear()
    server.faults += [429, 500, "drop", "garbage", (503, 1), "abort", "abort"]
    said = gspo_lab(*asking(server, "--seed", 3))
    assert said.code == 1
    assert f"2 of {everything} answers of _subjects/tiny" in said.err
    assert "broke the answer off (abort) (2 x)" in said.err
    (row,) = said.json["scores"]
    assert row["answers"] == everything - 2
    assert rows(here / "runs", "SELECT COUNT(*) FROM answers WHERE correct IS NULL") == [(0,)]

    server.asked.clear()
    again = gspo_lab(*asking(server, "--seed", 3))
    assert (again.code, len(server.asked)) == (0, 2)
    assert rows(here / "runs", ANSWERS) == rows(here / "calm", ANSWERS)
    assert again.json == calm.json


def test_a_refused_problem_is_refused_once(server: TinyServer, problems: Path, here: Path) -> None:
    few = ("--samples", 3, "--limit", 3, "--concurrency", 1)
    calm = gspo_lab(*asking(server, "--runs", "calm", *few)).json["scores"][0]
    refused, *_ = [
        problem
        for (problem,) in rows(here / "calm", "SELECT DISTINCT prompt FROM answers ORDER BY 1")
    ]
    server.asked.clear()
    server.refuse = refused
    said = gspo_lab(*asking(server, *few))
    assert said.code == 1
    assert "3 of 9" in said.err
    assert "HTTP 400: this one is refused" in said.err
    assert len(server.asked) == calm["answers"] - 2 == 7


def test_a_server_that_is_gone_is_given_up(problems: Path, here: Path) -> None:
    with serving() as server:
        server.always = "abort"
        server.faults += [0.0] * 5
        said = gspo_lab(*asking(server, "--concurrency", 2))
        assert said.code == 1
        assert 12 < len(server.asked) < 16
        assert rows(here / "runs", "SELECT COUNT(*) FROM answers") == [(5,)]
    down = gspo_lab(*asking(server))
    assert (down.code, down.out) == (2, "")
    assert "does not answer" in down.err.splitlines()[-1]


def test_no_answer_is_longer_than_the_context(
    server: TinyServer, problems: Path, here: Path
) -> None:
    longest = "ticket 10:" * 3
    lines = [
        {"id": str(i), "prompt": f"{longest[: 10 + i % 20]}{i}", "reference": ""}
        for i in range(100)
    ]
    problems.write_text("".join(json.dumps(line) + "\n" for line in lines))
    server.context = 24
    said = done(*asking(server, "--max-tokens", 12, "--samples", 1))
    limits = said.json["scores"][0]["limits"]
    assert limits == {"context": 24, "lowest": 0, "highest": 12, "lowered_by": "context"}
    answers = rows(
        here / "runs", "SELECT prompt, text, tokens, truncated, correct, reason FROM answers"
    )
    full = [answer for answer in answers if len(answer[0]) >= 24]
    assert full
    assert {answer[1:5] for answer in full} == {("", 0, 1, 0)}
    assert all(answer[5].startswith("not asked, ") and "context" in answer[5] for answer in full)
    assert all(
        0 < tokens <= min(12, 24 - len(prompt))
        for prompt, _, tokens, *_ in answers
        if len(prompt) < 24
    )
    counted = [asked for asked in server.asked if asked["max_tokens"] == 1]
    assert len(counted) >= len(full)
    assert gspo_lab(*asking(server, "--max-tokens", 12, "--samples", 1)).json == said.json


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_stopped_in_the_middle_it_is_finished_by_the_same_command(
    server: TinyServer, problems: Path, here: Path, by: signal.Signals
) -> None:
    calm = gspo_lab(*asking(server, "--runs", "calm"))
    everything = len(server.asked)
    server.asked.clear()
    with answering_only(server, 4):
        had, code, told = stopped_after(4, here / "runs", by, *asking(server, "--concurrency", 2))
    assert had == 4 < everything
    assert len(server.asked) - had <= 2, "no more than two are in flight"
    if by is signal.SIGINT:
        assert (code, "Traceback" in told) == (130, False)
        assert "interrupted; the same command asks for the missing answers" in told
        assert rows(here / "runs", "SELECT COUNT(*) FROM answers") == [(had,)]
    server.asked.clear()
    said = done(*asking(server))
    assert len(server.asked) == everything - had
    assert kept(here / "runs") == everything
    assert rows(here / "runs", ANSWERS) == rows(here / "calm", ANSWERS)
    assert said.json == calm.json


def test_asking_a_server_needs_no_torch(server: TinyServer, here: Path) -> None:
    """As where only the extra `server` is installed."""
    code = (
        "import atexit, sys; sys.argv[0] = 'gspo-lab'; from gspo_lab.cli import"
        " main\natexit.register(lambda: print('loaded:', {'torch', 'transformers'} &"
        " set(sys.modules), file=sys.stderr))\nmain()"
    )
    options = ("--bench", "addition", "--limit", "2", "--max-tokens", "3", "--json")
    command = [
        sys.executable,
        "-c",
        code,
        "eval",
        "--server",
        server.url,
        "--model",
        MODEL,
        *options,
    ]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scores"][0]["answers"] == 2
    assert "loaded: set()" in done.stderr


def test_samples_that_an_engine_seeds_alike_are_noticed(
    problems: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        own = server.rollout

        def seeded_alike(prompt: str, body: JsonObject) -> Any:
            return own(prompt, {**body, "seed": 7})

        monkeypatch.setattr(server, "rollout", seeded_alike)
        long = ("--max-tokens", 80, "--temperature", 1, "--limit", 4)
        said = gspo_lab(*asking(server, *long))
        assert "repeat another answer to the same problem word for word" in said.err
        assert said.json["scores"][0]["distinct"] == 1
        greedy = gspo_lab(*asking(server, *long, "--temperature", 0))
        assert "word for word" not in greedy.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--temperature", "inf"), "--temperature inf: must be 0 (greedy) or larger"),
        (("--temperature", "nan"), "--temperature nan: must be 0 (greedy) or larger"),
        (("--temperature", "-1"), "--temperature -1.0: must be 0 (greedy) or larger"),
        (("--top-p", "0"), "--top-p 0.0: must be a share"),
        (("--top-p", "nan"), "--top-p nan: must be a share"),
        (("--limit", "0"), "--limit 0: must be a whole number from 1 up"),
        (("--samples", "0"), "--samples 0: must be a whole number"),
        (("--max-tokens", "-3"), "--max-tokens -3: must be a whole number"),
        (("--concurrency", "0"), "--concurrency 0: "),
        (("--bench", "addition", "--data", "problems.jsonl"), "name the benchmark it belongs to"),
        (("--data", "nowhere.jsonl"), "this file does not exist"),
        (("--study", "some"), "remove --study and --run"),
        (("--api-key-env", "NO_SUCH_KEY"), "this environment variable is not set"),
        (("--model", "tinny"), "has no model 'tinny' (did you mean 'tiny'?); it has tiny"),
        (("--server", f"http://127.0.0.1:{free_port()}/v1"), "does not answer"),
        (("--server", "localhost"), "write it as http://HOST:PORT/v1"),
    ],
    ids=lambda value: (
        value[0] if isinstance(value, tuple) else ""
    ),  # without the free port: no two workers share it
)
def test_a_wrong_wish_is_one_line_and_leaves_nothing(
    server: TinyServer, problems: Path, here: Path, arguments: Strings, told: str
) -> None:
    said = gspo_lab(*asking(server, *arguments))
    assert (said.code, said.out) == (2, ""), said
    lines = [line for line in said.err.splitlines() if line.strip()]
    assert told in lines[-1]
    assert lines[-1].startswith("gspo-lab: ")
    assert "Traceback" not in said.err
    assert not (here / "runs").exists()
    assert server.asked == []
