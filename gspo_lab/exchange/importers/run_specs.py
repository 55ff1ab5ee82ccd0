"""Which logs are which runs: paths, columns or names of runs give the arm and the seed."""

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.common.registry import look_up, require_known, unlisted
from gspo_lab.common.text import first_few
from gspo_lab.exchange.importers.base import LogReader, RunSpec, match_pattern
from gspo_lab.exchange.importers.build_declaration import fits_as_arm
from gspo_lab.exchange.importers.metric_names import tables
from gspo_lab.study.load import NAMED, validated

ITEMS = "items"
SOURCES = {
    "jsonl": "gspo_lab.exchange.importers.tables",
    "csv": "gspo_lab.exchange.importers.tables",
    "parquet": "gspo_lab.exchange.importers.tables",
    "trl": "gspo_lab.exchange.importers.trl",
    "tensorboard": "gspo_lab.exchange.importers.tensorboard",
    "verl": "gspo_lab.exchange.importers.verl",
    "wandb": "gspo_lab.exchange.importers.wandb",
    "trackio": "gspo_lab.exchange.importers.trackio",
    ITEMS: "gspo_lab.exchange.importers.tables",
}
"""Kind of log -> the module that reads it."""
INSIDE = "{arm}/s{seed}"
INSIDE_RUN = re.compile(r"(?P<arm>.+)/s(?P<seed>\d+)")
"""The usual pattern of the names of runs inside a file, as the columns arm and seed give it."""
HOLES = re.compile(r"[{*]")


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
        return f"{self.path} ({self.run})" if self.run else str(self.path)


def reader_of(spec: RunSpec) -> LogReader:
    """The module that reads this source. LabError for an unknown source."""
    require_known("source", spec.source, SOURCES)
    module = SOURCES.get(spec.source)
    reader: LogReader = (
        importlib.import_module(module) if module else look_up("source", spec.source, {})
    )
    return reader


def parse_run_spec(table: JsonMapping, where: str) -> RunSpec:
    """Parse a `[[runs]]` or `[[items]]` table. LabError for a mistake."""
    problems: list[str] = []
    spec: RunSpec = validated(RunSpec, table, where, problems)
    if problems:
        raise LabError(f"{problems[0]}; see docs/how-to/import-runs.md")
    if not spec.source or not spec.path:
        raise LabError(f"{where}: it needs source (one of {', '.join(SOURCES)}) and path")
    if spec.logged_by is not None and spec.logged_by not in tables():
        raise LabError(f"{where}.logged_by: unknown {unlisted(spec.logged_by, tables())}")
    return spec


def resolve_run_specs(specs: Sequence[RunSpec], base: Path, notes: list[str]) -> list[RunLog]:
    """The logs of every spec, items last; `notes` say what is not taken or renamed.

    LabError if a log has no arm or seed, if two logs have the same, or if two arms differ only in
    upper and lower case.
    """
    logs: list[RunLog] = []
    for spec in specs:
        logs += [_legal(log, notes) for log in _logs_of(spec, base, notes)]
    claimed: dict[tuple[str, int, bool], RunLog] = {}
    spelled: dict[str, str] = {}
    for log in logs:
        is_items = log.spec.source == ITEMS
        rival = claimed.setdefault((log.arm, log.seed, is_items), log)
        if rival is not log and (not is_items or log.spec.bench == rival.spec.bench):
            raise LabError(
                f"{log.source} and {rival.source} both claim to be {log.arm}, seed {log.seed}"
            )
        spelling = spelled.setdefault(log.arm.lower(), log.arm)
        if spelling != log.arm:
            raise LabError(
                f"{log.source}: arms {spelling} and {log.arm} differ only in upper and lower case;"
                " write one arm alike everywhere"
            )
    return sorted(logs, key=lambda log: log.spec.source == ITEMS)


def _legal(log: RunLog, notes: list[str]) -> RunLog:
    """The log with a name that an arm can have; a note tells a changed name."""
    if fits_as_arm(log.arm):
        return log
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", log.arm).strip("-._")
    if log.spec.arm == log.arm or not fits_as_arm(name):
        raise LabError(
            f"{log.source}: an arm cannot be named '{log.arm}': {NAMED}; another column may name"
            " it: --map arm=NAME"
        )
    notes.append(f"arm {log.arm} is named {name}")
    return replace(log, arm=name)


