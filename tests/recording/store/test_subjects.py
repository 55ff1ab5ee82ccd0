"""Models and servers evaluated without a run.

Also evaluations as they were declared, and grades given later.
"""

import json

import pytest
from assertions import assert_fields
from run_folders import Lab, answers

from gspo_lab.recording.records import AnswerRecord, GradeRecord, RunStatus
from gspo_lab.recording.store import Evidence, ingest, rebuild
from gspo_lab.recording.store.answers import by_problem, grades, read_scores, stored
from gspo_lab.recording.store.traces import read_later_evaluations, read_questions, read_subjects

NAME = "addition-k2"
DECLARED = {"problems": ["p0", "p1"], "samples": 2}


def later(
    problem: str, sample: int, correct: int | None, grader: str = "addition/2", step: int = 0
) -> GradeRecord:
    reward = None if correct is None else float(correct)
    return GradeRecord(
        bench="addition",
        step=step,
        problem=problem,
        sample=sample,
        correct=correct,
        reward=reward,
        grader=grader,
    )


@pytest.fixture
def asked(lab: Lab) -> str:
    """A server that was asked two problems twice: 1, 0 and not graded, 1."""
    server = lab.subject("big")
    lab.ask(server, NAME, *answers(0, [1, 0, None, 1], samples=2), seed=7, asked=DECLARED)
    ingest(lab.runs)
    return server


def scores(lab: Lab) -> list[tuple[object, ...]]:
    return lab.query("SELECT run_id, evaluation, answers, score, errors FROM scores ORDER BY 1, 2")


def test_a_subject_and_its_evaluation_are_rows(lab: Lab, asked: str) -> None:
    assert scores(lab) == [(asked, NAME, 4, 0.75, 1)]
    with Evidence.open(lab.db) as evidence:
        assert read_subjects(evidence)[["run_id", "kind", "name"]].to_dict("records") == [
            {"run_id": asked, "kind": "server", "name": "some/big"}
        ]
        (row,) = read_later_evaluations(evidence, [asked]).to_dict("records")
        assert (row["bench"], json.loads(row["content"])["seed"]) == ("addition", 7)
        assert read_later_evaluations(evidence, ["else"]).empty
        assert len(read_later_evaluations(evidence)) == 1
        assert evidence.studies() == []


def test_a_lost_answer_is_missing_until_it_is_asked_again(lab: Lab, asked: str) -> None:
    (path,) = lab.runs.rglob("evaluations/*/journal.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((*lines[:1], b"#" + lines[1][1:], *lines[2:])))
    (damage,) = rebuild(lab.runs).damaged
    assert damage.endswith(
        "what it recorded is missing from every number. The same gspo-lab eval asks it again"
    )
    assert scores(lab)[0][:3] == (asked, NAME, 3)
    lab.write(asked, *answers(0, [1, 0], samples=2)[1:], evaluation=NAME)
    assert ingest(lab.runs).damaged == (), "all that were declared are there"
    assert scores(lab)[0][:3] == (asked, NAME, 4)


def test_counts_by_problem(lab: Lab) -> None:
    server = lab.subject("big")
    output = [("a", 100), ("a", 100), ("b", 100), ("c", 5), ("c", 5)]
    lab.ask(
        server,
        NAME,
        *(
            AnswerRecord(
                step=0,
                bench="addition",
                problem="p",
                sample=i,
                text=t,
                tokens=n,
                correct=1,
                truncated=0,
            )
            for i, (t, n) in enumerate(output)
        ),
    )
    with lab.opened() as evidence:
        (row,) = by_problem(evidence, [server], NAME).to_dict("records")
    assert_fields(row, answers=5, graded=5, correct=5, distinct=3, repeats=1)


def test_the_last_grade_is_in_force_and_the_first_is_kept(lab: Lab, asked: str) -> None:
    original = lab.query("SELECT problem, sample, correct, grader FROM answers ORDER BY 1, 2")
    lab.regrade(asked, later("p0", 1, 1), later("p1", 0, 0), evaluation=NAME)
    ingest(lab.runs)
    assert scores(lab) == [(asked, NAME, 4, 0.75, 0)]
    lab.regrade(asked, later("p0", 1, None, "addition/3"), evaluation=NAME)
    ingest(lab.runs)
    assert scores(lab) == [(asked, NAME, 4, 0.75, 1)]
    assert (
        lab.query("SELECT problem, sample, correct, grader FROM answers ORDER BY 1, 2") == original
    )
    assert lab.query("SELECT position, problem, correct, grader FROM grades ORDER BY position") == [
        (0, "p0", 1, "addition/2"),
        (1, "p1", 0, "addition/2"),
        (2, "p0", None, "addition/3"),
    ]


def test_later_grades_of_a_runs_own_answers(lab: Lab) -> None:
    (run,) = lab.declare("adding", ("gspo",), [0])
    lab.train(run)
    ingest(lab.runs)
    lab.regrade(run, later("p1", 0, 1, step=4))
    with lab.opened() as evidence:
        assert list(read_scores(evidence, "adding")["score"]) == [0.0, 1.0]
        assert [row[-1] for row in grades(evidence, "adding", "addition", [4])] == [1, 1]
        assert [answer.grader for answer in stored(evidence, run)[""]][-1] == "addition/2"
        assert [entry[6] for entry in read_questions(evidence, run)][-1] == "addition/2"
    # A worker that takes the run up again voids answers, and says the same again; the grade stays.
    lab.write(run, RunStatus(state="started", step=3, at=300.0), *answers(4, [1, 0]))
    with lab.opened() as evidence:
        assert list(read_scores(evidence, "adding")["score"]) == [0.0, 1.0]


def test_what_is_deleted_is_forgotten(lab: Lab, asked: str) -> None:
    folder = lab.runs / asked
    lab.regrade(asked, later("p0", 1, 1), evaluation=NAME)
    ingest(lab.runs)
    (folder / "evaluations" / NAME / "grades" / "journal.jsonl").unlink()
    assert ingest(lab.runs).changed == (asked,)
    assert lab.query("SELECT COUNT(*) FROM grades") == [(0,)]
    assert scores(lab) == [(asked, NAME, 4, 0.75, 1)]
    (folder / "evaluations" / NAME / "evaluation.json").unlink()
    ingest(lab.runs)
    assert lab.query("SELECT COUNT(*) FROM evaluations") == [(0,)]

    aside = folder.rename(lab.runs / "_aside")
    assert ingest(lab.runs).changed == (asked,)
    for table in ("subjects", "answers", "scores"):
        assert lab.query(f"SELECT COUNT(*) FROM {table}") == [(0,)]
    assert ingest(lab.runs).changed == ()
    aside.rename(folder)
    ingest(lab.runs)
    assert scores(lab) == [(asked, NAME, 4, 0.75, 1)]


def test_an_evaluation_is_no_place_for_steps_and_grades_none_for_answers(
    lab: Lab, asked: str
) -> None:
    lab.ask(asked, NAME, later("p0", 0, 0))
    lab.regrade(asked, *answers(9, [1]), evaluation=NAME)
    ingest(lab.runs)
    assert lab.query("SELECT COUNT(*) FROM grades") == [(0,)]
    assert lab.query("SELECT COUNT(*) FROM answers WHERE step = 9") == [(0,)]
