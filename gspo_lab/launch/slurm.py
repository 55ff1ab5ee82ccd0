"""Workers as Slurm's batch jobs, one per run: a keeper beside the worker is the whole of the job.

Slurm sends the keeper TERM for four reasons, and the keeper asks Slurm which of them it was:

    the time limit is near         the worker finishes its step and saves, and the keeper asks for a requeue
    the job is being preempted     the same, where the cluster sends this signal before it preempts
    the job is being ended         Slurm sends TERM to the worker too, which ends at once; a requeued job (`scontrol
                                   requeue`, preemption) goes on from the last checkpoint, a cancelled one stays away
    the conductor asked to stop    the worker finishes its step and saves, and stays away

Slurm notices the loss of a node and requeues the job, which goes on from the checkpoint. Run as a module this is the
keeper.
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
    **dict.fromkeys(("NODE_FAIL", "RESIZING", "REVOKED"), State.LOST),
}
"""What is not among these has ended."""
CANCELLED = "CANCELLED"
GRACE_SECONDS = 120
EARLY_SECONDS = 90.0
"""How much earlier than asked for Slurm may tell of a time limit: its manual says 60 s."""
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
        grace: int = GRACE_SECONDS,
        gres: str | None = None,
        cpus: int = 1,
        memory: str | None = None,
        options: Sequence[str] = (),
    ) -> None:
        named = {"partition": partition, "time": time, "gres": gres, "mem": memory}
        self._jobs, self._partition, self._cpus, self._grace = jobs, partition, cpus, grace
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
        answer = _call("sinfo", "--noheader", "--format=%P")
        if answer.returncode:
            raise LabError(
                f"--on slurm: Slurm does not answer here ({_last(answer.stderr)}): type this on a login node, or set "
                "SLURM_CONF to the cluster's slurm.conf"
            )
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
        keeper = shlex.join([sys.executable, "-c", BEGIN, __name__, str(work.path), str(self._grace)])
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
            raise LabError(f"{folder}: sbatch refuses it: {_last(submitted.stderr)}; the same command resumes")
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
            details = f"job {job}" if why == "None" else f"job {job}, {why}"
            found[job] = Seen(known, f"Slurm, partition {partition} ({details})", state == CANCELLED)
    return found


def _call(*command: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer in {ANSWER_SECONDS:.0f} s")


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return re.sub(r"^\w+(:| error:)( error:)? ", "", lines[-1]) if lines else "it does not say why"


def keep(folder: Path, job: str, grace: float = GRACE_SECONDS) -> int:
    """The job: the worker's exit code, which is left in the folder unless the cluster has ended the job."""
    launch = Launch(WorkFolder(folder), name_of(job))
    restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if restarts and launch.record() is None:
        return Exit.STOPPED  # its conductor has noted an end, and no longer waits
    keeper = Keeper(launch)
    signal.signal(signal.SIGTERM, lambda *_: keeper.stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    code = keeper.keep()
    told_by_slurm = code == -signal.SIGTERM or (code == Exit.STOPPED and launch.wanted)
    if not (told_by_slurm and _ended_by_slurm(launch, job, restarts, grace)):
        launch.note(code=code)
    return code


def _ended_by_slurm(launch: Launch, job: str, restarts: int, grace: float) -> bool:
    """Whether Slurm ends the job or will start it again, which is noted for the conductor. It is asked for a requeue
    where the time limit is near or the job is being preempted."""
    answer = _call("scontrol", "show", "job", "--oneliner", job)
    facts = dict(re.findall(r"(\w+)=(\S*)", answer.stdout))
    if "JobState" not in facts:
        print(f"scontrol show job {job}: {_last(answer.stderr)}", file=sys.stderr)
        return False
    if facts["JobState"] != "RUNNING":
        requeued = int(facts.get("Restarts", 0)) > restarts
        launch.note(**{"requeued": "by Slurm (scontrol requeue or preemption)"} if requeued else {"ended": True})
        return True
    if (why := _reason_to_requeue(facts, grace)) is None:
        return False
    launch.note(requeued=why)
    answer = _call("scontrol", "requeue", job)
    if answer.returncode:
        print(f"scontrol requeue {job}: {_last(answer.stderr)}", file=sys.stderr)
        launch.note(requeued=None)
    return not answer.returncode


def _reason_to_requeue(facts: Mapping[str, str], grace: float) -> str | None:
    """Why a running job that was told to stop must begin again, in words; None: the signal came from elsewhere."""
    if facts.get("PreemptTime", "None") != "None":
        return "because it is preempted"
    limit, gone = _seconds(facts.get("TimeLimit", "")), _seconds(facts.get("RunTime", ""))
    near = limit is not None and gone is not None and limit - gone <= grace + EARLY_SECONDS
    return "at its time limit" if near else None


def _seconds(text: str) -> float | None:
    """A duration as Slurm writes it, D-HH:MM:SS with or without days; None for UNLIMITED and the like."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), os.environ["SLURM_JOB_ID"], *map(float, sys.argv[2:3])))
