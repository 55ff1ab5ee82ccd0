"""Which logs are which runs: of one path, or of a TOML with a table per run or a pattern of `{arm}` and `{seed}`."""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.importers.log import Source, Wish, matched
from gspo_lab.importers.names import tables
from gspo_lab.registry import known, look_up, nearest
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
    "items": "gspo_lab.importers.items",
}
"""By its name the module that reads a kind of log."""

INSIDE = "{arm}/s{seed}"
"""How a run inside a file is named where nobody says: as columns arm and seed name it."""
HOLES = re.compile(r"[{*]")


def reader_of(wish: Wish) -> Source:
    """The module that reads its source. LabError for an unknown one."""
    known("source", wish.source, SOURCES)
    module = SOURCES.get(wish.source)
    reader: Source = look_up("source", wish.source, {}) if module is None else importlib.import_module(module)
    return reader


@dataclass(frozen=True)
class Found:
    """One run's log."""

    arm: str
    seed: int
    path: Path
    run: str
    wish: Wish

    @property
    def source(self) -> str:
        """Where it lies, for people."""
        return f"{self.path}{f' ({self.run})' if self.run else ''}"


def fits_as_arm(name: str) -> bool:
    """Whether an arm is imported under this name: also that of a sweep's dose, `gspo@0.0002`."""
    return fits_as_name(name.replace("@", "-", 1))


def found(every: Sequence[Wish], base: Path) -> list[Found]:
    """The logs of every wish, in order. LabError where one cannot be placed, or two claim one arm and seed."""
    out = [one for wish in every for one in _of(wish, base)]
    claimed: dict[tuple[str, int, bool], Found] = {}
    for one in out:
        if not fits_as_arm(one.arm):
            raise LabError(f"{one.source}: an arm cannot be named '{one.arm}': {NAMED}")
        other = claimed.setdefault((one.arm, one.seed, one.wish.source == "items"), one)
        if other is not one and (one.wish.source != "items" or one.wish.bench == other.wish.bench):
            raise LabError(f"{one.source} and {other.source} both claim to be {one.arm}, seed {one.seed}")
    return sorted(out, key=lambda one: one.wish.source == "items")


def _of(wish: Wish, base: Path) -> Iterator[Found]:
    pattern = str(base / wish.path)
    paths = _paths(pattern) if HOLES.search(wish.path) else [(Path(pattern), {})]
    if not paths:
        raise LabError(f"{wish.path}: nothing in {base} fits this pattern")
    for path, parts in paths:
        if not path.exists():
            raise LabError(f"{path}: no such file or folder")
        arm, seed = parts.get("arm", wish.arm), parts.get("seed", wish.seed)
        names = getattr(reader_of(wish), "runs", None)
        inside = [""] if names is None else names(path, wish)
        if inside == [""]:
            yield Found(*_whole(arm, seed, path), path, "", wish)
            continue
        fitting = [(run, named) for run in inside if (named := matched(wish.name or INSIDE, run)) is not None]
        if not fitting:
            raise LabError(
                f"{path}: of the runs inside ({', '.join(inside[:8])}) none is named '{wish.name or INSIDE}'; "
                "give the pattern of their names with {arm} and {seed}: --run-pattern, or run_pattern under [[runs]]"
            )
        for run, named in fitting:
            yield Found(*_whole(named.get("arm", arm), named.get("seed", seed), path), path, run, wish)


def _whole(arm: Any, seed: Any, path: Path) -> tuple[str, int]:
    if arm is None or seed is None:
        lacking = " and ".join(name for name, value in (("arm", arm), ("seed", seed)) if value is None)
        raise LabError(f"{path}: of which {lacking}? Give it (--arm, --seed), or write {{arm}}, {{seed}} in the path")
    return str(arm), int(seed)


def _paths(pattern: str) -> list[tuple[Path, dict[str, str]]]:
    """What fits, in order, with the parts that stand for arm and seed."""
    head = Path(HOLES.split(pattern)[0] + "x").parent
    rest = str(Path(pattern).relative_to(head))
    glob = re.sub(r"\{(arm|seed)\}", "*", rest)
    hits = [(path, matched(pattern, str(path))) for path in sorted(head.glob(glob))]
    return [(path, parts) for path, parts in hits if parts is not None]


def wanted(table: Mapping[str, Any], where: str) -> Wish:
    """One `[[runs]]` or `[[items]]` table. LabError for what is none."""
    problems: list[str] = []
    wish: Wish = validated(Wish, table, where, problems)
    if problems:
        raise LabError(f"{problems[0]}; see docs/how-to/import-runs.md")
    if not wish.source or not wish.path:
        raise LabError(f"{where}: it needs source (one of {', '.join(SOURCES)}) and path")
    if wish.program is not None and wish.program not in tables():
        near = nearest(wish.program, tables())
        raise LabError(f"{where}.program: unknown '{wish.program}'{near}; known: {', '.join(tables())}")
    return wish
