"""Workers as Slurm batch jobs, one per run. The job is a keeper, which starts the worker.

Slurm sends the keeper TERM for four reasons, and the keeper asks Slurm which it was:

    the time limit is near        the worker finishes its step and saves; the keeper asks for a
                                  requeue
    the job is being preempted    the same, where the cluster signals before it preempts
    the job is being ended        Slurm sends TERM to the worker too, which ends at once; a requeued
                                  job (`scontrol requeue`, preemption) goes on from the last
                                  checkpoint, a cancelled one stays away
    the conductor asked to stop   the worker finishes its step and saves, and stays away

Slurm notices the loss of a node and requeues the job, which goes on from the checkpoint. Run as a
module this is the keeper.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalText
from gspo_lab.common.states import Exit, State
from gspo_lab.recording.runfolder import WorkFolder
from gspo_lab.running.launch.base import CORE, GPU, Slot, slots_on
from gspo_lab.running.launch.remote_workers import (
    KeeperStatus,
    RemoteLaunch,
    RemoteWorker,
    WorkerMonitor,
)

NAME = "slurm"
LOOK_SECONDS = 2.0
"""Time between two questions to Slurm; one question is for all jobs."""
ANSWER_SECONDS = 30.0
STATES = {
    **dict.fromkeys(
        ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"),
        State.QUEUED,
    ),
    **dict.fromkeys(
        ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "SUSPENDED", "STOPPED"), State.RUNNING
    ),
    **dict.fromkeys(("NODE_FAIL", "RESIZING", "REVOKED"), State.LOST),
}
"""Jobs in any other state have ended."""
CANCELLED = "CANCELLED"
GRACE_SECONDS = 120
EARLY_SECONDS = 90.0
"""Slurm may send the signal of a time limit this much earlier than requested; its manual says 60 s.
"""
MOST_PLACES = 1000
BEGIN = """\
import runpy, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__")
"""
"""The keeper's program.

