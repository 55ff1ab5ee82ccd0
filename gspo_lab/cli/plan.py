"""`check`, `plan` and `advise`: read and test a study before it trains."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import chain
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.output import console, print_either, print_json, print_lines, print_table
from gspo_lab.cli.shared_options import (
    RUNS,
    IgnoreMemory,
    Jobs,
    Json,
    On,
    Overrides,
    Runs,
    Sd,
    make_study,
    with_study,
)
from gspo_lab.common.errors import LabError
from gspo_lab.common.states import Exit

if TYPE_CHECKING:
    from gspo_lab.study import Study

EXAMPLES = {
    "check": (
        "gspo-lab check studies/moe_stability.toml",
        "gspo-lab check my.toml --set update.minibatches=8",
        "gspo-lab check my.toml --engine verl --write-config files",
    ),
    "plan": (
        "gspo-lab plan studies/moe_stability.toml",
        "gspo-lab plan my.toml --seeds 8",
        "gspo-lab plan my.toml --sd 0.03",
    ),
    "advise": (
        "gspo-lab advise studies/quickstart.toml",
        "gspo-lab advise my.toml --clip-target 0.1",
        "gspo-lab advise Qwen/Qwen3-0.6B --task my_file.py:grade",
    ),
}


@with_study
def check(
    load: "Callable[..., Study]",
    engine: Annotated[
        str | None, typer.Option(metavar="ENGINE", help="Check the study as if it used ENGINE.")
    ] = None,
    write_config: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write the engine's input files to DIR and print its command."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Validate a study and show its resolved arms.

    Checks its settings, tasks and models without training, and prints warnings.
    """
    from gspo_lab.running.plan.preflight import check as check_models_and_tasks
    from gspo_lab.running.plan.preflight import lint_findings

    study = load(*([] if engine is None else [f"engine={engine}"]))
    check_models_and_tasks(study)
    lints = lint_findings(study)
    failed = any(finding.level == "error" for finding in lints)
    if json:
        written = {} if write_config is None or failed else {"written": _write(study, write_config)}
        print_json({**study.locked(), "findings": [vars(finding) for finding in lints], **written})
        raise typer.Exit(Exit.REFUSED if failed else Exit.FINISHED)
    print_lines([*_resolved(study), *map(str, lints)])
    if failed:
        raise typer.Exit(Exit.REFUSED)
    if write_config is not None:
        for arm, inputs in _write(study, write_config).items():
            typer.echo(f"{arm}: {inputs['folder']}\n  {inputs['command']}")


def _resolved(study: "Study") -> Iterator[str]:
    """The settings in which the arms differ, and the options that external engines pass on, by
    group of arms.
    """
    from gspo_lab.study import flat
    from gspo_lab.study.tune import budget, schedule
    from gspo_lab.training.engines.check import translated

    yield f"{study.name}: {study.question}"
    yield (
        f"{len(study.arms)} arms x {len(study.seeds)} seeds = {len(study.arms) * len(study.seeds)}"
        " runs"
    )
    resolved = {name: flat(arm.resolved) for name, arm in study.arms.items()}
    arms = resolved.values()
    keys = [
        key
        for key in dict.fromkeys(chain(*arms))
        if len({repr(settings.get(key)) for settings in arms}) > 1
    ]
    for name, settings in resolved.items():
        values = {key.removeprefix("objective."): settings.get(key) for key in keys}
        differs = ", ".join(
            f"{key} = {'unset' if value is None else value}" for key, value in values.items()
        )
        yield f"  {name}: {differs or 'the only arm'}"
    base = study.path.parent.resolve()
    programs: dict[str, list[str]] = {}
    for name, arm in study.arms.items():
        if options := translated(arm.settings, base):
            line = (
                f"{arm.settings.engine.name}:"
                f" {', '.join(f'{key} = {value!r}' for key, value in options.items())}"
            )
            programs.setdefault(line, []).append(name)
    yield from (f"  {', '.join(names)} by {line}" for line, names in programs.items())
    if study.tune is not None:
        yield f"  before that {budget(study.tune)}: {schedule(study.tune)}"
    yield from (f"  claim {claim.name}" for claim in study.claims)


