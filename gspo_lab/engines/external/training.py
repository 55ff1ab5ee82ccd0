"""Training: the program is started, its log is followed, and what it leaves becomes records."""

import json
import shutil
import time
from pathlib import Path

import torch

from gspo_lab.engines.base import Sink, Stop
from gspo_lab.engines.child import Child
from gspo_lab.engines.environments import python_of, versions
from gspo_lab.engines.external.attempt import ANSWERS, LOG, UPDATES, for_plugin
from gspo_lab.engines.external.engine import ExternalEngine
from gspo_lab.engines.external.prepare import inherited, prepare
from gspo_lab.engines.external.records import Lines, bench_records, step_records
from gspo_lab.engines.native.prompts import training_prompts
from gspo_lab.engines.step_numbers import Totals
from gspo_lab.errors import LabError
from gspo_lab.files import whole_folder, write_sums
from gspo_lab.records import RunStatus, StepRecord
from gspo_lab.runfolder import RunFolder
from gspo_lab.states import STARTED
from gspo_lab.study import Run


def train(engine: ExternalEngine, run: Run, sink: Sink, path: Path, stop: Stop) -> bool:
    """True when the run is complete; False when `stop` asked for an earlier end."""
    folder, home, steps = RunFolder(path), path / engine.name, run.settings.steps
    if folder.final.exists():
        return True
    recorded = {one["step"]: one for one in folder.records(StepRecord.kind)}
    first = engine.saved_steps(home, run, len(recorded))
    if first < steps:
        done = _start(engine, run, sink, path, stop, first, Totals.of(recorded.get(first - 1)))
        if stop():
            return False
        if done != steps:
            raise LabError(f"{engine.program} ended after step {done} of {steps}, and said that all was well")
    with whole_folder(folder.final) as final:
        shutil.copytree(engine.trained_model(home, run), final)
        write_sums(final)
    for left in home.iterdir():  # the attempts stay, with what the program said
        if left.is_dir() and not left.name.startswith("attempt-"):
            shutil.rmtree(left, ignore_errors=True)
    return True


def _start(engine: ExternalEngine, run: Run, sink: Sink, path: Path, stop: Stop, first: int, totals: Totals) -> int:
    """Start the program once, from step `first` on, and write records; the steps that it has come to."""
    python, on_gpu = python_of(engine.name), run.settings.device != "cpu" and torch.cuda.is_available()
    engine.check_here(on_gpu=on_gpu)
    prepared = prepare(engine, run, path, first)
    command, own = engine.configure(prepared, on_gpu=on_gpu)
    attempt, packages = prepared.attempt.path, versions(engine.packages, python)
    sampler = {name: version for name, version in packages.items() if name.startswith("vllm")}
    facts = prepared.facts | {"packages": packages, "sampler": sampler}
    sink.write([RunStatus(state=STARTED, step=first, at=time.time(), facts=facts)])
    env = inherited(on_gpu, python) | for_plugin(attempt) | own
    stream, done = training_prompts(run, prepared.task), first
    answers, updates = Lines(attempt / ANSWERS), Lines(attempt / UPDATES)
    wanted = sum(prompt.samples for prompt in prepared.benches)
    with Child([str(python), *command[1:]], cwd=attempt, env=env) as child:
        for line in child.follow(attempt / LOG, stop):
            said = json.loads(line)
            done = int(said["step"])
            left = answers.since(done - 1)
            asked = bench_records(done, left)
            if len(asked) not in (0, wanted):
                raise LabError(
                    f"{engine.program} left {len(asked)} answers to the benchmarks after step {done}, not {wanted}"
                )
            made = []
            if done:  # 0 is the evaluation before the first step
                said_of_step, trained = engine.step_of(said["data"]), updates.since(done - 1)
                made = step_records(
                    engine.program, engine.processes, run, done - 1, said_of_step, left, trained, totals, stream
                )
            # The step last: a checkpoint is taken up only where all that belongs to its steps is recorded.
            sink.write([*asked, *made])
    return done
