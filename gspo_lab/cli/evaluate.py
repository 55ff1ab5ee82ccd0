import re
from pathlib import Path
from typing import Annotated

import typer

from gspo_lab.cli.options import RUNS, Json, Runs, evidence_of, study_named
from gspo_lab.errors import LabError

EXAMPLES = (
    "Examples:  gspo-lab eval --bench addition   |   "
    "gspo-lab eval --bench countdown --study moe_stability --samples 4 --limit 100"
)


def evaluate(
    bench: Annotated[str, typer.Option(help="A task whose held-out problems are asked: addition, countdown, ...")],
    study: Annotated[str | None, typer.Option(help="The study; the latest if none is named.")] = None,
    run: Annotated[str | None, typer.Option(help="Only this run, e.g. quickstart/gspo/s0.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Answers per problem; the score is their mean (avg@k).")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature; 0: greedy.")] = 1.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Only this many problems; default all.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Token limit; default the task's own.")] = None,
    json: Json = False,
    runs: Runs = RUNS,
) -> None:
    """Ask a benchmark of the start and the final model of every run of a study, and store the answers under them."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from gspo_lab.cli.output import print_json, print_table
    from gspo_lab.registry import nearest
    from gspo_lab.store import ingest
    from gspo_lab.study import BenchTable, Run
    from gspo_lab.study.schema import TaskTable
    from gspo_lab.tasks import build_task

    with evidence_of(runs) as evidence:
        wanted = study_named(evidence, run.partition("/")[0] if run else study, runs)
        known = list(evidence.runs(wanted)["run_id"])
    ids = [run_id for run_id in known if run in (None, run_id)]
    if not ids:
        what = "no runs" if run is None else f"no run '{run}'{nearest(run, known)}"
        raise LabError(f"{what}; {wanted} has {', '.join(known) or 'none'}")
    from gspo_lab.evaluation.checkpoints import checkpoints, evaluate_checkpoint, evaluation_name

    every = [point for run_id in ids for point in checkpoints(runs / run_id)]
    first: Run = every[0].run
    # The study's own task keeps its options; another task is asked as it comes.
    own = first.settings.task.name == bench
    asked = first.settings.task if own else TaskTable(name=bench)
    problems = len(build_task(asked.name, asked.options, Path(first.base)).problems("held-out")[:limit])
    table = BenchTable(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", bench),  # a task of one's own is called "file.py:grade"
        task=None if own else TaskTable(name=bench),
        problems=limit,
        samples=samples,
        temperature=temperature,
        max_tokens=max_tokens,
    )
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        line = bar.add_task(f"{bench} of {wanted}", total=problems * samples * len(every))
        for point in every:
            before = bar.tasks[0].completed
            evaluate_checkpoint(point, table, lambda records: bar.advance(line, len(records)))
            bar.update(line, completed=before + problems * samples)
    ingest(runs)
    with evidence_of(runs) as evidence:
        scores = evidence.scores(wanted, evaluation_name(table))
    rows = [
        {key: row[key] for key in ("run_id", "bench", "step", "problems", "answers", "score", "errors", "truncated")}
        for row in scores.to_dict("records")
        if row["run_id"] in ids
    ]
    if json:
        print_json({"evaluation": evaluation_name(table), "scores": rows})
    else:
        print_table(rows, empty="no answers", title=evaluation_name(table))
