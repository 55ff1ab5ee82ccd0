"""A folder of TensorBoard's event files, from files to a report, beside TensorBoard's own loading
of that folder.

    python benchmarks/tensorboard_import.py [--runs 20] [--steps 10000] [--metrics 20] [--to FOLDER]

TensorBoard writes the files (`EventFileWriter`, one scalar per event, as programs do that log by
name). Then each reader has its own processes, in turns. The readers are TensorBoard's
`EventAccumulator` and its data server, which keep every point instead of 1,000 per metric, and
`gspo-lab import` with `gspo-lab report`. Prints wall-clock seconds, processor seconds and peak
memory. The data server's own processor time and memory are not included. Needs `pip install -e
'.[import]'`.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

NAMES = (
    "critic/score/mean",
    "actor/pg_clipfrac",
    "actor/grad_norm",
    "response_length/mean",
    "actor/ppo_kl",
)
PEER = (
    "import sys\nfrom pathlib import Path\nsys.path.insert(0,"
    f" {str(Path(__file__).parent)!r})\nimport report_peers\nhow, folder, *sizes ="
    " sys.argv[1:]\ngetattr(report_peers, how)(*map(int, sizes), Path(folder))\n"
)
LAB = "import sys\nfrom gspo_lab.cli import main\nsys.argv[0] = 'gspo-lab'\nmain()\n"
Measured = tuple[float, float, float]
"""Wall-clock seconds, processor seconds, MB."""


def write(folder: Path, runs: int, steps: int, metrics: int) -> None:
    """Each arm has half of the runs; every run has its own numbers."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    names = [NAMES[i] if i < len(NAMES) else f"own/number_{i}" for i in range(metrics)]
    for run in range(runs):
        writer = EventFileWriter(
            str(folder / f"{('grpo', 'gspo')[run % 2]}-s{run // 2}"), max_queue_size=1000
        )
        for step in range(1, steps + 1):
            for place, name in enumerate(names):
                value = (0.5 + 0.001 * run + 0.1 * place + step / (2 * steps)) % 1
                summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
                writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=summary))
        writer.close()


def timed(*command: str) -> Measured:
    """One process, which must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command[3:6])}: exit code {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, used.ru_maxrss / 1000


def told(name: str, times: Sequence[Measured]) -> tuple[float, float]:
    """A line with the least of each; the least wall-clock and processor seconds."""
    wall, cpu, memory = map(min, zip(*times, strict=True))
    print(f"{name:34} {wall:7.1f} s  {cpu:7.1f} s of processor  {memory:6.0f} MB")
    return wall, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, value in (("runs", 20), ("steps", 10_000), ("metrics", 20), ("times", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--to", type=Path, help="keep the files, and what is made of them, here")
    asked = parser.parse_args()
    sizes = (str(asked.runs), str(asked.steps), str(asked.metrics))
    python = (sys.executable, "-c")
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(asked.to or temporary)
        logs = place / "logs"
        if not logs.exists():
            write(logs, asked.runs, asked.steps, asked.metrics)
        size = sum(file.stat().st_size for file in logs.rglob("*tfevents*")) / 1e6
        print(f"{asked.runs} runs x {asked.steps} steps x {asked.metrics} metrics, {size:.0f} MB")
        found: dict[str, list[Measured]] = {}
        for turn in range(asked.times):
            runs = str(place / f"runs-{turn}")
            options = (
                "--study",
                "tb",
                "--logged-by",
                "verl",
                "--score-metric",
                "critic/score/mean",
                "--runs",
                runs,
            )
            folder = ("--output-dir", str(place / "reports"))
            commands = {
                "TensorBoard, EventAccumulator": (
                    *python,
                    PEER,
                    "event_accumulator",
                    str(logs),
                    *sizes,
                ),
                "TensorBoard, data server": (*python, PEER, "fast_loader", str(logs), *sizes),
                "gspo-lab import": (
                    *python,
                    LAB,
                    "import",
                    "tensorboard",
                    f"{logs}/{{arm}}-s{{seed}}",
                    *options,
                ),
                "gspo-lab report": (*python, LAB, "report", "tb", "--runs", runs, *folder),
            }
            for name, command in commands.items():
                found.setdefault(name, []).append(timed(*command))
        least = {name: told(name, times) for name, times in found.items()}
        theirs = least["TensorBoard, EventAccumulator"]
        ours = [
            sum(two) for two in zip(least["gspo-lab import"], least["gspo-lab report"], strict=True)
        ]
        clock, processor = (one / other for one, other in zip(ours, theirs, strict=True))
        print(
            f"from files to a report: {ours[0]:.1f} s, {clock:.2f} of EventAccumulator's loading by"
            f" the clock, {processor:.2f} of its processor time; best of {asked.times}"
        )


if __name__ == "__main__":
    main()
