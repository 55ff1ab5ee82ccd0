"""What a study could find, said before any compute is spent: its smallest detectable effect at the known noise."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from gspo_lab.layout import database_of
from gspo_lab.store import Evidence
from gspo_lab.study import Study

if TYPE_CHECKING:
    from gspo_lab.findings import Findings

LEAST_DEGREES = 2
"""Degrees of freedom below which a spread over seeds is not worth naming."""


@dataclass(frozen=True)
class Detectable:
    """`sd` is that of the per-seed difference between two arms; None where nothing is known of it."""

    seeds: int
    margin: float
    sd: float | None
    basis: str
    effect: float | None
    """Smallest true difference found with 80 % chance; None under 3 seeds or without an sd."""
    seeds_for_margin: int | None
    """Fewest seeds that would find a difference as large as the margin."""

    def line(self) -> str:
        """The smallest detectable effect in one line, with what it rests on."""
        if self.sd is None:
            return f"smallest detectable effect: not known, {self.basis}"
        if self.effect is None:
            return f"smallest detectable effect: none, {self.seeds} seeds give no interval; use 3 or more"
        more = "over a thousand" if self.seeds_for_margin is None else str(self.seeds_for_margin)
        return (
            f"smallest detectable effect: {self.effect:.3f} with {self.seeds} seeds and 80 % power (sd of a pair's "
            f"difference {self.sd:.3f}, {self.basis}); {more} seeds would find the margin of {self.margin:g}"
        )


def detectable(study: Study, runs: Path, assumed_sd: float | None = None) -> Detectable:
    """The smallest effect at the assumed noise, or at that of earlier studies with the same model, task and score."""
    from gspo_lab.stats.power import detectable_factor, seeds_needed

    sd, basis = (assumed_sd, "assumed") if assumed_sd is not None else _measured(study, runs)
    rule, n = study.verdict, len(study.seeds)
    if sd is None:
        return Detectable(n, rule.margin, None, basis, None, None)
    effect = detectable_factor(n, rule.alpha) * sd if n >= 3 else None
    return Detectable(n, rule.margin, sd, basis, effect, seeds_needed(sd, rule.margin, rule.alpha))


def _measured(study: Study, runs: Path) -> tuple[float | None, str]:
    """The pooled sd of pair differences over all earlier pairs of arms that ran on what this study runs on."""
    if not database_of(runs).exists():
        return None, "no study has been run here; give an sd with --sd"
    from gspo_lab.findings import Findings

    squares, degrees, names = 0.0, 0, []
    with Evidence.open(database_of(runs), runs) as evidence:
        for name in evidence.studies():
            for differences in _differences(Findings(evidence, name), study):
                mean = sum(differences) / len(differences)
                squares += sum((d - mean) ** 2 for d in differences)
                degrees += len(differences) - 1
                names.append(name)
    if degrees < LEAST_DEGREES:
        return None, "no earlier study has finished pairs on this model, task and benchmark; give an sd with --sd"
    return math.sqrt(squares / degrees), f"measured in {', '.join(dict.fromkeys(names))}"


def _differences(found: "Findings", study: Study) -> Iterator[list[float]]:
    """Per pair of arms of an earlier study the final scores' differences over the seeds that both have finished."""
    declared, settings = found.declaration, next(iter(study.arms.values())).settings
    like = {
        name
        for name, arm in declared.arms.items()
        if arm.settings.model == settings.model and arm.settings.task == settings.task
    }
    ended = {(one.arm, one.seed): one.final for one in found.outcomes(study.primary) if one.arm in like}
    for a, b in combinations(sorted(like), 2):
        pairs = ((ended.get((a, seed)), ended.get((b, seed))) for seed in declared.seeds)
        differences = [y - x for x, y in pairs if x is not None and y is not None]
        if len(differences) > 1:
            yield differences
