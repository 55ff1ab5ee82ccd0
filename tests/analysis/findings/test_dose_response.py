"""A sweep's answer from a real database: what collapsed at which dose, arm by arm."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from laboratory import added_later, declare, json_of, leave, source

from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.findings.sweeps import DoseResponse, dose_response
from gspo_lab.analysis.readings import Source
from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.reason import sentences
from gspo_lab.recording.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.store import DATABASE, Evidence, ingest
from gspo_lab.report import render
from gspo_lab.report.templating import statements
from gspo_lab.report.views.answer import answer_view
from gspo_lab.study import Run, load_study
from gspo_lab.study.declaration import locked_of

TOML = """
question = "How much does it stand?"
model = "tiny-qwen3"
task = "addition"
seeds = [0, 1, 2, 3]
steps = 30
[sweep]
update.learning_rate = [1e-4, 3e-4, 1e-3, 3e-3]
[[bench]]
name = "addition"
every = 30
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""


STANDS = {"grpo": 2e-4, "gspo": 2e-3}


def lab(
    tmp_path: Path,
    stands: dict[str, float] = STANDS,
    steps: int = 30,
    first: Callable[[Run], str] = lambda run: str(run.seed),
    broken_from: float = 1.0,
) -> Path:
    """Runs whose reward rises to 0.8, and collapses to 0.1 above a dose.

    The dose is the highest that the arm tolerates. `first` is the digest of what a run sampled;
    pairs share it. From the dose `broken_from` on an update is not finite.
    """
    path = tmp_path / "margin.toml"
    path.write_text(TOML.replace("30", str(steps)))
    study = load_study(path)
    runs = tmp_path / "runs"
    declare(study, runs)
    for run in study.runs():
        arm = study.arms[run.arm]
        falls = arm.dose > stands[arm.of]
        records: list[Record] = [RunStatus(state="started", step=0, at=1.0)]
        for step in range(steps):
            reward = 0.1 if falls and step > 10 else 0.4 + 0.4 * step / 30
            broken = int(arm.dose >= broken_from and step == 5)
            records += [
                UpdateRecord(step=step, minibatch=0, nonfinite=broken),
                StepRecord(
                    step=step, prompts=1, responses=2, reward_mean=reward, rollout_digest=first(run)
                ),
            ]
        right = int(not falls)
        records.append(
            AnswerRecord(
                step=steps, bench="addition", problem="p", sample=0, correct=right, reward=right
            )
        )
        leave(run, runs, [*records, RunStatus(state="finished", step=steps, at=2.0)])
    ingest(runs)
    return runs / DATABASE


def judged(database: Path) -> DoseResponse:
    with Evidence.open(database) as evidence:
        return dose_response(Source(evidence, "margin"))


def edited(database: Path, edit: Callable[[JsonObject], object]) -> Path:
    """The database after somebody has changed study.json."""
    path = database.parent / "margin" / "study.json"
    content = json_of(path)
    edit(content)
    write_json(path, content)
    ingest(database.parent)
    return database


def test_the_dose_at_which_half_collapse_lies_between_the_last_that_held_and_the_first_that_did_not(
    tmp_path: Path,
) -> None:
    with Evidence.open(lab(tmp_path)) as evidence:
        found = dose_response(Source(evidence, "margin"))
        report = render([Source(evidence, "margin")])
    grpo, gspo = found.arms.values()
    assert [(p.dose, p.runs, p.collapsed) for p in grpo.points] == [
        (dose, 4, fell) for dose, fell in ((1e-4, 0), (3e-4, 4), (1e-3, 4), (3e-3, 4))
    ]
    assert [(p.collapsed, p.score) for p in gspo.points] == [(0, 1.0), (0, 1.0), (0, 1.0), (4, 0.0)]
    assert grpo.half_collapse.resolved
    assert 1e-4 < grpo.half_collapse.estimate < 3e-4
    assert grpo.half_collapse.low < grpo.half_collapse.estimate < grpo.half_collapse.high
    ratio = found.ratios["gspo"]
    assert ratio.estimate == pytest.approx(10, rel=0.3)
    assert "50 % collapse point at update.learning_rate" in statements("doses", found)[0]
    assert "gspo tolerates" in statements("doses", found)[-1]
    assert "inconclusive" not in statements("doses", found)[-1]
    assert statements("doses", found)[0] in report.html.replace("\u00a0", " ")
    assert json.loads(report.json)["studies"]["margin"]


