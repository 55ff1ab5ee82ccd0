"""What AReaL is given: the model, the prompts, its configuration, an entry, all in one folder."""

import json
import shutil
from pathlib import Path

import gspo_lab
from gspo_lab.engines.areal.configuration import configuration
from gspo_lab.engines.areal.options import Options
from gspo_lab.engines.native.prompts import PromptStream
from gspo_lab.files import write_json
from gspo_lab.models.check import EMBEDDED
from gspo_lab.models.load import load_model, quiet
from gspo_lab.study import Run
from gspo_lab.tasks import build_task

CONFIG, DATA, MODEL, RUN, LIB = "config.yaml", "train.json", "model", "run.json", "lib"


def prepare(run: Run, options: Options, folder: Path) -> list[str]:
    """Write it; the command, for AReaL's environment with `lib` on its PYTHONPATH."""
    settings = run.settings
    task = build_task(settings.task.name, settings.task.options, Path(run.base))
    stream = PromptStream(task.problems("train"), run.seed, settings.rollout.prompts_per_step)
    asked = [problem for step in range(settings.steps) for problem in stream.step(step)]
    rows = [
        {"messages": [{"role": "user", "content": one.prompt}], "id": one.id, "answer": one.reference} for one in asked
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DATA).write_text(json.dumps(rows))
    write_json(folder / RUN, run.to_json())
    if not (folder / LIB).exists():
        (folder / LIB).mkdir()
        (folder / LIB / "gspo_lab").symlink_to(Path(gspo_lab.__file__).parent)
    config = configuration(
        run,
        options,
        home=str(folder),
        model=_model(run, folder),
        max_tokens=settings.rollout.max_tokens or task.max_tokens,
        on_gpu=settings.device == "cuda",
    )
    # JSON is YAML, and needs no package to be written.
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    return ["python", "-m", "gspo_lab.engines.areal.inside.main", "--config", str(folder / CONFIG)]


def _model(run: Run, folder: Path) -> str:
    """A folder or Hub id; a model of the lab's own is written."""
    name = run.settings.model
    if name not in EMBEDDED:
        return str(Path(name).expanduser().resolve()) if Path(name).expanduser().is_dir() else name
    if run.warm_start is not None:
        shutil.copytree(run.warm_start, folder / MODEL, dirs_exist_ok=True)
    else:
        model, tokenizer = load_model(name, dtype="float32", device="cpu")
        with quiet():
            model.save_pretrained(folder / MODEL)
            tokenizer.save_pretrained(folder / MODEL)
    return str(folder / MODEL)
