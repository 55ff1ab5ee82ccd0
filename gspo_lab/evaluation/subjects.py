"""Who can be asked: the checkpoints of a run, a model, a model behind a server.

What loads a model and what talks to a server is imported where it is needed: each has an extra of its own.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_lab.errors import LabError
from gspo_lab.evaluation.session import Subject
from gspo_lab.layout import SUBJECTS
from gspo_lab.models.check import EMBEDDED, check_model, folder_digest
from gspo_lab.models.wording import has_chat_template
from gspo_lab.runfolder import RunFolder, SubjectFolder
from gspo_lab.study import digest

if TYPE_CHECKING:
    from gspo_lab.evaluation.local import Dtype
    from gspo_lab.samplers.server_sampler import Server


def run_subjects(folder: RunFolder, *, device: str = "auto") -> list[Subject]:
    """The start and the end of a finished run, read from its folder; LabError where it has not finished."""
    from gspo_lab.evaluation.local import LocalModel, device_of

    run = folder.run()
    if not folder.final.is_dir():
        raise LabError(f"{run.id} has no final checkpoint; finish it first with gspo-lab run")
    places = {0: None if run.warm_start is None else Path(run.warm_start), run.settings.steps: folder.final}
    dtype = run.settings.rollout.dtype
    model, on = run.settings.model, device_of(device)
    weights = {step: _weights(model, place) for step, place in places.items()}
    thinking = run.settings.rollout.thinking
    content = {
        "kind": "run",
        "name": run.id,
        "model": model,
        "dtype": dtype,
        "thinking": thinking,
        "checkpoints": {str(step): digest for step, digest in weights.items()},
    }
    models = {
        step: LocalModel(model, place, dtype=dtype, device=on, thinking=thinking) for step, place in places.items()
    }
    return [
        Subject(run.id, folder, run.seed, step, content, models[step], f"{weights[step]} {dtype} {thinking}")
        for step in places
    ]


def run_chats(folder: RunFolder) -> bool:
    """Whether a run asked its model as a chat model. Its last checkpoint has the tokenizer; the model's folder may have
    gone."""
    return has_chat_template(str(folder.final) if folder.final.is_dir() else folder.run().settings.model)


def model_subject(runs: Path, name: str, *, seed: int = 0, device: str = "auto") -> Subject:
    """A model folder, a Hub id or an embedded model. LabError where it cannot be loaded, as far as can be seen."""
    from gspo_lab.evaluation.local import LocalModel, device_of

    check_model(name)
    on = device_of(device)
    folder = Path(name).expanduser()
    named, shown = (name, name) if name in EMBEDDED or not folder.is_dir() else (str(folder.resolve()), folder.name)
    dtype: Dtype = "bfloat16" if on == "cuda" and name not in EMBEDDED else "float32"
    content: dict[str, Any] = {"kind": "model", "name": named, "dtype": dtype, "weights": _weights(name, None)}
    if name in EMBEDDED:
        content["drawn_from_seed"] = seed
    respondent = LocalModel(name, None, dtype=dtype, device=on, seed=seed)
    return _declared(runs, shown, seed, content, respondent)


def server_subject(runs: Path, server: "Server", *, seed: int = 0) -> Subject:
    """The model of a server. The key does not identify it, and is kept nowhere."""
    from gspo_lab.evaluation.remote import ServerModel

    content = {"kind": "server", "name": server.model, "url": server.url.rstrip("/")}
    return _declared(runs, server.model, seed, content, ServerModel(server))


def _declared(runs: Path, shown: str, seed: int, content: dict[str, Any], respondent: Any) -> Subject:
    """The name holds a digest of what the subject is: other weights in the same folder are another subject."""
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", shown).strip("-.")[:60]
    name = f"{slug or 'model'}-{digest(content)[:8]}"
    return Subject(f"{SUBJECTS}/{name}", SubjectFolder(runs / SUBJECTS / name), seed, 0, content, respondent)


def _weights(name: str, folder: Path | None) -> str | None:
    """What tells a model's weights from others: a digest of its files, or the commit on the Hub; None if embedded."""
    if folder is not None and not folder.is_dir():
        # The same command would not: it has no finished run to make a start for.
        raise LabError(f"{folder} has gone; gspo-lab run STUDY.toml --name NEW makes a lost warm start again")
    place = folder or Path(name).expanduser()
    if folder is None and name in EMBEDDED:
        return None
    if place.is_dir():
        return folder_digest(place)
    from gspo_lab.models.load import hub_revision

    return hub_revision(name)
