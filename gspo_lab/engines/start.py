"""What a program with an environment of its own is started with: the model, and this process's environment."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gspo_lab
from gspo_lab.engines.orphan import WORKER
from gspo_lab.models.check import EMBEDDED
from gspo_lab.models.load import load_model, load_tokenizer, quiet
from gspo_lab.samplers.stopping import eos_ids
from gspo_lab.study import Run


@dataclass(frozen=True, slots=True)
class Start:
    """What another program starts from. The model itself only where it is one of the lab's own, and small."""

    where: str
    tokenizer: Any
    eos_ids: tuple[int, ...]
    model: Any = None


def start_of(run: Run, made: Path) -> Start:
    """The model where it lies, or written into `made` where it is one of the lab's own; others are not loaded here."""
    name = run.settings.model
    if name not in EMBEDDED:
        folder = Path(name).expanduser()
        return Start(str(folder.resolve()) if folder.is_dir() else name, *load_tokenizer(name))
    warm = None if run.warm_start is None else Path(run.warm_start).resolve()
    model, tokenizer = load_model(name, dtype="float32", device="cpu", checkpoint=warm)
    if warm is None and not (made / "config.json").exists():
        with quiet():
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
    return Start(str(warm or made), tokenizer, eos_ids(model), model)


def next_attempt(home: Path) -> Path:
    """The folder of the next start below a run's folder for the program. It is not made yet."""
    made = [int(path.name.partition("-")[2]) for path in home.glob("attempt-*")]
    return home / f"attempt-{max(made, default=0) + 1}"


def link_package(folder: Path) -> None:
    """Make a folder from which the program's processes import this very package, and nothing else."""
    folder.mkdir(exist_ok=True)
    link = folder / "gspo_lab"
    if not link.is_symlink():
        link.symlink_to(Path(gspo_lab.__file__).parent)


def inherited(on_gpu: bool, python: Path) -> dict[str, str]:
    """This process's environment with the engine's programs first; on a CPU without the launcher's word that there is
    no GPU, by which Ray would refuse to count the training processes."""
    out = {name: value for name, value in os.environ.items() if on_gpu or name != "CUDA_VISIBLE_DEVICES"}
    return out | {WORKER: str(os.getpid()), "PATH": os.pathsep.join([str(python.parent), out.get("PATH", "")])}
