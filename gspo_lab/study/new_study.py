"""Write a study of one's own: a study file with comments, problems and a grader."""

import json
import os
from pathlib import Path

from gspo_lab.common.atomic_files import atomic_file
from gspo_lab.common.errors import NO_ROOM, LabError
from gspo_lab.common.registry import require_known
from gspo_lab.study.load import fits_as_name
from gspo_lab.study.schema import BUILT_IN_MODELS
from gspo_lab.tasks import BENCHMARKS, TASKS

TEMPLATES = Path(__file__).parent / "templates"
OWN = "own"
"""The task of problems.jsonl and grader.py."""
OWN_TASK = """name = "grader.py:grade"        # a function of your file, or of TRL or verl
problems = "problems.jsonl"     # one {"prompt": ..., "reference": ...} a line; a fifth is held out
max_tokens = 16                 # of a response
"""
LARGEST = 24
"""The problems ask for the larger one of two numbers below this one."""


def write_study(folder: Path, model: str, task: str) -> list[Path]:
    """Write the files of a study into a folder, which may exist; returns their paths, the study's
    first. It is named after the folder, or `study` where a study cannot have that name.

    The quickstart is written beside them. A path of a model starts in the working directory.
    LabError for an unknown task, or if a file of these names is there already.
    """
    require_known("task", task, {OWN: "", **TASKS, **BENCHMARKS})
    has_files = task == OWN
    model_folder = Path(model).expanduser()
    if model not in BUILT_IN_MODELS and model_folder.is_dir():
        model = os.path.relpath(model_folder, folder)
    name = folder.resolve().name
    file = f"{name}.toml" if fits_as_name(name) else "study.toml"
    template = (TEMPLATES / "study.toml").read_text(encoding="utf-8")
    if model not in BUILT_IN_MODELS:
        start, _, remainder = template.partition("[warm_start]")
        template = start + remainder[remainder.index("[rollout]") :]
    texts = {
        file: template.format(
            file=file,
            model=json.dumps(model),
            task=OWN_TASK if has_files else f"name = {json.dumps(task)}\n",
        ),
        "quickstart.toml": (TEMPLATES / "quickstart.toml").read_text(encoding="utf-8"),
    }
    if has_files:
        texts["grader.py"] = (TEMPLATES / "grader.txt").read_text(encoding="utf-8")
        texts["problems.jsonl"] = _problems()
    existing = [file for file in texts if (folder / file).exists()]
    if existing:
        raise LabError(f"{folder / existing[0]} exists: name another folder, gspo-lab init FOLDER")
    try:
        for file, text in texts.items():
            with atomic_file(folder / file) as draft:
                draft.write_text(text, encoding="utf-8")
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        raise LabError(
            f"{folder}: this folder cannot be made or written ({error.strerror}); name another"
            " one, gspo-lab init FOLDER"
        ) from error
    return [folder / file for file in texts]


def _problems() -> str:
    """The lines of problems.jsonl: which of two numbers is larger."""
    lines = []
    for number in range(LARGEST):
        for other in range(LARGEST):
            answer = str(max(number, other))
            problem = {
                "id": f"{number}-{other}",
                "prompt": f"Which is larger, {number} or {other}? Answer with the number only.\n",
                "reference": answer,
                "demonstration": f"{answer}\n",
            }
            lines.append(json.dumps(problem) + "\n")
    return "".join(lines)
