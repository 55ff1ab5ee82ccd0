"""The next command reports damage that was once silent.

It counts nothing false.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from acts import ACTS, START_HOME, a_study
from calling import gspo_lab, lab_error
from children import run
from synthetic_lab import make_lab
from waiting import until

from gspo_lab.common.states import Exit
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import AnswerRecord, GradeRecord, RunStatus
from gspo_lab.recording.runfolder import EvaluationFolder, RunFolder, StartFolder
from gspo_lab.recording.store import Evidence, ingest

FIRST = "toy/grpo/s0"
SECOND = "toy/grpo/s1"
COUNT = ("run", "count.toml", "--jobs", "1", "--arms", "a")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two seeds of two arms, whose certificate fails at nothing that a test damages."""
    make_lab(tmp_path, seeds=2, steps=2, every=2)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def evaluated(runs: Path, run: str, correct: int) -> EvaluationFolder:
    """A later evaluation of a run: of eight answers this many are right."""
    folder = RunFolder(runs / run).evaluation("k")
    task = {"name": "addition", "options": {}, "base": "."}
    folder.declare(
        {"evaluation": "k", "bench": "k", "subject": {"kind": "run", "name": run}, "task": task}
    )
    with folder.append_for(run) as journal:
        journal.write(
            AnswerRecord(
                step=2,
                bench="k",
                problem=f"p{i}",
                sample=0,
                text="1",
                tokens=1,
                correct=int(i < correct),
            )
            for i in range(8)
        )
    return folder


def scores(runs: Path) -> dict[str, float]:
    with Evidence.open(runs / "lab.db", runs) as evidence:
        query = "SELECT run_id, AVG(correct) FROM answers WHERE evaluation = 'k' GROUP BY 1"
        return dict(evidence.rows(query, ()))


def journals_row(said: str) -> str:
    """What `certify` says of the journals."""
    return next(
        line
        for line in said.splitlines()
        if line.split()[1:2] == ["journals"] or "journals" in line[:24]
    )


@pytest.mark.parametrize("copied", ["journal.jsonl", ""], ids=["journal", "folder"])
def test_the_evaluation_of_another_run_is_told_and_left_out(runs: Path, copied: str) -> None:
    first_evaluation = evaluated(runs, FIRST, 1)
    second_evaluation = evaluated(runs, SECOND, 3)
    ingest(runs)
    assert scores(runs) == {FIRST: 0.125, SECOND: 0.375}
    if copied:
        shutil.copy(second_evaluation.path / copied, first_evaluation.path / copied)
    else:
        shutil.copytree(second_evaluation.path, first_evaluation.path, dirs_exist_ok=True)
    line = f"{first_evaluation.journal}: recorded for another run and left out".replace(
        f"{runs}/", "runs/"
    )
    assert line in gspo_lab("report", "toy").err
    assert scores(runs) == {SECOND: 0.375}
    assert (
        "Recorded for another run and left out"
        in (runs.parent / "reports" / "toy.html").read_text()
    )
    certified = gspo_lab("certify", "toy")
    assert certified.code == 1
    assert "evaluations/k/journal.jsonl: recorded for another run and left out" in certified.out
    rebuilt = gspo_lab("records", "rebuild")
    assert line in rebuilt.err
    assert rebuilt.code == 1, "what the journal holds is missing"
    assert scores(runs) == {SECOND: 0.375}
    shutil.rmtree(first_evaluation.path)
    evaluated(runs, FIRST, 1)
    assert "left out" not in gspo_lab("report", "toy").err
    assert scores(runs) == {FIRST: 0.125, SECOND: 0.375}


def test_the_grades_of_another_run_are_left_out(runs: Path) -> None:
    grade = GradeRecord(
        bench="addition", step=2, problem="addition-0", sample=0, correct=1, reward=1.0
    )
    for name in (FIRST, SECOND):
        RunFolder(runs / name).grades.path.mkdir()
        with RunFolder(runs / name).grades.append_for(name) as journal:
            journal.write([grade])
    shutil.copy(RunFolder(runs / SECOND).grades.journal, RunFolder(runs / FIRST).grades.journal)
    assert [line.partition(": ")[0] for line in ingest(runs).damaged] == [
        str(RunFolder(runs / FIRST).grades.journal)
    ]


@pytest.mark.slow
def test_eval_refuses_to_go_on_with_the_answers_of_another_model(tmp_path: Path) -> None:
    act = ACTS["eval"]
    act.prepare(tmp_path)
    for seed in "01":
        assert run(tmp_path, (*act.command, "--seed", seed)).code == 0
    entry, other = sorted(tmp_path.glob("runs/_subjects/*/evaluations/*/journal.jsonl"))
    shutil.copy(entry, other)
    refused = [run(tmp_path, (*act.command, "--seed", seed)) for seed in "01"]
    assert sorted(output.code for output in refused) == [0, 2]
    line = f"{other.relative_to(tmp_path)} was recorded for _subjects/"
    assert any(line in output.said for output in refused), refused