def _logs_of(spec: RunSpec, base: Path, notes: list[str]) -> Iterator[RunLog]:
    paths = paths_of(spec, base, notes)
    if not paths:
        raise LabError(f"{spec.path}: nothing in {base} fits this pattern")
    for path, path_match in paths:
        if not path.exists():
            raise LabError(f"{path}: no such file or folder")
        arm_and_seed = {
            "arm": path_match.get("arm", spec.arm),
            "seed": path_match.get("seed", spec.seed),
        }
        inside = runs_inside(path, spec)
        if inside == [""]:
            yield RunLog(*_arm_and_seed(arm_and_seed, path, spec), path, "", spec)
            continue
        yield from _runs_inside(path, inside, arm_and_seed, spec, notes)


def runs_inside(path: Path, spec: RunSpec) -> Sequence[str]:
    """The names of the runs inside a file; "" for a log of one run."""
    runs = getattr(reader_of(spec), "runs", None)
    return [""] if runs is None else runs(path, spec)


def _runs_inside(
    path: Path,
    inside: Sequence[str],
    arm_and_seed: JsonMapping,
    spec: RunSpec,
    notes: list[str],
) -> Iterator[RunLog]:
    """The runs of a file whose names fit the pattern; a note names the others."""
    pattern = spec.run_pattern or INSIDE
    odd = []
    for run in inside:
        usual = INSIDE_RUN.fullmatch(run)
        match = (
            match_pattern(spec.run_pattern, run)
            if spec.run_pattern
            else usual and usual.groupdict()
        )
        if match is None:
            odd.append(run or "rows without arm, seed or run")
            continue
        yield RunLog(*_arm_and_seed({**arm_and_seed, **match}, path, spec), path, run, spec)
    if len(odd) == len(inside):
        raise LabError(
            f"{path}: of the runs inside ({first_few(odd, 8)}) none is named '{pattern}'; give the"
            " pattern of their names with {arm} and {seed}: --run-pattern, or run_pattern under"
            f" [[runs]]{_columns(path, spec)}"
        )
    if odd:
        notes.append(
            f"not imported from {path.name}: {first_few(odd, 8)}; it does not fit '{pattern}'"
            " (--run-pattern)"
        )


def _arm_and_seed(names: JsonMapping, path: Path, spec: RunSpec) -> tuple[str, int]:
    missing = " and ".join(name for name in ("arm", "seed") if names.get(name) is None)
    if missing:
        raise LabError(
            f"{path}: of which {missing}? Give it (--arm, --seed), or write {{arm}}, {{seed}} in"
            f" the path{_columns(path, spec)}"
        )
    return str(names["arm"]), int(names["seed"])


def _columns(path: Path, spec: RunSpec) -> str:
    """The columns of a table, for a message that asks for arm and seed."""
    column_names = getattr(reader_of(spec), "column_names", None)
    names = column_names(path) if column_names is not None and path.is_file() else []
    if not names:
        return ""
    return f"; or name their columns, --map arm=NAME --map seed=NAME: it has {first_few(names, 12)}"


def paths_of(spec: RunSpec, base: Path, notes: list[str]) -> list[tuple[Path, dict[str, str]]]:
    """The paths that match the spec's pattern, sorted, with the parts for arm and seed."""
    pattern = str(base / spec.path)
    if not HOLES.search(spec.path):
        return [(Path(pattern), {})]
    head = Path(HOLES.split(pattern)[0] + "x").parent
    glob = "/".join(map(_loose, Path(pattern).relative_to(head).parts))
    fitting = []
    odd = []
    for path in sorted(head.glob(glob)):
        match = match_pattern(pattern, str(path))
        if match is None:
            odd.append(path.relative_to(head).as_posix())
        else:
            fitting.append((path, match))
    if odd and fitting:
        notes.append(f"not imported: {first_few(odd)}; the path does not fit '{spec.path}'")
    return fitting


def _loose(part: str) -> str:
    """A part of a path as a pattern for glob; one with {arm} fits every name of its suffix, so that
    what does not fit is seen. Beside one with {seed} alone other arms may lie.
    """
    if "{arm}" not in part:
        return part.replace("{seed}", "*")
    suffix = Path(part).suffix
    return "*" if "{" in suffix else f"*{suffix}"
