"""What a study could find, said before any compute is spent, at the known noise: the smallest effect that it detects,
the seeds that it takes, and whether seeds or answers are the better buy."""

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
TIMES = 8
"""How many times as many answers are weighed against more seeds."""
WORTH = 0.75
"""More answers are named where they leave at most this share of the seeds."""


@dataclass(frozen=True)
class Noise:
    """What pairs of runs vary by: `sd` of their difference and its 95 % range, `answers_sd` of it by finitely many
    answers alone. None: not known."""

    sd: float | None
    basis: str
    between: tuple[float, float] | None = None
    answers_sd: float | None = None


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
    effect_range: tuple[float, float] | None = None
    """The same effect at both ends of where the true sd lies."""
    seeds_for_equivalence: int | None = None
    """Fewest seeds that would show equivalence if nothing differs."""
    answers_sd: float | None = None
    """What of `sd` finitely many answers alone give."""
    with_more_answers: int | None = None
    """Seeds for equivalence if each problem were asked TIMES as often, at best."""

    def line(self) -> str:
        """The smallest detectable effect in one line, with what it rests on."""
        if self.sd is None:
            return f"smallest detectable effect: not known, {self.basis}"
        if self.effect is None:
            return f"smallest detectable effect: none, {self.seeds} seeds give no interval; use 3 or more"
        between = (
            "" if self.effect_range is None else " ({:.3f} to {:.3f}, as the sd is vague)".format(*self.effect_range)
        )
        return (
            f"smallest detectable effect: {self.effect:.3f}{between} with {self.seeds} seeds and 80 % power (sd of a "
            f"pair's difference {self.sd:.3f}, {self.basis}); {_count(self.seeds_for_margin)} seeds would find the "
            f"margin of {self.margin:g}, {_count(self.seeds_for_equivalence)} would show equivalence\n{self._buy()}"
        )

    def _buy(self) -> str:
        """Seeds or answers, and why."""
        if self.answers_sd is None:
            return "more seeds or more answers: not known, no stored answers tell what asking alone varies"
        part = f"answers alone vary a pair by {self.answers_sd:.3f}"
        fewer = f"with {TIMES} times the answers to each problem {_count(self.with_more_answers)} would, at best"
        now, then = self.seeds_for_equivalence or math.inf, self.with_more_answers or math.inf
        return f"buy {'more answers' if then <= WORTH * now else 'more seeds'}: {part}; {fewer}"


def detectable(study: Study, runs: Path, assumed_sd: float | None = None) -> Detectable:
    """The smallest effect at the assumed noise, or at that of earlier studies with the same model, task and score."""
    from gspo_lab.stats.power import detectable_factor, seeds_for_equivalence, seeds_needed
    from gspo_lab.stats.verdict import Rule, strictest

    noise = Noise(assumed_sd, "assumed") if assumed_sd is not None else _measured(study, runs)
    rule, n, sd = study.verdict, len(study.deciding), noise.sd
    if sd is None:
        return Detectable(n, rule.margin, None, noise.basis, None, None)
    alone = noise.answers_sd or 0.0
    spread = max(sd, alone)
    alpha = strictest(Rule(rule.margin, rule.alpha, study.looks), len(study.treatments))
    factor = detectable_factor(n, alpha) if n >= 3 else None
    between = None
    if factor is not None and noise.between is not None:
        low, high = noise.between
        between = (factor * max(low, alone), factor * max(high, alone))
    least = math.sqrt(max(0.0, spread**2 - alone**2) + alone**2 / TIMES)
    return Detectable(
        seeds=n,
        margin=rule.margin,
        sd=spread,
        basis=noise.basis,
        effect=None if factor is None else factor * spread,
        seeds_for_margin=seeds_needed(spread, rule.margin, alpha),
        effect_range=between,
        seeds_for_equivalence=seeds_for_equivalence(spread, rule.margin, alpha),
        answers_sd=noise.answers_sd,
        with_more_answers=None if noise.answers_sd is None else seeds_for_equivalence(least, rule.margin, alpha),
    )


def _count(seeds: int | None) -> str:
    return "over a thousand" if seeds is None else str(seeds)


def _measured(study: Study, runs: Path) -> Noise:
    """The pooled sd of pair differences over all earlier pairs of arms that ran on what this study runs on."""
    if not database_of(runs).exists():
        return Noise(None, "no study has been run here; give an sd with --sd")
    from gspo_lab.findings import Findings
    from gspo_lab.stats.power import sd_range

    squares, degrees, names = 0.0, 0, []
    answers: list[tuple[int, float | None]] = []
    with Evidence.open(database_of(runs), runs) as evidence:
        for name in evidence.studies():
            for differences, alone in _differences(Findings(evidence, name), study):
                mean = sum(differences) / len(differences)
                squares += sum((d - mean) ** 2 for d in differences)
                degrees += len(differences) - 1
                answers.append((len(differences) - 1, alone))
                names.append(name)
    if degrees < LEAST_DEGREES:
        return Noise(
            None, "no earlier study has finished pairs on this model, task and benchmark; give an sd with --sd"
        )
    sd = math.sqrt(squares / degrees)
    known = [(weight, alone) for weight, alone in answers if alone is not None]
    total = sum(weight for weight, _ in known)
    return Noise(
        sd,
        f"measured in {', '.join(dict.fromkeys(names))}",
        sd_range(sd, degrees + 1),
        math.sqrt(sum(weight * alone for weight, alone in known) / total) if total else None,
    )


def _differences(found: "Findings", study: Study) -> Iterator[tuple[list[float], float | None]]:
    """Per pair of arms of an earlier study the final scores' differences over the seeds that both have finished, and
    what of a difference's variance its answers alone give."""
    declared, settings = found.declaration, next(iter(study.arms.values())).settings
    like = {
        name
        for name, arm in declared.arms.items()
        if arm.settings.model == settings.model and arm.settings.task == settings.task
    }
    ended = {(one.arm, one.seed): one.final for one in found.outcomes(study.primary) if one.arm in like}
    for a, b in combinations(sorted(like), 2):
        pairs = {seed: (ended.get((a, seed)), ended.get((b, seed))) for seed in declared.seeds}
        both = {seed: y - x for seed, (x, y) in pairs.items() if x is not None and y is not None}
        if len(both) > 1:
            same = declared.primary == study.primary
            yield list(both.values()), found.answers_variance(a, b, list(both)) if same else None