def test_run_tells_a_damaged_journal_of_a_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert gspo_lab(*COUNT).code == 0
    journal = tmp_path / "runs/count/a/s0/journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:3], *lines[4:]]))
    output = gspo_lab(*COUNT).err
    assert (
        "runs/count/a/s0/journal.jsonl: a line is missing or doubled before line 4; what it"
        " recorded is"
        " missing" in output
    )


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("run.json", "toy/grpo/s0: its run.json is missing"),
        ("journal.jsonl", "toy/grpo/s0: journal.jsonl: its end is gone or damaged, from line 1 on"),
    ],
)
def test_a_finished_run_that_lost_a_file_fails_its_certificate(
    runs: Path, file: str, why: str, rebuilt: bool
) -> None:
    (runs / FIRST / "checkpoints").mkdir()
    (runs / FIRST / "checkpoints" / "kept").touch()
    complete = (runs / FIRST / file).read_bytes()
    (runs / FIRST / file).unlink()
    if rebuilt:
        gspo_lab("records", "rebuild")
        why = why.partition(": journal")[0] + (
            ": its journal is missing" if "journal" in why else ""
        )
    certified = gspo_lab("certify", "toy", "--regrade-sample", "0")
    assert certified.code == 1
    assert why in certified.out, certified.out
    if file == "run.json":
        assert (
            f"{FIRST}/run.json is missing, so that the run is missing from every number"
            in certified.err
        )
    (runs / FIRST / file).write_bytes(complete)
    mended = gspo_lab("certify", "toy", "--regrade-sample", "0")
    assert FIRST not in journals_row(mended.out)
    assert "missing" not in mended.err


def test_a_damaged_run_json_fails_the_certificate_after_a_rebuild(runs: Path) -> None:
    path = runs / FIRST / "run.json"
    path.write_bytes(path.read_bytes()[:100])
    assert gspo_lab("records", "rebuild").code == 2
    certified = gspo_lab("certify", "toy", "--regrade-sample", "0")
    assert certified.code == 1
    assert f"{FIRST}: runs/{FIRST}/run.json cannot be read" in certified.out, certified.out


def test_a_second_worker_finds_the_folder_occupied(tmp_path: Path) -> None:
    ACTS["warm start"].prepare(tmp_path)
    home = StartFolder(tmp_path / START_HOME)
    command = [sys.executable, "-m", "gspo_lab.running.worker", str(home.path)]
    with home.exclusive_lock("the test is first"):
        assert subprocess.run(command).returncode == Exit.OCCUPIED


def test_two_studies_may_ask_for_a_warm_start_at_once(tmp_path: Path) -> None:
    asking = (
        "import sys; from gspo_lab.recording.runfolder import StartFolder; from pathlib import"
        " Path\n"
    )
    asking += "for i in range(200): StartFolder(Path(sys.argv[1])).write_request({'seed': i})"
    processes = [subprocess.Popen([sys.executable, "-c", asking, str(tmp_path)]) for _ in range(2)]
    assert [entry.wait(240) for entry in processes] == [0, 0]
    assert StartFolder(tmp_path).request() == {"seed": 199}
    assert not list(tmp_path.glob(".*.partial"))


@pytest.mark.slow
def test_two_studies_that_begin_together_share_a_warm_start(tmp_path: Path) -> None:
    a_study(tmp_path)
    toml = (tmp_path / "count.toml").read_text().replace('model = "model"', 'model = "tiny-qwen3"')
    for name in ("one", "other"):
        (tmp_path / f"{name}.toml").write_text(toml + "[warm_start]\nsteps = 30\nbatch_size = 2\n")
    words = [sys.executable, "-m", "gspo_lab.cli", "run", "--jobs", "1", "--arms", "a"]
    processes = [
        subprocess.Popen(
            [*words, f"{name}.toml"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for name in ("one", "other")
    ]
    output = [entry.communicate(timeout=400)[0].decode() for entry in processes]
    assert [entry.returncode for entry in processes] == [0, 0], output
    assert not any("Traceback" in text for text in output)
    assert len(list(tmp_path.glob("runs/_starts/warm-starts/*/manifest.json"))) == 1


def test_without_its_lock_file_a_second_writer_of_a_journal_is_refused(tmp_path: Path) -> None:
    status = RunStatus(state="started", step=0)
    with Journal(tmp_path) as journal:
        journal.write([status])
        with (
            lab_error(r"another process writes to .*: wait until it has ended"),
            Journal(tmp_path),
        ):
            pass
        journal.write([status])
    with Journal(tmp_path) as journal:
        journal.write([status])


@pytest.mark.slow
def test_with_all_lock_files_deleted_a_second_run_is_refused_and_the_first_is_whole(
    tmp_path: Path,
) -> None:
    a_study(tmp_path)
    (tmp_path / "behaviour.json").write_text(
        '{"hold": {"a/s0": 1}, "deaf": false, "fail": {}, "right": {}, "bonus": {}}'
    )
    words = [sys.executable, "-m", "gspo_lab.cli", *COUNT]
    first_process = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    until((tmp_path / "held-a-s0").exists)
    for lock in (
        *tmp_path.glob("runs/**/lock"),
        *tmp_path.glob("runs/**/.conductor"),
        *tmp_path.glob("runs/.lab.lock"),
    ):
        lock.unlink()
    (tmp_path / "behaviour.json").write_text(
        '{"hold": {}, "deaf": false, "fail": {}, "right": {}, "bonus": {}}'
    )
    second_process = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert second_process.returncode == 2, second_process
    assert "another process writes to " in second_process.stdout
    first_process.terminate()
    first_process.communicate(timeout=240)
    assert run(tmp_path, COUNT).code == 0
    assert not json.loads(gspo_lab("show", "--json", "--runs", str(tmp_path / "runs")).out)[0].get(
        "damaged"
    )
    assert not ingest(tmp_path / "runs").damaged
