"""Which logs are which runs: of one path, or of a TOML with a table per run or a pattern of `{arm}` and `{seed}`."""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.importers.log import Source, Wish, matched
from gspo_lab.importers.names import tables
from gspo_lab.registry import known, look_up, nearest
from gspo_lab.study.load import NAMED, fits_as_name

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
KEYS = ("source", "path", "arm", "seed", "name", "program", "map", "score", "bench", "ignore", "config")
HOLES = re.compile(r"[{*]")


@dataclass(frozen=True)
class Wanted:
    """One `[[runs]]` table: where logs lie, and which runs they are.

    `arm` and `seed` are given, or parts of the path (`{arm}`, `{seed}`), or of the names of the runs inside (`name`).
    `scores` has benchmarks by the source's names.
    """

    source: str
    path: str
    arm: str | None = None
    seed: int | None = None
    name: str | None = None
    wish: Wish = field(default_factory=Wish)
    scores: Mapping[str, str] = field(default_factory=dict)
    bench: str | None = None

    @property
    def reader(self) -> Source:
        """The module that reads it. LabError for an unknown one."""
        known("source", self.source, SOURCES)
        module = SOURCES.get(self.source)
        reader: Source = look_up("source", self.source, {}) if module is None else importlib.import_module(module)
        return reader


@dataclass(frozen=True)
class Found:
    """One run's log."""

    arm: str
    seed: int
    path: Path
    run: str
    wanted: Wanted

    @property
    def source(self) -> str:
        """Where it lies, for people."""
        return f"{self.path}{f' ({self.run})' if self.run else ''}"


def fits_as_arm(name: str) -> bool:
    """Whether an arm is imported under this name: also that of a sweep's dose, `gspo@0.0002`."""
    return fits_as_name(name.replace("@", "-", 1))


def found(every: Sequence[Wanted], base: Path) -> list[Found]:
    """The logs of every wish, in order. LabError where one cannot be placed, or two claim one arm and seed."""
    out = [one for wanted in every for one in _of(wanted, base)]
    claimed: dict[tuple[str, int, bool], Found] = {}
    for one in out:
        if not fits_as_arm(one.arm):
            raise LabError(f"{one.source}: an arm cannot be named '{one.arm}': {NAMED}")
        other = claimed.setdefault((one.arm, one.seed, one.wanted.source == "items"), one)
        if other is not one and (one.wanted.source != "items" or one.wanted.bench == other.wanted.bench):
            raise LabError(f"{one.source} and {other.source} both claim to be {one.arm}, seed {one.seed}")
    return sorted(out, key=lambda one: one.wanted.source == "items")


def _of(wanted: Wanted, base: Path) -> Iterator[Found]:
    pattern = str(base / wanted.path)
    paths = _paths(pattern) if HOLES.search(wanted.path) else [(Path(pattern), {})]
    if not paths:
        raise LabError(f"{wanted.path}: nothing in {base} fits this pattern")
    for path, parts in paths:
        if not path.exists():
            raise LabError(f"{path}: no such file or folder")
        arm, seed = parts.get("arm", wanted.arm), parts.get("seed", wanted.seed)
        names = getattr(wanted.reader, "runs", None)
        inside = [""] if names is None else names(path, wanted.wish)
        if inside == [""]:
            yield Found(*_whole(arm, seed, path), path, "", wanted)
            continue
        fitting = [(run, named) for run in inside if (named := matched(wanted.name or INSIDE, run)) is not None]
        if not fitting:
            raise LabError(
                f"{path}: of the runs inside ({', '.join(inside[:8])}) none is named '{wanted.name or INSIDE}'; "
                "give the pattern of their names, with {arm} and {seed} in it, as name (--name)"
            )
        for run, named in fitting:
            yield Found(*_whole(named.get("arm", arm), named.get("seed", seed), path), path, run, wanted)


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


def wanted(table: Mapping[str, Any], where: str, scores: Any, source: str | None = None) -> Wanted:
    """One `[[runs]]` or `[[items]]` table. LabError for what is none."""
    for key in table:
        if key not in KEYS:
            raise LabError(f"{where}.{key}: unknown key{nearest(key, KEYS)}")
    kinds: dict[str, type | tuple[type, ...]] = {"map": dict, "seed": int, "score": (str, dict), "ignore": list}
    for key, value in table.items():
        if not isinstance(value, kinds.get(key, str)) or isinstance(value, bool):
            raise LabError(f"{where}.{key}: {value!r} has another type here; see docs/how-to/import-runs.md")
    chosen = table.get("source", source)
    if chosen is None or "path" not in table:
        raise LabError(f"{where}: it needs source (one of {', '.join(SOURCES)}) and path")
    program = table.get("program")
    if program is not None and program not in tables():
        raise LabError(
            f"{where}.program: unknown '{program}'{nearest(program, tables())}; known: {', '.join(tables())}"
        )
    return Wanted(
        chosen,
        table["path"],
        table.get("arm"),
        table.get("seed"),
        table.get("name"),
        Wish(dict(table.get("map", {})), program, tuple(map(str, table.get("ignore", ()))), table.get("config")),
        scored(table.get("score", scores), where),
        table.get("bench"),
    )


def scored(value: Any, where: str) -> dict[str, str]:
    """`"eval/acc"` or `{gsm8k = "eval/acc"}` as benchmarks by the source's names."""
    from gspo_lab.importers.names import bench_name

    if value is None:
        return {}
    if isinstance(value, str):
        return {value: bench_name(value)}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise LabError(f"{where}.score: a metric's name, or a table of benchmarks and metrics' names")
    return {metric: bench_name(bench) for bench, metric in value.items()}
