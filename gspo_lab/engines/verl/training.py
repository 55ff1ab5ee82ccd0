"""Training: verl is started, its log followed, its leavings made records, until the run is complete."""

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gspo_lab.engines.base import Sink, Stop
from gspo_lab.engines.child import Child
from gspo_lab.engines.environments import python_of, versions
from gspo_lab.engines.leavings import Leavings, bench_records, step_records
from gspo_lab.engines.native.prompts import training_prompts
from gspo_lab.engines.step_numbers import Totals
from gspo_lab.engines.verl.attempt import ANSWERS, CHECKPOINTS, HOME, METRICS, UPDATES
from gspo_lab.engines.verl.options import Options, check_here
from gspo_lab.engines.verl.prepare import Prepared, prepare
from gspo_lab.engines.verl.records import told
from gspo_lab.errors import LabError
from gspo_lab.files import whole_folder
from gspo_lab.models.check import write_sums
from gspo_lab.records import Record, RunStatus, StepRecord
from gspo_lab.runfolder import RunFolder
from gspo_lab.study import Run

STEP = "global_step_"
VERSIONS = ("verl", "vllm", "torch", "transformers", "tokenizers", "numpy", "ray")


class Training:
    """One start of verl for a run, from the last of its checkpoints whose steps are all recorded."""

    def __init__(self, run: Run, options: Options, sink: Sink, folder: Path) -> None:
        self.asked = run
        self.options = options
        self.sink = sink
        self.folder = RunFolder(folder)
        self.checkpoints = folder / HOME / CHECKPOINTS

    def train(self, stop: Stop) -> bool:
        """True when the run is complete; False when `stop` asked for an earlier end."""
        if self.folder.final.exists():
            return True
        python = python_of("verl")
        steps = self.asked.settings.steps
        recorded = {one["step"]: one for one in self.folder.records(StepRecord.kind)}
        first = self._last_checkpoint(len(recorded))
        if first < steps:
            resume = self.checkpoints / f"{STEP}{first}" if first else None
            on_gpu = self.asked.settings.device != "cpu" and torch.cuda.is_available()
            check_here(self.options, on_gpu)
            prepared = prepare(self.asked, self.options, self.folder.path, on_gpu=on_gpu, resume=resume, first=first)
            found = prepared.facts | {
                "packages": versions(VERSIONS, python),
                "sampler": {"vllm": versions(["vllm"], python).get("vllm", "")},
            }
            self.sink.write([RunStatus(state="started", step=first, at=time.time(), facts=found)])
            following = Following(self.asked, prepared, self.options.world, Totals.of(recorded.get(first - 1)))
            with Child(prepared.command, cwd=prepared.attempt, env=prepared.environment) as child:
                for line in child.follow(prepared.attempt / METRICS, stop):
                    self.sink.write(following.records(json.loads(line)))
            if stop():
                return False
            if following.done != steps:
                raise LabError(f"verl ended after step {following.done} of {steps}, and said that all was well")
        self._keep_model(steps)
        return True

    def _last_checkpoint(self, recorded: int) -> int:
        """The steps of the last whole checkpoint that goes no further than the records; 0 where there is none.

        verl saves a step's checkpoint before it tells of the step. Those that are of no use any more are deleted.
        """
        found = {int(path.name.removeprefix(STEP)): path for path in self.checkpoints.glob(f"{STEP}*")}
        whole = [step for step, path in found.items() if step <= recorded and (path / "data.pt").exists()]
        last = max(whole, default=0)
        for step, path in found.items():
            if step != last:
                shutil.rmtree(path)
        return last

    def _keep_model(self, steps: int) -> None:
        """The trained model as a Hugging Face folder, where every run has it; verl's own checkpoints are deleted."""
        trained = self.checkpoints / f"{STEP}{steps}" / "actor" / "huggingface"
        with whole_folder(self.folder.final) as folder:
            shutil.copytree(trained, folder)
            write_sums(folder)
        shutil.rmtree(self.checkpoints, ignore_errors=True)


class Following:
    """Turns verl's log into records, line by line."""

    def __init__(self, run: Run, prepared: Prepared, world: int, totals: Totals) -> None:
        self.run = run
        self.prepared = prepared
        self.world = world
        self.totals = totals
        self.done = 0
        """Steps that verl has told of."""
        self._answers = Leavings(prepared.attempt / ANSWERS)
        self._updates = Leavings(prepared.attempt / UPDATES)
        self.stream = training_prompts(run, prepared.task)

    def records(self, line: Mapping[str, Any]) -> list[Record]:
        """What is to be written when verl has told of a step, or of the evaluation before the first."""
        done, data = int(line["step"]), line["data"]
        answers = self._answers.since(done - 1)
        records: list[Record] = []
        if done:
            updates = self._updates.since(done - 1)
            said = told(data)
            records += step_records(
                "verl", self.run, done - 1, said, answers, updates, self.totals, self.stream, self.world
            )
        asked = bench_records(self.run, done, answers)
        if len(asked) not in (0, self.prepared.asked):
            raise LabError(
                f"verl left {len(asked)} answers to the benchmarks after step {done}, not {self.prepared.asked}"
            )
        self.done = done
        # The step last: a checkpoint is taken up only where all that belongs to its steps is recorded.
        return [*asked, *records]
