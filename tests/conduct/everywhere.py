"""The quickstart wherever it can run, through what goes wrong there; one report, and whether the records are the same.

python tests/conduct/everywhere.py FOLDER [--only local,ray] [options of `gspo-lab run`, such as --steps 4 --seeds 2]

    local           as it is
    ray             a head and two nodes on this machine, one of them killed while a run trains there
    slurm           one node on this machine: requeued at a time limit, stopped, lost while two runs train
    trl-1, trl-2    TRL's trainer, with one process and with two

Ray and Slurm listen on this machine alone, and end with the script. What is finished is not run again.
"""

import argparse
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counting import parent_of
from ray_nodes import RayNodes
from slurm_daemons import SlurmDaemons
from trained import timeless
from waiting import until

from gspo_lab.launch.afar import whereabouts
from gspo_lab.records import RunStatus
from gspo_lab.runfolder import RunFolder, run_folders

STUDY = Path(__file__).parents[2] / "studies" / "quickstart.toml"
PATIENCE = 4 * 3600.0
"""Seconds after which a state is waited for in vain, on however busy a machine."""
LIMITED = ("launch.slurm.time='2'", "launch.slurm.grace=90")
"""A time limit that comes before a run is done: TERM within 30 of 120 seconds."""


@dataclass(frozen=True)
class Everywhere:
    """The executions of one study in one folder of runs, each under the name of the way in which it was run."""

    home: Path
    words: tuple[str, ...]
    """Options of `gspo-lab run` for all of them."""

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    def folders(self, name: str) -> list[RunFolder]:
        return sorted(run_folders(self.runs / name), key=lambda one: one.path)

    def finished(self, name: str) -> bool:
        found = self.folders(name)
        return bool(found) and all(one.standing().finished for one in found)

    @contextmanager
    def conducted(self, name: str, *words: str) -> "Iterator[Conductor]":
        """`gspo-lab run` on it, its output appended to NAME.log; ended, if it still runs, when the block ends."""
        command = [sys.executable, "-m", "gspo_lab", "run", str(STUDY), "--name", name, *self.words, *words]
        path = self.home / f"{name}.log"
        with path.open("ab") as log:
            process = subprocess.Popen(
                [*command, "--runs", str(self.runs), "--output-dir", str(self.home / "reports")],
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            conductor = Conductor(process, path, log.tell())
        try:
            yield conductor
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def whole(self, name: str, *words: str) -> None:
        """Run it to its end."""
        with self.conducted(name, *words) as conductor:
            conductor.ends(0)

    def training(self, conductor: "Conductor", name: str, count: int) -> list[RunFolder]:
        """The runs that are at work and have made a step; waits until there are `count`, or as many as are left."""

        def found() -> list[RunFolder]:
            busy = [one for one in self.folders(name) if one.at_work() and one.standing().steps > 0]
            left = sum(not one.standing().finished for one in self.folders(name))
            return busy if len(busy) >= min(count, max(1, left)) else []

        return list(conductor.until(found))

    def records(self, name: str) -> dict[str, set[str]]:
        """By run every record in force without its times, and the digest of the trained weights, as lines.

        A benchmark that was asked again, of a run that was lost before its first checkpoint, counts once if it was
        answered alike. Statuses are left out: they say how often a worker began.
        """
        return {
            "/".join(one.path.parts[-2:]): {
                *(json.dumps(timeless(each)) for each in one.records() if each["kind"] != RunStatus.kind),
                *(f"{path.name} {digest(path)}" for path in one.final.glob("*.safetensors")),
            }
            for one in self.folders(name)
        }


@dataclass
class Conductor:
    """A `gspo-lab run` and what it says, from a place of its log on."""

    process: "subprocess.Popen[bytes]"
    log: Path
    read: int

    def until(self, true: Callable[[], Any]) -> Any:
        """What `true` returns once it is true. AssertionError if the command ends before."""

        def found() -> Any:
            ended = self.process.poll() is not None
            told = true()
            assert told or not ended, f"it ended too early: {self.said[-2000:]}"
            return told

        return until(found, PATIENCE)

    @property
    def said(self) -> str:
        return self.log.read_bytes()[self.read :].decode()

    def says(self, word: str) -> None:
        """Wait until `word` stands behind what was waited for before."""
        place = self.until(lambda: self.said.find(word) + 1)
        self.read += len(self.said[: place - 1 + len(word)].encode())

    def ends(self, code: int) -> None:
        """Wait until it ends."""
        assert self.process.wait() == code, self.said[-2000:]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def worker_of(run: RunFolder) -> int:
    return int((run.path / "lock").read_text().split()[0])


def local(lab: Everywhere) -> str:
    lab.whole("local")
    return "as it is"


def ray(lab: Everywhere) -> str:
    nodes = RayNodes()
    try:
        with lab.conducted("ray", "--on", nodes.on) as conductor:
            run = lab.training(conductor, "ray", 1)[0]
            place, worker = whereabouts(run)["place"], worker_of(run)
            nodes.lose(place.partition("Ray node ")[2].rstrip(")"), parent_of(worker), worker)
            conductor.says(": lost at step ")
            nodes.add()
            conductor.says(", retry 1")
            conductor.ends(0)
    finally:
        nodes.close()
    return f"{'/'.join(run.path.parts[-2:])} lost with its node, begun again on another"


def slurm(lab: Everywhere) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = lab.home / "slurm"
    home.mkdir(exist_ok=True)
    daemons = SlurmDaemons(home / str(port), port)
    try:
        os.environ |= daemons.environment
        limits = [word for one in LIMITED for word in ("--set", one)]
        with lab.conducted("slurm", "--on", "slurm", *limits) as conductor:
            conductor.says("requeued at its time limit")
            conductor.says(", retry 1")
            conductor.process.send_signal(signal.SIGINT)
            conductor.ends(130)
        assert daemons.ask("squeue", "--noheader", "--states=PENDING,RUNNING") == "", "a stop that stays stopped"
        with lab.conducted("slurm", "--on", "slurm") as conductor:
            lost = lab.training(conductor, "slurm", 2)
            daemons.lose_node(*map(worker_of, lost))
            conductor.says(": lost at step ")
            daemons.node()
            conductor.says(", retry 1")
            conductor.ends(0)
    finally:
        daemons.close()
    return f"requeued at a time limit, stopped, node lost with {len(lost)} runs, gone on with"


def trl_1(lab: Everywhere) -> str:
    lab.whole("trl-1", "--set", "engine.name=trl")
    return "one process a run"


def trl_2(lab: Everywhere) -> str:
    lab.whole("trl-2", "--set", "engine.name=trl", "--set", "engine.options.processes=2", "--jobs", "1")
    return "two processes a run"


WAYS = {"local": local, "ray": ray, "slurm": slurm, "trl-1": trl_1, "trl-2": trl_2}
SAME = ("ray", "slurm")
"""Those whose records must be local's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path, metavar="FOLDER")
    parser.add_argument("--only", default=",".join(WAYS), help="which of them, by commas")
    asked, words = parser.parse_known_args()
    lab = Everywhere(asked.home.resolve(), tuple(words))
    lab.home.mkdir(parents=True, exist_ok=True)
    names = asked.only.split(",")
    for name in names:
        began = time.monotonic()
        how = "finished before" if lab.finished(name) else WAYS[name](lab)
        print(f"{name}: {how}; {len(lab.folders(name))} runs finished, {time.monotonic() - began:.0f} s", flush=True)
    here = lab.records("local") if lab.finished("local") else {}
    for name in names:
        if here and name in SAME:
            there = lab.records(name)
            count = sum(map(len, there.values()))
            assert there == {run: here[run] for run in there}, f"{name}: other records than local's"
            print(f"{name}: {count} records and weights of {len(there)} runs equal local's bit for bit")
    report = [sys.executable, "-m", "gspo_lab", "report", *names, "--runs", str(lab.runs)]
    subprocess.run([*report, "--output-dir", str(lab.home / "reports")], check=True)


if __name__ == "__main__":
    main()
