"""Copies of the data in every shape they are published in, damaged copies, and none at all."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from assertions import assert_fields
from calling import lab_error
from public_data import public

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.tasks import BENCHMARKS, build_task, task_key
from gspo_lab.tasks.benchmarks.published_benchmark import prompt

Write = Callable[[str, Iterable[Any]], Path]

PROBLEMS = [(f"Find {n} more than {n * n}.", n * n % 1000) for n in range(1, 31)]


def problems(name: str, path: Path) -> Any:
    return build_task(name, {"data": str(path)}).problems("held-out")


GOLDS = [gold for _, gold in PROBLEMS]

SHAPES: dict[str, list[JsonObject]] = {
    "HuggingFaceH4": [
        {
            "id": 60 + n,
            "problem": text,
            "solution": "...",
            "answer": f"{gold:03d}",
            "url": "",
            "year": "2024",
        }
        for n, (text, gold) in enumerate(PROBLEMS)
    ],
    "Maxwell-Jia": [
        {"ID": f"2024-I-{n}", "Problem": text, "Solution": r"\boxed{9}", "Answer": gold}
        for n, (text, gold) in enumerate(PROBLEMS)
    ],
    "math-ai": [
        {"problem": text, "solution": rf"First \boxed{{7}}, then \boxed{{{gold}}}."}
        for text, gold in PROBLEMS
    ],
    "opencompass": [{"question": text, "answer": str(gold)} for text, gold in PROBLEMS],
    "MathArena": [
        {"problem_idx": n, "problem": text, "answer": gold}
        for n, (text, gold) in enumerate(PROBLEMS, start=1)
    ],
    "degrees in the gold": [
        {"question": text, "answer": rf"{gold}^\circ"} for text, gold in PROBLEMS
    ],
    "DAPO": [
        {
            "data_source": "math_dapo",
            "prompt": [
                {"role": "user", "content": f"Solve it. The last line must be Answer: ... {text}"}
            ],
            "ability": "MATH",
            "reward_model": {"ground_truth": str(gold), "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": n, "raw_problem": text},
        }
        for n, (text, gold) in enumerate(PROBLEMS * 32)
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_every_published_shape_gives_the_same_problems(
    shape: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"copy{suffix}"
    if suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(SHAPES[shape]), path)
    elif suffix == ".json":
        path.write_text(json.dumps(SHAPES[shape]))
    else:
        path.write_text("\n".join(json.dumps(row) for row in SHAPES[shape]) + "\n\n")
    task = build_task("aime24", {"data": path.name}, tmp_path)
    asked = task.problems("held-out")
    assert [int(one.reference) for one in asked] == GOLDS
    assert [one.prompt for one in asked] == [prompt(text) for text, _ in PROBLEMS]
    assert len({one.id for one in asked}) == 30
    assert task.grade(asked[0], r"\boxed{001}").correct is True


def test_two_parts_in_a_folder(write_rows: Write, tmp_path: Path) -> None:
    rows = SHAPES["MathArena"]
    halves = [
        [row | {"problem_idx": n} for n, row in enumerate(rows[i : i + 15], start=1)]
        for i in (0, 15)
    ]
    for name, half in zip(("AIME2025-I", "AIME2025-II"), halves, strict=True):
        write_rows(f"both/{name}.jsonl", half)
    assert [int(one.reference) for one in problems("aime25", tmp_path / "both")] == GOLDS


def test_the_genuine_copies_agree() -> None:
    plain = build_task("aime24", {"data": str(public("aime24.jsonl"))})
    padded = build_task("aime24", {"data": str(public("aime24_zero_padded.jsonl"))})
    assert plain.data_digest == padded.data_digest
    for one, other in zip(plain.problems("held-out"), padded.problems("held-out"), strict=True):
        assert_fields(one, id=other.id, reference=other.reference)
        assert padded.grade(other, rf"\boxed{{{one.reference}}}").correct is True


ROWS = SHAPES["HuggingFaceH4"]
DAMAGED: dict[str, tuple[list[Any], str]] = {
    "one is missing": (ROWS[:29], r"aime24: 29 different problems in .*, not 30"),
    "one too many": ([*ROWS, ROWS[0] | {"problem": "?", "id": 1}], "31 different problems"),
    "one is there twice": (
        [*ROWS, ROWS[3]],
        "the same problem 2 times, others not: .*row 4 and .*row 31; repair",
    ),
    "two answers": (
        ROWS[:30] * 2 + [ROWS[0] | {"answer": "5"}] + ROWS[1:],
        "one problem has two answers, 001 .*and 5",
    ),
    "no problem's text": (
        [*ROWS[:29], {"text": "?", "answer": "5"}],
        "row 30: no text in a column 'problem'",
    ),
    "an empty problem": (
        [*ROWS[:29], ROWS[29] | {"problem": " "}],
        "row 30: no text in a column 'problem'",
    ),
    "no answer": (
        [*ROWS[:29], {"problem": "?"}],
        "row 30: neither a column 'answer' nor a solution with a box",
    ),
    "a null": (
        [*ROWS[:29], ROWS[29] | {"answer": None, "solution": "?"}],
        "in the solution: no complete box",
    ),
    "a box cut off": (
        [*ROWS[:29], {"problem": "?", "solution": r"\boxed{4"}],
        "the last box is not closed",
    ),
    "an answer of another kind": (
        [*ROWS[:29], ROWS[29] | {"answer": True}],
        "the answer True is neither text nor",
    ),
    "a gold that is no number": (
        [*ROWS[:29], ROWS[29] | {"answer": "5.5"}],
        "the gold '5.5' is not a whole number",
    ),
    "verl without the bare problem": (
        [{"reward_model": {"ground_truth": "1"}, "prompt": [], "extra_info": {}}],
        "verl's columns without extra_info.raw_problem",
    ),
    "rows that are no objects": ([1, 2], "row|1: must be an object, not int"),
    "nothing": ([], "0 different problems"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_copy_is_an_error_and_never_a_lower_score(damage: str, write_rows: Write) -> None:
    rows, message = DAMAGED[damage]
    with lab_error(message) as caught:
        problems("aime24", write_rows("copy.jsonl", rows))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("copy.jsonl", b'{"problem": ', r"copy.jsonl:1: not JSON"),
        ("copy.json", b'{"problem": "?"}', "must hold a list of objects, not dict"),
        ("copy.parquet", b"PAR1 not really", "not a whole parquet file"),
        ("copy.csv", b"id,problem", "must end in .jsonl, .json, .parquet"),
        ("nowhere.jsonl", None, r"aime24: data: no file .*nowhere.jsonl"),
        (".", None, "the folder .* has no file that ends in"),
    ],
)
def test_files_that_are_none(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with lab_error(message):
        build_task("aime24", {"data": name}, tmp_path).problems("held-out")


def test_the_environment_names_a_folder_or_a_file(
    write_rows: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = set()
    for answer in ("1", "2"):
        path = write_rows(
            "all/aime25.jsonl", [*SHAPES["opencompass"][:29], {"question": "?", "answer": answer}]
        )
        for place in (path, path.parent):
            monkeypatch.setenv("GSPO_LAB_DATA", str(place))
            assert len(build_task("aime25", {}).problems("held-out")) == 30
            keys.add(task_key("aime25", {}))
    assert len(keys) == 2, "what is asked is part of a task's key"
    monkeypatch.setenv("GSPO_LAB_DATA", str(path.parent / "nothing"))
    with lab_error("GSPO_LAB_DATA: no file or folder"):
        build_task("aime24", {}).problems("held-out")


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_how_a_benchmark_is_asked(name: str) -> None:
    task = build_task(name, {})
    assert task.chat
    assert task.cut_is_wrong
    assert task.prompt_version.endswith("/1")
    assert task.grader.endswith(
        {"aime24": "/7", "aime25": "/7", "gsm8k": "/5", "math500": "/4", "codeforces": "/2"}.get(
            name, "/1"
        )
    )
    limit = task.defaults.max_tokens
    assert limit >= 32_768
    assert {"aime24": 32, "livecodebench": 8}.get(
        name, task.defaults.samples
    ) == task.defaults.samples


@pytest.mark.parametrize("name", sorted(set(BENCHMARKS) - {"gsm8k"}))
def test_only_gsm8k_can_be_trained_on(name: str) -> None:
    with lab_error(r"is a benchmark and has no problems to train on; train on gsm8k"):
        build_task(name, {}).problems("train")


FETCH = """
import sys, time
slept = []
time.sleep = slept.append
from gspo_lab.common.errors import LabError
from gspo_lab.tasks.benchmarks.datasets import DatasetSource, find_files, rows
source = DatasetSource("some/where", "0123456789abcdef0123456789abcdef01234567", {"part/rows.jsonl": sys.argv[1]}, 2)
try:
    for file in find_files("bench", ["bench"], source, None):
        file.check()
        print([row["n"] for row in rows(file.path)])
