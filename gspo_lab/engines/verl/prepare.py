"""What an attempt is given: the model, the prompts, the configuration, all written below the run's folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.engines.base import Capabilities
from gspo_lab.engines.environments import home_of
from gspo_lab.engines.facts import facts
from gspo_lab.engines.start import inherited, link_package, next_attempt, start_of
from gspo_lab.engines.verl.attempt import AGENT, HOME, LIB, MODEL, OVERRIDES, TRAIN, VAL, Attempt
from gspo_lab.engines.verl.data import bench_rows, lengths, training_rows, write_rows
from gspo_lab.engines.verl.options import Options
from gspo_lab.engines.verl.overrides import INSIDE, Place, arguments, environment, overrides
from gspo_lab.engines.verl.records import RECORDS
from gspo_lab.models.wording import options_for
from gspo_lab.study import Run, digest
from gspo_lab.tasks import Task, build_task, check_isolation, task_key


@dataclass(frozen=True, slots=True)
class Prepared:
    """An attempt that can be started: its folder, its command, facts of the run."""

    attempt: Path
    command: list[str]
    environment: dict[str, str]
    """All of its environment."""
    facts: dict[str, Any]
    task: Task
    asked: int
    """Answers that an evaluation is made of, all benchmarks together."""


def prepare(
    run: Run, options: Options, folder: Path, *, on_gpu: bool, resume: Path | None = None, first: int = 0
) -> Prepared:
    """Write all that verl needs to train `run` from its step `first` on, whose checkpoint is `resume`."""
    settings, base, home = run.settings, Path(run.base), folder / HOME
    task = build_task(settings.task.name, options_for(settings.task, settings.model), base)
    tables = {bench.name: bench.task or settings.task for bench in settings.bench}
    benches = {name: build_task(table.name, options_for(table, settings.model), base) for name, table in tables.items()}
    for table in (settings.task, *tables.values()):
        check_isolation(table.name, table.options)

    start = start_of(run, home / MODEL)
    known = facts(
        model=start.model,
        tokenizer=start.tokenizer,
        task=task,
        task_keys={
            name: digest(task_key(table.name, options_for(table, settings.model), base))
            for name, table in {"train": settings.task, **tables}.items()
        },
        capabilities=Capabilities(records=RECORDS),
    )

    attempt = next_attempt(home)
    attempt.mkdir(parents=True)
    training, asked = list(training_rows(run, task)), list(bench_rows(run, benches))
    write_rows(attempt / TRAIN, training)
    if asked:
        write_rows(attempt / VAL, asked)
    prompt_tokens, response_tokens = lengths([*training, *asked], start.tokenizer)
    Attempt(attempt, run, first, start.eos_ids).write()
    link_package(attempt / LIB)
    (attempt / AGENT).write_text(f"- name: gspo_lab\n  _target_: {INSIDE}.asking.Asking\n")
    place = Place(attempt, start.where, on_gpu, prompt_tokens, response_tokens, resume)
    python = home_of("verl") / "bin" / "python"
    words = arguments(overrides(run, options, place))
    (attempt / OVERRIDES).write_text("\n".join(words) + "\n")
    return Prepared(
        attempt=attempt,
        command=[str(python), "-u", "-m", f"{INSIDE}.main", *words],
        environment={**inherited(on_gpu, python), **environment(place, options)},
        facts=known,
        task=task,
        asked=sum(row["__rollout_n__"] for row in asked),
    )
