"""Workers forked from a warm process are as good as commands of their own.

Nothing is left of either.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from waiting import alive, parent_of, until

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.states import Exit
from gspo_lab.recording.records import is_time
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running import forkserver
from gspo_lab.running.launch.base import CONDUCTOR, start_worker
from gspo_lab.running.launch.local import ForkedProcess, LocalPool, LocalProcess
from gspo_lab.study import load_study

ENGINE = """
import atexit, os, subprocess, sys, threading, time
from gspo_lab.recording.records import RunStatus, StepRecord

class Patient:
    def train(self, run, sink, folder, stop):
        print("at work", os.environ["OMP_NUM_THREADS"], os.getpgid(0) == os.getpid(), sys.stdin.read() == "")
        child = subprocess.Popen(["sleep", "1000"])
        (folder / "child").write_text(str(child.pid))
        sink.write([RunStatus(state="started", step=0)])
        while not stop():
            time.sleep(0.02)
        child.kill()
        child.wait()
        atexit.register(print, "left")
        return False

class Imported:
    def train(self, run, sink, folder, stop):
        assert "torch" in sys.modules
        return False

class Threaded:
    def train(self, run, sink, folder, stop):
        threading.Timer(0.3, print, ["its thread"]).start()
        return False
"""  # noqa: E501

NATIVE = """
question = "?"
model = "tiny-qwen3"
task = "addition"
device = "cpu"
steps = 2
[warm_start]
steps = 0
[rollout]
prompts_per_step = 2
group_size = 4
max_tokens = 6
[update]
minibatches = 2
[arm.a]
objective = "grpo"
"""

CONDUCT = """
import sys, time
from pathlib import Path
from gspo_lab.running.launch.local import LocalPool, LocalProcess
pool = LocalPool(1)
process = pool.start(Path(sys.argv[1]), pool.slots("cpu")[0])
while process.poll() is None:
    time.sleep(0.02)
"""


def run_folder(home: Path, toml: str) -> RunFolder:
    """A run that is ready to be worked on; the engine reads nothing else."""
    home.mkdir(exist_ok=True)
    (home / "engines.py").write_text(ENGINE)
    (home / "one.toml").write_text(toml)
    run, *_ = load_study(home / "one.toml").runs()
    folder = RunFolder(run.folder(home / "runs"))
    folder.path.mkdir(parents=True)
    folder.specify(run.to_json())
    return folder


def toml_of(engine: str) -> str:
    """A study whose runs are trained by a class of ENGINE."""
    return (
        f'question = "?"\ntask = "addition"\nengine = "engines.py:{engine}"\ndevice = "cpu"\n'
        '[arm.a]\nobjective = "grpo"\n'
    )


@pytest.fixture
def patient(tmp_path: Path) -> RunFolder:
    return run_folder(tmp_path, toml_of("Patient"))


@pytest.fixture(scope="module")
def pool() -> LocalPool:
    return LocalPool(1)


def begin(pool: LocalPool, folder: RunFolder) -> ForkedProcess:
    process = pool.start(folder.path, pool.slots("cpu")[0])
    assert isinstance(process, ForkedProcess)
    return process


def started(folder: RunFolder) -> int:
    """The worker's process id, once it is at work.

    Between taking the lock and naming itself it is "unknown".
    """
    return int(
        until(
            lambda: (
                folder.has_records() and (name := folder.lock_holder()) and name.isdigit() and name
            )
        )
    )


def without_times(folder: RunFolder) -> list[JsonObject]:
    """What a run recorded, but for times and the journal's own chain."""
    records = folder.records("step", "update", "answer")
    return [
        {key: value for key, value in entry.items() if not is_time(key) and key != "chain"}
        for entry in records
    ]


def test_it_has_its_log_its_environment_its_group_and_no_input(
    pool: LocalPool, patient: RunFolder
) -> None:
    early = begin(pool, patient)
    early.stop()  # before it can hear
    assert until(early.poll) == Exit.STOPPED
    assert patient.status().state == "stopped"
    patient.log.write_text("earlier\n")
    process = begin(pool, patient)
    pid = started(patient)
    assert process.poll() is None
    process.stop()
    assert until(process.poll) == Exit.STOPPED
    assert patient.log.read_text() == "earlier\nat work 1 True True\nleft\n"
    assert not alive(pid)


