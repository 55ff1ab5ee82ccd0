"""A benchmark asked of a finished run's models: the one it started from and the one it ended with.

Answers go to a journal of their own, `<run>/evaluations/<name>/journal.jsonl`, part by part: a killed evaluation has
lost at most the part in flight, and the same command asks only what is missing.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gspo_lab import journal
from gspo_lab.errors import LabError
from gspo_lab.evaluation.ask import evaluate
from gspo_lab.models.load import load_model
from gspo_lab.records import AnswerRecord
from gspo_lab.samplers.transformers_sampler import TransformersSampler
from gspo_lab.study import BenchTable, Run
from gspo_lab.tasks import build_task


@dataclass(frozen=True)
class Checkpoint:
    """A run's model at `step`: a folder, or None for a model that is loaded by its name alone."""

    run: Run
    run_folder: Path
    step: int
    folder: Path | None


def checkpoints(run_folder: Path) -> list[Checkpoint]:
    """The start and the end of a finished run, read from its folder; LabError where it has not finished."""
    data = json.loads((run_folder / "run.json").read_text(encoding="utf-8"))
    run = Run.from_json(data)
    final = run_folder / "checkpoints" / "final"
    if not final.is_dir():
        raise LabError(f"{run.id} has no final checkpoint; finish it first with gspo-lab run")
    start = data.get("warm_start")
    return [
        Checkpoint(run, run_folder, 0, None if start is None else Path(start)),
        Checkpoint(run, run_folder, run.settings.steps, final),
    ]


def evaluation_name(bench: BenchTable) -> str:
    """What was asked, as a folder's name: `addition-n256-k1-t1-p1`; other settings are another evaluation."""
    problems = "all" if bench.problems is None else f"n{bench.problems}"
    limit = "" if bench.max_tokens is None else f"-m{bench.max_tokens}"
    return f"{bench.name}-{problems}-k{bench.samples}-t{bench.temperature:g}-p{bench.top_p:g}{limit}"


def evaluate_checkpoint(
    checkpoint: Checkpoint, bench: BenchTable, progress: Callable[[Sequence[AnswerRecord]], None]
) -> int:
    """Ask what is not yet answered and write it to the run's evaluation journal; the number of new answers."""
    run = checkpoint.run
    table = bench.task or run.settings.task
    task = build_task(table.name, table.options, Path(run.base))
    folder = checkpoint.run_folder / "evaluations" / evaluation_name(bench)
    folder.mkdir(parents=True, exist_ok=True)
    lines, _ = journal.read(folder / journal.NAME)
    answered = frozenset(
        (line["problem"], line["sample"])
        for line in lines
        if line["kind"] == AnswerRecord.kind and line["step"] == checkpoint.step
    )
    wanted = len(task.problems("held-out")[: bench.problems]) * bench.samples
    if len(answered) >= wanted:
        return 0
    model, tokenizer = load_model(run.settings.model, dtype="float32", device="cpu", checkpoint=checkpoint.folder)
    with journal.Journal(folder) as sink:

        def keep(records: Sequence[AnswerRecord]) -> None:
            sink.write(records)
            progress(records)

        sampler = TransformersSampler(model, tokenizer)
        done = evaluate(
            bench, task, sampler, tokenizer, seed=run.seed, step=checkpoint.step, skip=answered, progress=keep
        )
    return len(done)
