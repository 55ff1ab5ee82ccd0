"""Results item by item: JSON Lines or CSV of `problem` and `correct`, with `arm` and `seed` or `run` beside them.

Columns `bench`, `sample` and `step` may stand there too. They become a benchmark's answers, so that the intervals over
seeds and problems work; the score is then theirs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.importers import tables
from gspo_lab.importers.log import Answer, Log, Wish, a_file, number, whole_number

runs = tables.runs
RIGHT = {"true": 1, "yes": 1, "false": 0, "no": 0}


def read(path: Path, run: str, wish: Wish) -> Log:
    """One run's answers."""
    return Log(wish.program or "items", (), (a_file(path, "results item by item"),), answers=_answers(path, run, wish))


def _answers(path: Path, run: str, wish: Wish) -> Iterator[Answer]:
    seen: set[tuple[Any, ...]] = set()
    for where, nested in tables.entries(path):
        entry = tables.unnested(nested, where)
        if tables.run_of(entry, wish, where) != run:
            continue
        problem, correct, sample, step, bench = (
            next((entry[name] for name in wish.named(key) if entry.get(name) not in (None, "")), None)
            for key in ("problem", "correct", "sample", "step", "bench")
        )
        if problem is None or correct is None:
            raise LabError(f"{where}: it has no 'problem' and 'correct'; name their columns: --map correct=NAME")
        found = RIGHT.get(str(correct).lower(), number(correct))
        if found not in (0, 1):
            raise LabError(f"{where}: correct is {correct!r}, not 0 or 1")
        answer = Answer(
            str(problem),
            int(found),
            0 if sample is None else whole_number(sample, where, "sample"),
            None if step is None else whole_number(step, where),
            None if bench is None else str(bench),
        )
        key = (answer.bench, answer.step, answer.problem, answer.sample)
        if key in seen:
            raise LabError(f"{where}: problem {problem!r}, sample {answer.sample} is there twice; number samples")
        seen.add(key)
        yield answer
    if not seen:
        raise LabError(f"{path}: it holds no row; nothing to import")
