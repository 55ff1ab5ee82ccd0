"""What must be right before a study's first step: its models, its tasks, and what would spoil
it.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, OptionalText
from gspo_lab.exchange.exporters import target
from gspo_lab.running.launch.local import on_gpu
from gspo_lab.running.plan.preparation import needs_start
from gspo_lab.study import Arm, Settings, Study, digest
from gspo_lab.study.lints import Finding, ModelFacts, lints
from gspo_lab.study.study import missing_mixture
from gspo_lab.study.tuning_trials import trained_arms
from gspo_lab.tasks import build_task, check_isolation
from gspo_lab.tasks.benchmarks.published_benchmark import Published
from gspo_lab.tasks.custom import Custom
from gspo_lab.tasks.grader_dry_run import first_failure
from gspo_lab.training.engines.check import check_engine, check_ready, check_tasks
from gspo_lab.training.models.check import (
    EMBEDDED,
    check_architecture,
    check_chat_template,
    check_eight_bit,
    check_hub,
    check_lora,
    check_model,
    is_moe,
)
from gspo_lab.training.models.shapes import check_rank, model_shape
from gspo_lab.training.models.wording import options_for
from gspo_lab.training.objectives.losses import loss_of
from gspo_lab.training.samplers import check_sampler


def check(study: Study, *, data: bool = True) -> None:
    """Build every task and read every model of all arms and candidates, so that mistakes show
    before training. Raises LabError.

    `data`: published training problems are read, and a Hub's model can be had. A plan does without
    what is missing here, except for a model of which nothing is known.
    """
    base = study.base
    arms = trained_arms(study)
    # What many candidates share is looked at once.
    tasks = {key: build_task(*table, base) for key, table in _tables(study, arms).items()}
    for key in dict.fromkeys(next(iter(_tables(study, [arm]))) for arm in arms):
        trained = tasks[key]
        if isinstance(trained, Published) and (data or not trained.trains):
            trained.problems("train")
    _check_models(study, arms, data)
    ranks = dict.fromkeys((study.model(arm), arm.settings.update.lora_rank) for arm in arms)
    for model, rank in ranks:
        check_rank(model, rank)
    for arm in arms:
        _check_device(arm.settings, base)
    for arm in arms:
        check_engine(arm.name, arm.settings, base)
        loss, objective = loss_of(arm.settings.objective, base)
        if broken := list(loss.refuses(objective)):
            raise LabError(f"arm.{arm.name}: objective.{broken[0]}")
        check_tasks(arm.name, arm.settings, [tasks[key] for key in _tables(study, [arm])], base)
        _check_start_and_replay(study, arm)


def _check_models(study: Study, arms: Iterable[Arm], data: bool) -> None:
    for arm in arms:
        settings = arm.settings
        _refuse_folder_elsewhere(study, settings.upcycled or settings.model)
    unmade = {_sketched_mixture(study, arm) for arm in arms}
    for model in dict.fromkeys(study.model(arm) for arm in arms):
        if model not in unmade:
            check_model(model, cached=data)
        if data or model_shape(model) is None:
            check_hub(model)
        check_architecture(model)
        check_chat_template(model)


def _sketched_mixture(study: Study, arm: Arm) -> OptionalText:
    """The folder of a mixture that is still to be made, with what a plan reads of it."""
    if (missing := missing_mixture(arm.settings, study.base)) is None:
        return None
    check_model(missing[0])
    check_hub(missing[0])
    from gspo_lab.training.models.upcycle import ensure_mixture  # imports torch: seconds

    ensure_mixture(arm.settings, study.base, weights=False)
    return str(missing[1])


def _check_device(settings: Settings, base: Path) -> None:
    """LabError for an unknown device, and for a sampler that it cannot run."""
    if settings.device.partition(":")[0] not in ("auto", "cpu", "cuda"):
        from gspo_lab.training.models.load import check_device  # imports torch: seconds

        check_device(settings.device)
    rollout = settings.rollout
    gpu = on_gpu(settings.device)
    check_sampler(
        rollout.sampler, settings.routing_replay, gpu, base, invariant=rollout.batch_invariant
    )


def _check_start_and_replay(study: Study, arm: Arm) -> None:
    """LabError for a warm start or a routing replay that the arm's model cannot have."""
    settings = arm.settings
    if settings.warm_start.steps and not needs_start(settings.model):
        raise LabError(
            f"warm_start.steps = {settings.warm_start.steps}: only embedded models are trained here"
            f" before a study; use warm_start.steps = 0 with '{settings.model}'"
        )
    if settings.routing_replay != "none" and is_moe(study.model(arm)) is False:
        raise LabError(
            f"arm.{arm.name}.routing_replay = '{settings.routing_replay}': the model"
            f" '{settings.model}' is dense, it has no experts to replay; use routing_replay ="
            " 'none' or a mixture-of-experts model"
        )


