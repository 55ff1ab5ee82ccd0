"""The models that can be evaluated: checkpoints of a run, a model, a model behind a server.

Modules that load a model or talk to a server are imported at first use, because they need different
extras.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_lab.common.atomic_files import folder_digest
from gspo_lab.common.errors import LabError
from gspo_lab.common.keys import Dtype
from gspo_lab.common.paths import SUBJECTS
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.runfolder import RunFolder, SubjectFolder
from gspo_lab.study import digest
from gspo_lab.tasks.evaluation.evaluation_run import EvaluatedModel
from gspo_lab.training.models.check import EMBEDDED, check_model
from gspo_lab.training.models.wording import has_chat_template

if TYPE_CHECKING:
    from gspo_lab.training.samplers.server_sampler import ServerEndpoint


def run_subjects(folder: RunFolder, *, device: str = "auto") -> list[EvaluatedModel]:
    """The starting and the final model of a finished run. LabError if it has not finished."""
    from gspo_lab.tasks.evaluation.local_model import LocalModel
    from gspo_lab.training.models.load import device_of

    run = folder.run()
    if not folder.final.is_dir():
        raise LabError(f"{run.id} has no final checkpoint; finish it first with gspo-lab run")
    dtype = run.settings.rollout.dtype
    thinking = run.settings.rollout.thinking
    places = {
        0: None if run.warm_start is None else Path(run.warm_start),
        run.settings.steps: folder.final,
    }
    on = str(device_of(device))
    weights = {step: _weights(run.model, place) for step, place in places.items()}
    content = {
        "kind": "run",
        "name": run.id,
        "model": run.settings.model,
        "dtype": dtype,
        "thinking": thinking,
        "checkpoints": {str(step): digest for step, digest in weights.items()},
    }
    subjects = []
    for step, place in places.items():
        client = LocalModel(run.model, place, dtype=dtype, device=on, thinking=thinking)
        same = f"{weights[step]} {dtype} {thinking}"
        subjects.append(EvaluatedModel(run.id, folder, run.seed, step, content, client, same))
    return subjects


def run_chats(folder: RunFolder) -> bool:
    """Whether a run used its model as a chat model, by its last checkpoint: the model's folder may
    have gone.
    """
    return has_chat_template(str(folder.final) if folder.final.is_dir() else folder.run().model)


def model_subject(runs: Path, name: str, *, seed: int = 0, device: str = "auto") -> EvaluatedModel:
    """A model folder, a Hub id or a built-in model.

    LabError if a check shows that it cannot be loaded.
    """
    from gspo_lab.tasks.evaluation.local_model import LocalModel
    from gspo_lab.training.models.load import device_of

    check_model(name)
    on = str(device_of(device))
    folder = Path(name).expanduser()
    identity, label = (
        (name, name)
        if name in EMBEDDED or not folder.is_dir()
        else (str(folder.resolve()), folder.name)
    )
    dtype: Dtype = "bfloat16" if on.startswith("cuda") and name not in EMBEDDED else "float32"
    content: JsonObject = {
        "kind": "model",
        "name": identity,
        "dtype": dtype,
        "weights": _weights(name, None),
    }
    if name in EMBEDDED:
        content["drawn_from_seed"] = seed
    client = LocalModel(name, None, dtype=dtype, device=on, seed=seed)
    return _evaluated_model(runs, label, seed, content, client)


def server_subject(runs: Path, server: "ServerEndpoint", *, seed: int = 0) -> EvaluatedModel:
    """The model of a server. The key does not identify it and is not stored."""
    from gspo_lab.tasks.evaluation.server_model import ServerModel

    content = {"kind": "server", "name": server.model, "url": server.url.rstrip("/")}
    return _evaluated_model(runs, server.model, seed, content, ServerModel(server))


def _evaluated_model(
    runs: Path, label: str, seed: int, content: JsonObject, client: Any
) -> EvaluatedModel:
    """A model whose folder name contains a digest of its content: other weights get another
    folder.
    """
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-.")[:60]
    name = f"{slug or 'model'}-{digest(content)[:8]}"
    return EvaluatedModel(
        f"{SUBJECTS}/{name}", SubjectFolder(runs / SUBJECTS / name), seed, 0, content, client
    )


def _weights(name: str, folder: Path | None) -> str | None:
    """Identifies a model's weights: a digest of its files, or the commit on the Hub; None if
    built-in.
    """
    if folder is not None and not folder.is_dir():
        # The same command would not make it again, because the run has finished.
        raise LabError(
            f"{folder} has gone; gspo-lab run STUDY.toml --name NEW makes a lost warm start again"
        )
    place = folder or Path(name).expanduser()
    if folder is None and name in EMBEDDED:
        return None
    if place.is_dir():
        return folder_digest(place)
    from gspo_lab.training.models.load import hub_revision

    return hub_revision(name)
