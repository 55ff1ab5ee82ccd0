import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gspo_lab.cli.shared_options import Json, of_a_study
from gspo_lab.errors import LabError
from gspo_lab.states import Exit

if TYPE_CHECKING:
    from gspo_lab.study import Study

EXAMPLES = (
    "gspo-lab check studies/moe_stability.toml",
    "gspo-lab check my.toml --set update.minibatches=8",
    "gspo-lab check my.toml --engine verl --write-config files",
)


def _translations(study: "Study") -> "dict[str, Mapping[str, Any]]":
    """What the arms' engines give their programs; what is the same for several arms once."""
    from gspo_lab.engines.check import translated

    base = study.path.parent.resolve()
    found = {name: (arm.settings.engine.name, translated(arm.settings, base)) for name, arm in study.arms.items()}
    out = {}
    for name, (engine, given) in found.items():
        alike = [other for other, one in found.items() if one == (engine, given)]
        if given and alike[0] == name:
            out[f"{', '.join(alike)} by {engine}"] = given
    return out


@of_a_study
def check(
    wanted: "Callable[..., Study]",
    engine: Annotated[str | None, typer.Option(metavar="ENGINE", help="Check the study as if it used ENGINE.")] = None,
    write_config: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the engine's input files to DIR and print its command."),
    ] = None,
    json: Json = False,
) -> None:
    """Validate a study and show its resolved arms.

    Checks its settings, tasks and models without training, and prints warnings.
    """
    from gspo_lab.cli.output import print_json, print_lines
    from gspo_lab.plan.check import check as check_models_and_tasks
    from gspo_lab.plan.check import findings
    from gspo_lab.study import flat
    from gspo_lab.study.tune import budget, schedule

    study = wanted(*([] if engine is None else [f"engine={engine}"]))
    check_models_and_tasks(study)
    found = findings(study)
    failed = any(finding.level == "error" for finding in found)
    if json:
        written = {} if write_config is None or failed else {"written": _write(study, write_config)}
        print_json({**study.locked(), "findings": [vars(finding) for finding in found], **written})
        raise typer.Exit(Exit.REFUSED if failed else Exit.FINISHED)
    lines = [
        f"{study.name}: {study.question}",
        f"{len(study.arms)} arms x {len(study.seeds)} seeds = {len(study.arms) * len(study.seeds)} runs",
    ]
    resolved = {name: flat(arm.resolved) for name, arm in study.arms.items()}
    keys = [key for key in next(iter(resolved.values())) if len({repr(one.get(key)) for one in resolved.values()}) > 1]
    for arm, settings in resolved.items():
        told = {key: "unset" if settings[key] is None else settings[key] for key in keys}
        differs = ", ".join(f"{key.removeprefix('objective.')} = {value}" for key, value in told.items())
        lines.append(f"  {arm}: {differs or 'the only arm'}")
    for engine, given in _translations(study).items():
        lines.append(f"  {engine}: {', '.join(f'{key} = {value!r}' for key, value in given.items())}")
    if study.tune is not None:
        lines.append(f"  before that {budget(study.tune)}: {schedule(study.tune)}")
    lines += [f"  claim {claim.name}" for claim in study.claims]
    print_lines([*lines, *map(str, found)])
    if failed:
        raise typer.Exit(Exit.REFUSED)
    if write_config is not None:
        for arm, one in _write(study, write_config).items():
            typer.echo(f"{arm}: {one['folder']}")
            typer.echo(f"  {one['command']}")


def _write(study: "Study", to: Path) -> dict[str, dict[str, str]]:
    """Write what an engine with a program of its own gives it for the first seed of every arm; by arm the folder and
    the command. LabError for an engine without."""
    from gspo_lab.engines.check import make_engine

    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise LabError(f"--write-config {to}: this path exists and is not an empty folder; name a new one")
    out = {}
    for run in study.runs():
        if run.seed != study.seeds[0]:
            continue
        engine = make_engine(run)
        if not hasattr(engine, "write"):
            raise LabError(f"--write-config: the engine '{run.settings.engine.name}' has no input files of its own")
        try:
            to.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(
                f"--write-config {to}: no folder can be made there ({error.strerror}); name another"
            ) from error
        command = engine.write(run, to / run.arm)
        out[run.arm] = {"folder": str(to / run.arm), "command": shlex.join(command)}
    return out
