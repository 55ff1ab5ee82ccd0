"""Import runs that other programs recorded, from their logs into a study.

    import_runs(runs, StatedStudy("x", settings={"gspo": {}}), [RunSpec(source="trl",
    path="out/checkpoint-40", ...)]) import_file(Path("my_runs.toml"), runs)

A reader yields the rows of a log (`base.LogReader`); a new kind of log is one module and its line
in `run_specs.SOURCES`. Everything else is written once: which runs a log holds (`run_specs`), the
order of steps and resumed runs (`metric_buffer`), secrets (`secrets`), the meaning of names
(`metric_names`, `convert`). The study changes only when all logs of an import are complete
(`import_transaction`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Strings
from gspo_lab.common.text import first_few
from gspo_lab.exchange.importers import build_declaration as declarations
from gspo_lab.exchange.importers.base import RunSpec
from gspo_lab.exchange.importers.build_declaration import StatedStudy, parse_stated_study
from gspo_lab.exchange.importers.config import read_config
from gspo_lab.exchange.importers.convert import Conversion
from gspo_lab.exchange.importers.import_transaction import ImportedRun, ImportTransaction
from gspo_lab.exchange.importers.run_specs import (
    ITEMS,
    SOURCES,
    RunLog,
    parse_run_spec,
    reader_of,
    resolve_run_specs,
)
from gspo_lab.study.load import parsed

__all__ = [
    "SOURCES",
    "RunSpec",
    "StatedStudy",
    "import_file",
    "import_runs",
    "parse_run_spec",
    "parse_stated_study",
]

LOGS = ("runs", "items", "score")


@dataclass(frozen=True)
class Imported:
    """The result of one import: the study, its runs, and notes for a person."""

    study: str
    runs: tuple[ImportedRun, ...]
    notes: Strings


Done = list[tuple[str, int, Conversion]]
"""Arm, seed and log of each run of an import."""


def import_file(path: Path, runs: Path, name: str | None = None) -> Imported:
    """Import a study from a TOML file with a question, a verdict and arms as in any study, and
    `[[runs]]` tables.
    """
    raw = parsed(path)
    study = {key: value for key, value in raw.items() if key not in LOGS}
    study_statement = parse_stated_study(study, name or path.stem, path)
    shared = {"score": raw["score"]} if "score" in raw else {}
    specs = []
    for key, usual in (("runs", shared), (ITEMS, {**shared, "source": ITEMS})):
        tables = raw.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise LabError(f"{path}: {key}: a list of tables, each headed [[{key}]]")
        specs += [
            parse_run_spec(usual | table, f"{path}: {key}.{i}") for i, table in enumerate(tables)
        ]
    if not specs:
        raise LabError(f"{path}: it names no logs; give it a [[runs]] table with source and path")
    base = path.resolve().parent
    specs = [
        spec.replace(source=str(base / spec.source)) if ".py:" in spec.source else spec
        for spec in specs
    ]
    return import_runs(runs, study_statement, specs, base)


def import_runs(
    runs: Path, study_statement: StatedStudy, specs: Sequence[RunSpec], base: Path = Path()
) -> Imported:
    """Import these logs into one study, all or none.

    LabError for the first log that cannot be imported.
    """
    notes: list[str] = []
    logs = resolve_run_specs(specs, base, notes)
    imported = {(log.arm, log.seed) for log in logs if log.spec.source != ITEMS}
    existing = declarations.existing_import(runs, study_statement.name)
    replaced_declaration = declarations.without_replaced(existing, imported)
    earlier = declarations.earlier_settings(replaced_declaration)
    with ImportTransaction(runs, study_statement.name).open() as transaction:
        conversions: Done = []
        for log in logs:
            settings = {**earlier.get(log.arm, {}), **study_statement.of(log.arm)}
            at_end = transaction.end(log.arm, log.seed)
            converted = read_log(log, base, settings, at_end)
            transaction.stage_run(log.arm, log.seed, converted, log.source)
            conversions.append((log.arm, log.seed, converted))
        changed = [run.id for run in transaction.runs if run.state != "unchanged"]
        run_names = ", ".join(name.partition("/")[2] for name in changed)
        declared = declarations.declaration(
            replaced_declaration, study_statement, conversions, run_names
        )
        if declared != existing or changed:
            transaction.commit(declared)
        notes += [*_notes(transaction.runs), *_unequal_evaluations(conversions)]
        return Imported(study_statement.name, tuple(transaction.runs), tuple(dict.fromkeys(notes)))


def read_log(log: RunLog, base: Path, settings: dict[str, object], at_end: int = 1) -> Conversion:
    """A run's log, all rows read, with the configuration that its spec names."""
    spec = log.spec
    content = reader_of(spec).read(log.path, log.run, spec)
    if spec.config is not None:
        file = base / spec.config.replace("{arm}", log.arm).replace("{seed}", str(log.seed))
        config = read_config(file)
        content.files = (*content.files, file)
    else:
        config = {}
    return Conversion(content, spec, settings, at_end, config)


def _notes(runs: Sequence[ImportedRun]) -> list[str]:
    """The notes about each log, and the metric names without a known meaning."""
    runs_by_note: dict[str, list[str]] = {}
    for run in runs:
        for note in [*run.origin.converted, *_not_understood(run)]:
            runs_by_note.setdefault(note, []).append(run.id)
    replaced = [
        f"{run.id} was imported from {run.other_source} before; those numbers are replaced"
        for run in runs
        if run.other_source
    ]
    return replaced + [f"{note} [{first_few(names, 1)}]" for note, names in runs_by_note.items()]


def _not_understood(run: ImportedRun) -> Iterator[str]:
    strange = [name for name, metric in run.origin.metrics.items() if not metric]
    if strange:
        yield (
            f"kept under its own name only, not understood: {first_few(strange)}; --map assigns"
            " them, or --logged-by names their program"
        )


def _unequal_evaluations(conversions: Done) -> Iterator[str]:
    """A note for each benchmark with steps that were evaluated in some runs only."""
    by_bench: dict[str, dict[str, set[int]]] = {}
    for arm, seed, converted in conversions:
        for bench, steps in converted.evaluated.items():
            by_bench.setdefault(bench, {})[f"{arm}/s{seed}"] = steps
    for bench, runs in by_bench.items():
        everything = set.union(*runs.values())
        holes = [
            f"{name} {first_few(map(str, sorted(everything - steps)))}"
            for name, steps in runs.items()
            if everything - steps
        ]
        if holes:
            yield f"{bench}: steps of other runs without a score in {first_few(holes)}"
