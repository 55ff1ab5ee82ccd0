"""Runs of moe_stability's shape with the built-in models' arithmetic and with transformers' own.

    python benchmarks/same_bits.py [--steps 4] [--rounds 3]

Both take turns, each run in its own process with one thread. Says the processor seconds of
training, without imports, and whether all that was sampled is equal. Writes them beside this file.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STUDY = """
question = "How long does a run take?"
model = "tiny-qwen3-moe"
device = "cpu"
steps = {steps}
seeds = [100]
task = {{name = "addition", digits = 2, hasty = 0.5}}
warm_start = {{steps = 300, batch_size = 16, learning_rate = 4e-3}}
rollout = {{prompts_per_step = 32, group_size = 8}}
update = {{minibatches = 4, learning_rate = 2e-4, warmup_updates = 20}}
bench = [{{name = "addition", problems = 128, every = 2}}]
[arm.gspo]
objective = "gspo"
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(trained(Path(options.side))))
        return
    found: dict[str, list[dict[str, Any]]] = {"lab": [], "transformers": []}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "study.toml").write_text(STUDY.format(steps=options.steps))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GSPO_LAB_CACHE": str(home / "cache")}
        for turn in range(options.rounds):
            for way, rounds in found.items():
                line = [sys.executable, __file__, "--side", str(home / f"{way}-{turn}")]
                done = subprocess.run(line, env=environment, capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(done.stderr)
                rounds.append(json.loads(done.stdout.splitlines()[-1]))
                print(f"{way}: {rounds[-1]['processor']:.2f} s of processor time", flush=True)
    best = {way: min(one["processor"] for one in rounds) for way, rounds in found.items()}
    digests = {str(one["sampled"]) for rounds in found.values() for one in rounds}
    print(f"lab / transformers {best['lab'] / best['transformers']:.3f};", end=" ")
    print("equal samples" if len(digests) == 1 else "DIFFERENT SAMPLES")
    Path(__file__).with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")


def trained(runs: Path) -> dict[str, Any]:
    """Processor seconds of a run, and the digests of what it sampled."""
    from gspo_lab.recording.records import StepRecord
    from gspo_lab.running.conduct.worker_pool import starts_to_make, write_run
    from gspo_lab.running.launch.base import start_worker
    from gspo_lab.study import load_study
    from gspo_lab.training.engines.check import make_engine
    from gspo_lab.training.engines.native import loop  # noqa: F401  (imports are not timed)
    from gspo_lab.training.models import same_bits

    study = load_study(runs.parent / "study.toml")
    for errand in starts_to_make(study.runs(), runs):
        start_worker(errand.folder, os.environ).wait()
    if runs.name.startswith("transformers"):
        same_bits.applies = lambda _: False
    (run,) = study.runs()
    folder = write_run(run, runs)
    steps: list[StepRecord] = []

    class Sink:
        def write(self, records: Any) -> None:
            steps.extend(record for record in records if isinstance(record, StepRecord))

    began = time.process_time()
    assert make_engine(folder.run()).train(folder.run(), Sink(), folder.path, lambda: False)
    seconds = time.process_time() - began
    return {"processor": seconds, "sampled": [one.logprob_digest for one in steps]}


if __name__ == "__main__":
    main()
