"""Workers as Slurm's batch jobs, one per run: a keeper beside the worker is the whole of the job.

Slurm tells the keeper by TERM that the time limit is near. The worker then finishes its step, saves and leaves, and the
keeper asks for the job to be requeued; where the conductor has asked the worker to stop, it stays away. A node's loss
is Slurm's to notice: it requeues the job, whose worker goes on from the checkpoint. Run as a module this is the keeper.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from gspo_lab.errors import LabError
from gspo_lab.launch.afar import FarProcess, Keeper, Launch, Seen
from gspo_lab.launch.base import SAME_EVERYWHERE, Slot, at_least_one
from gspo_lab.runfolder import WorkFolder
from gspo_lab.states import Exit, State

NAME = "slurm"
LOOK_SECONDS = 2.0
"""Between two questions to Slurm, one for all jobs."""
ANSWER_SECONDS = 30.0
STATES = {
    **dict.fromkeys(
        ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"), State.QUEUED
    ),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "SUSPENDED", "STOPPED"), State.RUNNING),
    **dict.fromkeys(("NODE_FAIL", "PREEMPTED", "RESIZING", "REVOKED"), State.LOST),
}
"""What is not among these has ended."""
MOST_PLACES = 1000
BEGIN = """\
import runpy, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__")
"""
"""The keeper as a program: a TERM that comes while it begins waits until it can hear it, and does not end the job."""


class SlurmCluster:
    """The launcher `slurm`. `jobs`: how many jobs at once; None: as many as the partition's nodes hold."""

    def __init__(
        self,
        jobs: int | None = None,
        *,
        partition: str | None = None,
        time: str | None = None,
        grace: int = 120,
        account: str | None = None,
        qos: str | None = None,
        gres: str | None = None,
        constraint: str | None = None,
        cpus: int = 1,
        memory: str | None = None,
        options: Sequence[str] = (),
    ) -> None:
        named = {
            "partition": partition,
            "time": time,
            "account": account,
            "qos": qos,
            "gres": gres,
            "constraint": constraint,
            "mem": memory,
        }
        self._jobs, self._partition, self._cpus = jobs, partition, cpus
        self._asked_for = [f"--{option}={value}" for option, value in named.items() if value is not None]
        self._asked_for += [f"--cpus-per-task={cpus}", f"--signal=B:TERM@{grace}", *options]
        self._gpu = any("gpu" in option for option in self._asked_for)
        self._environment: dict[str, str] = {}
        self._queue = _Queue()

    def slots(self, device: str) -> list[Slot]:
        """As many as the partition holds. LabError where there is no Slurm, and where sbatch refuses what is asked."""
        if missing := [tool for tool in ("sbatch", "squeue", "scancel", "sinfo") if shutil.which(tool) is None]:
            raise LabError(
                f"--on slurm: no {missing[0]} on the PATH; type this where Slurm's commands are, on a login node"
            )
        on_gpu = self._gpu and device != "cpu"
        if device == "cuda" and not on_gpu:
            raise LabError("device = 'cuda', but a job would have no GPU: ask for one, [launch.slurm] gres = 'gpu:1'")
        tried = _call("sbatch", "--test-only", *self._asked_for, "--wrap=true")
        if tried.returncode:
            raise LabError(f"--on slurm: sbatch refuses {shlex.join(self._asked_for)}: {_last(tried.stderr)}")
        count = at_least_one(self._places(on_gpu) if self._jobs is None else self._jobs)
        self._environment = {**SAME_EVERYWHERE, **({} if on_gpu else {"CUDA_VISIBLE_DEVICES": ""})}
        kind = "gpu" if on_gpu else "core"
        return [Slot(kind, str(index), self._environment, host=self._named) for index in range(count)]

    @property
    def _named(self) -> str:
        return "Slurm" + (f", partition {self._partition}" if self._partition else "")

    def _places(self, on_gpu: bool) -> int:
        """Jobs that the partition's nodes hold at once: by their CPUs, or one per GPU."""
        chosen = [f"--partition={self._partition}"] if self._partition else []
        told = _call("sinfo", "--noheader", "--Node", "--format=%N|%c|%G|%P", *chosen).stdout
        nodes = [line.split("|") for line in told.splitlines() if self._partition or line.endswith("*")]
        if on_gpu:
            places = sum(int(number) for node in nodes for number in re.findall(r"gpu:(?:[^:,()]+:)?(\d+)", node[2]))
        else:
            places = sum(int(node[1]) // self._cpus for node in nodes)
        return min(max(1, places), MOST_PLACES)

    def start(self, folder: Path, slot: Slot) -> FarProcess:
        """Submit a job; Slurm finds its node. LabError where sbatch refuses it."""
        work = WorkFolder(folder.resolve())
        keeper = shlex.join([sys.executable, "-c", BEGIN, __name__, str(work.path)])
        environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        submitted = subprocess.run(
            [
                *("sbatch", "--parsable", "--requeue", "--open-mode=append", "--export=ALL"),
                f"--job-name=gspo-lab:{'/'.join(work.path.parts[-3:])}",
                f"--output={str(work.log).replace('%', '%%')}",
                *self._asked_for,
            ],
            input=f"#!/bin/sh\nexec {keeper}\n",
            env=environment | self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if submitted.returncode:
            raise LabError(f"{folder}: sbatch refuses it: {_last(submitted.stderr)}; the same command goes on")
        return self._follow(Launch(work, name_of(submitted.stdout.strip().partition(";")[0])))

    def find(self, folder: Path) -> FarProcess | None:
        """The job that the folder tells of, if it has not ended."""
        work = WorkFolder(folder.resolve())
        launch = Launch.left(work, NAME, lambda name: self._queue.now(job_of(name)) is not None)
        return None if launch is None else self._follow(launch)

    def _follow(self, launch: Launch) -> FarProcess:
        self._queue.expect(job_of(launch.name))
        return FarProcess(launch, self, f"{self._named} (job {job_of(launch.name)})")

    def seen(self, name: str) -> Seen:
        """What squeue said last."""
        return self._queue.seen(job_of(name))

    def stop(self, name: str) -> None:
        """Out of the queue where it waits; TERM to its keeper where it runs."""
        self._queue.aside(("--state=PENDING",), ("--signal=TERM", "--batch"), job=job_of(name))

    def kill(self, name: str) -> None:
        """End the job with its worker."""
        self._queue.aside(("--signal=KILL", "--full"), (), job=job_of(name))


def name_of(job: str) -> str:
    """A launch by its job."""
    return f"{NAME}-{job}"


def job_of(name: str) -> str:
    """A job by its launch."""
    return name.removeprefix(f"{NAME}-")


class _Queue:
    """What squeue says of this user's jobs, asked for aside: it may be slow, and its daemon away."""

    def __init__(self) -> None:
        self._aside = ThreadPoolExecutor(1)
        self._asked: Future[dict[str, Seen]] | None = None
        self._began = self._taken = 0.0
        self._known: dict[str, Seen] = {}
        self._since: dict[str, float] = {}
        self._trouble: str | None = None

    def expect(self, job: str) -> None:
        """It has just been submitted: earlier answers do not know it."""
        self._since[job] = time.monotonic()

    def aside(self, *ways: Sequence[str], job: str) -> None:
        """Have the job cancelled in these ways, one after the other."""
        for way in ways:
            self._aside.submit(_call, "scancel", *way, job)

    def seen(self, job: str) -> Seen:
        now = time.monotonic()
        if self._asked is not None and self._asked.done():
            self._take(self._asked)
            self._asked, self._taken = None, self._began
        if self._asked is None and now - self._began >= LOOK_SECONDS:
            self._began = now
            self._asked = self._aside.submit(_squeue)
        known = self._known.get(job)
        if self._trouble is not None:
            place = "Slurm" if known is None else known.place
            return Seen(State.LOST, f"{place}; {self._trouble}")
        if known is None:
            early = self._taken < self._since.get(job, 0.0)
            return Seen(State.QUEUED if early else None, f"Slurm (job {job}{'' if early else ', which has gone'})")
        return known

    def now(self, job: str) -> Seen | None:
        """The same, waited for; None where the job has ended. LabError where Slurm does not answer."""
        try:
            found = _squeue().get(job)
        except OSError as error:
            raise LabError(f"--on slurm: {error}") from error
        return None if found is None or found.state is None else found

    def _take(self, asked: "Future[dict[str, Seen]]") -> None:
        try:
            self._known, self._trouble = asked.result(), None
        except OSError as error:
            self._trouble = str(error)


def _squeue() -> dict[str, Seen]:
    """Job -> what Slurm says of it. OSError where it does not answer."""
    told = _call("squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%N|%r|%P")
    if told.returncode:
        raise OSError(f"squeue: {_last(told.stderr)}")
    found = {}
    for line in told.stdout.splitlines():
        job, state, node, reason, partition = line.split("|")
        known = STATES.get(state)
        if known is State.RUNNING:
            found[job] = Seen(known, f"{node} (job {job})")
        else:
            why = state.lower() if known is None else reason
            found[job] = Seen(known, f"Slurm, partition {partition} (job {job}, {why})")
    return found


def _call(*command: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer in {ANSWER_SECONDS:.0f} s")


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return re.sub(r"^\w+(:| error:)( error:)? ", "", lines[-1]) if lines else "it does not say why"


def keep(folder: Path, job: str) -> int:
    """The job: the worker's exit code, which is left in the folder unless the job begins again."""
    launch = Launch(WorkFolder(folder), name_of(job))
    keeper = Keeper(launch)
    signal.signal(signal.SIGTERM, lambda *_: keeper.stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    code = keeper.keep()
    if code == Exit.STOPPED and launch.wanted:
        launch.note(requeued=True)
        requeued = _call("scontrol", "requeue", job)
        if not requeued.returncode:
            return code
        print(f"scontrol requeue {job}: {_last(requeued.stderr)}", file=sys.stderr)
    launch.note(code=code)
    return code


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), os.environ["SLURM_JOB_ID"]))
