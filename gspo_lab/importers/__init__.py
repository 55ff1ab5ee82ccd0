"""Import runs that other programs recorded, from their logs into a study.

    import_runs(runs, StatedStudy("x", settings={"gspo": {}}), [RunSpec(source="trl", path="out/checkpoint-40", ...)])
    import_file(Path("my_runs.toml"), runs)

Each log is converted row by row into a folder beside the study (`import_transaction`). The study changes only when all
logs of an import are complete. A new kind of log is one module (`base.LogReader`) and its line in `SOURCES`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.errors import LabError
from gspo_lab.importers import build_declaration as declarations
from gspo_lab.importers.base import RunSpec
from gspo_lab.importers.build_declaration import StatedStudy, parse_stated_study
from gspo_lab.importers.config import check_alike, read_config
from gspo_lab.importers.convert import Conversion
from gspo_lab.importers.import_transaction import ImportedRun, ImportTransaction
from gspo_lab.importers.metric_names import guess_program, metric_names
from gspo_lab.importers.run_specs import SOURCES, RunLog, parse_run_spec, reader_of, resolve_run_specs
from gspo_lab.importers.tables import ITEMS
from gspo_lab.study.load import parsed

__all__ = ["SOURCES", "RunSpec", "StatedStudy", "import_file", "import_runs", "parse_run_spec", "parse_stated_study"]

LOGS = ("runs", "items", "score")


@dataclass(frozen=True)
class Imported:
    """The result of one import: the study, its runs, and notes for a person."""

    study: str
    runs: tuple[ImportedRun, ...]
    notes: tuple[str, ...]


def import_file(path: Path, runs: Path, name: str | None = None) -> Imported:
    """Import a study from a TOML file with a question, a verdict and arms as in any study, and `[[runs]]` tables."""
    raw = parsed(path)
    stated = parse_stated_study({key: value for key, value in raw.items() if key not in LOGS}, name or path.stem, path)
    specs = []
    shared = {"score": raw["score"]} if "score" in raw else {}
    for key, usual in (("runs", shared), ("items", {**shared, "source": ITEMS})):
        tables = raw.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise LabError(f"{path}: {key}: a list of tables, each headed [[{key}]]")
        specs += [parse_run_spec(usual | table, f"{path}: {key}.{i}") for i, table in enumerate(tables)]
    if not specs:
        raise LabError(f"{path}: it names no logs; give it a [[runs]] table with source and path")
    return import_runs(runs, stated, specs, path.parent)


def import_runs(runs: Path, stated: StatedStudy, specs: Sequence[RunSpec], base: Path = Path()) -> Imported:
    """Import these logs into one study, all or none. LabError for the first log that cannot be imported."""
    logs = resolve_run_specs(specs, base)
    before = declarations.existing_import(runs, stated.name)
    known = declarations.earlier_settings(before)
    with ImportTransaction(runs, stated.name).open() as transaction:
        done: list[tuple[str, int, Conversion]] = []
        for log in logs:
            settings = {**known.get(log.arm, {}), **stated.of(log.arm)}
            steps = next((c.steps for arm, seed, c in done if (arm, seed) == (log.arm, log.seed)), 0)
            converted = _convert(log, base, settings, steps or transaction.end(log.arm, log.seed))
            configs = [(f"{arm}/s{seed}", earlier.config) for arm, seed, earlier in done if arm == log.arm]
            name = f"{log.arm}/s{log.seed}"
            check_alike(log.arm, name, converted.config, [*transaction.configs(log.arm), *configs])
            transaction.stage_run(log.arm, log.seed, converted, log.source)
            done.append((log.arm, log.seed, converted))
        news = ", ".join(run.id.partition("/")[2] for run in transaction.runs if run.state != "unchanged")
        declared = declarations.declaration(before, stated, done, news)
        if before is None or declared != before or news:
            transaction.commit(declared)
        return Imported(stated.name, tuple(transaction.runs), tuple(_notes(transaction.runs)))


def _convert(log: RunLog, base: Path, settings: dict[str, object], at_end: int) -> Conversion:
    spec = log.spec
    content = reader_of(spec).read(log.path, log.run, spec)
    if spec.config is not None:
        file = base / spec.config.replace("{arm}", log.arm).replace("{seed}", str(log.seed))
        content.settings, content.files = {**content.settings, **read_config(file)}, (*content.files, file)
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
            f"; they look like those of {guess}: --logged-by {guess}" if guess and guess != run.origin.program else ""
        )
        if strange:
            names = ", ".join(strange[:6]) + (f" and {len(strange) - 6} more" if len(strange) > 6 else "")
            out.setdefault(f"kept under its own name only, not understood: {names}{hint}", []).append(run.id)
    return [f"{note} [{where[0]}{f' and {len(where) - 1} more' if where[1:] else ''}]" for note, where in out.items()]
