"""Verdicts that ungraded answers could change are withheld.

Each study has 20 problems and three evaluations.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from assertions import assert_fields
from laboratory import rendered, source, study_json
from synthetic_lab import make_lab

from gspo_lab.analysis.claims import judge
from gspo_lab.analysis.findings.decision import Decision, decision
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import AnswerRecord, GradeRecord, Record
from gspo_lab.recording.store import ingest
from gspo_lab.report.templating import statement, statements
from gspo_lab.study import Run

Lost = Callable[[Run, AnswerRecord, bool], bool]
"""Whether the grader fails on an answer, which is right or not."""


def lab(folder: Path, lost: Lost, *, gspo: tuple[int, int, int] = (17, 18, 18)) -> Path:
    """grpo has 19, 20 and 21 correct answers of 60.

    gspo has so many by seed, spread over all three evaluations.
    """

    def change(run: Run, record: Record) -> Record:
        if not isinstance(record, AnswerRecord):
            return record
        problem = int(record.problem.rpartition("-")[2])
        wanted = gspo[run.seed] if run.arm == "gspo" else 19 + run.seed
        right = record.step == 0 or 3 * problem + record.step // 4 - 1 < wanted
        changed: AnswerRecord = replace(record, correct=int(right))
        if record.step and lost(run, record, right):
            changed = replace(changed, correct=None, reward=None, error="timed out")
        return changed

    return make_lab(folder, change=change)


def decided(database: Path) -> Decision:
    with source(database) as studied:
        return decision(studied)


def test_one_arms_wrong_answers_that_are_not_graded_make_no_verdict(tmp_path: Path) -> None:
    """53 of 180 answers right against 60: -.039.

    With its 127 wrong ones left out gspo has all right: +.667.
    """
    graded = decided(lab(tmp_path / "honest", lambda *_: False))
    honest = graded.verdicts["gspo"]
    assert (honest.paired.estimate, graded.ungraded) == (pytest.approx((53 - 60) / 180), {})

    database = lab(tmp_path / "forged", lambda run, _, right: run.arm == "gspo" and not right)
    found = decided(database)
    verdict = found.verdicts["gspo"]
    doubt = found.ungraded["gspo"]
    assert verdict.paired.differences == pytest.approx([1 - 19 / 60, 1 - 20 / 60, 1 - 21 / 60])
    assert verdict.paired.estimate == pytest.approx(2 / 3), "a share of 1 against a third"
    assert "left out it reads 'better by more than the margin'" in verdict.because
    assert_fields(verdict, word="no verdict", better=None)
    assert statement("sentence", verdict).startswith(
        "No verdict on gspo against grpo: more answers of one arm could not be graded"
    )
    # answer 3 i + e is right where it is below 17 or 18: problems 0 to 4 lose nothing, 5 loses one
    # on one seed
    assert_fields(
        doubt, answers=(180, 180), errors=(0, 127), more=(0, 15), p=pytest.approx(2 / 2**15)
    )
    assert doubt.verdict.paired.differences == honest.paired.differences
    counts = "Answers not graded: grpo 0 of 180, gspo 127 of 180"
    wrong = "gspo − grpo is −0.039: gspo against grpo: inconclusive."
    doubted = f"{counts}. Counted as incorrect, {wrong}"
    assert statement("ungraded", doubt) == statements("flags", found)[-1] == doubted

    report = rendered(database, "toy")
    for text in (report.html, report.markdown):
        assert "gspo 127 of 180" in text
    assert "gspo, counted as wrong" in report.html
    assert "127 of the answers that decide could not be graded" in report.html
    sections = study_json(report)
    told = sections["answer"]["comparisons"]["gspo"]["ungraded"]
    assert_fields(told, labels=["grpo", "gspo"], errors=[0, 127])
    assert told["verdict"]["estimate"] == pytest.approx(-7 / 180, rel=1e-5)
    assert sections["scores"]["benches"]["addition"]["gspo"]["seeds"]["0"][
        "counted_wrong"
    ] == pytest.approx(17 / 60, rel=1e-5)


def test_a_claim_of_scores_does_not_rest_on_lost_grades(tmp_path: Path) -> None:
    """Without gspo's wrong answers the final scores differ by .667.

    That is wholly outside ±.02, so equivalence is contradicted.
    """
    with source(lab(tmp_path, lambda run, _, right: run.arm == "gspo" and not right)) as studied:
        found = {one.claim.id: one for one in judge(studied, every=True)}
    claim = found["C23-stable-then-equal"]
    assert claim.word == "not testable here"
    assert (
        claim.verdict.because
        == "answers that could not be graded decide: left out it is contradicted, counted as"
        " incorrect inconclusive"
    )


def test_a_grader_that_failed_later_counts_as_one_that_failed_then(tmp_path: Path) -> None:
    """`gspo-lab records regrade` has the same effect.

    Every wrong answer of one arm has a later grade, which is none.
    """
    database = lab(tmp_path, lambda *_: False)
    for home in sorted((tmp_path / "runs" / "toy" / "gspo").glob("s*")):
        (home / "grades").mkdir()
        most = (17, 18, 18)[int(home.name[1:])]
        lost = [(e, i) for e in (0, 1, 2) for i in range(20) if 3 * i + e >= most]
        with Journal(home / "grades") as journal:
            journal.write(
                GradeRecord(
                    bench="addition",
                    step=4 * (e + 1),
                    problem=f"addition-{i}",
                    sample=0,
                    error="timed out",
                    at=1.0,
                )
                for e, i in lost
            )
    ingest(tmp_path / "runs")
    found = decided(database)
    assert found.verdicts["gspo"].word == "no verdict"
    assert found.ungraded["gspo"].errors == (0, 127)


def test_a_few_in_both_arms_change_nothing(tmp_path: Path) -> None:
    """Problem 19, wrong everywhere, is lost once in each arm.

    Neither arm has more on any problem, and the verdict stays.
    """
    honest = decided(lab(tmp_path / "honest", lambda *_: False, gspo=(50, 52, 54))).verdicts["gspo"]
    assert honest.word == "better by more than the margin"

    def once(run: Run, record: AnswerRecord, right: bool) -> bool:
        return record.problem == "addition-19" and record.step == 12 and run.seed == 1

    found = decided(lab(tmp_path / "few", once, gspo=(50, 52, 54)))
    verdict = found.verdicts["gspo"]
    doubt = found.ungraded["gspo"]
    assert verdict.word == doubt.verdict.word == "better by more than the margin"
    assert_fields(doubt, errors=(1, 1), more=(0, 0), p=None)
    assert not doubt.uneven


@pytest.mark.parametrize(
    ("problems", "word"), [(5, "better by more than the margin"), (6, "no verdict")]
)
def test_uneven_shares_alone_withhold_a_verdict(tmp_path: Path, problems: int, word: str) -> None:
    """One wrong answer to each of some problems is lost in gspo alone.

    Five of five: p = 2 / 32; six: 2 / 64.
    """

    def some(run: Run, record: AnswerRecord, right: bool) -> bool:
        late = int(record.problem.rpartition("-")[2]) >= 20 - problems
        return run.arm == "gspo" and run.seed == 0 and record.step == 12 and late

    found = decided(lab(tmp_path, some, gspo=(39, 41, 43)))
    doubt = found.ungraded["gspo"]
    assert_fields(doubt, more=(0, problems), p=pytest.approx(2 / 2**problems))
    assert doubt.verdict.word == "better by more than the margin", "the two readings agree"
    assert found.verdicts["gspo"].word == word
