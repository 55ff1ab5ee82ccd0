"""`gspo-lab records regrade` applies today's graders to stored answers.

The first grades are never lost.
"""

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from asking import BENCH, GRADER, declared_runs, done, write_task
from assertions import assert_fields
from calling import gspo_lab, rows
from case_tables import cases
from laboratory import json_of

from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import AnswerRecord, RunStatus, StoredAnswer
from gspo_lab.tasks import build_task
from gspo_lab.tasks.addition import Addition
from gspo_lab.tasks.base import Grade, Problem
from gspo_lab.tasks.evaluation.benchmark_spec import BenchmarkOverrides, bench_of
from gspo_lab.tasks.evaluation.evaluated_models import model_subject
from gspo_lab.tasks.evaluation.evaluation_run import evaluate_subject
from gspo_lab.tasks.evaluation.regrade import regrade

TABLES = ("answers", "grades", "scores", "evaluations", "subjects", "statuses")


def change_grader(here: Path, text: str) -> None:
    """As if in a new process: a user's file is imported once."""
    (here / "lottery.py").write_text(text)
    for name in [name for name in sys.modules if name.startswith("gspo_lab_user_")]:
        del sys.modules[name]


def tables(runs: Path) -> dict[str, list[Any]]:
    return {name: sorted(rows(runs, f"SELECT * FROM {name}"), key=repr) for name in TABLES}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a model was asked, and the model's id."""
    folder = tmp_path_factory.mktemp("answered")
    write_task(folder, 60)
    options = ("--data", "problems.jsonl", "--samples", 2, "--max-tokens", 6, "--json")
    with contextlib.chdir(folder):
        said = gspo_lab("eval", "--bench", BENCH, "--model", "tiny-qwen3", *options)
    assert said.code == 0, said
    return folder, str(said.json["scores"][0]["run_id"])


@pytest.fixture
def asked(here: Path, answered: tuple[Path, str]) -> str:
    """A copy of that folder, here."""
    shutil.copytree(answered[0], here, dirs_exist_ok=True)
    change_grader(here, GRADER)
    return answered[1]


def score(runs: Path) -> tuple[Any, ...]:
    (row,) = rows(runs, "SELECT score, errors FROM scores")
    return row


def test_nothing_changes_where_nothing_changed(here: Path, asked: str) -> None:
    before = tables(here / "runs")
    said = done("records", "regrade", asked, "--apply")
    assert "no verdict changed" in said.out
    assert "0 grades put into force" in said.out
    assert tables(here / "runs") == before
    assert not list((here / "runs").rglob("grades"))