def test_seeds_that_were_added_are_told_and_change_no_dose(tmp_path: Path) -> None:
    """Of four seeds two are declared; the runs of the others are no pairs besides."""
    database = lab(tmp_path, first=lambda run: run.arm * (run.seed > 1))
    added_later(database.parent, "margin", 2, 3)
    with source(database, "margin") as found:
        assert not study_certificate(found).ok
        by_arm = dose_response(found).arms.values()
        counts = ([(p.collapsed, p.runs) for p in arm.points] for arm in by_arm)
        assert [tuple(map(sum, zip(*points, strict=True))) for points in counts] == [(6, 8), (2, 8)]
        assert {point.runs for arm in by_arm for point in arm.points} == {2}
        told = decision(found)
        said = answer(found)
        report = render([found])
        shown = answer_view(found).details
    assert said.word != "no verdict"
    (described,) = sentences(told.described)
    assert described == "Not counted: 16 runs of other seeds (2, 3)."
    assert described in shown
    assert described in report.html.replace("\u00a0", " ")
    assert described in report.markdown


def test_doses_and_arms_that_were_added_after_looking_do_not_count(tmp_path: Path) -> None:
    """Without 3e-4 the first dose that grpo does not survive is 1e-3."""

    def add(content: JsonObject) -> None:
        original = json.loads(json.dumps(locked_of(content)))
        for arm in ("grpo@0.0003", "gspo@0.0003"):
            del original["arms"][arm]
        content["superseded"] = [original]

    found = judged(edited(lab(tmp_path), add))
    assert [[point.dose for point in arm.points] for arm in found.arms.values()] == [
        [1e-4, 1e-3, 3e-3]
    ] * 2
    assert sum(point.runs for point in found.arms["grpo"].points) == 12
    assert (
        statements("doses", found)[-1]
        == "Not counted, added after the first step: grpo@0.0003, gspo@0.0003."
    )


def test_a_dose_that_only_the_arms_know_of_is_counted(tmp_path: Path) -> None:
    """A study.json whose list of doses was shortened by hand."""
    found = judged(edited(lab(tmp_path), lambda study: study["sweep"].update(doses=[1e-4, 3e-4])))
    assert [[point.dose for point in arm.points] for arm in found.arms.values()] == [
        [1e-4, 3e-4, 1e-3, 3e-3]
    ] * 2
    assert all(sum(point.runs for point in arm.points) == 16 for arm in found.arms.values())


@pytest.mark.parametrize(
    ("broken_from", "highest"),
    [(1.0, (0, 1.0)), (3e-3, (4, 1.0))],
    ids=["too short to be seen to stand", "but for the highest dose, whose updates are not finite"],
)
def test_a_sweep_whose_runs_cannot_be_judged_has_a_report_and_no_half_collapse(
    tmp_path: Path, broken_from: float, highest: tuple[int, float]
) -> None:
    """Runs of eight steps."""
    with Evidence.open(
        lab(tmp_path, {"grpo": 1.0, "gspo": 1.0}, steps=8, broken_from=broken_from)
    ) as evidence:
        found = dose_response(Source(evidence, "margin"))
        assert render([Source(evidence, "margin")]).html
    assert [(point.runs, point.score) for arm in found.arms.values() for point in arm.points] == [
        *[(0, 1.0)] * 3,
        highest,
    ] * 2
    assert (
        statements("doses", found)[0]
        == "grpo: fewer than two values have finished runs that are long enough to be judged."
    )
    assert [arm.half_collapse for arm in found.arms.values()] == [None, None]
    assert found.ratios == {}


def test_arms_that_stand_the_same_are_not_told_apart(tmp_path: Path) -> None:
    found = judged(lab(tmp_path, {"grpo": 5e-4, "gspo": 5e-4}))
    assert found.ratios["gspo"].estimate == pytest.approx(1)
    assert any("): inconclusive" in line for line in statements("doses", found))


def test_runs_that_are_not_matched_have_no_half_collapse_anywhere_on_the_page(
    tmp_path: Path,
) -> None:
    """A study.json that was edited after its first step is a mismatch of all its runs."""
    with Evidence.open(
        edited(lab(tmp_path), lambda study: study.update(question="How little?"))
    ) as evidence:
        found = dose_response(Source(evidence, "margin"))
        assert len(statements("doses", found)) == 3
        report = render([Source(evidence, "margin")])
    for text, places in ((report.html, 2), (report.markdown, 3)):
        assert not any(sentence in text for sentence in statements("doses", found))
        assert (
            text.count("No verdict: ") == places
        )  # the answer and the section below it; the digest too


def test_nothing_collapsed_says_which_doses_are_needed(tmp_path: Path) -> None:
    found = judged(lab(tmp_path, {"grpo": 1.0, "gspo": 1.0}))
    assert all(
        not one.half_collapse.resolved
        for one in found.arms.values()
        if one.half_collapse is not None
    )
    assert "0 of 16 runs collapsed" in statements("doses", found)[0]
    assert "values above" in statements("doses", found)[0]
    assert not found.ratios["gspo"].resolved
    assert found.ratios["gspo"].estimate is None
