from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.options import RUNS, Jobs, Json, Overrides, Runs, Sd, study_from
from gspo_lab.errors import LabError
from gspo_lab.states import Exit

if TYPE_CHECKING:
    from gspo_lab.study import Study

EXAMPLES = (
    "Examples:  gspo-lab advise studies/quickstart.toml   |   gspo-lab advise my.toml --share 0.1   |   "
    "gspo-lab advise Qwen/Qwen3-0.6B --task my_file.py:grade"
)

ASKED = """question = "What is to be set?"
model = {model}
task = {task}
[arm.grpo]
objective = "grpo"
"""


def advise(
    subject: Annotated[
        str, typer.Argument(metavar="STUDY|MODEL", help="A study's TOML file, or a model by name.", show_default=False)
    ],
    task: Annotated[str, typer.Option(help="With a model: the task that it is to learn.")] = "addition",
    share: Annotated[
        float | None, typer.Option(help="Share to clip on mini-batches >= 1; default each arm's clip_target.")
    ] = None,
    overrides: Overrides = None,
    sd: Sd = None,
    jobs: Jobs = None,
    yes: Annotated[bool, typer.Option("--yes", help="Go on though a pilot is estimated to need more memory.")] = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Say what to set for this model, task and lengths: short pilots of GRPO and GSPO, and a range to paste.

    The same command goes on where it stopped.
    """
    from dataclasses import asdict

    from gspo_lab.cli.output import console, print_json, print_table
    from gspo_lab.conduct.advise import advise as advice_on
    from gspo_lab.plan.detectable import detectable

    if share is not None and not 0 < share < 1:
        raise LabError(f"--share {share:g}: a share lies between 0 and 1, e.g. --share 0.15")
    study = _study(subject, task, overrides)
    resolved = detectable(study, runs, sd)
    found = advice_on(study, runs, share=share, jobs=jobs, console=console(stderr=json), yes=yes)
    if found is None:
        raise typer.Exit(Exit.INTERRUPTED)
    if json:
        print_json({"study": study.name, "rules": [one.to_json() for one in found], "detectable": asdict(resolved)})
        return
    kept = ("rule", "wanted", "clipped", "clipped_published", "log_ratio_max", "response_tokens", "mismatch_k3")
    shown = (*kept, "zero_advantage_groups", "seconds_step")
    rows = [
        {key: value for key, value in one.to_json().items() if key in shown}
        | {"peak_gb": None if one.peak_memory_bytes is None else one.peak_memory_bytes / 1e9}
        for one in found
    ]
    print_table(rows, empty="no rule", title="clipped: with the range below in use; clipped_published: the papers'")
    typer.echo("\n" + "\n".join(one.toml() for one in found))
    typer.echo(resolved.line())


def _study(subject: str, task: str, overrides: list[str] | None) -> "Study":
    """The study that is named, or one of a model; a file of one's own is found from here."""
    from dataclasses import replace
    from json import dumps

    if subject.endswith(".toml"):
        return study_from(Path(subject), overrides, None, None, None, None, None)
    file, colon, thing = task.rpartition(":")
    if file.endswith(".py"):
        task = f"{Path(file).resolve()}{colon}{thing}"
    model = str(Path(subject).resolve()) if Path(subject).is_dir() else subject
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{Path(subject).name.lower().replace('.', '-')}.toml"
        path.write_text(ASKED.format(model=dumps(model), task=dumps(task)))
        return replace(study_from(path, overrides, None, None, None, None, None), path=Path.cwd() / path.name)
