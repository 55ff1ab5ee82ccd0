"""Which logs belong to which runs: one path, or a TOML table per run, or a pattern with `{arm}` and `{seed}`."""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.importers.base import LogReader, RunSpec, match_pattern
from gspo_lab.importers.metric_names import tables
from gspo_lab.importers.tables import ITEMS
from gspo_lab.registry import look_up, nearest, require_known
from gspo_lab.study.load import NAMED, fits_as_name, validated

SOURCES = {
    "jsonl": "gspo_lab.importers.tables",
    "csv": "gspo_lab.importers.tables",
    "parquet": "gspo_lab.importers.tables",
    "trl": "gspo_lab.importers.trl",
    "tensorboard": "gspo_lab.importers.tensorboard",
    "verl": "gspo_lab.importers.verl",
    "wandb": "gspo_lab.importers.wandb",
    "trackio": "gspo_lab.importers.trackio",
    "items": "gspo_lab.importers.tables",
}
"""Kind of log -> the module that reads it."""

INSIDE = "{arm}/s{seed}"
"""The usual pattern of the names of runs inside a file, as the columns arm and seed give it."""
HOLES = re.compile(r"[{*]")


def reader_of(spec: RunSpec) -> LogReader:
    """The module that reads this source. LabError for an unknown source."""
    require_known("source", spec.source, SOURCES)
    module = SOURCES.get(spec.source)
    reader: LogReader = look_up("source", spec.source, {}) if module is None else importlib.import_module(module)
    return reader


@dataclass(frozen=True)
class RunLog:
    """The log of one run."""

    arm: str
    seed: int
    path: Path
    run: str
    spec: RunSpec

    @property
    def source(self) -> str:
        """Its path, and the run inside, as text."""
        return f"{self.path}{f' ({self.run})' if self.run else ''}"


def fits_as_arm(name: str) -> bool:
    """Whether an arm can have this name; a sweep's value (`gspo@0.0002`) is allowed."""
    return fits_as_name(name.replace("@", "-", 1))


def resolve_run_specs(specs: Sequence[RunSpec], base: Path) -> list[RunLog]:
    """The logs of every spec, items last. LabError if a log has no arm or seed, or two have the same."""
    logs = [log for spec in specs for log in _logs_of(spec, base)]
    claimed: dict[tuple[str, int, bool], RunLog] = {}
    for log in logs:
        if not fits_as_arm(log.arm):
            raise LabError(f"{log.source}: an arm cannot be named '{log.arm}': {NAMED}")
        items = log.spec.source == ITEMS
        first = claimed.setdefault((log.arm, log.seed, items), log)
        if first is not log and (not items or log.spec.bench == first.spec.bench):
            raise LabError(f"{log.source} and {first.source} both claim to be {log.arm}, seed {log.seed}")
    return sorted(logs, key=lambda log: log.spec.source == ITEMS)


def _logs_of(spec: RunSpec, base: Path) -> Iterator[RunLog]:
    pattern = str(base / spec.path)
    paths = _paths(pattern) if HOLES.search(spec.path) else [(Path(pattern), {})]
    if not paths:
        raise LabError(f"{spec.path}: nothing in {base} fits this pattern")
    for path, parts in paths:
        if not path.exists():
            raise LabError(f"{path}: no such file or folder")
        arm, seed = parts.get("arm", spec.arm), parts.get("seed", spec.seed)
        names = getattr(reader_of(spec), "runs", None)
        inside = [""] if names is None else names(path, spec)
        if inside == [""]:
            yield RunLog(*_arm_and_seed(arm, seed, path), path, "", spec)
            continue
        fitting = [(run, named) for run in inside if (named := match_pattern(spec.name or INSIDE, run)) is not None]
        if not fitting:
            raise LabError(
                f"{path}: of the runs inside ({', '.join(inside[:8])}) none is named '{spec.name or INSIDE}'; "
                "give the pattern of their names with {arm} and {seed}: --run-pattern, or run_pattern under [[runs]]"
            )
        for run, named in fitting:
            yield RunLog(*_arm_and_seed(named.get("arm", arm), named.get("seed", seed), path), path, run, spec)


def _arm_and_seed(arm: Any, seed: Any, path: Path) -> tuple[str, int]:
    if arm is None or seed is None:
        lacking = " and ".join(name for name, value in (("arm", arm), ("seed", seed)) if value is None)
        raise LabError(f"{path}: of which {lacking}? Give it (--arm, --seed), or write {{arm}}, {{seed}} in the path")
    return str(arm), int(seed)


def _paths(pattern: str) -> list[tuple[Path, dict[str, str]]]:
    """The paths that match a pattern, sorted, with the parts for arm and seed."""
    head = Path(HOLES.split(pattern)[0] + "x").parent
    glob = re.sub(r"\{(arm|seed)\}", "*", str(Path(pattern).relative_to(head)))
    hits = [(path, match_pattern(pattern, str(path))) for path in sorted(head.glob(glob))]
    return [(path, parts) for path, parts in hits if parts is not None]


def parse_run_spec(table: Mapping[str, Any], where: str) -> RunSpec:
    """Parse a `[[runs]]` or `[[items]]` table. LabError for a mistake."""
    problems: list[str] = []
    spec: RunSpec = validated(RunSpec, table, where, problems)
    if problems:
        raise LabError(f"{problems[0]}; see docs/how-to/import-runs.md")
    if not spec.source or not spec.path:
        raise LabError(f"{where}: it needs source (one of {', '.join(SOURCES)}) and path")
    if spec.program is not None and spec.program not in tables():
        near = nearest(spec.program, tables())
        raise LabError(f"{where}.program: unknown '{spec.program}'{near}; known: {', '.join(tables())}")
    return spec
