"""The worker as a command: its exit codes, its last words, and how it leaves."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import environment, lab_error
from waiting import ended, until

from gspo_lab.common.atomic_files import write_sums
from gspo_lab.common.plain_data import JsonObject, OptionalText
from gspo_lab.common.states import State
from gspo_lab.recording.journal import scan
from gspo_lab.recording.records import RunStatus, StepRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running.plan import plan
from gspo_lab.running.worker import JournalSink
from gspo_lab.study import load_study

ENGINE = """
import time
from gspo_lab.common.errors import LabError
from gspo_lab.recording.records import RunStatus, StepRecord

class Slow:
    def train(self, run, sink, folder, stop):
        sink.write([RunStatus(state="started", step=0)])
        for step in range(run.settings.steps):
            if stop():
                return False
            time.sleep(0.02)
            sink.write([StepRecord(step=step, prompts=1, responses=2)])
        return True

class Deaf:
    def train(self, run, sink, folder, stop):
        sink.write([RunStatus(state="started", step=0)])
        while not stop():
            time.sleep(0.02)
        sink.write([StepRecord(step=0, prompts=1, responses=2)])
        time.sleep(600)

class Refusing:
    def train(self, run, sink, folder, stop):
        raise LabError("no", details=("first", "second"))

class Broken:
    def train(self, run, sink, folder, stop):
        sink.write([RunStatus(state="started", step=0), StepRecord(step=0, prompts=1, responses=2)])
        raise RuntimeError("broken\\nin two lines")

def made():
    return object()
"""

WORKERS: list["subprocess.Popen[str]"] = []


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "engines.py").write_text(ENGINE)
    yield tmp_path / "runs/s/a/s0"
    while WORKERS:
        with (
            WORKERS.pop() as remaining
        ):  # of a test that failed; killing one that has ended does nothing
            remaining.kill()


def prepare(folder: Path, engine: str, steps: int = 3) -> None:
    base = folder.parents[3]
    toml = (
        f'question = "?"\ntask = "addition"\nengine = "{engine}"\nsteps ='
        f' {steps}\n[arm.a]\nobjective = "grpo"\n'
    )
    (base / "s.toml").write_text(toml)
    folder.mkdir(parents=True)
    # The engine reads "warm_start" itself: what a Run does not know is none of its business.
    content = {**load_study(base / "s.toml").runs()[0].to_json(), "warm_start": None}
    (folder / "run.json").write_text(json.dumps(content))


def worker(folder: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-m", "gspo_lab.running.worker", str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    WORKERS.append(process)
    return process


def records(folder: Path, kind: str) -> list[JsonObject]:
    return [record for record in scan(folder / "journal.jsonl").items if record["kind"] == kind]


def test_a_run_to_its_end(folder: Path) -> None:
    prepare(folder, "engines.py:Slow")
    process = worker(folder)
    assert ended(process, 0) == ""
    assert [record["step"] for record in records(folder, "step")] == [0, 1, 2]
    last = records(folder, "status")[-1]
    assert_fields(last, state="finished", step=3)
    original = (folder / "journal.jsonl").read_bytes()
    again = worker(folder)
    ended(again, 0)
    assert (folder / "journal.jsonl").read_bytes() == original, "a finished run has nothing to add"


def test_a_signal_stops_it_after_the_step(folder: Path) -> None:
    prepare(folder, "engines.py:Slow", steps=100_000)
    process = worker(folder)
    until(lambda: records(folder, "step"))
    process.send_signal(signal.SIGTERM)
    assert ended(process, 3) == ""
    last = records(folder, "status")[-1]
    assert_fields(last, state="stopped", step=len(records(folder, "step")))


def test_a_second_signal_ends_it_at_once(folder: Path) -> None:
    prepare(folder, "engines.py:Deaf")
    process = worker(folder)
    until(lambda: records(folder, "status"))
    process.send_signal(signal.SIGINT)
    until(
        lambda: records(folder, "step")
    )  # the first one was heard: two that nobody has heard are one
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=240) == 130
    process.communicate()


@pytest.mark.parametrize(
    ("engine", "code", "message", "said"),
    [
        ("engines.py:Refusing", 2, "no | first | second", "no\nfirst\nsecond\n"),
        (
            "engines.py:made",
            2,
            "the engine 'engines.py:made' is no engine: it has no train",
            "the engine 'engines.py:made' is no engine: it has no train\n",
        ),
        ("engines.py:Broken", 1, "RuntimeError: broken", None),
    ],
)
def test_why_it_failed_is_its_last_word(
    folder: Path, engine: str, code: int, message: str, said: OptionalText
) -> None:
    prepare(folder, engine)
    process = worker(folder)
    output = ended(process, code)
    last = records(folder, "status")[-1]
    assert_fields(last, state="failed", message=message, step=len(records(folder, "step")))
    assert output == (said or output)
    assert ("Traceback" in output) == (code == 1)


def test_no_run_is_finished_without_its_final_model(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('question = "?"\ntask = "addition"\nsteps = 1\n[arm.a]\nobjective = "grpo"\n')
    study = load_study(path)
    [run] = study.runs()[:1]
    folder = RunFolder(run.folder(tmp_path))
    folder.final.mkdir(parents=True)
    folder.final.rmdir()
    folder.specify(run.to_json())
    with folder.append() as journal:
        sink = JournalSink(folder, run, journal, 0)
        sink.write([RunStatus(state="started", step=0), StepRecord(step=0, prompts=1, responses=2)])
        with lab_error("final is missing though the run came to its end"):
            sink.write_progress(State.FINISHED)
        assert not folder.status().finished
        folder.final.mkdir()
        (folder.final / "config.json").write_text("{}")
        write_sums(folder.final)
        sink.write_progress(State.FINISHED)
    assert folder.status().finished
    assert plan(study, tmp_path).warnings == []
    shutil.rmtree(folder.final)
    [warning] = plan(study, tmp_path).warnings
    assert warning.startswith(
        "finished, but without its trained model (checkpoints/final): s/a/s0; the records are whole"
    )


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    process = worker(tmp_path / "nowhere")
    output = ended(process, 2)
    assert "no run.json in " in output
    assert not (tmp_path / "nowhere").exists()
