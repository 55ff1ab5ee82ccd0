"""Import runs that other programs recorded, from their logs into a study.

    import_runs(runs, StatedStudy("x", settings={"gspo": {}}), [RunSpec(source="trl",
    path="out/checkpoint-40", ...)]) import_file(Path("my_runs.toml"), runs)

Each log is converted row by row into a folder beside the study (`import_transaction`). The study
changes only when all logs of an import are complete. A new kind of log is one module
(`base.LogReader`) and its line in `SOURCES`.
"""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.registry import look_up, nearest, require_known
from gspo_lab.exchange.importers import build_declaration as declarations
from gspo_lab.exchange.importers.base import LogReader, RunSpec, match_pattern
from gspo_lab.exchange.importers.build_declaration import (
    StatedStudy,
    fits_as_arm,
    parse_stated_study,
)
from gspo_lab.exchange.importers.config import check_alike, read_config
from gspo_lab.exchange.importers.convert import Conversion
from gspo_lab.exchange.importers.import_transaction import ImportedRun, ImportTransaction
from gspo_lab.exchange.importers.metric_names import guess_program, metric_names
from gspo_lab.exchange.importers.metric_names import tables as program_tables
from gspo_lab.exchange.importers.tables import ITEMS
from gspo_lab.study.load import NAMED, parsed, validated

__all__ = [
    "SOURCES",
    "RunSpec",
    "StatedStudy",
    "import_file",
    "import_runs",
    "parse_run_spec",
    "parse_stated_study",
]

SOURCES = {
    "jsonl": "gspo_lab.exchange.importers.tables",
    "csv": "gspo_lab.exchange.importers.tables",
    "parquet": "gspo_lab.exchange.importers.tables",
    "trl": "gspo_lab.exchange.importers.trl",
    "tensorboard": "gspo_lab.exchange.importers.tensorboard",
    "verl": "gspo_lab.exchange.importers.verl",
    "wandb": "gspo_lab.exchange.importers.wandb",
    "trackio": "gspo_lab.exchange.importers.trackio",
    "items": "gspo_lab.exchange.importers.tables",
}
"""Kind of log -> the module that reads it."""

INSIDE = "{arm}/s{seed}"
"""The usual pattern of the names of runs inside a file, as the columns arm and seed give it."""
HOLES = re.compile(r"[{*]")
LOGS = ("runs", "items", "score")


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


@dataclass(frozen=True)
class Imported:
    """The result of one import: the study, its runs, and notes for a person."""

    study: str
    runs: tuple[ImportedRun, ...]
    notes: tuple[str, ...]


def import_file(path: Path, runs: Path, name: str | None = None) -> Imported:
    """Import a study from a TOML file with a question, a verdict and arms as in any study, and
    `[[runs]]` tables.
    """
    raw = parsed(path)
    stated = parse_stated_study(
        {key: value for key, value in raw.items() if key not in LOGS}, name or path.stem, path
    )
    specs = []
    shared = {"score": raw["score"]} if "score" in raw else {}
    for key, usual in (("runs", shared), ("items", {**shared, "source": ITEMS})):
        tables = raw.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise LabError(f"{path}: {key}: a list of tables, each headed [[{key}]]")
        specs += [
            parse_run_spec(usual | table, f"{path}: {key}.{i}") for i, table in enumerate(tables)
        ]
    if not specs:
        raise LabError(f"{path}: it names no logs; give it a [[runs]] table with source and path")
    return import_runs(runs, stated, specs, path.parent)


def import_runs(
    runs: Path, stated: StatedStudy, specs: Sequence[RunSpec], base: Path = Path()
) -> Imported:
    """Import these logs into one study, all or none.

    LabError for the first log that cannot be imported.
    """
    logs = resolve_run_specs(specs, base)
    before = declarations.existing_import(runs, stated.name)
    known = declarations.earlier_settings(before)
    with ImportTransaction(runs, stated.name).open() as transaction:
        done: list[tuple[str, int, Conversion]] = []
        for log in logs:
            settings = {**known.get(log.arm, {}), **stated.of(log.arm)}
            steps = next(
                (c.steps for arm, seed, c in done if (arm, seed) == (log.arm, log.seed)), 0
            )
            converted = _convert(log, base, settings, steps or transaction.end(log.arm, log.seed))
            configs = [
                (f"{arm}/s{seed}", earlier.config) for arm, seed, earlier in done if arm == log.arm
            ]
            name = f"{log.arm}/s{log.seed}"
            check_alike(log.arm, name, converted.config, [*transaction.configs(log.arm), *configs])
            transaction.stage_run(log.arm, log.seed, converted, log.source)
            done.append((log.arm, log.seed, converted))
        news = ", ".join(
            run.id.partition("/")[2] for run in transaction.runs if run.state != "unchanged"
        )
        declared = declarations.declaration(before, stated, done, news)
        if declared != before or news:
            transaction.commit(declared)
        return Imported(stated.name, tuple(transaction.runs), tuple(_notes(transaction.runs)))