def test_answers_in_a_folder_that_was_moved_are_graded_again(
    here: Path,
    asked: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (declaration,) = (here / "runs").rglob("evaluation.json")
    task = json_of(declaration)["task"]
    assert str(here) not in json.dumps(task), "it names no folder of this machine"
    moved = tmp_path_factory.mktemp("elsewhere") / "tree"
    monkeypatch.chdir(moved.parent)
    here.rename(moved)
    monkeypatch.chdir(moved)
    change_grader(moved, GRADER)
    said = gspo_lab("records", "regrade", asked)
    assert (said.code, "no verdict changed" in said.out) == (0, True), said


def test_a_grader_that_hangs_leaves_its_answers_ungraded(here: Path) -> None:
    write_task(here, 30)
    change_grader(
        here, "import time\n" + GRADER.replace("    return", "    time.sleep(8)\n    return")
    )
    options = {"problems": "problems.jsonl", "seconds": 1, "max_tokens": 2}
    bench = bench_of(BENCH, options, here, BenchmarkOverrides(problems=2))
    subject = model_subject(here / "runs", "tiny-qwen3", device="cpu")
    result = evaluate_subject(subject, bench, lambda _: None)
    assert (result.new, result.missing) == (2, 0)
    answers = list(subject.folder.evaluation(bench.evaluation).records("answer"))
    assert len(answers) == 2
    for answer in answers:
        assert (answer.get("correct"), answer["error"]) == (
            None,
            "it has not graded the answer after 1 s",
        )


def test_an_answer_is_counted_when_it_is_graded_and_no_more_problems_are_made_than_were_asked() -> (
    None
):
    class Watching(Addition):
        """Notes how many answers were counted when each one is graded.

        Also which problems were made.
        """

        def grade(self, problem: Problem, answer: str) -> Grade:
            noted.append(len(counted))
            return super().grade(problem, answer)

        def make(self, split: str, place: str, numbers: tuple[int, ...]) -> Problem:
            made.append(place)
            return super().make(split, place, numbers)

    noted: list[int] = []
    counted: list[int] = []
    made: list[str] = []
    task = Watching()
    names = [problem.id for problem in task.problems("held-out")[:3]]
    answers = [StoredAnswer("addition", 0, name, 0, "7", 0, *([None] * 7)) for name in names]
    made.clear()
    # A grader of one's own, which the colon says, is asked in one thread.
    assert len(regrade(answers, "own.py:Watching", task, counted.append)) == 3
    assert (noted, counted) == ([0, 1, 2], [1, 1, 1])
    assert made == ["held-0", "held-1", "held-2"]


def test_new_grades_are_listed_and_put_into_force_only_when_asked_to(
    here: Path, asked: str
) -> None:
    runs = here / "runs"
    before = tables(runs)
    (was, _) = score(runs)
    assert 0 < was < 1
    change_grader(here, GRADER.replace("== 0", "== 1"))
    said = gspo_lab("records", "regrade", asked, "--json").json
    answers = before["answers"]
    assert len(said["changed"]) == len(answers)
    assert said["applied"] == 0
    (summary,) = said["summary"]
    assert summary["now right"] + summary["now wrong"] == len(answers)
    one = said["changed"][0]
    assert {one["was"].partition(":")[0], one["is"].partition(":")[0]} == {"right", "wrong"}
    assert one["by"] != one["now by"]
    assert tables(runs) == before

    applied = gspo_lab("records", "regrade", asked, "--apply")
    assert f"{len(answers)} grades put into force" in applied.out
    assert score(runs) == (pytest.approx(1 - was), 0)
    after = tables(runs)
    assert after["answers"] == before["answers"], "what was graded first is kept"
    assert len(after["grades"]) == len(answers)
    assert gspo_lab("records", "regrade", asked, "--json").json["changed"] == []
    shown = gspo_lab("show", asked, "--json").json
    assert shown[0]["score"] == pytest.approx(1 - was)

    assert gspo_lab("records", "rebuild").code == 0
    assert tables(runs) == after

    change_grader(here, GRADER)
    gspo_lab("records", "regrade", asked, "--apply")
    assert score(runs) == (pytest.approx(was), 0)
    assert len(rows(runs, "SELECT * FROM grades")) == 2 * len(answers)


def test_a_grader_that_fails_grades_nothing_wrong(here: Path, asked: str) -> None:
    change_grader(
        here, "def grade(problem, answer):\n    return 1 / len(answer.replace(answer, ''))\n"
    )
    said = gspo_lab("records", "regrade", asked, "--apply", "--json").json
    (summary,) = said["summary"]
    assert summary["now not graded"] == len(said["changed"]) == said["applied"] > 0
    assert all("ZeroDivisionError" in one["is"] for one in said["changed"])
    assert score(here / "runs") == (None, said["applied"])


def test_a_problem_that_is_gone_is_told(here: Path, asked: str) -> None:
    path = here / "problems.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line.replace("ticket", "lot") for line in lines))
    said = gspo_lab("records", "regrade", asked, "--apply", "--json").json
    (summary,) = said["summary"]
    assert summary["problem gone"] == summary["answers"]
    assert_fields(said, changed=[], applied=0)


STUDY = """\
question = "Was it graded well?"
task = "addition"
seeds = [0]
steps = 4

[[bench]]
name = "sums"
problems = 4

[arm.grpo]
objective = "grpo"

[arm.gspo]
objective = "gspo"
"""


def test_a_study_whose_grader_was_mistaken(here: Path) -> None:
    """Four correct answers a run, two of which an earlier grader marked incorrect.

    Training responses are left alone.
    """
    runs = here / "runs"
    problems = build_task("addition", {}).problems("held-out")[:4]
    for _, folder in declared_runs(here, "sums", STUDY):
        said = [
            AnswerRecord(
                step=4,
                bench=bench,
                problem=problem.id,
                sample=0,
                text=f"#{problem.reference}",
                tokens=4,
                truncated=0,
                extracted=problem.reference,
                correct=int(index > 1),
                reward=float(index > 1),
                reason="equal to the reference" if index > 1 else "differs",
                grader="addition/0",
            )
            for index, problem in enumerate(problems)
            for bench in ("sums", "rollout")
        ]
        with Journal(folder) as journal:
            journal.write([RunStatus(state="started", step=0, at=1.0), *said])
            journal.write([RunStatus(state="finished", step=4, at=2.0)])
    journals = {path: path.read_bytes() for path in runs.rglob("journal.jsonl")}
    listed = done("records", "regrade", "sums")
    assert "addition/0 → addition/1" in listed.out
    assert "8 grades differ in verdict, words or grader" in listed.out
    said = gspo_lab("records", "regrade", "sums", "--apply", "--json").json
    assert (len(said["changed"]), said["applied"]) == (4, 8)
    assert rows(runs, "SELECT DISTINCT score FROM scores") == [(1.0,)]
    assert {path: path.read_bytes() for path in journals} == journals, (
        "a worker is the only writer of a run's journal"
    )
    lines = (runs / "sums/gspo/s0/grades/journal.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    row = json.loads(lines[1])
    assert first["run"] == "sums/gspo/s0"
    assert_fields(row, kind="grade", bench="sums", correct=1, grader="addition/1")
    only = gspo_lab("records", "regrade", "sums/gspo/s0", "--json").json
    assert only["changed"] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    cases(__file__, "refused"),
)
def test_what_cannot_be_graded_is_told(
    here: Path, asked: str, arguments: list[str], told: str
) -> None:
    said = gspo_lab(
        "records", "regrade", *(asked if word == "ASKED" else word for word in arguments)
    )
    assert said.code == 2
    assert told in said.err.splitlines()[-1]


def test_answers_that_cannot_be_graded_are_told_with_their_reason_and_an_exit_code(
    here: Path,
) -> None:
    write_task(here, 30)
    fails = "    if sum(answer.encode()) % 5 == 0: raise RuntimeError('no judge')\n    return"
    change_grader(here, GRADER.replace("    return", fails))
    options = ("--data", "problems.jsonl", "--samples", 4, "--max-tokens", 6)
    said = gspo_lab("eval", "--bench", BENCH, "--model", "tiny-qwen3", *options, "--json")
    (row,) = said.json["scores"]
    assert (said.code, row["samples"], 0 < row["errors"] < row["answers"]) == (1, 4, True)
    assert f"{row['errors']} of {row['answers']} answers could not be graded" in said.err
    assert "no judge" in said.err
    (asked,) = said.json["asked"].values()
    assert (len(asked["problems"]), asked["samples"], asked["temperature"]) == (
        row["problems"],
        4,
        1.0,
    )
    assert row["sampling_se"] > 0
    again = gspo_lab("eval", "--bench", BENCH, "--model", "tiny-qwen3", *options)
    assert (again.code, "avg@4" in again.out) == (1, True), again
