"""The cost of records inside TRL: every other step of one run is recorded, the other steps are
TRL's alone.

    pip install -c constraints.txt -e '.[trl]'
    python benchmarks/trl_records.py          # dense, one process, 12 steps of each kind
    python benchmarks/trl_records.py --model tiny-qwen3-moe --steps 20

The run has 32 prompts x 8 responses of at most 29 tokens, 4 mini-batches, an advantage in every
group, and one thread. A recorded step writes all of a step's records to a journal. In the other
steps TRL's trainer has its own methods back; only samples and rewards are ours. The figure is the
process's CPU time, which other work disturbs less than wall time. It leaves out the wait for the
disk. Two results per update are printed and written beside this file:

    records_share       CPU time of the recording functions, as a share of a TRL step with its
    sampling
    difference_share    how much longer recorded steps took, with quartiles; it includes the
                        routers' hooks and the noise of two medians
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from trl import GRPOTrainer

from gspo_lab.recording.journal import Journal
from gspo_lab.study import load_study
from gspo_lab.training.engines.native.loop import TrainingRun
from gspo_lab.training.engines.native.optimizer_update import Updater
from gspo_lab.training.engines.native.step_record import Clock
from gspo_lab.training.engines.trl import trainer
from gspo_lab.training.engines.trl.gather import Share
from gspo_lab.training.engines.trl.trainer import LabTrainer

STUDY = """
question = "What do records cost?"
model = "{model}"
steps = {steps}
seeds = [0]
device = "cpu"
[task]
name = "coin.py:grade"
problems = "problems.jsonl"
held_out = 0.1
max_tokens = 29
[rollout]
prompts_per_step = 32
group_size = 8
[update]
minibatches = 4
learning_rate = 1e-4
checkpoint_every = 100000
[arm.gspo]
objective = "gspo"
"""
COIN = """
import itertools
calls = itertools.count()

def grade(problem, answer):
    return float(next(calls) % 2)
"""
FIRST = 2
"""Steps of each kind that are left out, while caches warm up."""


class Alternating(LabTrainer):  # type: ignore[misc]
    """Records only even steps."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.recorded = self.step % 2 == 0
        self.done = 0
        self.began = time.process_time()
        if self.recorded:
            return super()._generate_and_score_completions(inputs)
        self.clock = Clock()
        self.share = Share()
        return GRPOTrainer._generate_and_score_completions(self, inputs)

    def _get_per_token_logps_and_entropies(self, *args: Any, **how: Any) -> Any:
        chosen = LabTrainer if self.recorded else GRPOTrainer
        return chosen._get_per_token_logps_and_entropies(self, *args, **how)

    def _compute_loss(self, *args: Any) -> Any:
        return (LabTrainer if self.recorded else GRPOTrainer)._compute_loss(self, *args)

    def _clip_grad_norm(self, *args: Any) -> Any:
        return (LabTrainer if self.recorded else GRPOTrainer)._clip_grad_norm(self, *args)

    def _updated(self, logs: dict[str, float]) -> None:
        self.done += 1
        if self.recorded:
            super()._updated(logs)
        elif self.done == self.per_step:
            self.course.components.sampler.refresh()
            self.step += 1
        if self.done == self.per_step:
            SECONDS[self.recorded].append(time.process_time() - self.began)
            if self.recorded:
                PARTS.append(sum(IN_PARTS))
                IN_PARTS.clear()


SECONDS: dict[bool, list[float]] = {True: [], False: []}
"""CPU seconds of recorded and of other steps."""
PARTS: list[float] = []
"""CPU seconds of the recording functions, per recorded step."""
IN_PARTS: list[float] = []


def timed(home: Any, name: str) -> None:
    """Make a function add its time to IN_PARTS."""
    plain = getattr(home, name)

    def one(*args: Any, **how: Any) -> Any:
        began = time.process_time()
        out = plain(*args, **how)
        IN_PARTS.append(time.process_time() - began)
        return out

    setattr(home, name, one)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="tiny-qwen3", choices=["tiny-qwen3", "tiny-qwen3-moe"])
    parser.add_argument("--steps", type=int, default=12, help="steps of each kind")
    options = parser.parse_args()
    trainer.LabTrainer = Alternating
    for home, name in (
        (trainer, "updated"),
        (Share, "gathered"),
        (TrainingRun, "record"),
        (Updater, "router_grad_norm"),
    ):
        timed(home, name)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "coin.py").write_text(COIN)
        problems = [{"prompt": f"{i} + {7 * i} =", "reference": str(8 * i)} for i in range(400)]
        (folder / "problems.jsonl").write_text("\n".join(map(json.dumps, problems)))
        (folder / "cost.toml").write_text(
            STUDY.format(model=options.model, steps=2 * options.steps)
        )
        (run,) = load_study(folder / "cost.toml").runs()
        with Journal(folder) as journal:
            trainer.train(run, journal, folder, lambda: False, 1, 1)
    alone = statistics.quantiles(SECONDS[False][FIRST:], n=4)
    recorded = statistics.quantiles(SECONDS[True][FIRST:], n=4)
    records = statistics.median(PARTS[FIRST:])
    updates = run.settings.update.minibatches
    found = {
        "model": options.model,
        "steps_of_each_kind": options.steps - FIRST,
        "trl_ms_per_update": [round(1000 * x / updates, 2) for x in alone],
        "recorded_ms_per_update": [round(1000 * x / updates, 2) for x in recorded],
        "records_ms_per_update": round(1000 * records / updates, 2),
        "records_share": round(records / alone[1], 4),
        "difference_share": round(recorded[1] / alone[1] - 1, 4),
    }
    print(json.dumps(found, indent=1))
    place = Path(__file__).with_name(f"trl_records_{options.model}.json")
    place.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
