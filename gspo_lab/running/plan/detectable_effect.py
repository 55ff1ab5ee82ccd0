"""A study's power before it runs: the smallest detectable effect, the seeds that it needs, and what
to buy more of.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from gspo_lab.analysis.findings.run_outcomes import outcomes
from gspo_lab.analysis.readings import Source, average, middle
from gspo_lab.analysis.readings.answers import answers_variance
from gspo_lab.analysis.stats.moderated import PLAIN, VarianceRule, contrast_rule
from gspo_lab.analysis.stats.peaks import peak_rule
from gspo_lab.analysis.stats.power import (
    detectable_factor,
    detection_chance,
    pooled_sd,
    sd_range,
    seeds_for_equivalence,
    seeds_needed,
)
from gspo_lab.analysis.stats.verdict import Rule, strictest
from gspo_lab.common.paths import database_of
from gspo_lab.common.plain_data import Interval, OptionalFloat, OptionalInt
from gspo_lab.recording.store import Evidence
from gspo_lab.study import Arm, Study
from gspo_lab.study.contrast import sides, signed_sides, squared_weights
from gspo_lab.study.verdict_tables import score_named

LEAST_DEGREES = 2
"""With fewer degrees of freedom a spread over seeds is not reported."""
TIMES = 8
"""The factor on the number of answers that is compared with more seeds."""
WORTH = 0.75
"""More answers are proposed if they reduce the seeds to at most this share."""
NEAR = 0.1
"""Only pairs whose mean scores differ by at most this much are pooled: the spread of a score
depends on its level.
"""
LIKE = (
    "this model, task, start and number of steps on a benchmark asked in this way, at such scores"
)
UNITS = (3, 5, 8, 16)
"""Numbers of seeds whose smallest effect is shown in units of an unknown sd."""
SEEDS = (3, 5, 7, 10)
"""Numbers of seeds in the table of power."""
Power = dict[int, dict[float, float]]
"""Per number of seeds the chance to find a true difference of one, two and four margins."""


@dataclass(frozen=True)
class SpreadEstimate:
    """The `sd` of a pair's difference with its 95 % range `between`, and the part due to answers;
    None: unknown.
    """

    sd: OptionalFloat
    basis: str
    between: Interval | None = None
    answers_sd: OptionalFloat = None


@dataclass(frozen=True)
class Detectable:
    """The power of a study.

    `sd` is that of the per-seed difference of two arms, or of the contrast; None: unknown.
    """

    seeds: int
    margin: float
    sd: OptionalFloat
    basis: str
    effect: OptionalFloat
    """Smallest true difference found with 80 % power; None under 3 seeds or without an sd."""
    seeds_for_margin: OptionalInt
    """Fewest seeds that would find a difference as large as the margin."""
    effect_range: Interval | None = None
    """The detectable effect at both ends of the range of the true sd."""
    seeds_for_equivalence: OptionalInt = None
    """Fewest seeds that would show equivalence if nothing differs."""
    answers_sd: OptionalFloat = None
    """The part of `sd` that is due to finitely many answers."""
    with_more_answers: OptionalInt = None
    """Seeds for equivalence with TIMES as many answers to each problem, at best."""
    power: Power | None = None
    pair_power: Power | None = None
    """Beside the power of a declared contrast that of a pair of arms."""
    judged: str = "a pair's difference"
    """The number whose sd is `sd`."""

    def line(self) -> str:
        """The smallest detectable effect in words, with what it rests on."""
        if self.sd is None:
            return f"smallest detectable effect: not known, {self.basis}"
        if self.effect is None:
            return (
                f"smallest detectable effect: none, {self.seeds} seeds give no interval; use 3 or"
                " more"
            )
        between = (
            " ({:.3f} to {:.3f}, given the sd's range)".format(*self.effect_range)
            if self.effect_range
            else ""
        )
        lines = [
            (
                f"smallest detectable effect: {self.effect:.3f}{between} with {self.seeds} seeds"
                " and 80 % power"
            ),
            f"sd of {self.judged}: {self.sd:.3f}, {self.basis}",
            (
                f"{_count(self.seeds_for_margin)} seeds would find the margin of {self.margin:g}, "
                f"{_count(self.seeds_for_equivalence)} would show equivalence"
            ),
            *self._powers(),
            self._buy(),
        ]
        return "\n".join(lines)

    def _powers(self) -> Iterator[str]:
        """The table of power: a column per number of seeds, a row for a pair and for a declared
        contrast.
        """
        if not self.power:
            return
        effects = " / ".join(f"{effect:g}" for effect in next(iter(self.power.values())))
        yield f"chance in % to find a true difference of {effects}:"
        yield " " * 14 + "".join(f"{seeds} seeds".rjust(15) for seeds in self.power)
        rows = {
            "a pair": self.pair_power or self.power,
            "the contrast": self.pair_power and self.power,
        }
        for name, power in rows.items():
            cells = [
                " / ".join(f"{100 * chance:.0f}" for chance in row.values())
                for row in (power or {}).values()
            ]
            if cells:
                yield f"  {name:<12}" + "".join(f"{cell:>15}" for cell in cells)

    def _buy(self) -> str:
        if self.answers_sd is None:
            return (
                "more seeds or more answers: not known, no stored answers tell what asking alone"
                " varies"
            )
        seeds_now = self.seeds_for_equivalence or math.inf
        seeds_then = self.with_more_answers or math.inf
        worth_it = seeds_then < math.inf and seeds_then <= WORTH * seeds_now
        purchase = "more answers" if worth_it else "more seeds"
        varied = "a pair" if self.judged.startswith("a pair") else "it"
        return (
            f"buy {purchase}: answers alone vary {varied} by {self.answers_sd:.3f}; with {TIMES}"
            f" times the answers to each problem {_count(self.with_more_answers)} would, at best"
        )


def _count(seeds: OptionalInt) -> str:
    return "over a hundred thousand" if seeds is None else str(seeds)


def detectable(study: Study, runs: Path, assumed_sd: OptionalFloat = None) -> Detectable:
    """The study's power with the assumed sd, or with that of earlier runs like the planned ones."""
    rule = study.verdict
    n = len(study.deciding)
    compared = len(study.treatments)
    pair_rule = VarianceRule(compared + 1) if compared > 1 else PLAIN
    if rule.over is not None and study.sweep is not None:
        compared = len({arm.of for arm in study.arms.values()}) - 1
        pair_rule = peak_rule(len(study.sweep.doses))
    variance_rule = pair_rule
    if rule.contrast is not None:
        variance_rule = contrast_rule(list(rule.contrast.values()))
    noise = pairs = (
        SpreadEstimate(assumed_sd, "assumed")
        if assumed_sd is not None
        else _measured_sd(study, runs)
    )
    if rule.contrast is not None and assumed_sd is not None:
        pairs = replace(noise, sd=assumed_sd / math.sqrt(squared_weights(rule.contrast) / 2))
    elif rule.contrast is not None:
        noise = _of_contrast(pairs, study, runs, rule.contrast)
    fixed = Rule(rule.margin, rule.alpha, study.looks)
    pair_alpha = strictest(fixed, compared)
    alpha = pair_alpha if rule.contrast is None else strictest(fixed, 1)
    if noise.sd is None:
        factors = ", ".join(
            f"{seeds} seeds {detectable_factor(seeds, alpha, rule=variance_rule):.2f}"
            for seeds in UNITS
        )
        basis = f"{noise.basis}; in units of that sd it is with {factors}"
        return Detectable(n, rule.margin, None, basis, None, None)
    alone = noise.answers_sd or 0.0
    spread = max(noise.sd, alone)
    factor = detectable_factor(n, alpha, rule=variance_rule) if n >= 3 else None
    effect = None if factor is None else factor * spread
    between = None
    if factor is not None and noise.between is not None:
        low, high = noise.between
        between = (factor * max(low, alone), factor * max(high, alone))
    least = math.sqrt(max(0.0, spread**2 - alone**2) + alone**2 / TIMES)

    counts = sorted({*SEEDS, *([n] if n >= SEEDS[0] else [])})
    effects = [times * rule.margin for times in (1, 2, 4)]

    def power(spread: float, alpha: float, variance_rule: VarianceRule) -> Power | None:
        if not spread:
            return None
        return {
            seeds: {
                effect: detection_chance(seeds, effect / spread, alpha, variance_rule)
                for effect in effects
            }
            for seeds in counts
        }

    declared = rule.contrast is not None
    pair_sd = None if not declared or pairs.sd is None else max(pairs.sd, pairs.answers_sd or 0.0)
    return Detectable(
        seeds=n,
        margin=rule.margin,
        sd=spread,
        basis=noise.basis,
        effect=effect,
        seeds_for_margin=seeds_needed(spread, rule.margin, alpha, rule=variance_rule),
        effect_range=between,
        seeds_for_equivalence=seeds_for_equivalence(spread, rule.margin, alpha, rule=variance_rule),
        answers_sd=noise.answers_sd,
        with_more_answers=(
            None
            if noise.answers_sd is None
            else seeds_for_equivalence(least, rule.margin, alpha, rule=variance_rule)
        ),
        power=power(spread, alpha, variance_rule),
        pair_power=None if pair_sd is None else power(pair_sd, pair_alpha, pair_rule),
        judged="the contrast" if declared else "a pair's difference",
    )