def _convert(log: RunLog, base: Path, settings: dict[str, object], at_end: int) -> Conversion:
    spec = log.spec
    content = reader_of(spec).read(log.path, log.run, spec)
    if spec.config is not None:
        file = base / spec.config.replace("{arm}", log.arm).replace("{seed}", str(log.seed))
        content.settings, content.files = (
            {**content.settings, **read_config(file)},
            (*content.files, file),
        )
    names = metric_names(spec.program or content.program, spec.map, spec.scores)
    return Conversion(content, names, settings, spec.bench, at_end, spec.ignore)


def _notes(runs: Sequence[ImportedRun]) -> list[str]:
    """The notes about each log, and the metric names without a known meaning."""
    out: dict[str, list[str]] = {}
    for run in runs:
        for note in run.origin.converted:
            out.setdefault(note, []).append(run.id)
        strange = [name for name, metric in run.origin.metrics.items() if not metric]
        guess = guess_program(run.origin.metrics) if strange else None
        hint = (
            f"; they look like those of {guess}: --logged-by {guess}"
            if guess and guess != run.origin.program
            else "; --map assigns them"
        )
        if strange:
            names = ", ".join(strange[:6]) + (
                f" and {len(strange) - 6} more" if len(strange) > 6 else ""
            )
            out.setdefault(
                f"kept under its own name only, not understood: {names}{hint}", []
            ).append(run.id)
    return [
        f"{note} [{where[0]}{f' and {len(where) - 1} more' if where[1:] else ''}]"
        for note, where in out.items()
    ]


def reader_of(spec: RunSpec) -> LogReader:
    """The module that reads this source. LabError for an unknown source."""
    require_known("source", spec.source, SOURCES)
    module = SOURCES.get(spec.source)
    reader: LogReader = (
        importlib.import_module(module) if module else look_up("source", spec.source, {})
    )
    return reader


def resolve_run_specs(specs: Sequence[RunSpec], base: Path) -> list[RunLog]:
    """The logs of every spec, items last.

    LabError if a log has no arm or seed, or two have the same.
    """
    logs = [log for spec in specs for log in _logs_of(spec, base)]
    claimed: dict[tuple[str, int, bool], RunLog] = {}
    for log in logs:
        if not fits_as_arm(log.arm):
            raise LabError(f"{log.source}: an arm cannot be named '{log.arm}': {NAMED}")
        items = log.spec.source == ITEMS
        first = claimed.setdefault((log.arm, log.seed, items), log)
        if first is not log and (not items or log.spec.bench == first.spec.bench):
            raise LabError(
                f"{log.source} and {first.source} both claim to be {log.arm}, seed {log.seed}"
            )
    return sorted(logs, key=lambda log: log.spec.source == ITEMS)


def _logs_of(spec: RunSpec, base: Path) -> Iterator[RunLog]:
    pattern = str(base / spec.path)
    paths = _paths(pattern) if HOLES.search(spec.path) else [(Path(pattern), {})]
    if not paths:
        raise LabError(f"{spec.path}: nothing in {base} fits this pattern")
    for path, parts in paths:
        if not path.exists():
            raise LabError(f"{path}: no such file or folder")
        arm = parts.get("arm", spec.arm)
        seed = parts.get("seed", spec.seed)
        names = getattr(reader_of(spec), "runs", None)
        inside = [""] if names is None else names(path, spec)
        if inside == [""]:
            yield RunLog(*_arm_and_seed(arm, seed, path), path, "", spec)
            continue
        fitting = [
            (run, named)
            for run in inside
            if (named := match_pattern(spec.name or INSIDE, run)) is not None
        ]
        if not fitting:
            raise LabError(
                f"{path}: of the runs inside ({', '.join(inside[:8])}) none is named"
                f" '{spec.name or INSIDE}'; give the pattern of their names with {{arm}} and"
                " {seed}: --run-pattern, or run_pattern under [[runs]]"
            )
        for run, named in fitting:
            yield RunLog(
                *_arm_and_seed(named.get("arm", arm), named.get("seed", seed), path),
                path,
                run,
                spec,
            )


def _arm_and_seed(arm: Any, seed: Any, path: Path) -> tuple[str, int]:
    if arm is None or seed is None:
        lacking = " and ".join(
            name for name, value in (("arm", arm), ("seed", seed)) if value is None
        )
        raise LabError(
            f"{path}: of which {lacking}? Give it (--arm, --seed), or write {{arm}}, {{seed}} in"
            " the path"
        )
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
    if spec.program is not None and spec.program not in program_tables():
        near = nearest(spec.program, program_tables())
        raise LabError(
            f"{where}.program: unknown '{spec.program}'{near}; known: {', '.join(program_tables())}"
        )
    return spec
