"""The cost of a worker's start: forked from a warm process, and as a command of its own, in turns.

    python benchmarks/start.py [--starts 5]

A start is everything until the journal says "started": importing, reading the model, setting up.
The run has quickstart's shape and cached warm start. Processor time is the worker's own; the
server's imports are stated separately. Prints medians and writes them beside this file.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running.conduct.worker_pool import starts_to_make, write_run
from gspo_lab.running.launch.base import start_worker
from gspo_lab.running.launch.local import LocalPool, LocalProcess
from gspo_lab.study import load_study

STUDY = """
question = "How long does a start take?"
model = "tiny-qwen3"
device = "cpu"
steps = 1000
seeds = {seeds}
task = {{name = "addition", digits = 2, hasty = 0.5}}
[warm_start]
steps = 20
[arm.grpo]
objective = "grpo"
"""
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["GSPO_LAB_CACHE"] = str(Path(name) / "cache")
        found = measured(Path(name), options.starts)
    for way, numbers in found.items():
        print(
            f"{way}: {numbers['processor']:.2f} s of processor time, {numbers['wall']:.2f} s by the"
            " clock"
        )
    print(
        f"forked / command: {found['forked']['processor'] / found['command']['processor']:.2f} of"
        " the processor time"
    )
    Path(__file__).with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")


def measured(home: Path, starts: int) -> dict[str, dict[str, float]]:
    (home / "start.toml").write_text(STUDY.format(seeds=list(range(2 * starts + 1))))
    study = load_study(home / "start.toml")
    runs = home / "runs"
    pool = LocalPool(1)
    (slot,) = pool.slots("cpu")
    for errand in starts_to_make(study.runs(), runs):
        start_worker(errand.folder, slot.environment).wait()
    folders = [write_run(run, runs) for run in study.runs()]
    found: dict[str, list[dict[str, float]]] = {
        "server": [once(folders.pop(), lambda path: pool.start(path, slot))]
    }

    def command(path: Path) -> LocalProcess:
        return LocalProcess(start_worker(RunFolder(path), slot.environment), slot.name)

    for _ in range(starts):
        found.setdefault("forked", []).append(
            once(folders.pop(), lambda path: pool.start(path, slot))
        )
        found.setdefault("command", []).append(once(folders.pop(), command))
    names = {"server": "first (the server imports)", "forked": "forked", "command": "command"}
    return {
        names[way]: {what: statistics.median(one[what] for one in each) for what in each[0]}
        for way, each in found.items()
    }


def once(folder: RunFolder, begin: Any) -> dict[str, float]:
    """Seconds until a worker records its start; then it is killed."""
    began = time.perf_counter()
    process = begin(folder.path)
    while not folder.has_records():
        assert process.poll() is None, folder.log.read_text()
        time.sleep(0.005)
    wall = time.perf_counter() - began
    stat = Path(f"/proc/{folder.lock_holder()}/stat").read_text().rpartition(")")[2].split()
    process.kill()
    return {"wall": wall, "processor": (int(stat[11]) + int(stat[12])) / TICKS}


if __name__ == "__main__":
    main()
