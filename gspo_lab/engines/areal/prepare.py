"""What a start of AReaL is given, all in one folder: the model, the prompts, its configuration, an entry.

areal/
  model/                    the model that AReaL starts from, where the lab makes it
  files/                    AReaL's own: checkpoints, logs
  attempt-1/                one start of it
    run.json, train.json    the run; the prompts in the lab's order
    asked.json              how answers end, and the step to begin with
    config.yaml             AReaL's configuration
    lib/gspo_lab            this package, for AReaL's processes
    stats.jsonl             what AReaL counts of a rollout batch, by its main process
    answers.jsonl           every response, by those who asked
    updates.jsonl           every update, by the first training process
"""

import json
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.engines.areal.configuration import INSIDE, configuration
from gspo_lab.engines.areal.options import Options
from gspo_lab.engines.native.prompts import training_prompts, training_sampling
from gspo_lab.engines.start import Start, link_package, start_of
from gspo_lab.files import write_json
from gspo_lab.models.load import encode_prompt
from gspo_lab.models.wording import options_for
from gspo_lab.study import Run
from gspo_lab.tasks import Task, build_task, check_isolation

CONFIG, DATA, MODEL, FILES, RUN, ASKED, LIB = (
    "config.yaml",
    "train.json",
    "model",
    "files",
    "run.json",
    "asked.json",
    "lib",
)
STATS, ANSWERS, UPDATES = "stats.jsonl", "answers.jsonl", "updates.jsonl"
HOME, MAIN = "GSPO_LAB_AREAL", "GSPO_LAB_AREAL_MAIN"
"""Environment variables of AReaL's processes: the folder of this start; the main process, with which they end."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A start that can be made."""

    command: list[str]
    """For AReaL's Python, with `lib` on its PYTHONPATH."""
    start: Start
    task: Task


def prepare(
    run: Run, options: Options, folder: Path, *, on_gpu: bool, root: Path | None = None, first: int = 0
) -> Prepared:
    """Write all that AReaL needs to train `run` from its step `first` on, on a GPU or not. `root` is where the model
    and AReaL's own files lie, those of earlier starts too."""
    settings, root = run.settings, root or folder
    table = settings.task
    task = build_task(table.name, options_for(table, settings.model), Path(run.base))
    check_isolation(table.name, table.options)
    stream, how = training_prompts(run, task), training_sampling(settings, task)
    asked = [(step, place, one) for step in range(settings.steps) for place, one in enumerate(stream.step(step))]
    rows = [
        {"step": step, "place": place, "id": one.id, "prompt": one.prompt, "answer": one.reference}
        for step, place, one in asked
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DATA).write_text(json.dumps(rows))
    write_json(folder / RUN, run.to_json())
    start = start_of(run, root / MODEL)
    write_json(folder / ASKED, {"stop": list(how.stop), "eos_ids": list(start.eos_ids), "first": first})
    link_package(folder / LIB)
    config = configuration(
        run,
        options,
        home=str(folder),
        files=str(root / FILES),
        model=start.where,
        prompt_tokens=max(len(encode_prompt(start.tokenizer, one.prompt)) for _, _, one in asked),
        max_tokens=how.max_tokens,
        on_gpu=on_gpu,
    )
    # JSON is YAML, and needs no package to be written.
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    return Prepared(["python", "-m", f"{INSIDE}.main", "--config", str(folder / CONFIG)], start, task)