def _write(study: "Study", to: Path) -> dict[str, dict[str, str]]:
    """Write an external engine's input files for each arm's first seed; folder and command by arm.

    LabError without.
    """
    from gspo_lab.training.engines.check import make_engine

    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise LabError(
            f"--write-config {to}: this path exists and is not an empty folder; name a new one"
        )
    out = {}
    for run in study.runs():
        if run.seed != study.seeds[0]:
            continue
        engine = make_engine(run)
        if not hasattr(engine, "write"):
            raise LabError(
                f"--write-config: the engine '{run.settings.engine.name}' has no input files of"
                " its own"
            )
        try:
            to.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(
                f"--write-config {to}: cannot make this folder ({error.strerror}); name another"
            ) from error
        command = engine.write(run, to / run.arm)
        out[run.arm] = {"folder": str(to / run.arm), "command": shlex.join(command)}
    return out


@with_study
def plan(
    load: "Callable[..., Study]",
    jobs: Jobs = None,
    on: On = "local",
    sd: Sd = None,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Estimate time, memory and the smallest detectable effect."""
    from gspo_lab.running.plan import plan as plan_study
    from gspo_lab.running.plan.detectable_effect import detectable

    study = load()
    planned, effects = plan_study(study, runs, on=on, jobs=jobs), detectable(study, runs, sd)
    print_either(
        json,
        {**planned.to_json(), "detectable": asdict(effects)},
        [*planned.lines(), effects.line()],
    )


PILOT_STUDY = """question = "What is to be set?"
model = {model}
task = {task}
[arm.grpo]
objective = "grpo"
"""


def advise(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="STUDY|MODEL",
            help="The study's TOML file, or the name of a model.",
            show_default=False,
        ),
    ],
    task: Annotated[str, typer.Option(help="Task to learn, if MODEL is given.")] = "addition",
    clip_target: Annotated[
        float | None,
        typer.Option(
            help=(
                "Share of tokens to clip after the first mini-batch. Default: each arm's"
                " clip_target."
            )
        ),
    ] = None,
    overrides: Overrides = None,
    sd: Sd = None,
    jobs: Jobs = None,
    ignore_memory_check: IgnoreMemory = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Try clip ranges on short pilot runs and print settings.

    The pilots train GRPO and GSPO on this model, task and length. The same command resumes stopped
    pilots.
    """
    from gspo_lab.running.conduct.run_pilots import advise as advice_on
    from gspo_lab.running.plan.detectable_effect import detectable

    if clip_target is not None and not 0 < clip_target < 1:
        raise LabError(
            f"--clip-target {clip_target:g}: must lie between 0 and 1; try --clip-target 0.15"
        )
    study = _study(subject, task, overrides)
    resolved = detectable(study, runs, sd)
    rules = advice_on(
        study,
        runs,
        share=clip_target,
        jobs=jobs,
        console=console(stderr=json),
        yes=ignore_memory_check,
    )
    if rules is None:
        raise typer.Exit(Exit.INTERRUPTED)
    if json:
        print_json(
            {
                "study": study.name,
                "rules": [rule.to_json() for rule in rules],
                "detectable": asdict(resolved),
            }
        )
        return
    hidden, rows = ("declared", "clip_low", "clip_high", "peak_memory_bytes", "holds"), []
    for rule in rules:
        peak = None if rule.peak_memory_bytes is None else rule.peak_memory_bytes / 1e9
        rows.append(
            {key: value for key, value in rule.to_json().items() if key not in hidden}
            | {"peak_gb": peak}
        )
    print_table(
        rows,
        empty="no rule",
        title="clipped: with the range below in use; clipped_published: the papers'",
    )
    typer.echo("\n" + "\n".join(rule.toml() for rule in rules))
    print_lines([resolved.line()])


def _study(subject: str, task: str, overrides: list[str] | None) -> "Study":
    """The study in a TOML file, or one made of a model; a relative path starts in the working
    directory.
    """
    if subject.endswith(".toml"):
        return make_study(Path(subject), overrides)
    file, colon, thing = task.rpartition(":")
    if file.endswith(".py"):
        task = f"{Path(file).resolve()}{colon}{thing}"
    model = str(Path(subject).resolve()) if Path(subject).is_dir() else subject
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{Path(subject).name.lower().replace('.', '-')}.toml"
        path.write_text(PILOT_STUDY.format(model=dumps(model), task=dumps(task)))
        return replace(make_study(path, overrides), path=Path.cwd() / path.name)
