"""Runs that other programs recorded, from their own logs to a study: read, declared, held against what is known.

    import_runs(runs, Said("x", told={"gspo": {}}), [Wish(source="trl", path="out/checkpoint-40", arm="gspo", seed=0)])
    import_file(Path("my_runs.toml"), runs)

A log goes line by line through `convert`, beside the study (`stage`); only when every one of an import is through is
anything put in its place. A further kind of log is one module (`log.Source`) and its line in `SOURCES`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.errors import LabError
from gspo_lab.importers.config import check_alike, read_config
from gspo_lab.importers.convert import Conversion
from gspo_lab.importers.declare import Said, declaration, present, said, told_before
from gspo_lab.importers.log import Wish
from gspo_lab.importers.names import likely, names
from gspo_lab.importers.stage import Put, Stage
from gspo_lab.importers.wanted import SOURCES, Found, found, reader_of, wanted
from gspo_lab.study.load import parsed

__all__ = ["SOURCES", "Imported", "Put", "Said", "Wish", "import_file", "import_runs", "wanted"]

LOGS = ("runs", "items", "score")


@dataclass(frozen=True)
class Imported:
    """What one import did: the study, each run, and what a person should know of it."""

    study: str
    puts: tuple[Put, ...]
    notes: tuple[str, ...]


def import_file(path: Path, runs: Path, name: str | None = None) -> Imported:
    """Import a whole study from its TOML: question, verdict and arms as in a study to be run, and `[[runs]]`."""
    raw = parsed(path)
    words = said({key: value for key, value in raw.items() if key not in LOGS}, name or path.stem, path)
    every = []
    shared = {"score": raw["score"]} if "score" in raw else {}
    for key, usual in (("runs", shared), ("items", {**shared, "source": "items"})):
        tables = raw.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            raise LabError(f"{path}: {key}: a list of tables, each headed [[{key}]]")
        every += [wanted(usual | one, f"{path}: {key}.{i}") for i, one in enumerate(tables)]
    if not every:
        raise LabError(f"{path}: it names no logs; give it a [[runs]] table with source and path")
    return import_runs(runs, words, every, path.parent)


def import_runs(runs: Path, words: Said, every: Sequence[Wish], base: Path = Path()) -> Imported:
    """Import these logs into one study, all of them or none. LabError for the first that cannot be."""
    logs = found(every, base)
    before = present(runs, words.name)
    known = told_before(before)
    with Stage(runs, words.name).open() as stage:
        done: list[tuple[str, int, Conversion]] = []
        for one in logs:
            settings = {**known.get(one.arm, {}), **words.of(one.arm)}
            own = [converted.steps for arm, seed, converted in done if (arm, seed) == (one.arm, one.seed)]
            converted = _converted(one, base, settings, own[0] if own and own[0] else stage.end(one.arm, one.seed))
            others = [(f"{arm}/s{seed}", other.config) for arm, seed, other in done if arm == one.arm]
            check_alike(one.arm, f"{one.arm}/s{one.seed}", converted.config, [*stage.configs(one.arm), *others])
            stage.put(one.arm, one.seed, converted, one.source)
            done.append((one.arm, one.seed, converted))
        news = ", ".join(put.run.partition("/")[2] for put in stage.puts if put.what != "unchanged")
        declared = declaration(before, words, done, news)
        if before is None or declared != before or news:
            stage.commit(declared)
        return Imported(words.name, tuple(stage.puts), tuple(_notes(stage.puts)))


def _converted(one: Found, base: Path, settings: dict[str, object], at_end: int) -> Conversion:
    wish = one.wish
    log = reader_of(wish).read(one.path, one.run, wish)
    if wish.config is not None:
        file = base / wish.config.replace("{arm}", one.arm).replace("{seed}", str(one.seed))
        log.settings, log.files = {**log.settings, **read_config(file)}, (*log.files, file)
    table = names(wish.program or log.program, wish.map, wish.scores)
    return Conversion(log, table, settings, wish.bench, at_end, wish.ignore)


def _notes(puts: Sequence[Put]) -> list[str]:
    """What was noted of each log, and names that were not understood."""
    out: dict[str, list[str]] = {}
    for put in puts:
        for note in put.origin.converted:
            out.setdefault(note, []).append(put.run)
        strange = [name for name, told in put.origin.metrics.items() if not told]
        guess = likely(put.origin.metrics) if strange else None
        hint = (
            f"; they look like those of {guess}: --logged-by {guess}" if guess and guess != put.origin.program else ""
        )
        if strange:
            shown = ", ".join(strange[:6]) + (f" and {len(strange) - 6} more" if len(strange) > 6 else "")
            out.setdefault(f"kept under its own name only, not understood: {shown}{hint}", []).append(put.run)
    return [f"{note} [{where[0]}{f' and {len(where) - 1} more' if where[1:] else ''}]" for note, where in out.items()]