def _of_contrast(
    pairs: SpreadEstimate, study: Study, runs: Path, weights: Mapping[str, float]
) -> SpreadEstimate:
    """The spread of a declared contrast: that of earlier runs of the same arms, else derived from
    `pairs`.

    Independent arms give the variance of one arm times the sum of squared weights, which is 2 for a
    pair.
    """
    share = math.sqrt(squared_weights(weights) / 2)
    answers = None if pairs.answers_sd is None else share * pairs.answers_sd
    contrast_sd, degrees = _contrast_sd(study, runs, signed_sides(*sides(weights)))
    if contrast_sd is not None:
        basis = f"{pairs.basis}, of these very arms"
        return replace(
            pairs,
            sd=contrast_sd,
            basis=basis,
            between=sd_range(contrast_sd, degrees),
            answers_sd=answers,
        )
    if pairs.sd is None:
        return pairs
    between = pairs.between and (share * pairs.between[0], share * pairs.between[1])
    basis = f"{pairs.basis}, from pairs of arms as if these were independent"
    return replace(pairs, sd=share * pairs.sd, basis=basis, between=between, answers_sd=answers)


def _contrast_sd(
    study: Study, runs: Path, weights: Mapping[str, float]
) -> tuple[OptionalFloat, int]:
    """The pooled sd over seeds of the weighted sum of final scores in earlier runs of the same
    arms, and its degrees.

    None with fewer than LEAST_DEGREES.
    """
    groups = []
    for source, same in earlier_scores(study, runs):
        arms = source.declaration.arms
        alike = {}
        for name in weights:
            settings = study.arms[name].settings
            twins = [scores for twin, scores in same.items() if arms[twin].settings == settings]
            alike[name] = twins[0] if twins else {}
        seeds = set.intersection(*map(set, alike.values()))
        groups.append(
            [sum(weight * alike[name][seed] for name, weight in weights.items()) for seed in seeds]
        )
    sd, degrees = pooled_sd(groups)
    return (sd if degrees >= LEAST_DEGREES else None), degrees


