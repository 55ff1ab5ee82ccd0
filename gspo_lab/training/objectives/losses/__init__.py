"""Policy losses: what keeps a policy near the one that sampled. Every `Loss` in a file of this
package is one.

A study may name one of its own: `policy_loss = "my_loss.py:LOSS"`, a file like those here. An
installed package adds a name by an entry point of the group `gspo_lab.losses`.
"""

from importlib import import_module
from itertools import chain
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from pydantic import ValidationError

from gspo_lab.common.errors import LabError
from gspo_lab.common.registry import look_up, nearest
from gspo_lab.training.objectives.losses.loss import Loss, LossInputs, Metrics, weighted
from gspo_lab.training.objectives.settings import Common

__all__ = ["LOSSES", "Common", "Loss", "LossInputs", "Metrics", "loss_of", "traits", "weighted"]

_files = [
    import_module(f"{__name__}.{file.name}")
    for file in iter_modules(__path__)
    if file.name != "loss"
]
_values = chain.from_iterable(vars(file).values() for file in _files)
_losses = {value.name: value for value in _values if isinstance(value, Loss)}
LOSSES: dict[str, Loss[Any]] = dict(sorted(_losses.items()))
"""The lab's losses by their names."""


def loss_of(objective: Common, base: Path) -> tuple[Loss[Any], Common]:
    """The loss of an objective, and the settings that it reads. A file's path starts from `base`.
    LabError for a file that holds no loss, and for `loss_options` that it does not know."""
    name = objective.policy_loss
    if name in LOSSES:
        return LOSSES[name], objective
    loss = look_up("policy loss", name, {}, base)
    if not isinstance(loss, Loss):
        raise LabError(
            f"the policy loss '{name}' is {type(loss).__name__}; it must be a"
            " gspo_lab.training.objectives.losses.Loss"
        )
    shared = {key: getattr(objective, key) for key in Common.model_fields}
    try:
        return loss, loss.settings.model_validate(shared | objective.loss_options)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        own_keys = [key for key in loss.settings.model_fields if key not in shared]
        message = fault["msg"]
        if fault["type"] == "extra_forbidden":
            readable = ", ".join(own_keys) or "none"
            message = f"unknown key{nearest(key, own_keys)}; {name} reads {readable}"
        raise LabError(f"objective.loss_options.{key}: {message}") from error


def traits(name: str) -> Loss[Any]:
    """What is known of a loss by its name alone.

    A loss from outside has no `source` and no rule of another loss.
    """
    return LOSSES.get(name) or Loss(
        name=name,
        source="",
        formula="",
        term=LOSSES["clip"].term,
        lower_bound=False,
        reinforce_on_policy=False,
    )
