"""`Study`: the declaration in a TOML file, and the resolved `Run`s of its arms and seeds."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from gspo_lab.common.atomic_files import folder_digest
from gspo_lab.common.paths import beside, cache_folder
from gspo_lab.common.plain_data import Integers, JsonObject, OptionalText, Strings
from gspo_lab.study.declaration import Arm, Band, Declaration, digest
from gspo_lab.study.dotted_keys import flat, read
from gspo_lab.study.import_origin import ORIGIN, Origin, with_placeholders
from gspo_lab.study.parent import Kind
from gspo_lab.study.runtime_tables import LaunchTable
from gspo_lab.study.schema import BUILT_IN_MODELS, Settings


def model_path(settings: Settings, base: Path) -> str:
    """The model as loaders take it: the path of a folder, relative to `base`, or a name.

    For `upcycled:MODEL` it is the folder of the mixture, which the first worker makes.
    """
    dense = dense_model(settings, base)
    if dense is None:
        return _local_path(settings.model, base)
    return str(_mixture_folder(dense, settings))


def dense_model(settings: Settings, base: Path) -> OptionalText:
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
"""The file in a complete mixture's folder that says how the mixture was made."""


def missing_mixture(settings: Settings, base: Path) -> tuple[str, Path] | None:
    """MODEL of `upcycled:MODEL` and its mixture's folder, if that is not made yet; else None."""
    if (dense := dense_model(settings, base)) is None:
        return None
    folder = _mixture_folder(dense, settings)
    return None if (folder / MANIFEST).is_file() else (dense, folder)


def _mixture_folder(dense: str, settings: Settings) -> Path:
    """The folder of a dense model's mixture; equal `[upcycle]` tables and model files share it."""
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
    declared: Strings
    reference_bands: dict[str, Band]
    """The clip range of each ratio rule, as in `Declaration`."""
    base: str = "."
    """The folder that relative paths start from."""
    warm_start: OptionalText = None
    """The folder of the warm start; None: the run starts from `settings.model` as it is."""
    origin: Origin | None = None
    """The program that recorded the run; None: gspo-lab, or not recorded yet."""
    declaration: OptionalText = None
    """The digest of study.json, which the worker's journal repeats; None for a pilot."""
    recorded_keys: frozenset[str] | None = None
    """The dotted settings that an imported run recorded; None: all are known."""
    until: int | None = None
    """The step after which its worker saves and exits; a later worker may resume. None: the last.
    """

    @property
    def id(self) -> str:
        """study/arm/s<seed>, which is also its folder under runs/."""
        return f"{self.study}/{self.arm}/s{self.seed}"

    @property
    def model(self) -> str:
        """The run's model as loaders take it."""
        return model_path(self.settings, Path(self.base))

    def folder(self, runs: Path) -> Path:
        """The run's folder under `runs`."""
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
        whole_settings = with_placeholders(settings) if imported else settings
        run = read(Run, data | {"settings": whole_settings, "recorded_keys": None})
        partly = imported and run.settings.model_dump(mode="json") != settings
        return replace(run, recorded_keys=frozenset(flat(settings))) if partly else run


@dataclass(frozen=True, kw_only=True)
class Study(Declaration):
    """A declaration that was read from the TOML file `path`.

    `command` has the arguments with which `gspo-lab run` runs it.
    """

    path: Path
    file_seeds: Integers = field(default=(), compare=False)
    """The seeds that the file itself declares."""
    launch: LaunchTable = field(default=LaunchTable(), compare=False)
    """The options of launchers. They are not part of the declaration."""
    mirror: Strings = field(default=(), compare=False)
    """Programs that show the study while it runs (`exporters.TARGETS`).

    They are not part of the declaration.
    """
    command: Strings = field(default=(), compare=False)

    @property
    def base(self) -> Path:
        """The folder of the study's file, links resolved; relative paths start from it."""
        return self.path.resolve().parent

    def model(self, arm: Arm) -> str:
        """An arm's model as loaders take it."""
        return model_path(arm.settings, self.base)

    def runs(self) -> list[Run]:
        """All runs, seed by seed.

        The arms' order is reversed on every other seed: A B, B A, ...
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
