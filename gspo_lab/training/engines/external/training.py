"""A start of a program: its folder is made, the program is started, its log is followed, what it
leaves is recorded.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import gspo_lab
from gspo_lab.common.atomic_files import atomic_folder, write_sums
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Integers, JsonMapping, JsonObject
from gspo_lab.common.states import STARTED, Phase
from gspo_lab.recording.records import AnswerRecord, Record, RunStatus, StepRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Run
from gspo_lab.tasks.evaluation import evaluate
from gspo_lab.training.engines.base import Capabilities, Sink, Stop
from gspo_lab.training.engines.child import WRITTEN, Child
from gspo_lab.training.engines.external.attempt import (
    ANSWERS,
    LIB,
    LOG,
    UPDATES,
    WORKER,
    Attempt,
    PreparedAttempt,
    every_bench_prompt,
    every_training_prompt,
    for_plugin,
)
from gspo_lab.training.engines.external.engine import ExternalEngine
from gspo_lab.training.engines.external.records import StepLines, bench_records, step_records
from gspo_lab.training.engines.facts import facts
from gspo_lab.training.engines.native.prompt_stream import tasks_of, training_prompts
from gspo_lab.training.engines.step_numbers import RunTotals
from gspo_lab.training.engines.virtualenvs import python_of, versions
from gspo_lab.training.models.check import EMBEDDED
from gspo_lab.training.models.load import (
    encode_prompt,
    load_model,
    load_tokenizer,
    silence_transformers,
)
from gspo_lab.training.samplers.stopping import eos_ids
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler


def train(engine: ExternalEngine, run: Run, sink: Sink, path: Path, stop: Stop) -> bool:
    """True when the run is complete; False when `stop` asked for an earlier end."""
    folder = RunFolder(path)
    home = path / engine.name
    steps = run.settings.steps
    if folder.final.exists():
        return True
    recorded = {record["step"]: record for record in folder.records(StepRecord.kind)}
    first_step = engine.saved_steps(home, run, len(recorded))
    if first_step < steps:
        last_step = _start(
            engine, run, sink, folder, stop, first_step, RunTotals.of(recorded.get(first_step - 1))
        )
        if stop():
            return False
        if last_step != steps:
            raise LabError(
                f"{engine.program} ended after step {last_step} of {steps} and reported no error"
            )
    with atomic_folder(folder.final) as final:
        shutil.copytree(engine.model_after(home, run, steps), final)
        write_sums(final)
    for leftover in home.iterdir():  # the attempts stay, with what the program said
        if leftover.is_dir() and not leftover.name.startswith("attempt-"):
            shutil.rmtree(leftover, ignore_errors=True)
    return True


def _packages(packages: Mapping[str, str]) -> JsonObject:
    """The facts that tell the packages of a program, and those of its sampler."""
    sampler = {name: version for name, version in packages.items() if name.startswith("vllm")}
    return {"packages": packages, "sampler": sampler}


def _start(
    engine: ExternalEngine,
    run: Run,
    sink: Sink,
    folder: RunFolder,
    stop: Stop,
    first_step: int,
    totals: RunTotals,
) -> int:
    """Start the program once, from step `first_step` on, and write records; the steps that it has
    come to.
    """
    python = python_of(engine.name)
    on_gpu = run.settings.device != "cpu" and torch.cuda.is_available()
    engine.check_here(on_gpu=on_gpu)
    prepared = prepare(engine, run, folder.path, first_step, on_gpu=on_gpu)
    command, of_engine = engine.configure(prepared)
    attempt = prepared.attempt.path
    start_facts = prepared.facts | _packages(versions(engine.packages, python))
    sink.write([RunStatus(state=STARTED, step=first_step, at=time.time(), facts=start_facts)])
    env = _environment(on_gpu, python) | for_plugin(attempt) | of_engine
    stream = training_prompts(run, prepared.task)
    steps_done = first_step
    lab_asks = not engine.asks_benchmarks
    answers = StepLines(attempt / ANSWERS)
    updates = StepLines(attempt / UPDATES)
    stop_asked = partial(_asked_to_stop, folder, attempt, stop)
    moments = set[int]().union(*(bench.moments(run.settings.steps) for bench in run.settings.bench))

    def evaluated(step: int, model: Path | str) -> list[AnswerRecord]:
        if step not in moments:
            return []
        folder.enter(Phase.EVALUATING)
        return list(_evaluate(prepared, step, str(model), "cuda" if on_gpu else "cpu"))

    if lab_asks and first_step == 0:
        sink.write(evaluated(0, prepared.model))
    folder.enter(Phase.STARTING, f"{engine.program} ({engine.starts})")
    with Child([str(python), *command[1:]], cwd=attempt, env=env, listens=lab_asks) as child:
        for line in child.follow(attempt / LOG, stop_asked):
            report = json.loads(line)
            steps_done = int(report["step"])
            step_answers = answers.since(steps_done - 1)
            model = engine.model_after(folder.path / engine.name, run, steps_done)
            records: list[Record] = []
            if lab_asks:
                records += evaluated(steps_done, model)
            else:
                records += _bench_answers(engine, prepared, steps_done, step_answers)
            if steps_done:  # 0 is the evaluation before the first step
                # The step last: a checkpoint is taken up only where all that belongs to its steps
                # is recorded.
                records += step_records(
                    engine.program,
                    engine.world_size,
                    run,
                    steps_done - 1,
                    engine.step_columns(report["data"]),
                    step_answers,
                    updates.since(steps_done - 1),
                    totals,
                    stream,
                )
            sink.write(records)
            if lab_asks:
                if steps_done < run.settings.steps:
                    shutil.rmtree(model, ignore_errors=True)
                child.send_line(WRITTEN)
    return steps_done


def _asked_to_stop(folder: RunFolder, attempt: Path, stop: Stop) -> bool:
    """Asked now and then while the program works: its first answer ends its start."""
    if folder.phase()[0] is not Phase.TRAINING and (attempt / ANSWERS).exists():
        folder.enter(Phase.TRAINING)
    return stop()


def _bench_answers(
    engine: ExternalEngine,
    prepared: PreparedAttempt,
    step: int,
    answers: Sequence[JsonMapping],
) -> list[AnswerRecord]:
    """The program's answers to the benchmarks after a step: all of them, or none."""
    records = bench_records(step, answers)
    expected = sum(prompt.samples for prompt in prepared.benches)
    if len(records) not in (0, expected):
        raise LabError(
            f"{engine.program} left {len(records)} answers to the benchmarks after step {step}, not"
            f" {expected}"
        )
    return records


