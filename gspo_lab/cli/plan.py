"""`plan`: mistakes, cost and power of a study before it trains; `--advise` tries clip ranges."""

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
    Runs,
    Sd,
    with_study,
)
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject, OptionalFloat
from gspo_lab.common.states import Exit

if TYPE_CHECKING:
    from gspo_lab.study import Study

EXAMPLES = {
    "plan": (
        "gspo-lab plan studies/moe_stability.toml",
        "gspo-lab plan my.toml --set update.minibatches=8 --seeds 8 --sd 0.03",
        "gspo-lab plan my.toml --start",
        "gspo-lab plan my.toml --engine verl --write-config files",
        "gspo-lab plan my.toml --advise --clip-target 0.1",
        "gspo-lab plan Qwen/Qwen3-0.6B --advise --task my_file.py:grade",
    ),
}


@with_study
def plan(
    load: "Callable[..., Study]",
    engine: Annotated[
        str | None, typer.Option(metavar="ENGINE", help="Plan the study as if it used ENGINE.")
    ] = None,
    write_config: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write the engine's input files to DIR and print its command."
        ),
    ] = None,
    advise: Annotated[
        bool,
        typer.Option("--advise", help="Try clip ranges on short pilot runs and print settings."),
    ] = False,
    start: Annotated[
        bool,
        typer.Option(
            "--start", help="Sample one batch of the starting model: its reward, and its signal."
        ),
    ] = False,
    clip_target: Annotated[
        OptionalFloat,
        typer.Option(
            help="With --advise: share to clip after mini-batch 0. Default: each arm's clip_target."
        ),
    ] = None,
    task: Annotated[
        str, typer.Option(help="With --advise and a MODEL: the task to learn.")
    ] = "addition",
    jobs: Jobs = None,
    on: On = "local",
    sd: Sd = None,
    ignore_memory_check: IgnoreMemory = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Show a study's mistakes, its arms, its cost and its power, without training.

    Exit with code 2 if the study must not be run. `--advise` trains short pilots of GRPO and GSPO
    on this model, task and length; the same command resumes stopped pilots.
    """
    if advise:
        _advise(load, task, clip_target, sd, jobs, ignore_memory_check, json=json, runs=runs)
        return
    from gspo_lab.running.plan import plan as plan_study
    from gspo_lab.running.plan.detectable_effect import detectable
    from gspo_lab.running.plan.preflight import lint_findings

    study = load(*([] if engine is None else [f"engine={engine}"]))
    findings = lint_findings(study, data=False)  # what this machine lacks, the plan says
    refused = any(finding.level == "error" for finding in findings)
    lines = [*_plan_lines(study), *map(str, findings)]
    data: JsonObject = {
        "declaration": study.locked(),
        "findings": [vars(finding) for finding in findings],
    }
    if not refused:
        planned = plan_study(study, runs, on=on, jobs=jobs)
        effects = detectable(study, runs, sd)
        data |= {**planned.to_json(), "detectable": asdict(effects)}
        lines += ["", *planned.lines(), effects.line()]
    if start and not refused:
        from gspo_lab.running.plan.start_signal import start_signals

        signals = list(start_signals(study, runs))
        data["start"] = [asdict(signal) for signal in signals]
        lines += [signal.line() for signal in signals]
    if write_config is not None and not refused:
        data["written"] = _write(study, write_config)
        for arm, inputs in data["written"].items():
            lines += [f"{arm}: {inputs['folder']}", f"  {inputs['command']}"]
    print_either(json, data, lines)
    raise typer.Exit(Exit.REFUSED if refused else Exit.FINISHED)


def _plan_lines(study: "Study") -> Iterator[str]:
    """The settings in which the arms differ, and the options that external engines pass on, by
    group of arms.
    """
    from gspo_lab.study.tune import budget, schedule
    from gspo_lab.training.engines.check import translated

    yield f"{study.name}: {study.question}"
    yield (
        f"{len(study.arms)} arms x {len(study.seeds)} seeds = {len(study.arms) * len(study.seeds)}"
        " runs"
    )
    resolved = {name: arm.flat_settings for name, arm in study.arms.items()}
    arms = resolved.values()
    keys = [
        key
        for key in dict.fromkeys(chain(*arms))
        if len({repr(settings.get(key)) for settings in arms}) > 1
    ]
    for name, settings in resolved.items():
        differs = []
        for key in keys:
            value = "unset" if settings.get(key) is None else settings[key]
            differs.append(f"{key.removeprefix('objective.')} = {value}")
        yield f"  {name}: {', '.join(differs) or 'the only arm'}"
    base = study.path.parent.resolve()
    programs: dict[str, list[str]] = {}
    for name, arm in study.arms.items():
        if options := translated(arm.settings, base):
            listed = ", ".join(f"{key} = {value!r}" for key, value in options.items())
            programs.setdefault(f"{arm.settings.engine.name}: {listed}", []).append(name)
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


PILOT_STUDY = """question = "What is to be set?"
model = {model}
task = {task}
[arm.grpo]
objective = "grpo"
"""


def _advise(
    load: "Callable[..., Study]",
    task: str,
    clip_target: OptionalFloat,
    sd: OptionalFloat,
    jobs: int | None,
    ignore_memory_check: bool,
    *,
    json: bool,
    runs: Path,
) -> None:
    """Train pilots of both rules and print the clip ranges that they found."""
    from gspo_lab.running.conduct.run_pilots import advise as advice_on
    from gspo_lab.running.plan.detectable_effect import detectable

    if clip_target is not None and not 0 < clip_target < 1:
        raise LabError(
            f"--clip-target {clip_target:g}: must lie between 0 and 1; try --clip-target 0.15"
        )
    study = _pilot_study(load, task)
    effects = detectable(study, runs, sd)
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
                "detectable": asdict(effects),
            }
        )
        return
    from gspo_lab.training.objectives.settings import CLIP_RANGE

    hidden = ("declared", *CLIP_RANGE, "peak_memory_bytes", "holds")
    rows = []
    for rule in rules:
        row = {key: value for key, value in rule.to_json().items() if key not in hidden}
        peak = rule.peak_memory_bytes
        rows.append(row | {"peak_gb": None if peak is None else peak / 1e9})
    print_table(
        rows,
        empty="no rule",
        title="clipped: with the range below in use; clipped_published: the papers'",
    )
    print_lines(["", *(rule.toml() for rule in rules), effects.line()])


def _pilot_study(load: "Callable[..., Study]", task: str) -> "Study":
    """The study in a TOML file, or one made of a model's name or folder.

    A relative path starts in the working directory.
    """
    from gspo_lab.study.load import study_file

    subject = study_file(load.keywords["study_file"])  # type: ignore[attr-defined]
    if subject.suffix == ".toml":
        return load()
    file, colon, function = task.rpartition(":")
    if file.endswith(".py"):
        task = f"{Path(file).resolve()}{colon}{function}"
    model = str(subject.resolve()) if subject.is_dir() else str(subject)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{subject.name.lower().replace('.', '-')}.toml"
        path.write_text(PILOT_STUDY.format(model=dumps(model), task=dumps(task)))
        return replace(load(study_file=path), path=Path.cwd() / path.name)
