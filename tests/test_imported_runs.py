"""Runs that another program recorded: read like any other, never called matched, never gone on with."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from calling import gspo_lab
from laboratory import rendered, source

from gspo_lab.errors import LabError
from gspo_lab.findings.decision import decision
from gspo_lab.findings.matched import study_certificate
from gspo_lab.findings.run_outcomes import outcomes
from gspo_lab.imported_runs import AT_ONCE, Recorded, import_run, leave_run, write_study
from gspo_lab.matching import Certificate
from gspo_lab.readings import Source
from gspo_lab.readings import runs as runs_of
from gspo_lab.records import AnswerRecord, RunStatus, StepRecord, UpdateRecord
from gspo_lab.states import State
from gspo_lab.store import Evidence, ingest
from gspo_lab.study import Origin, Run, Study, load_study
from gspo_lab.words import decided_sentences, flags
from gspo_lab.worker import StopSignal, train

TOML = """
question = "What do logs from elsewhere say?"
model = "tiny-qwen3"
task = "addition"
steps = 2
seeds = 2
[verdict]
margin = 0.01
[[bench]]
name = "sums"
problems = 4
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""
TRL = Origin("trl", "logs/trainer_state.json", "1.16.0", ("reward is rewards/mean",))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "toy.toml").write_text(TOML)
    return load_study(tmp_path / "toy.toml")


def log(run: Run) -> Iterator[Recorded]:
    """Two steps; grpo answers 2 of 4 problems at the end, gspo 3."""
    for step in range(2):
        yield UpdateRecord(step=step, minibatch=0, loss=0.5)
        yield StepRecord(step=step, prompts=4, responses=8, reward_mean=0.25 + step / 4)
    right = 2 + (run.arm == "gspo")
    for problem in range(4):
        yield AnswerRecord(step=2, bench="sums", problem=f"p{problem}", sample=0, correct=int(problem < right))


def imported(study: Study, runs: Path, origins: dict[str, Origin]) -> Path:
    write_study(study, runs)
    for run in study.runs():
        import_run(run, runs, log(run), origins[run.arm])
    ingest(runs)
    return runs / "lab.db"


def certified(database: Path) -> Certificate:
    with Evidence.open(database) as evidence:
        return study_certificate(Source(evidence, "toy"))


def test_an_imported_study_is_read_like_any_other_and_taken_on_trust(study: Study, tmp_path: Path) -> None:
    database = imported(study, tmp_path / "runs", {"grpo": TRL, "gspo": replace(TRL, source="b.json")})
    with source(database) as found:
        assert {(run.arm, run.seed): run.state for run in runs_of(found)} == {
            (arm, seed): "finished" for arm in ("grpo", "gspo") for seed in (0, 1)
        }
        assert [one.final for one in outcomes(found, "sums")] == [0.5, 0.5, 0.75, 0.75]
        matched, decided = study_certificate(found), decision(found)
    assert matched.lock.state == "equal"
    assert matched.ok
    assert matched.on_trust == ("recorded by trl 1.16.0: taken on trust",)
    assert matched.unproven == ("own record", "weights", "prompts", "first rollout")
    assert matched.headline.startswith("toy: not proven to be matched, recorded by trl 1.16.0: taken on trust (")
    assert "2 comparisons of two runs" in matched.headline
    assert {check.name for pair in matched.pairs for check in pair.checks if check.state == "equal"} == {
        "other facts",
        "benchmark items",
    }
    assert flags(decided)[0] == "Recorded by trl 1.16.0: taken on trust."
    assert "The pairs are taken on trust: own record, weights" in decided_sentences(decided)[0]
    report = rendered(database, "toy")
    first = "Recorded by trl 1.16.0, read from logs/trainer_state.json (reward is rewards/mean)"
    told = json.loads(report.json)["studies"]["toy"]["provenance"]["origins"]
    assert set(told) == {first, first.replace("logs/trainer_state.json", "b.json")}
    assert told[first] == ["toy/grpo/s0", "toy/grpo/s1"]
    assert f"{first}: taken on trust." in report.html
    where = ("--runs", str(tmp_path / "runs"))
    assert [row["recorded_by"] for row in gspo_lab("list", "--json", *where).json] == ["trl"]
    assert "recorded by" in gspo_lab("list", *where).out
    assert "recorded by: trl" in gspo_lab("show", "toy/gspo/s1", *where).out