def _evaluate(
    prepared: PreparedAttempt, step: int, model: str, device: str
) -> Iterator[AnswerRecord]:
    """The answers of the model, a folder or a Hub id, after `step` steps; asked as the native
    engine asks its own.
    """
    run = prepared.attempt.run
    rollout = run.settings.rollout
    steps = run.settings.steps
    loaded, tokenizer = load_model(model, dtype=rollout.dtype, device=device)
    sampler = TransformersSampler(loaded, tokenizer, rows=rollout.at_a_time)
    for bench in run.settings.bench:
        if step in bench.moments(steps):
            task = prepared.bench_tasks[bench.name]
            yield from evaluate(
                bench, task, sampler, tokenizer, seed=run.seed, step=step, steps=steps
            )


def prepare(
    engine: ExternalEngine, run: Run, folder: Path, first_step: int = 0, *, on_gpu: bool
) -> PreparedAttempt:
    """Make the folder of a start that trains `run` from `first_step` on; the configuration is the
    engine's.
    """
    home = folder / engine.name
    task, benches, task_keys = tasks_of(run)
    numbers = [int(path.name.partition("-")[2]) for path in home.glob("attempt-*")]
    path = home / f"attempt-{max(numbers, default=0) + 1}"
    path.mkdir(parents=True)
    where, tokenizer, ends, model = _start_of(run, home / "model")
    attempt = Attempt(path, run, first_step, ends)
    attempt.write()
    (path / LIB).mkdir()
    (path / LIB / "gspo_lab").symlink_to(Path(gspo_lab.__file__).parent)
    training = list(every_training_prompt(run, task))
    bench_prompts = list(every_bench_prompt(run, benches)) if engine.asks_benchmarks else []
    return PreparedAttempt(
        attempt=attempt,
        on_gpu=on_gpu,
        model=where,
        training=training,
        benches=bench_prompts,
        prompt_tokens=max(
            len(encode_prompt(tokenizer, prompt.problem.prompt))
            for prompt in (*training, *bench_prompts)
        ),
        response_tokens=max(prompt.max_tokens for prompt in (*training, *bench_prompts)),
        task=task,
        bench_tasks=benches,
        facts=facts(
            model=model,
            tokenizer=tokenizer,
            task=task,
            task_keys=task_keys,
            capabilities=Capabilities(records=engine.capabilities.records),
        ),
    )


def _start_of(run: Run, model_folder: Path) -> tuple[str, Any, Integers, Any]:
    """Where the model lies, its tokenizer and the tokens that end a response; the model itself only
    where it is one of the lab's own, which are small: without a warm start it is written into
    `model_folder`."""
    name = run.model
    if name not in EMBEDDED:
        return name, *load_tokenizer(name), None
    warm = None if run.warm_start is None else Path(run.warm_start).resolve()
    model, tokenizer = load_model(name, dtype="float32", device="cpu", checkpoint=warm)
    if warm is None and not (model_folder / "config.json").exists():
        with silence_transformers():
            model.save_pretrained(model_folder)
            tokenizer.save_pretrained(model_folder)
    return str(warm or model_folder), tokenizer, eos_ids(model), model


def _environment(on_gpu: bool, python: Path) -> dict[str, str]:
    """This process's environment with the engine's programs first; on a CPU without the launcher's
    word that there is no GPU, by which Ray would refuse to count the training processes."""
    out = {
        name: value
        for name, value in os.environ.items()
        if on_gpu or name != "CUDA_VISIBLE_DEVICES"
    }
    return out | {
        WORKER: str(os.getpid()),
        "PATH": os.pathsep.join([str(python.parent), out.get("PATH", "")]),
    }
