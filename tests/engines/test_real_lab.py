"""A small lab whose runs were really trained: what is asked when, and what lost grades do to its verdict."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from laboratory import declare, leave
from lottery import MakeRun, Memory, Trained, train

from gspo_lab.findings.decision import Decision, decision
from gspo_lab.readings import Source
from gspo_lab.records import AnswerRecord, Record, RunStatus
from gspo_lab.store import Evidence, ingest
from gspo_lab.study import Run, Study, load_study
from gspo_lab.words import sentence

DECISIVE = ("bench.lottery.decisive_samples=8", "verdict.last=1")


def test_the_last_evaluation_is_asked_more_often(make_run: MakeRun, tmp_path: Path, trained: Trained) -> None:
    run = make_run("gspo", *DECISIVE, "bench.lottery.every=1")
    answers = [one for one in train(run, tmp_path / "run").answers if one.bench == "lottery"]
    assert Counter(one.step for one in answers) == {0: 5, 1: 5, 2: 5 * 8}
    first = {one.problem: one.text for one in answers if one.step == 2 and one.sample == 0}
    plain = trained("gspo")
    assert first == {a.problem: a.text for a in plain.answers if a.bench == "lottery" and a.step == 2}, "asked alike"


def lab(folder: Path, study: Study, trained: dict[str, Memory], *, lost: bool) -> Decision:
    """The database of these runs; with `lost` every wrong answer of gspo at the end has no grade."""

    def kept(run: Run, record: Record) -> Record:
        if lost and isinstance(record, AnswerRecord) and record.bench == "lottery" and run.arm == "gspo":
            wrong: AnswerRecord = replace(record, correct=None, reward=None, error="timed out")
            return wrong if record.step == run.settings.steps and not record.correct else record
        return record

    runs = folder / "runs"
    declare(study, runs)
    for run in study.runs():
        records = [kept(run, record) for record in trained[run.id].records]
        leave(run, runs, [*records, RunStatus(state="finished", step=run.settings.steps, at=2.0)])
    ingest(runs)
    with Evidence.open(runs / "lab.db") as evidence:
        return decision(Source(evidence, study.name))


def test_lost_grades_of_one_arm_make_no_verdict(make_run: MakeRun, tmp_path: Path) -> None:
    make_run()  # writes the study
    study = load_study(tmp_path / "study.toml", overrides=DECISIVE, seeds=[0, 1, 2])
    trained = {run.id: train(run, tmp_path / "trained" / run.id) for run in study.runs()}
    honest = lab(tmp_path / "honest", study, trained, lost=False).verdicts["gspo"]
    decided = lab(tmp_path / "lost", study, trained, lost=True)
    found, doubt = decided.verdicts["gspo"], decided.ungraded["gspo"]
    assert doubt.errors[0] == 0 < doubt.errors[1]
    assert found.paired.estimate > honest.paired.estimate + 0.1, "leaving them out makes gspo look better"
    assert doubt.verdict.paired.differences == pytest.approx(honest.paired.differences), "counting them wrong does not"
    assert found.word == "withheld"
    assert "could not be graded" in sentence(found)