def test_it_ends_when_its_threads_have(pool: LocalPool, tmp_path: Path) -> None:
    folder = run_folder(tmp_path, toml_of("Threaded"))
    assert until(begin(pool, folder).poll) == Exit.STOPPED
    assert folder.log.read_text() == "its thread\n"


def test_a_server_imports_what_an_engine_needs_before_its_first_worker(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pool = LocalPool(1)
    pool.prepare(pool.slots("cpu")[0], "native")
    assert until(begin(pool, run_folder(tmp_path, toml_of("Imported"))).poll) == Exit.STOPPED


def test_a_log_that_cannot_be_written_is_told_before_a_worker_is_ordered(
    pool: LocalPool, patient: RunFolder
) -> None:
    patient.log.mkdir()
    with pytest.raises(IsADirectoryError, match=patient.log.name):
        begin(pool, patient)


def test_killed_it_is_gone_with_all_that_it_started(pool: LocalPool, patient: RunFolder) -> None:
    process = begin(pool, patient)
    pid = started(patient)
    process.kill()
    assert process.poll() == -signal.SIGKILL
    assert not alive(pid)
    until(lambda: not alive(int((patient.path / "child").read_text())))
    assert patient.status().state == "interrupted"
    process.stop()  # of one that has ended: nothing to do


def test_where_the_server_has_died_its_worker_is_lost_and_the_command_is_started(
    pool: LocalPool, patient: RunFolder
) -> None:
    process = begin(pool, patient)
    pid = started(patient)
    server = parent_of(pid)
    os.kill(server, signal.SIGKILL)
    until(lambda: not alive(server))
    until(lambda: patient.status().state == "stopped")  # nobody waits for it any more
    until(lambda: not alive(pid))
    again = pool.start(patient.path, pool.slots("cpu")[0])
    assert isinstance(again, LocalProcess)
    assert process.poll() == Exit.LOST
    until(lambda: patient.lock_holder() == str(again.pid))
    again.stop()
    assert until(again.poll) == Exit.STOPPED
    third = begin(pool, patient)
    assert parent_of(started(patient)) not in (server, os.getpid()), "another server"
    third.stop()
    assert until(third.poll) == Exit.STOPPED


def test_nothing_is_left_when_the_conductor_is_killed(patient: RunFolder) -> None:
    conductor = subprocess.Popen([sys.executable, "-c", CONDUCT, str(patient.path)])
    pid = started(patient)
    server = parent_of(pid)
    assert server != conductor.pid
    conductor.kill()
    conductor.wait()
    until(lambda: not alive(server) and not alive(pid))
    assert patient.status().state == "stopped"


def test_a_server_with_a_second_thread_starts_commands_instead_of_forks(tmp_path: Path) -> None:
    enough = threading.Event()
    repeated = threading.Thread(target=enough.wait)
    repeated.start()
    assert not forkserver.alone()
    enough.set()
    repeated.join()
    original = dict(os.environ)
    _, status = os.waitpid(forkserver.spawn(tmp_path), 0)
    assert os.waitstatus_to_exitcode(status) == Exit.REFUSED, "no run.json there"
    assert dict(os.environ) == original
    assert CONDUCTOR not in original


@pytest.mark.slow
def test_records_do_not_depend_on_who_starts_the_worker(tmp_path: Path, pool: LocalPool) -> None:
    forked = run_folder(tmp_path / "forked", NATIVE)
    command = run_folder(tmp_path / "command", NATIVE)
    process = begin(pool, forked)
    other = start_worker(command, pool.slots("cpu")[0].environment)
    until(lambda: None not in (process.poll(), other.poll()), seconds=1000)
    assert (process.poll(), other.poll()) == (0, 0), forked.log.read_text()
    assert without_times(forked) == without_times(command)
    assert len(without_times(forked)) > 2 * 2