It blocks TERM until its handler is set, so that an early TERM does not end the job.
"""


class SlurmCluster:
    """The launcher `slurm`. `jobs`: jobs at once; None: as many as the partition's nodes hold."""

    def __init__(
        self,
        jobs: int | None = None,
        *,
        partition: OptionalText = None,
        time: OptionalText = None,
        grace: int = GRACE_SECONDS,
        gres: OptionalText = None,
        cpus: int = 1,
        memory: OptionalText = None,
        options: Sequence[str] = (),
    ) -> None:
        declared_options = {"partition": partition, "time": time, "gres": gres, "mem": memory}
        self._jobs = jobs
        self._partition = partition
        self._cpus = cpus
        self._grace = grace
        self._options = [
            f"--{option}={value}" for option, value in declared_options.items() if value is not None
        ]
        self._options += [f"--cpus-per-task={cpus}", f"--signal=B:TERM@{grace}", *options]
        self._gpu = any("gpu" in option for option in self._options)
        self._queue = _Queue()

    def slots(self, device: str) -> list[Slot]:
        """As many slots as jobs fit on the partition.

        LabError without Slurm, or if sbatch refuses the options.
        """
        if missing := [
            tool for tool in ("sbatch", "squeue", "scancel", "sinfo") if shutil.which(tool) is None
        ]:
            raise LabError(
                f"--on slurm: no {missing[0]} on the PATH; type this where Slurm's commands are, on"
                " a login node"
            )
        on_gpu = self._gpu and device != "cpu"
        if device.startswith("cuda") and not on_gpu:
            raise LabError(
                f"device = '{device}', but a job would have no GPU: set [launch.slurm] gres ="
                " 'gpu:1'"
            )
        answer = _call("sinfo", "--noheader", "--format=%P")
        if answer.returncode:
            raise LabError(
                f"--on slurm: Slurm does not answer here ({_error_line(answer.stderr)}): type this"
                " on a login node, or set SLURM_CONF to the cluster's slurm.conf"
            )
        dry_run = _call("sbatch", "--test-only", *self._options, "--wrap=true")
        if dry_run.returncode:
            raise LabError(
                f"--on slurm: sbatch refuses {shlex.join(self._options)}:"
                f" {_error_line(dry_run.stderr)}"
            )
        count = self._places(on_gpu) if self._jobs is None else self._jobs
        return slots_on(
            GPU if on_gpu else CORE,
            [str(index) for index in range(count)],
            count,
            self._cluster_name,
        )

    @property
    def _cluster_name(self) -> str:
        return "Slurm" + (f", partition {self._partition}" if self._partition else "")

    def _places(self, on_gpu: bool) -> int:
        """The number of jobs that fit on the partition's nodes: by their CPUs, or one per GPU."""
        chosen = [f"--partition={self._partition}"] if self._partition else []
        output = _call("sinfo", "--noheader", "--Node", "--format=%N|%c|%G|%P", *chosen).stdout
        nodes = [
            line.split("|") for line in output.splitlines() if self._partition or line.endswith("*")
        ]
        if on_gpu:
            resources = ",".join(node[2] for node in nodes)
            places = sum(map(int, re.findall(r"gpu:(?:[^:,()]+:)?(\d+)", resources)))
        else:
            places = sum(int(node[1]) // self._cpus for node in nodes)
        return min(max(1, places), MOST_PLACES)

    def start(self, folder: Path, slot: Slot) -> RemoteWorker:
        """Submit a job; Slurm chooses its node. LabError if sbatch refuses it."""
        work = WorkFolder(folder.resolve())
        keeper = shlex.join(
            [sys.executable, "-c", BEGIN, __name__, str(work.path), str(self._grace)]
        )
        environment = {
            key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"
        }
        submitted = subprocess.run(
            [
                "sbatch",
                "--parsable",
                "--requeue",
                "--open-mode=append",
                "--export=ALL",
                f"--job-name=gspo-lab:{'/'.join(work.path.parts[-3:])}",
                f"--output={str(work.log).replace('%', '%%')}",
                *self._options,
            ],
            input=f"#!/bin/sh\nexec {keeper}\n",
            env=environment | dict(slot.environment),
            capture_output=True,
            text=True,
            check=False,
        )
        if submitted.returncode:
            raise LabError(
                f"{folder}: sbatch refuses it: {_error_line(submitted.stderr)}; the same command"
                " resumes"
            )
        return self._follow(RemoteLaunch(work, name_of(submitted.stdout.strip().partition(";")[0])))

    def find_worker(self, folder: Path) -> RemoteWorker | None:
        """The job that the folder names, if it has not ended."""
        work = WorkFolder(folder.resolve())
        launch = RemoteLaunch.find_active(
            work, NAME, lambda name: self._queue.now(job_of(name)) is not None
        )
        return None if launch is None else self._follow(launch)

    def _follow(self, launch: RemoteLaunch) -> RemoteWorker:
        self._queue.expect(job_of(launch.name))
        return RemoteWorker(launch, self, f"{self._cluster_name} (job {job_of(launch.name)})")

    def status(self, name: str) -> KeeperStatus:
        """The last answer of squeue."""
        return self._queue.status(job_of(name))

    def stop(self, name: str) -> None:
        """Remove a queued job; send TERM to the keeper of a running one."""
        self._queue.cancel(job_of(name), ["--state=PENDING"], ["--signal=TERM", "--batch"])

    def kill(self, name: str) -> None:
        """Kill the job and its worker."""
        self._queue.cancel(job_of(name), ["--signal=KILL", "--full"], [])


def name_of(job: str) -> str:
    """The launch's name by its job."""
    return f"{NAME}-{job}"


def job_of(name: str) -> str:
    """The job by its launch's name."""
    return name.removeprefix(f"{NAME}-")


class _Queue:
    """The states of this user's jobs, by squeue in a thread: it may be slow or not answer."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._query: Future[dict[str, KeeperStatus]] | None = None
        self._began = 0.0
        self._taken = 0.0
        self._known: dict[str, KeeperStatus] = {}
        self._since: dict[str, float] = {}
        self._trouble: OptionalText = None

    def expect(self, job: str) -> None:
        """Note that the job has just been submitted: earlier answers do not list it."""
        self._since[job] = time.monotonic()

    def cancel(self, job: str, *ways: Sequence[str]) -> None:
        """Cancel the job with each of these option lists in turn."""
        for way in ways:
            self._thread.submit(_call, "scancel", *way, job)

    def status(self, job: str) -> KeeperStatus:
        now = time.monotonic()
        if self._query is not None and self._query.done():
            try:
                self._known = self._query.result()
                self._trouble = None
            except OSError as error:
                self._trouble = str(error)
            self._query = None
            self._taken = self._began
        if self._query is None and now - self._began >= LOOK_SECONDS:
            self._began = now
            self._query = self._thread.submit(_squeue)
        status = self._known.get(job)
        if self._trouble is not None:
            place = "Slurm" if status is None else status.place
            return KeeperStatus(State.LOST, f"{place}; {self._trouble}")
        if status is None:
            early = self._taken < self._since.get(job, 0.0)
            gone = "" if early else ", which has gone"
            return KeeperStatus(State.QUEUED if early else None, f"Slurm (job {job}{gone})")
        return status

    def now(self, job: str) -> KeeperStatus | None:
        """Ask squeue now; None if the job has ended. LabError if Slurm does not answer."""
        try:
            status = _squeue().get(job)
        except OSError as error:
            raise LabError(f"--on slurm: {error}") from error
        return None if status is None or status.state is None else status


def _squeue() -> dict[str, KeeperStatus]:
    """Job -> its state. OSError if Slurm does not answer."""
    answer = _call("squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%N|%r|%P")
    if answer.returncode:
        raise OSError(f"squeue: {_error_line(answer.stderr)}")
    jobs = {}
    for line in filter(None, answer.stdout.split("\n")):
        # A reason is free text; no other field holds a bar.
        head, _, partition = line.rpartition("|")
        job, state, node, reason = head.split("|", 3)
        job_state = STATES.get(state)
        if job_state is State.RUNNING:
            jobs[job] = KeeperStatus(job_state, f"{node} (job {job})")
        else:
            why = state.lower() if job_state is None else reason
            details = f"job {job}" if why == "None" else f"job {job}, {why}"
            jobs[job] = KeeperStatus(
                job_state, f"Slurm, partition {partition} ({details})", state == CANCELLED
            )
    return jobs


def _call(*command: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer in {ANSWER_SECONDS:.0f} s")


def _error_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return re.sub(r"^\w+(:| error:)( error:)? ", "", lines[-1]) if lines else "it does not say why"


def run_job(folder: Path, job: str, grace: float = GRACE_SECONDS) -> int:
    """Run the job.

    The worker's exit code is written to the folder unless the cluster ended the job.
    """
    launch = RemoteLaunch(WorkFolder(folder), name_of(job))
    restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if restarts and not launch.record():
        return Exit.STOPPED  # its conductor noted an end and no longer waits
    keeper = WorkerMonitor(launch)
    signal.signal(signal.SIGTERM, lambda *_: keeper.stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    code = keeper.run_job()
    is_requested = bool(launch.record()) and not launch.to_stop  # its conductor waits for it
    slurm_sent_term = code == -signal.SIGTERM or (code == Exit.STOPPED and is_requested)
    if not (slurm_sent_term and _ended_by_slurm(launch, job, restarts, grace)):
        launch.note(code=code)
    return code


def _ended_by_slurm(launch: RemoteLaunch, job: str, restarts: int, grace: float) -> bool:
    """Whether Slurm ends the job or will start it again; notes this for the conductor.

    Requests a requeue if the time limit is near or the job is being preempted.
    """
    answer = _call("scontrol", "show", "job", "--oneliner", job)
    facts = dict(re.findall(r"(\w+)=(\S*)", answer.stdout))
    if "JobState" not in facts:
        print(f"scontrol show job {job}: {_error_line(answer.stderr)}", file=sys.stderr)
        return False
    if facts["JobState"] != "RUNNING":
        requeued = int(facts.get("Restarts", 0)) > restarts
        launch.note(
            **(
                {"requeued": "by Slurm (scontrol requeue or preemption)"}
                if requeued
                else {"ended": True}
            )
        )
        return True
    if (why := _reason_to_requeue(facts, grace)) is None:
        return False
    launch.note(requeued=why)
    answer = _call("scontrol", "requeue", job)
    if answer.returncode:
        print(f"scontrol requeue {job}: {_error_line(answer.stderr)}", file=sys.stderr)
        launch.note(requeued=None)
    return not answer.returncode


def _reason_to_requeue(facts: Mapping[str, str], grace: float) -> OptionalText:
    """Why a running job that got TERM must begin again; None: the signal has another cause."""
    if facts.get("PreemptTime", "None") != "None":
        return "because it is preempted"
    limit = _seconds(facts.get("TimeLimit", ""))
    gone = _seconds(facts.get("RunTime", ""))
    near = limit is not None and gone is not None and limit - gone <= grace + EARLY_SECONDS
    return "at its time limit" if near else None


def _seconds(text: str) -> float | None:
    """Seconds of a duration in Slurm's form, [D-]HH:MM:SS; None for UNLIMITED and other words."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = map(int, match.groups("0"))
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


if __name__ == "__main__":
    sys.exit(run_job(Path(sys.argv[1]), os.environ["SLURM_JOB_ID"], *map(float, sys.argv[2:3])))
