from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from gspo_lab.cli.shared_options import RUNS, IgnoreMemory, Jobs, Json, Overrides, Runs, Sd, study_from
from gspo_lab.errors import LabError
from gspo_lab.states import Exit

if TYPE_CHECKING:
    from gspo_lab.study import Study

EXAMPLES = (
    "gspo-lab advise studies/quickstart.toml",
    "gspo-lab advise my.toml --clip-target 0.1",
    "gspo-lab advise Qwen/Qwen3-0.6B --task my_file.py:grade",
)

ASKED = """question = "What is to be set?"
model = {model}
task = {task}
[arm.grpo]
objective = "grpo"
"""


def advise(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="STUDY|MODEL", help="The study's TOML file, or the name of a model.", show_default=False
        ),
    ],
    task: Annotated[str, typer.Option(help="Task to learn, if MODEL is given.")] = "addition",
    clip_target: Annotated[
        float | None,
        typer.Option(help="Share of tokens to clip after the first mini-batch. Default: each arm's clip_target."),
    ] = None,
    overrides: Overrides = None,
    sd: Sd = None,
    jobs: Jobs = None,
    ignore_memory_check: IgnoreMemory = False,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Try clip ranges on short pilot runs and print settings.

    The pilots train GRPO and GSPO on this model, task and length. The same command resumes stopped pilots.
    """
    from dataclasses import asdict

    from gspo_lab.cli.output import console, print_json, print_lines, print_table
    from gspo_lab.conduct.advise import advise as advice_on
    from gspo_lab.plan.detectable import detectable

    if clip_target is not None and not 0 < clip_target < 1:
        raise LabError(f"--clip-target {clip_target:g}: must lie between 0 and 1; try --clip-target 0.15")
    study = _study(subject, task, overrides)
    resolved = detectable(study, runs, sd)
    found = advice_on(study, runs, share=clip_target, jobs=jobs, console=console(stderr=json), yes=ignore_memory_check)
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
    print_lines([resolved.line()])


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