@pytest.mark.parametrize("other", [Origin("verl", "a.jsonl", "1.16.0"), replace(TRL, version=None)])
def test_two_recorders_are_a_difference_that_nobody_declared(study: Study, tmp_path: Path, other: Origin) -> None:
    found = certified(imported(study, tmp_path / "runs", {"grpo": TRL, "gspo": other}))
    assert not found.ok
    [check] = {check for _, check in found.of("own record")}
    assert check.detail == f"trl 1.16.0 in grpo, {other.recorder} in gspo"
    assert found.reasons == {"gspo": ("undeclared difference in own record: recorder (seeds 0, 1)",)}


def test_facts_are_compared_and_runs_of_this_lab_have_no_recorder(study: Study, tmp_path: Path) -> None:
    for way in ("own", "imported"):
        runs = tmp_path / way
        write_study(study, runs)
        for run in study.runs():
            if way == "own":
                facts = {"weights": "a", "device": "one"}
                leave_run(run, runs, [RunStatus(state="started", step=0, facts=facts), *log(run)])
            else:
                import_run(run, runs, log(run), TRL, facts={"weights": f"{run.seed}", "device": run.arm})
        ingest(runs)
        found = certified(runs / "lab.db")
        states = {name: dict(count) for name, count in found.states().items()}
        assert states["weights"] == {"equal": 2}
        assert states["device"] == ({"equal": 2} if way == "own" else {"differs undeclared": 2})
        assert (found.of("own record"), found.on_trust) == ([], ()) or way == "imported"


def test_an_imported_run_is_not_trained_on(study: Study, tmp_path: Path) -> None:
    runs, run = tmp_path / "runs", study.runs()[0]
    write_study(study, runs)
    folder = import_run(run, runs, log(run), TRL, state=State.STOPPED)
    assert (folder.status().state, folder.status().steps) == (State.STOPPED, 2)
    assert folder.run() == replace(run, origin=TRL)
    before = folder.journal.read_bytes()
    with pytest.raises(LabError, match=r"recorded by trl 1\.16\.0, and cannot be gone on with"):
        train(folder, StopSignal(None))
    with pytest.raises(LabError, match="recorded by another program"):
        folder.specify(run.to_json())
    assert (folder.journal.read_bytes(), folder.run().origin) == (before, TRL)


def test_a_source_that_breaks_off_leaves_nothing_and_a_long_one_keeps_its_order(study: Study, tmp_path: Path) -> None:
    runs, run = tmp_path / "runs", study.runs()[0]
    write_study(study, runs)

    def torn() -> Iterator[Recorded]:
        yield from log(run)
        raise LabError("the file ends in the middle of a row")

    with pytest.raises(LabError, match="middle of a row"):
        import_run(run, runs, torn(), TRL)
    assert list(run.folder(runs).parent.iterdir()) == []
    steps = [StepRecord(step=step, prompts=1, responses=2) for step in range(AT_ONCE + 100)]
    folder = import_run(run, runs, iter(steps), TRL)
    assert folder.status().finished
    assert [record["step"] for record in folder.records("step")] == list(range(AT_ONCE + 100))


def test_mistakes_are_one_line_and_change_nothing(study: Study, tmp_path: Path) -> None:
    runs, run = tmp_path / "runs", study.runs()[0]
    with pytest.raises(LabError, match=r"does not declare toy/grpo/s0: write the study first"):
        import_run(run, runs, log(run), TRL)
    with pytest.raises(LabError, match=r"can be named '\.\./toy'"):
        write_study(replace(study, name="../toy"), runs)
    assert not runs.exists()
    home = write_study(study, runs)
    before = (home / "study.json").read_bytes()
    assert write_study(study, runs) == home
    with pytest.raises(LabError, match="holds another study of that name"):
        write_study(replace(study, question="Another?"), runs)
    with pytest.raises(LabError, match="does not declare toy/grpo/s9"):
        import_run(replace(run, seed=9), runs, log(run), TRL)
    (home / "study.json").write_text('{"seeds": [0]}')
    with pytest.raises(LabError, match=r"study\.json is no study of this lab"):
        import_run(run, runs, log(run), TRL)
    (home / "study.json").write_bytes(before)
    import_run(run, runs, log(run), TRL)
    with pytest.raises(LabError, match="has records already"):
        import_run(run, runs, log(run), TRL)
    assert (home / "study.json").read_bytes() == before
