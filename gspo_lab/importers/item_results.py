"""Per-item results: JSON Lines or CSV with the columns `problem` and `correct`, and `arm` and `seed`, or `run`.

The columns `bench`, `sample` and `step` are optional. The rows become answers to a benchmark, which give its score and
allow intervals over seeds and problems.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.importers import tables
from gspo_lab.importers.base import Log, LoggedAnswer, RunSpec, check_file, parse_finite, parse_int

runs = tables.runs
CORRECT = {"true": 1, "yes": 1, "false": 0, "no": 0}


def read(path: Path, run: str, spec: RunSpec) -> Log:
    """The answers of one run."""
    return Log(spec.program or "items", (), (check_file(path, "item results"),), answers=_answers(path, run, spec))


def _answers(path: Path, run: str, spec: RunSpec) -> Iterator[LoggedAnswer]:
    keys: set[tuple[Any, ...]] = set()
    for where, nested in tables.entries(path):
        entry = tables.unnested(nested, where)
        if tables.run_of(entry, spec, where) != run:
            continue
        problem, correct, sample, step, bench = (
            next((entry[name] for name in spec.named(key) if entry.get(name) not in (None, "")), None)
            for key in ("problem", "correct", "sample", "step", "bench")
        )
        if problem is None or correct is None:
            raise LabError(f"{where}: it has no 'problem' and 'correct'; name their columns: --map correct=NAME")
        grade = CORRECT.get(str(correct).lower(), parse_finite(correct))
        if grade not in (0, 1):
            raise LabError(f"{where}: correct is {correct!r}, not 0 or 1")
        answer = LoggedAnswer(
            str(problem),
            int(grade),
            0 if sample is None else parse_int(sample, where, "sample"),
            None if step is None else parse_int(step, where),
            None if bench is None else str(bench),
        )
        key = (answer.bench, answer.step, answer.problem, answer.sample)
        if key in keys:
            raise LabError(f"{where}: problem {problem!r}, sample {answer.sample} is there twice; number samples")
        keys.add(key)
        yield answer
    if not keys:
        raise LabError(f"{path}: it holds no row; nothing to import")
