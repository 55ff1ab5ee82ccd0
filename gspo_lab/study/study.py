"""`Study`: the declaration in a TOML file, and the resolved `Run`s of its arms and seeds."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from gspo_lab.common.atomic_files import folder_digest
from gspo_lab.common.paths import beside, cache_folder
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.study.declaration import Arm, Band, Declaration, digest
from gspo_lab.study.dotted_keys import flat, read
from gspo_lab.study.import_origin import ORIGIN, Origin, completed
from gspo_lab.study.parent import Kind
from gspo_lab.study.runtime_tables import LaunchTable
from gspo_lab.study.schema import BUILT_IN_MODELS, Settings


def model_path(settings: Settings, base: Path) -> str:
    """The model as loaders take it: the path of a folder, relative to `base`, or a name.

    Of `upcycled:MODEL` the folder of the mixture, which the first worker makes.
    """
    dense = dense_model(settings, base)
    if dense is None:
        return _local_path(settings.model, base)
    return str(_mixture_folder(dense, settings))


def dense_model(settings: Settings, base: Path) -> str | None:
    """MODEL of `upcycled:MODEL` as loaders take it; None for another model."""
    if settings.upcycled is None:
        return None
    return _local_path(settings.upcycled, base)


def _local_path(model: str, base: Path) -> str:
    if model not in BUILT_IN_MODELS:
        folder = beside(base, model)
        if model.strip() and folder.is_dir():
            return str(folder.resolve())
    return model


MANIFEST = "upcycled.json"
"""In the folder of a mixture that is whole: how it was made."""


def missing_mixture(settings: Settings, base: Path) -> tuple[str, Path] | None:
    """MODEL of `upcycled:MODEL` and the folder of its mixture, where that is still to be made."""
    if (dense := dense_model(settings, base)) is None:
        return None
    folder = _mixture_folder(dense, settings)
    return None if (folder / MANIFEST).is_file() else (dense, folder)


def _mixture_folder(dense: str, settings: Settings) -> Path:
    """Where the mixture of a dense model is kept: equal tables and equal files, equal folder."""
    source = folder_digest(Path(dense)) if Path(dense).is_dir() else dense
    key = digest([source, settings.upcycle.model_dump(mode="json")])
    return cache_folder() / "upcycled" / key[:16]


@dataclass(frozen=True)
class Run:
    """One arm with one seed, fully resolved: all that a worker reads."""

    study: str
    arm: str
    seed: int
    settings: Settings
    declared: tuple[str, ...]
    reference_bands: dict[str, Band]
    """As in `Declaration`."""
    base: str = "."
    """The folder that relative paths start from."""
    warm_start: str | None = None
    """The folder of the model that the run starts from; None: `settings.model` as it is."""
    origin: Origin | None = None
    """The program that recorded it; None: gspo-lab, or not yet recorded."""
    declaration: str | None = None
    """The digest of study.json, which the worker's journal repeats; None for a pilot."""
    recorded_keys: frozenset[str] | None = None
    """Of an imported run the dotted settings that were recorded; None: all are known."""
    until: int | None = None
    """The step after which its worker saves and exits, perhaps to be resumed; None: the last one.
    """

    @property
    def id(self) -> str:
        """study/arm/s<seed>, which is also its folder under runs/."""
        return f"{self.study}/{self.arm}/s{self.seed}"

    @property
    def model(self) -> str:
        """Its model as loaders take it."""
        return model_path(self.settings, Path(self.base))

    def folder(self, runs: Path) -> Path:
        """Its folder."""
        return runs / self.study / self.arm / f"s{self.seed}"

    def to_json(self) -> JsonObject:
        """The content of run.json."""
        arm = Arm(self.arm, self.declared, self.settings, recorded_keys=self.recorded_keys)
        return {
            "study": self.study,
            "arm": self.arm,
            "seed": self.seed,
            "settings": arm.resolved,
            "declared": list(self.declared),
            "reference_bands": {rule: list(band) for rule, band in self.reference_bands.items()},
            "base": self.base,
            **({} if self.warm_start is None else {"warm_start": self.warm_start}),
            **({} if self.origin is None else {ORIGIN: self.origin.to_json()}),
            **({} if self.declaration is None else {"declaration": self.declaration}),
            **({} if self.until is None else {"until": self.until}),
        }

    @staticmethod
    def from_json(data: JsonObject) -> "Run":
        """The run of run.json's content. KeyError or TypeError for other data."""
        settings = data["settings"]
        imported = data.get(ORIGIN) is not None
        whole_settings = completed(settings) if imported else settings
        run = read(Run, data | {"settings": whole_settings, "recorded_keys": None})
        partly = imported and run.settings.model_dump(mode="json") != settings
        return replace(run, recorded_keys=frozenset(flat(settings))) if partly else run


@dataclass(frozen=True, kw_only=True)
class Study(Declaration):
    """A declaration read from a TOML file, `path`; `command` are the arguments of `gspo-lab run`
    for it.
    """

    path: Path
    file_seeds: tuple[int, ...] = field(default=(), compare=False)
    """The seeds that the file itself declares."""
    launch: LaunchTable = field(default=LaunchTable(), compare=False)
    """For launchers; not declared."""
    mirror: tuple[str, ...] = field(default=(), compare=False)
    """Programs that show the study while it runs (`exporters.TARGETS`); not declared."""
    command: tuple[str, ...] = field(default=(), compare=False)

    @property
    def base(self) -> Path:
        """The folder of its file, from which its paths start; of a link that of the file itself."""
        return self.path.resolve().parent

    def model(self, arm: Arm) -> str:
        """An arm's model as loaders take it."""
        return model_path(arm.settings, self.base)

    def runs(self) -> list[Run]:
        """All runs, pairs interleaved: seed by seed, the arms' order reversed on every other seed
        (A B, B A, ...).
        """
        base = str(self.base)
        out = []
        for turn, seed in enumerate(self.seeds):
            arms = list(self.arms.values())
            for arm in arms if turn % 2 == 0 else reversed(arms):
                out.append(
                    Run(
                        self.name,
                        arm.name,
                        seed,
                        arm.settings,
                        arm.declared,
                        self.reference_bands,
                        base,
                    )
                )
        return out


def aa_study(study: Study, arm: str) -> Study:
    """An A/A study: one arm under two names, whose runs draw different random numbers when they
    sample.

    Nothing else differs, so any difference is noise.
    """
    original = study.arms[arm]
    twins = [replace(original, name=f"{arm}-{letter}") for letter in ("a", "b")]
    verdict = study.verdict.replace(baseline=f"{arm}-a", contrast=None, names=None, order=None)
    return study.derive(
        Kind.AA,
        twins,
        study.seeds,
        {"rollout.coupled": False},
        detail=arm,
        verdict=verdict,
        claims=(),
        sweep=None,
        tune=None,
        command=(*study.command, "--aa", arm),
    )