@dataclass(frozen=True)
class _ArmPair:
    """Two arms of an earlier study: the differences of final scores by seed, and their mean
    `level`.

    `answers` is the part of their variance that finitely many answers cause; None: unknown.
    """

    study: str
    differences: list[float]
    level: float
    answers: OptionalFloat


def _measured_sd(study: Study, runs: Path) -> SpreadEstimate:
    """The pooled sd of pair differences over earlier pairs of arms like those of this study, with
    their studies.
    """
    if not database_of(runs).exists():
        return SpreadEstimate(
            None, "no study has been run here: give the sd of a pair's difference, e.g. --sd 0.05"
        )
    planned = [arm.settings for arm in study.arms.values()]
    levels: list[OptionalFloat] = []
    pairs: list[_ArmPair] = []
    for source, same in earlier_scores(study, runs):
        arms = source.declaration.arms
        levels += [
            average(scores.values())
            for arm, scores in same.items()
            if arms[arm].settings in planned
        ]
        pairs += _pairs(source, study, same)
    level = middle(levels or [pair.level for pair in pairs]) or 0.0
    near = [pair for pair in pairs if abs(pair.level - level) <= NEAR]
    sd, degrees = pooled_sd(pair.differences for pair in near)
    if sd is None or degrees < LEAST_DEGREES:
        return SpreadEstimate(
            None, f"no earlier study has finished pairs of {LIKE}: give an sd with --sd"
        )
    names = ", ".join(dict.fromkeys(pair.study for pair in near))
    return SpreadEstimate(
        sd,
        f"measured in {names}, at scores around {average(pair.level for pair in near):.2f}",
        sd_range(sd, degrees),
        _answers_sd(near),
    )


