"""The folder of a program's start: the model, the prompts and the facts, before the engine's own configuration."""

import os
from pathlib import Path
from typing import Any

import gspo_lab
from gspo_lab.engines.base import Capabilities
from gspo_lab.engines.exit_with_parent import WORKER
from gspo_lab.engines.external.attempt import LIB, Attempt, Prepared
from gspo_lab.engines.external.engine import ExternalEngine
from gspo_lab.engines.external.prompts import every_bench_prompt, every_training_prompt, task_of
from gspo_lab.engines.facts import facts
from gspo_lab.models.check import EMBEDDED
from gspo_lab.models.load import encode_prompt, load_model, load_tokenizer, quiet
from gspo_lab.models.wording import options_for
from gspo_lab.samplers.stopping import eos_ids
from gspo_lab.study import Run, digest
from gspo_lab.tasks import check_isolation, task_key


def prepare(engine: ExternalEngine, run: Run, folder: Path, first: int = 0) -> Prepared:
    """Make the folder of a start that trains `run` from its step `first` on; the configuration is the engine's."""
    settings, home = run.settings, folder / engine.name
    tables = {bench.name: bench.task or settings.task for bench in settings.bench}
    for table in (settings.task, *tables.values()):
        check_isolation(table.name, table.options)
    task, benches = task_of(run, settings.task), {name: task_of(run, table) for name, table in tables.items()}
    made = [int(path.name.partition("-")[2]) for path in home.glob("attempt-*")]
    path = home / f"attempt-{max(made, default=0) + 1}"
    path.mkdir(parents=True)
    where, tokenizer, ends, model = _start_of(run, home / "model")
    attempt = Attempt(path, run, first, ends)
    attempt.write()
    (path / LIB).mkdir()
    (path / LIB / "gspo_lab").symlink_to(Path(gspo_lab.__file__).parent)
    training, asked = list(every_training_prompt(run, task)), list(every_bench_prompt(run, benches))
    return Prepared(
        attempt=attempt,
        model=where,
        training=training,
        benches=asked,
        prompt_tokens=max(len(encode_prompt(tokenizer, one.problem.prompt)) for one in (*training, *asked)),
        response_tokens=max(one.max_tokens for one in (*training, *asked)),
        task=task,
        facts=facts(
            model=model,
            tokenizer=tokenizer,
            task=task,
            task_keys={
                name: digest(task_key(table.name, options_for(table, settings.model), Path(run.base)))
                for name, table in {"train": settings.task, **tables}.items()
            },
            capabilities=Capabilities(records=engine.capabilities.records),
        ),
    )


def _start_of(run: Run, made: Path) -> tuple[str, Any, tuple[int, ...], Any]:
    """Where the model lies, its tokenizer and the tokens that end a response; the model itself only where it is one of
    the lab's own, which are small: without a warm start it is written into `made`."""
    name = run.settings.model
    if name not in EMBEDDED:
        folder = Path(name).expanduser()
        return str(folder.resolve()) if folder.is_dir() else name, *load_tokenizer(name), None
    warm = None if run.warm_start is None else Path(run.warm_start).resolve()
    model, tokenizer = load_model(name, dtype="float32", device="cpu", checkpoint=warm)
    if warm is None and not (made / "config.json").exists():
        with quiet():
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
    return str(warm or made), tokenizer, eos_ids(model), model


def inherited(on_gpu: bool, python: Path) -> dict[str, str]:
    """This process's environment with the engine's programs first; on a CPU without the launcher's word that there is
    no GPU, by which Ray would refuse to count the training processes."""
    out = {name: value for name, value in os.environ.items() if on_gpu or name != "CUDA_VISIBLE_DEVICES"}
    return out | {WORKER: str(os.getpid()), "PATH": os.pathsep.join([str(python.parent), out.get("PATH", "")])}
