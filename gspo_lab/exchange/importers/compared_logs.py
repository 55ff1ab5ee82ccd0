"""Logs named by arm, `grpo=LOG... gspo=LOG...`, as one import."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.exchange.importers import Imported, import_runs, parse_run_spec, parse_stated_study
from gspo_lab.exchange.importers.base import RunSpec
from gspo_lab.exchange.importers.run_specs import paths_of
from gspo_lab.training.objectives.presets import PRESETS

NO_LOG = "=LOG: name a log of this arm, as in grpo=out/grpo-s0 gspo=out/gspo-s0"


def logs_by_arm(words: Sequence[str]) -> dict[str, list[str]]:
    """Arm -> paths, of words such as `gspo=a b gspo=c`: a word without `=` belongs to the arm
    before it.
    """
    logs: dict[str, list[str]] = {}
    arm = ""
    for word in words:
        name, equals, path = word.partition("=")
        if equals and "/" not in name:
            arm = name
        else:
            path = word
        if not arm or not path:
            raise LabError(f"compare {word}: {arm or 'ARM'}{NO_LOG}")
        logs.setdefault(arm, []).append(path)
    if len(logs) < 2:
        raise LabError(f"compare: {arm} is the only arm; name the logs of another one, ARM=LOG")
    return logs


def import_compared(
    runs: Path,
    study: str,
    logs: dict[str, list[str]],
    source_of: Callable[[Path], str],
    reading: JsonMapping,
) -> Imported:
    """Import the logs into a study. An arm with a preset's name has that objective.

    `source_of` names the source that reads a log, `reading` has further keys of a `[[runs]]` table.
    A path's `{seed}` is the run's seed; other runs of an arm are numbered in their order.
    """
    specs: list[RunSpec] = []
    for arm, paths in logs.items():
        for path, seed, example in _seeded_logs(paths):
            run = {"source": source_of(example), "path": path, "arm": arm, "seed": seed}
            specs.append(parse_run_spec({**reading, **run}, f"compare {arm}"))
    objectives = {arm: {"objective": arm} for arm in logs if arm in PRESETS}
    statement = parse_stated_study({"arm": objectives}, study, "compare")
    return import_runs(runs, statement, specs)


def _seeded_logs(paths: Sequence[str]) -> Iterator[tuple[str, int | None, Path]]:
    """Each path of an arm, its seed (None: the path's `{seed}` tells it), and a log of it."""
    count = 0
    for path in paths:
        matches = _matches(path)
        if "{seed}" in path:
            yield path, None, matches[0]
            continue
        for match in matches:
            yield str(match), count, match
            count += 1


def _matches(pattern: str) -> list[Path]:
    """The logs that a path or a pattern names, 2 before 10. LabError if there is none."""
    logs = [path for path, _ in paths_of(RunSpec(path=pattern), Path(), [])]
    if not logs:
        raise LabError(f"{pattern}: no log fits this pattern")
    return sorted(logs, key=_with_equal_digits)


def _with_equal_digits(path: Path) -> str:
    """The path with its numbers filled up with zeros, in whose order 2 comes before 10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(20), str(path))