def _answers_sd(pairs: Sequence[_ArmPair]) -> OptionalFloat:
    """The root of the answers' mean variance over the pairs of which it is known, weighted by their
    degrees of freedom.
    """
    known = [pair for pair in pairs if pair.answers is not None]
    total = sum(len(pair.differences) - 1 for pair in known)
    weighted = sum((len(pair.differences) - 1) * (pair.answers or 0.0) for pair in known)
    return math.sqrt(weighted / total) if total else None


def earlier_scores(
    study: Study, runs: Path
) -> Iterator[tuple[Source, dict[str, dict[int, float]]]]:
    """Each recorded study with its `comparable_scores`; nothing without a database."""
    if not database_of(runs).exists():
        return
    with Evidence.open(database_of(runs), runs) as evidence:
        for name in evidence.studies():
            source = Source(evidence, name)
            yield source, comparable_scores(source, study)


def comparable_scores(source: Source, study: Study) -> dict[str, dict[int, float]]:
    """Arm -> seed -> final score, of an earlier study's arms with this study's start, training and
    benchmark.
    """
    declared = source.declaration
    if declared.verdict.last != study.verdict.last or not declared.has_verdict:
        return {}
    conditions = _conditions(study.first_arm, study.primary)
    names = {
        name for name, arm in declared.arms.items() if _conditions(arm, study.primary) == conditions
    }
    out: dict[str, dict[int, float]] = {name: {} for name in declared.arms if name in names}
    for run in outcomes(source, study.primary):
        if run.arm in names and run.final is not None:
            out[run.arm][run.seed] = run.final
    return {name: finals for name, finals in out.items() if finals}


def _conditions(arm: Arm, bench: str | None) -> tuple[object, ...]:
    """The settings on which the spread of final scores over seeds depends, beside the tested
    rule.
    """
    settings = arm.settings
    decisive = None if bench is None else score_named(bench).bench
    benches = [
        table.model_copy(update={"every": 1}) for table in settings.bench if table.name == decisive
    ]
    start = (settings.model, settings.upcycle, settings.warm_start)
    return *start, settings.task, settings.steps, benches


def _pairs(
    source: Source, study: Study, scores: Mapping[str, Mapping[int, float]]
) -> Iterator[_ArmPair]:
    """Each pair of arms that are like this study's, on the seeds that both have finished."""
    same = source.declaration.primary == study.primary
    for (first_arm, a), (second_arm, b) in combinations(sorted(scores.items()), 2):
        shared_seeds = sorted(a.keys() & b.keys())
        if len(shared_seeds) > 1:
            answers = None
            if same:
                answers = answers_variance(source, {first_arm: -1, second_arm: 1}, shared_seeds)
            yield _ArmPair(
                study=source.study,
                differences=[b[seed] - a[seed] for seed in shared_seeds],
                level=average((a[seed] + b[seed]) / 2 for seed in shared_seeds) or 0.0,
                answers=answers,
            )
