"""A keeper beside a real worker.

Also what conductor and keeper leave for each other in the run's folder.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from waiting import until

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.states import Exit, State
from gspo_lab.recording.runfolder import WorkFolder
from gspo_lab.running.launch import remote_workers, slurm
from gspo_lab.running.launch.remote_workers import (
    KeeperStatus,
    RemoteLaunch,
    RemoteWorker,
    WorkerMonitor,
    latest_record,
)
from gspo_lab.running.launch.slurm import BEGIN, name_of


class Silent:
    """A cluster that says what it is told to say."""

    def __init__(self, *said: KeeperStatus) -> None:
        self.said = list(said)
        self.heard: list[str] = []

    def status(self, name: str) -> KeeperStatus:
        return self.said[0] if len(self.said) == 1 else self.said.pop(0)

    def stop(self, name: str) -> None:
        self.heard.append(f"stop {name}")

    def kill(self, name: str) -> None:
        self.heard.append(f"kill {name}")


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_workers, "LOOK_SECONDS", 0.01)


def asked(folder: Path) -> RemoteLaunch:
    launch = RemoteLaunch(WorkFolder(folder), "far-7")
    launch.write_state(State.QUEUED, "the queue")
    return launch


def test_a_keeper_leaves_the_worker_s_exit_code_and_output(tmp_path: Path) -> None:
    launch = asked(tmp_path)
    assert WorkerMonitor(launch).run_job() == Exit.REFUSED
    assert "no run.json in " in launch.folder.log.read_text()
    assert WorkerMonitor(launch).run_job() == Exit.REFUSED
    assert launch.attempt()["number"] == 2


def test_a_keeper_waits_for_the_worker_that_is_still_there(tmp_path: Path) -> None:
    launch = asked(tmp_path)
    keeper = WorkerMonitor(launch)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(keeper.run_job()))
    with launch.folder.exclusive_lock("the test is quicker"):
        thread.start()
        until(lambda: launch.attempt().get("waits_for"))
        assert not launch.folder.log.exists()
    thread.join(timeout=240)
    assert codes == [Exit.REFUSED], "no run.json: the worker was started, and refuses"


def test_who_is_asked_to_stop_is_not_started_again(tmp_path: Path) -> None:
    launch = asked(tmp_path)
    launch.ask_to_stop()
    assert launch.to_stop
    assert WorkerMonitor(launch).run_job() == Exit.STOPPED
    assert not launch.folder.log.exists()
    launch.delete_record()
    assert launch.record() == {}, "nobody waits for it"
    assert not launch.folder.launches.exists()


def follow(launch: RemoteLaunch, cluster: Silent) -> RemoteWorker:
    return RemoteWorker(launch, cluster, "the queue")


def polled(process: RemoteWorker) -> int:
    return int(until(lambda: (code := process.poll()) is not None and [code])[0])


def test_a_conductor_sees_where_a_worker_is_and_takes_its_code_from_the_folder(
    tmp_path: Path,
) -> None:
    launch = asked(tmp_path)
    remote = KeeperStatus(State.RUNNING, "node 7")
    waits = KeeperStatus(State.QUEUED, "the queue")
    process = follow(launch, Silent(waits, remote, waits, remote))
    launch.begin()
    observed = [f"{process.state} {process.place}"]
    while len(observed) < 4:
        assert process.poll() is None
        shown_state = f"{process.state} {process.place}"
        record = latest_record(launch.folder)
        assert f"{record['state']} {record['place']}" == shown_state, "for who asks later"
        if shown_state != observed[-1]:
            observed.append(shown_state)
            if shown_state.startswith("lost"):
                launch.begin()
    assert observed == [
        "queued the queue",
        "running node 7",
        "lost the queue",
        "running node 7, retry 1",
    ]
    launch.note(code=3)
    assert polled(process) == Exit.STOPPED
    assert latest_record(launch.folder) is None


@pytest.mark.parametrize(
    ("cancelled", "noted", "order", "code"),
    [
        (False, {}, "stop", Exit.STOPPED),  # it was still queued
        (False, {}, "kill", -9),
        (True, {}, "", Exit.CANCELLED),  # it was still queued
        (True, {"ended": True}, "", Exit.CANCELLED),  # its keeper noted that the cluster ends it
        (True, {"code": 0}, "", Exit.FINISHED),  # too late
        (True, {}, "stop", Exit.STOPPED),  # its conductor did that
    ],
)
def test_a_job_that_has_gone(
    tmp_path: Path, cancelled: bool, noted: JsonObject, order: str, code: int
) -> None:
    launch = asked(tmp_path)
    gone = Silent(KeeperStatus(None, "the queue", cancelled))
    if noted:
        launch.begin()
        launch.note(**noted)
    process = follow(launch, gone)
    if order:
        getattr(process, order)()
    assert polled(process) == code
    assert gone.heard == ([f"{order} far-7"] if order else [])


def test_of_a_cluster_that_does_not_answer_who_kills_waits_no_longer_than_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop waits for its answer, however long; a kill, and so the command, does not."""
    monkeypatch.setattr(remote_workers, "SETTLE_SECONDS", 0.0)
    silent = Silent(KeeperStatus(State.LOST, "the queue, which does not answer"))
    process = follow(asked(tmp_path), silent)
    process.stop()
    assert [process.poll() for _ in range(3)] == [None, None, None]
    process.kill()
    assert polled(process) == Exit.LOST
    assert latest_record(WorkFolder(tmp_path)) is None
    assert silent.heard == ["stop far-7", "kill far-7"]


def test_of_a_launcher_s_records_the_latest_counts(tmp_path: Path) -> None:
    launch = asked(tmp_path)
    assert RemoteLaunch.find_active(launch.folder, "far", lambda name: True) == launch
    assert RemoteLaunch.find_active(launch.folder, "near", lambda name: True) is None
    assert RemoteLaunch.find_active(launch.folder, "far", lambda name: False) is None
    assert launch.record() == {}, "what its cluster does not know has ended"


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux tells which signals wait"
)
def test_a_term_that_comes_while_slurm_s_keeper_begins_is_heard(tmp_path: Path) -> None:
    """Slurm reports a time limit up to a minute early.

    A job's Python may not be ready to hear it then.
    """
    job = {"SLURM_JOB_ID": "7"}
    keeper = subprocess.Popen(
        [sys.executable, "-c", BEGIN, slurm.__name__, str(tmp_path)], env=os.environ | job
    )

    def blocks() -> bool:
        status = Path(f"/proc/{keeper.pid}/status").read_text()
        return bool(int(status.partition("SigBlk:")[2].split()[0], 16) & 1 << (signal.SIGTERM - 1))

    until(blocks)
    keeper.terminate()
    assert keeper.wait(240) == Exit.STOPPED
    assert RemoteLaunch(WorkFolder(tmp_path), name_of("7")).attempt()["code"] == Exit.STOPPED
    assert not (tmp_path / "log.txt").exists(), "no worker was started"
