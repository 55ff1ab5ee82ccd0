"""The nouns of a study: `Study`, its `Arm`s and the fully resolved `Run`s that they make with its seeds."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gspo_lab.objectives.presets import PRESETS, RULES
from gspo_lab.study.schema import ClaimTable, Settings, VerdictTable


@dataclass(frozen=True)
class Arm:
    """One treatment. `declared` are the dotted settings that it states itself, `settings` the resolved whole.

    In a sweep `of` names the arm that this one is a dose of, and `dose` is its value of the swept setting.
    """

    name: str
    declared: tuple[str, ...]
    settings: Settings
    of: str | None = None
    dose: float | None = None

    def to_json(self) -> dict[str, Any]:
        swept = {} if self.of is None else {"of": self.of, "dose": self.dose}
        return {"declared": list(self.declared), "settings": self.settings.model_dump(mode="json"), **swept}


@dataclass(frozen=True)
class Run:
    """Arm x seed, fully resolved: all that a worker reads. `base` is the folder that relative paths start from."""

    study: str
    arm: str
    seed: int
    settings: Settings
    declared: tuple[str, ...]
    reference_bands: dict[str, tuple[float, float]]
    """Per rule ("grpo", "gspo") the (clip_low, clip_high) at which every arm's counterfactual clipping is counted."""
    base: str = "."

    @property
    def id(self) -> str:
        return f"{self.study}/{self.arm}/s{self.seed}"

    def folder(self, runs: Path) -> Path:
        return runs / self.study / self.arm / f"s{self.seed}"

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "arm": self.arm,
            "seed": self.seed,
            "settings": self.settings.model_dump(mode="json"),
            "declared": list(self.declared),
            "reference_bands": {rule: list(band) for rule, band in self.reference_bands.items()},
            "base": self.base,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Run":
        bands = {rule: (float(low), float(high)) for rule, (low, high) in data["reference_bands"].items()}
        return Run(
            study=data["study"],
            arm=data["arm"],
            seed=data["seed"],
            settings=Settings.model_validate(data["settings"]),
            declared=tuple(data["declared"]),
            reference_bands=bands,
            base=data["base"],
        )


@dataclass(frozen=True)
class Study:
    """One TOML file, resolved: a question, arms, seeds and the rule of the verdict."""

    name: str
    path: Path
    question: str
    arms: dict[str, Arm]
    seeds: tuple[int, ...]
    verdict: VerdictTable
    claims: tuple[ClaimTable, ...] = ()
    sweep: dict[str, Any] | None = None
    waived: dict[str, str] = field(default_factory=dict)
    """Lint errors that the study's author answers for: the lint's name and the reason."""
    comment: str = field(default="", compare=False)
    command: tuple[str, ...] = field(default=(), compare=False)
    """What to type behind `gspo-lab run` to get this study: its file, by no path of this machine, and the options."""

    def runs(self) -> list[Run]:
        """All runs, pairs interleaved: seed by seed, the arms' order reversed on every other seed (A B, B A, ...)."""
        out = []
        bands = reference_bands([arm.settings for arm in self.arms.values()])
        for turn, seed in enumerate(self.seeds):
            arms = list(self.arms.values())
            for arm in arms if turn % 2 == 0 else reversed(arms):
                base = str(self.path.parent.resolve())
                out.append(Run(self.name, arm.name, seed, arm.settings, arm.declared, bands, base))
        return out

    def resolved(self) -> dict[str, Any]:
        """The whole study as JSON: what is locked before the first step."""
        return {
            "name": self.name,
            "question": self.question,
            "seeds": list(self.seeds),
            "verdict": self.verdict.model_dump(mode="json"),
            "arms": {name: arm.to_json() for name, arm in self.arms.items()},
            **({} if self.sweep is None else {"sweep": self.sweep}),
            **({"waive": self.waived} if self.waived else {}),
            **({"claims": [claim.model_dump(mode="json") for claim in self.claims]} if self.claims else {}),
        }


def against_itself(study: Study, arm: str) -> Study:
    """An A/A study: one arm under two names, its runs drawing different random numbers when they sample.

    Nothing else differs, so what the study finds is noise, and how large noise is.
    """
    one = study.arms[arm]
    rollout = one.settings.rollout.model_copy(update={"coupled": False})
    settings = one.settings.model_copy(update={"rollout": rollout})
    twins = {
        name: Arm(name, tuple(sorted({*one.declared, "rollout.coupled"})), settings)
        for name in (f"{arm}-a", f"{arm}-b")
    }
    verdict = study.verdict.model_copy(update={"baseline": f"{arm}-a"})
    return replace(
        study,
        name=f"{study.name}-aa-{arm}",
        arms=twins,
        verdict=verdict,
        claims=(),
        sweep=None,
        command=(*study.command, "--aa", arm),
    )


def baseline_of(study: Mapping[str, Any], arms: Iterable[str] = ()) -> str:
    """The arm of a study.json that others are held against: the declared one, else its first.

    `arms` are the names to take the first of where they are not the study's: a sweep's arms before their doses.
    """
    return str(study["verdict"]["baseline"] or next(iter(arms or study["arms"])))


def primary_of(study: Mapping[str, Any]) -> str | None:
    """The benchmark of a study.json whose score decides: the declared one, else the first; None where there is none."""
    benches = next(iter(study["arms"].values()))["settings"]["bench"]
    return study["verdict"]["primary"] or (benches[0]["name"] if benches else None)


def reference_bands(settings: list[Settings]) -> dict[str, tuple[float, float]]:
    """Per rule the range of the first arm that follows it, else the paper's: one yardstick for all arms."""
    bands = {rule: (PRESETS[rule].clip_low, PRESETS[rule].clip_high) for rule in ("grpo", "gspo")}
    for one in reversed(settings):
        objective = one.objective
        bands[RULES[objective.importance_sampling_level]] = (objective.clip_low, objective.clip_high)
    return bands


def first_settled(settings: Mapping[str, Any]) -> int:
    """The first step whose updates all have the full learning rate: update n (from 0) has (n + 1) / warmup_updates."""
    update = settings["update"]
    first = max(int(update["warmup_updates"]) - 1, 0)
    return -(-first // int(update["minibatches"] * update["epochs"]))


def settled_since(content: Mapping[str, Any]) -> dict[str, int]:
    """Per arm of a study.json its `first_settled`."""
    return {arm: first_settled(entry["settings"]) for arm, entry in content["arms"].items()}


LOCKED = ("name", "question", "seeds", "verdict", "arms", "claims", "sweep", "waive")
"""The part of study.json that is locked before the first step: what `Study.resolved` gives."""


def lock_digest(content: dict[str, Any]) -> str:
    """The digest of a study.json's locked part."""
    return digest({key: content[key] for key in LOCKED if key in content})


def digest(data: Any) -> str:
    """sha256 of canonical JSON."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()
