"""From an engine's name to the engine; and what can be said of one before any compute."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from gspo_lab.engines import ENGINES
from gspo_lab.engines.base import Capabilities, Engine
from gspo_lab.errors import LabError
from gspo_lab.records import StepRecord, UpdateRecord
from gspo_lab.registry import check_callable, check_made, look_up, nearest
from gspo_lab.samplers import SAMPLERS
from gspo_lab.study import Run, Settings
from gspo_lab.study.dotted_keys import flat, under
from gspo_lab.tasks.base import Task, check_options

METHODS = ("train",)
COLUMNS = {field.name for record in (StepRecord, UpdateRecord) for field in fields(record)}


def make_engine(run: Run) -> Engine:
    """The engine of a run, with its options."""
    table = run.settings.engine
    engine: Engine = look_up("engine", table.name, ENGINES, Path(run.base))(**table.options)
    check_made("engine", table.name, engine, METHODS)
    return engine


def check_engine(arm: str, settings: Settings, base: Path | None = None) -> None:
    """LabError where the arm's engine is none, has no such options, or would ignore what the arm says."""
    name, options = settings.engine.name, settings.engine.options
    made_by = look_up("engine", name, ENGINES, base)
    if callable(made_by):
        check_options(name, options, _parameters(made_by), kind="engine", table="engine.options")
    check_callable("engine", name, made_by, (), METHODS, options)
    capabilities = getattr(made_by, "capabilities", Capabilities())
    if not isinstance(capabilities, Capabilities):
        raise LabError(f"the engine '{name}': its capabilities are no gspo_lab.engines.base.Capabilities")
    for broken in _broken(settings, capabilities):
        raise LabError(f"arm.{arm}: the engine '{name}' {broken}")
    if hasattr(made_by, "check"):
        made_by(**options).check(settings)


def check_tasks(arm: str, settings: Settings, tasks: Sequence[Task], base: Path | None = None) -> None:
    """LabError where the arm's engine or sampler cannot let the environment of one of its `tasks`, the trained one
    first, reply, or go on with a response; where turns shall be credited that are none; where the task lacks rewards by
    name that train; or where length would cost reward from before the first token on."""
    several = [task.name for task in tasks if task.max_turns > 1]
    engine = look_up("engine", settings.engine.name, ENGINES, base)
    if several and not getattr(engine, "capabilities", Capabilities()).turns:
        raise LabError(
            f"arm.{arm}: the engine '{settings.engine.name}' cannot train on or ask '{several[0]}', whose responses "
            "have several turns; use engine = 'native'"
        )
    name, pieces = settings.rollout.sampler, settings.rollout.tokens_per_step is not None
    if pieces and tasks[0].max_turns > 1:
        raise LabError(
            f"arm.{arm}: rollout.tokens_per_step with '{tasks[0].name}', whose responses have several turns; leave it "
            "out"
        )
    if (
        (several or pieces)
        and name not in SAMPLERS
        and not getattr(look_up("sampler", name, SAMPLERS, base), "continues", False)
    ):
        why = f"'{several[0]}' replies to the model" if several else "rollout.tokens_per_step wants it in pieces"
        raise LabError(
            f"arm.{arm}: the sampler '{name}' does not go on with a response (`continues`), and {why}; use "
            "rollout.sampler = 'transformers'"
        )
    if settings.objective.turn_credit == "turn" and tasks[0].max_turns == 1:
        raise LabError(
            f"arm.{arm}: objective.turn_credit = 'turn' with the task '{settings.task.name}', whose responses have one "
            "turn; leave it out"
        )
    names, weights = tasks[0].reward_names, settings.objective.reward_weights
    if settings.objective.advantage == "gdpo" and not names:
        raise LabError(
            f"arm.{arm}: objective.advantage = 'gdpo' with the task '{settings.task.name}', which has one reward; use "
            "another advantage, or a grader with rewards by name (docs/reference/tasks.md)"
        )
    for name in weights if names else ():
        if name not in names:
            raise LabError(
                f"arm.{arm}: objective.reward_weights: the task '{settings.task.name}' has no reward '{name}'"
                f"{nearest(name, names)}; it has {', '.join(names)}"
            )
    buffer, limit = settings.rollout.overlong_buffer, settings.rollout.max_tokens or tasks[0].max_tokens
    if buffer is not None and buffer > limit:
        raise LabError(
            f"arm.{arm}: rollout.overlong_buffer = {buffer} is more than the token limit of '{tasks[0].name}', "
            f"{limit}; give it some of the last tokens"
        )


def check_ready(settings: Settings, base: Path | None = None) -> None:
    """LabError where the arm's engine says that it cannot train on this machine as it is."""
    engine = look_up("engine", settings.engine.name, ENGINES, base)(**settings.engine.options)
    if hasattr(engine, "ready"):
        engine.ready()


def translated(settings: Settings, base: Path | None = None) -> Mapping[str, Any]:
    """What the engine gives its program for an arm's settings, by that program's names; nothing where it has none."""
    engine = look_up("engine", settings.engine.name, ENGINES, base)(**settings.engine.options)
    return engine.translated(settings) if hasattr(engine, "translated") else {}


def _parameters(made_by: Any) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(made_by).parameters.values()
    except ValueError:  # some built-in things do not say how they are called
        return [inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)]


def _broken(settings: Settings, capabilities: Capabilities) -> Iterator[str]:
    """What the engine cannot do for these settings, or wrongly says that it can."""
    plain = Settings.model_validate({"task": settings.task})
    values, default = (flat(table.model_dump(mode="json")) for table in (settings, plain))
    if capabilities.settings is not None:
        for key in capabilities.settings:
            if not any(under(name, [key]) for name in values):
                yield f"says that it can vary '{key}', which is no key of a study{nearest(key, values)}"
        able = (*capabilities.settings, "task", "engine", "objective.preset")
        changed = [key for key in values.keys() | default.keys() if values.get(key) != default.get(key)]
        if ignored := sorted(key for key in changed if not under(key, able)):
            listed = ", ".join(
                f"{key} = {values.get(key)!r}" + (f" (default: {default[key]!r})" if key in default else "")
                for key in ignored
                if key in values or not any(under(name, [key]) for name in values)
            )
            yield f"would ignore {listed}; it can vary {', '.join(sorted(capabilities.settings)) or 'nothing'}"
    if settings.engine.name in ENGINES.keys() - {"native"}:
        if settings.update.dtype == "float16":
            yield "is given no scaled loss by the lab: use update.dtype = 'bfloat16', or engine = 'native'"
        if settings.device not in (DEVICES := ("auto", "cpu", "cuda")):
            yield f"chooses its devices itself: device = '{settings.device}' is none of {', '.join(DEVICES)}"
    for column in capabilities.records or ():
        if column not in COLUMNS:
            yield f"says that it records '{column}', which is no column of steps or updates{nearest(column, COLUMNS)}"
    if settings.objective.clip == "calibrated" and not capabilities.records_as_defined("response_detail"):
        yield "does not record response_detail, from which clip = 'calibrated' finds a range; give clip_low, clip_high"