def _refuse_folder_elsewhere(study: Study, model: str) -> None:
    """LabError if a model's relative path leads to a folder from here and not from the study."""
    folder = Path(model)
    if model not in EMBEDDED and folder.is_dir() and not (study.base / folder).exists():
        path = os.path.relpath(folder, study.base)
        raise LabError(
            f"model = '{model}': no such folder beside {study.path}, and paths of a study start"
            f" there; write model = '{path}'"
        )


def lint_findings(study: Study, *, data: bool = True) -> list[Finding]:
    """The study's lints, with what its models and tasks say without being loaded; `data` as in
    `check`.
    """
    base = study.base
    first_arm = study.first_arm
    model = study.model(first_arm)
    moe = {arm.settings.model: is_moe(study.model(arm)) for arm in study.arms.values()}
    task = first_arm.settings.task
    limit = build_task(task.name, options_for(task, model), base).max_tokens
    problems = {}
    for bench in first_arm.settings.bench:
        table = bench.task or task
        try:
            held_out = build_task(table.name, options_for(table, model), base).problems("held-out")
        except LabError:
            if data:
                raise
            continue
        problems[bench.name] = bench.problems or len(held_out)
        if problems[bench.name] > len(held_out):
            raise LabError(
                f"bench.{bench.name}.problems = {bench.problems}: the task '{table.name}' has"
                f" {len(held_out)} held-out problems; give no more, or leave the key out for all of"
                " them"
            )
    failures: dict[str, str] = {}
    for name, options in _tables(study, study.arms.values()).values():
        custom = name not in failures and isinstance(build_task(name, options, base), Custom)
        if custom and (failure := first_failure(name, options, base)):
            failures[name] = failure
    facts = ModelFacts(
        moe={name: answer for name, answer in moe.items() if answer is not None},
        max_tokens=dict.fromkeys(study.arms, limit),
        problems=problems,
        grader_failures=failures,
    )
    return lints(study, facts)


def preflight(study: Study, *, on_this_machine: bool = True) -> list[Finding]:
    """`check`, the engines, packages and isolation that are needed, then the lints; their warnings.
    Raises LabError for an error among them that no `[waive]` answers.

    Unless it is to run `on_this_machine`, problems, engines, packages and isolation may be missing:
    a plan does without them.
    """
    check(study, data=on_this_machine)
    arms = trained_arms(study) if on_this_machine else []
    for settings in {repr(arm.settings.engine): arm.settings for arm in arms}.values():
        check_ready(settings, study.base)
    for arm in arms:
        check_lora(arm.settings.update.lora_rank)
        if arm.settings.update.optimizer == "adamw-8bit":
            check_eight_bit()
    for name, options in _tables(study, arms).values():
        check_isolation(name, options)
    for name in study.mirror if on_this_machine else ():
        target(name)
    lints_ = lint_findings(study, data=on_this_machine)
    if errors := [finding for finding in lints_ if finding.level == "error"]:
        raise LabError(
            f"{study.path}: this comparison would say little; mend it, or answer for it under"
            f" [waive] with {errors[0].name} = 'the reason', which the report prints",
            details=tuple(map(str, errors)),
        )
    return lints_


def obstacle(study: Study) -> OptionalText:
    """What keeps a study that can be planned from being run on this machine, in one line.

    LabError for what is wrong anywhere, as `preflight` raises it.
    """
    try:
        preflight(study)
    except LabError as error:
        preflight(study, on_this_machine=False)
        return str(error)
    return None


def _tables(study: Study, arms: Iterable[Arm]) -> dict[str, tuple[str, JsonMapping]]:
    """Name and options of every task that one of the arms trains or is asked, the first's trained
    one first, by their digest."""
    tables: dict[str, tuple[str, JsonMapping]] = {}
    for arm in arms:
        benches = (bench.task for bench in arm.settings.bench if bench.task is not None)
        for table in (arm.settings.task, *benches):
            options = options_for(table, study.model(arm))
            tables[digest([table.name, options])] = table.name, options
    return tables