except LabError as error:
    print(error)
print("slept for", sum(slept), file=sys.stderr)
"""  # noqa: E501


@pytest.fixture
def hub() -> Iterator[tuple[str, list[str]]]:
    """A server that answers as the Hub does for one file of one commit.

    Its address and the requests to it.
    """
    asked: list[str] = []
    content = b'{"n": 1}\n{"n": 2}\n'

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            found = (
                self.path
                == "/datasets/some/where/resolve/0123456789abcdef0123456789abcdef01234567/part/rows.jsonl"  # noqa: E501
            )
            self.send_response(200 if found else 404)
            self.send_header("X-Repo-Commit", "0123456789abcdef0123456789abcdef01234567")
            self.send_header("ETag", '"0123456789abcdef0123456789abcdef"')
            self.send_header("Content-Length", str(len(content) if found else 0))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetched(endpoint: str, home: Path, digest: str, offline: str = "0") -> str:
    """What the program above says; however long it takes, nothing in it waits to try again."""
    environment = os.environ | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
    }
    environment |= {"HF_HUB_OFFLINE": offline}
    environment.pop("GSPO_LAB_DATA", None)
    done = subprocess.run(
        [sys.executable, "-c", FETCH, digest],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stderr.endswith("slept for 0\n"), "the client alone tries again for half a minute"
    return done.stdout.strip()


def test_fetching_from_the_hub_and_from_its_cache(
    hub: tuple[str, list[str]], tmp_path: Path
) -> None:
    pytest.importorskip("huggingface_hub")
    endpoint, asked = hub
    digest = sha256(b'{"n": 1}\n{"n": 2}\n').hexdigest()
    assert fetched(endpoint, tmp_path, digest) == "[1, 2]"
    assert [path for path in asked if "/resolve/" in path]
    asked.clear()
    assert fetched(endpoint, tmp_path, digest) == "[1, 2]", (
        "a pinned commit in the cache needs no network"
    )
    assert [path for path in asked if "/resolve/" in path] == []
    assert "not the published 000000000000...; delete it and fetch it again" in fetched(
        endpoint, tmp_path, "0" * 64
    )


@pytest.mark.parametrize("offline", ["1", "0"], ids=["offline by choice", "nobody answers"])
def test_without_network_and_cache_one_line_names_both_ways_out(
    tmp_path: Path, offline: str
) -> None:
    pytest.importorskip("huggingface_hub")
    said = fetched("http://127.0.0.1:9", tmp_path, "0" * 64, offline)
    assert "\n" not in said
    assert "connect to the network once, or name a copy of your own with data = 'FILE'" in said
    assert "GSPO_LAB_DATA" in said
