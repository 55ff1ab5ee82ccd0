"""`init`: the files of a study of one's own."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gspo_lab.cli.output import print_lines

EXAMPLES = {
    "init": (
        "gspo-lab init my_study",
        "gspo-lab init my_study --model Qwen/Qwen3-0.6B --task own",
        "gspo-lab init sums --model tiny-olmoe --task addition",
    ),
}
MODEL = "tiny-qwen3"


def init(
    folder: Annotated[Path, typer.Argument(help="Folder for the files; made if missing.")] = Path(
        "my_study"
    ),
    model: Annotated[
        str | None,
        typer.Option(help="A model's folder, a Hub id, or a built-in model. Default: tiny-qwen3."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help=(
                "own (problems.jsonl and grader.py), or a built-in task such as addition. Default:"
                " own."
            )
        ),
    ] = None,
) -> None:
    """Write a study of your own that runs.

    Its files are the study with comments, problems, a grader, and the quickstart. In a terminal it
    asks for the model and the task.
    """
    from gspo_lab.study.new_study import OWN, write_study

    paths = write_study(
        folder,
        model or _ask("model (a folder, a Hub id, or built-in)", MODEL),
        task or _ask("task (own, or built-in: addition, chain, guess)", OWN),
    )
    print_lines(map(str, paths))
    print_lines([f"next: gspo-lab plan {paths[0]}"])


def _ask(question: str, default: str) -> str:
    """The answer without blanks around it; the default where it is empty, or outside a terminal."""
    answer: str = typer.prompt(question, default=default) if sys.stdin.isatty() else default
    return answer.strip() or default
