"""Runs that another program recorded are read like any other.

They are never called matched and never resumed.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from calling import gspo_lab, lab_error
from laboratory import rendered, source, study_json

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.findings.run_outcomes import outcomes
from gspo_lab.analysis.matching import Certificate
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.common.plain_data import OptionalText
from gspo_lab.common.states import State
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.recording.store import ingest
from gspo_lab.report.templating import statements
from gspo_lab.running.worker import StopSignal, train

READER = """
import json
from gspo_lab.exchange.importers.base import AT_END, Log
from gspo_lab.recording.records import AnswerRecord

class Reader:
    @staticmethod
    def read(path, run, spec):
        log = json.loads(path.read_text())
        rows = [(step, {"loss": 0.5, "reward": 0.25 + step / 4}) for step in (1, 2)]
        answers = [
            AnswerRecord(step=AT_END, bench="sums", problem=f"p{n}", sample=0, correct=int(n < log["right"]))
            for n in range(4)
        ]
        return Log(log["program"], rows, (path,), log["version"], notes=["reward is rewards/mean"], answers=answers)
"""  # noqa: E501
TOML = """
question = "What do logs from elsewhere say?"
[verdict]
margin = 0.01
primary = "sums"
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
[[runs]]
source = "mine.py:Reader"
path = "{arm}-{seed}.json"
"""
TRL = {"program": "trl", "version": "1.16.0"}


def imported(folder: Path, gspo: dict[str, OptionalText] = TRL) -> Path:
    """Two steps of two seeds; grpo answers 2 of 4 problems at the end, gspo 3."""
    (folder / "mine.py").write_text(READER)
    (folder / "toy.toml").write_text(TOML)
    for arm, program, right in (("grpo", TRL, 2), ("gspo", gspo, 3)):
        for seed in (0, 1):
            (folder / f"{arm}-{seed}.json").write_text(json.dumps({**program, "right": right}))
    said = gspo_lab("import", folder / "toy.toml", "--runs", folder / "runs")
    assert said.code == 0, said.err
    ingest(folder / "runs")
    return folder / "runs" / "lab.db"


def test_a_linked_import_reads_beside_the_real_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    imported(tmp_path)
    link = tmp_path / "elsewhere" / "linked.toml"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "toy.toml")
    said = gspo_lab("import", link, "--runs", tmp_path / "again")
    assert said.code == 0, said.err


def certified(database: Path) -> Certificate:
    with source(database) as studied:
        return study_certificate(studied)


def test_an_imported_study_is_read_like_any_other_and_taken_on_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    database = imported(tmp_path)
    with source(database) as found:
        assert {(run.arm, run.seed): run.state for run in runs_of(found)} == {
            (arm, seed): "finished" for arm in ("grpo", "gspo") for seed in (0, 1)
        }
        assert [one.final for one in outcomes(found, "sums")] == [0.5, 0.5, 0.75, 0.75]
        matched = study_certificate(found)
        decided = decision(found)
    assert matched.lock.state == "not recorded"
    assert matched.lock.detail.startswith(
        "declared as its runs were imported, after they were made"
    )
    assert matched.ok
    assert matched.on_trust == ("recorded by trl 1.16.0: taken on trust",)
    assert matched.unproven == ("own record", "weights", "prompts", "first rollout")
    assert matched.headline.startswith(
        "toy: not proven to be matched, recorded by trl 1.16.0: taken on trust ("
    )
    assert "2 comparisons of two runs" in matched.headline
    assert {
        check.name for pair in matched.pairs for check in pair.checks if check.state == "equal"
    } == {
        "other facts",
        "benchmark items",
    }
    assert statements("flags", decided)[0] == "Recorded by trl 1.16.0: taken on trust."
    assert "The pairs are taken on trust: own record, weights" in statements("decision", decided)[0]
    report = rendered(database, "toy")
    told = study_json(report)["provenance"]["origins"]
    first = f"Recorded by trl 1.16.0, read from {tmp_path}/grpo-0.json (reward is rewards/mean)"
    assert set(told) == {
        first.replace("grpo-0", f"{arm}-{seed}") for arm in ("grpo", "gspo") for seed in (0, 1)
    }
    assert told[first] == ["toy/grpo/s0"]
    assert f"{first}: taken on trust." in report.html
    where = ("--runs", str(tmp_path / "runs"))
    assert [row["recorded_by"] for row in gspo_lab("show", "--json", *where).json] == ["trl"]
    assert "recorded by" in gspo_lab("show", *where).out
    assert "recorded by: trl" in gspo_lab("show", "toy/gspo/s1", *where).out


@pytest.mark.parametrize(
    ("other", "recorder"),
    [
        ({"program": "verl", "version": "1.16.0"}, "verl 1.16.0"),
        ({"program": "trl", "version": None}, "trl of unknown version"),
    ],
)
def test_two_recorders_are_a_difference_that_nobody_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, OptionalText], recorder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = certified(imported(tmp_path, other))
    assert not found.ok
    [check] = {check for _, check in found.of("own record")}
    assert check.detail == f"trl 1.16.0 in grpo, {recorder} in gspo"
    assert found.reasons == {
        "gspo": ("undeclared difference in own record: recorder (seeds 0, 1)",)
    }


def test_an_imported_run_is_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    imported(tmp_path)
    folder = RunFolder(tmp_path / "runs/toy/grpo/s0")
    assert (folder.status().state, folder.status().steps) == (State.FINISHED, 2)
    run = folder.run()
    before = folder.journal.read_bytes()
    assert run.origin.recorder == "trl 1.16.0"
    folder.journal.write_bytes(before[: before.rindex(b"\n", 0, -1) + 1])  # its last status is lost
    with lab_error(r"recorded by trl 1\.16\.0, and cannot be gone on with"):
        train(folder, StopSignal(None))
    with lab_error("recorded by another program"):
        folder.specify(replace(run, origin=None).to_json())
    assert folder.run() == run
