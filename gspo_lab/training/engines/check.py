"""From an engine's name to the engine; and what can be said of one before any compute."""

import inspect
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.common.registry import check_callable, check_made, look_up, nearest, unlisted
from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.study import Run, Settings
from gspo_lab.study.dotted_keys import flat, under
from gspo_lab.tasks.base import Task, check_options
from gspo_lab.training.engines import ENGINES
from gspo_lab.training.engines.base import Capabilities, Engine
from gspo_lab.training.objectives.settings import CLIP_RANGE
from gspo_lab.training.samplers import SAMPLERS

COLUMNS = {field.name for field in (*fields(StepRecord), *fields(UpdateRecord))}


def make_engine(run: Run) -> Engine:
    """The engine of a run, with its options."""
    table = run.settings.engine
    engine: Engine = look_up("engine", table.name, ENGINES, Path(run.base))(**table.options)
    check_made("engine", table.name, engine, ("train",))
    return engine


def check_engine(arm: str, settings: Settings, base: Path | None = None) -> None:
    """LabError where the arm's engine is none, has no such options, or would ignore what the arm
    says.
    """
    name = settings.engine.name
    options = settings.engine.options
    made_by = look_up("engine", name, ENGINES, base)
    if callable(made_by):
        try:
            parameters: Iterable[inspect.Parameter] = inspect.signature(made_by).parameters.values()
        except ValueError:  # some built-in things do not say how they are called
            parameters = [inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)]
        check_options(name, options, parameters, kind="engine", table="engine.options")
    check_callable("engine", name, made_by, (), ("train",), options)
    capabilities = getattr(made_by, "capabilities", Capabilities())
    if not isinstance(capabilities, Capabilities):
        raise LabError(
            f"the engine '{name}': its capabilities are no"
            " gspo_lab.training.engines.base.Capabilities"
        )
    for broken in _broken(settings, capabilities):
        raise LabError(f"arm.{arm}: the engine '{name}' {broken}")
    if hasattr(made_by, "check"):
        made_by(**options).check(settings)


def check_tasks(
    arm: str, settings: Settings, tasks: Sequence[Task], base: Path | None = None
) -> None:
    """LabError where the arm's engine, sampler or objective does not fit its `tasks`, the trained
    one first.
    """
    for broken in _broken_by_tasks(settings, tasks, base):
        raise LabError(f"arm.{arm}: {broken}")


def _broken_by_tasks(settings: Settings, tasks: Sequence[Task], base: Path | None) -> Iterator[str]:
    objective = settings.objective
    rollout = settings.rollout
    trained = tasks[0]
    several = [task.name for task in tasks if task.max_turns > 1]
    pieces = rollout.tokens_per_step is not None
    engine = look_up("engine", settings.engine.name, ENGINES, base)
    if several and not getattr(engine, "capabilities", Capabilities()).turns:
        yield (
            f"the engine '{settings.engine.name}' cannot train on or ask '{several[0]}', whose"
            " responses have several turns; use engine = 'native'"
        )
    if pieces and trained.max_turns > 1:
        yield (
            f"rollout.tokens_per_step with '{trained.name}', whose responses have several turns;"
            " leave it out"
        )
    name = rollout.sampler
    continues = name in SAMPLERS or getattr(
        look_up("sampler", name, SAMPLERS, base), "continues", False
    )
    if (several or pieces) and not continues:
        why = (
            f"'{several[0]}' replies to the model"
            if several
            else "rollout.tokens_per_step wants it in pieces"
        )
        yield (
            f"the sampler '{name}' does not go on with a response (`continues`), and {why}; use"
            " rollout.sampler = 'transformers'"
        )
    if objective.turn_credit == "turn" and trained.max_turns == 1:
        yield (
            f"objective.turn_credit = 'turn' with the task '{settings.task.name}', whose responses"
            " have one turn; leave it out"
        )
    names = trained.reward_names
    if objective.advantage == "gdpo" and not names:
        yield (
            f"objective.advantage = 'gdpo' with the task '{settings.task.name}', which has one"
            " reward; use another advantage, or a grader with rewards by name"
            " (docs/reference/tasks.md)"
        )
    for name in objective.reward_weights if names else ():
        if name not in names:
            yield (
                f"objective.reward_weights: the task '{settings.task.name}' has no reward"
                f" {unlisted(name, names, 'it has')}"
            )
    buffer = rollout.overlong_buffer
    limit = rollout.max_tokens or trained.max_tokens
    if buffer is not None and buffer > limit:
        yield (
            f"rollout.overlong_buffer = {buffer} is more than the token limit of '{trained.name}',"
            f" {limit}; give it some of the last tokens"
        )


def check_ready(settings: Settings, base: Path | None = None) -> None:
    """LabError where the arm's engine says that it cannot train on this machine as it is."""
    engine = look_up("engine", settings.engine.name, ENGINES, base)(**settings.engine.options)
    if hasattr(engine, "ready"):
        engine.ready()


def translated(settings: Settings, base: Path | None = None) -> JsonMapping:
    """What the engine gives its program for an arm's settings, by that program's names; nothing
    where it has none.
    """
    engine = look_up("engine", settings.engine.name, ENGINES, base)(**settings.engine.options)
    return engine.translated(settings) if hasattr(engine, "translated") else {}


def _unreachable(settings: Settings, able: Collection[str]) -> Iterator[str]:
    """Keys that the engine says it can vary and no study has; and keys that it would ignore."""
    plain = Settings.model_validate({"task": settings.task})
    values = flat(settings.model_dump(mode="json"))
    default = flat(plain.model_dump(mode="json"))
    for key in able:
        if not any(under(name, [key]) for name in values):
            yield f"says that it can vary '{key}', which is no key of a study{nearest(key, values)}"
    always = ("task", "engine", "objective.preset")
    ignored: dict[str, None] = {}
    for key in sorted(values.keys() | default.keys()):
        unchanged = values.get(key) == default.get(key)
        is_table = key not in values and any(under(name, [key]) for name in values)
        if unchanged or is_table or under(key, (*able, *always)):
            continue
        if under(key, ["bench"]):
            ignored["[[bench]]"] = None
        elif key in default:
            ignored[f"{key} = {values.get(key)!r} (default: {default[key]!r})"] = None
        else:
            ignored[f"{key} = {values.get(key)!r}"] = None
    if ignored:
        varied = ", ".join(sorted(able)) or "nothing"
        yield f"would ignore {', '.join(ignored)}; it can vary {varied}"


def _broken(settings: Settings, capabilities: Capabilities) -> Iterator[str]:
    """What the engine cannot do for these settings, or wrongly says that it can."""
    if capabilities.settings is not None:
        yield from _unreachable(settings, capabilities.settings)
    if settings.engine.name in ENGINES.keys() - {"native"}:
        if settings.update.dtype == "float16":
            yield (
                "is given no scaled loss by the lab: use update.dtype = 'bfloat16', or engine ="
                " 'native'"
            )
        if settings.device not in (DEVICES := ("auto", "cpu", "cuda")):
            yield (
                f"chooses its devices itself: device = '{settings.device}' is none of"
                f" {', '.join(DEVICES)}"
            )
    for column in capabilities.records or ():
        if column not in COLUMNS:
            yield (
                f"says that it records '{column}', which is no column of steps or"
                f" updates{nearest(column, COLUMNS)}"
            )
    if settings.objective.clip == "calibrated" and not (
        capabilities.records is None or capabilities.records.get("response_detail") == ""
    ):
        yield (
            "does not record response_detail, from which clip = 'calibrated' finds a range; give"
            f" {', '.join(CLIP_RANGE)}"
        )
