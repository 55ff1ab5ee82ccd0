"""Graded answers, while training and later: scores, counts by problem, and what finitely many leave
uncertain.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gspo_lab.analysis.readings.runs import FINISHED, Source, once, runs
from gspo_lab.analysis.stats.array_checks import Floats
from gspo_lab.analysis.stats.paired import PairedT, TwoWay, items_variance, paired_t, two_way
from gspo_lab.analysis.stats.passk import CheckpointScore, checkpoint_score, pass_at_k
from gspo_lab.common.plain_data import (
    Integers,
    JsonObject,
    OptionalFloat,
    OptionalInt,
    OptionalText,
    Strings,
)
from gspo_lab.recording.store import Evidence, answers
from gspo_lab.recording.store.traces import read_later_evaluations
from gspo_lab.study.verdict_tables import score_named

if TYPE_CHECKING:
    from pandas import DataFrame


T = TypeVar("T", str, int, tuple[str, int])

SEED = "training seed"
PROBLEM = "problems"
SAMPLING = "sampling"
INTERPLAY = "seed × problem"
UNSPLIT = "sampling, seed × problem"
"""With one answer per problem the two cannot be told apart."""
SOURCES = (SEED, PROBLEM, SAMPLING, INTERPLAY, UNSPLIT)
"""The sources of a difference's variance."""


@dataclass(frozen=True)
class GradedAnswers:
    """One arm's graded answers to the problems that all compared runs answered.

    1 right, 0 wrong, NaN not graded; S seeds, E evaluations, I problems, K answers to each. `k` of
    pass@k.
    """

    seeds: Integers
    problems: Strings
    grade_SEIK: Floats
    k: int = 1

    def of(self, seeds: Sequence[int]) -> "GradedAnswers":
        """The answers of these seeds alone."""
        places = [self.seeds.index(seed) for seed in seeds]
        return replace(self, seeds=tuple(seeds), grade_SEIK=self.grade_SEIK[places])

    @property
    def answers_SEI(self) -> Floats:
        """How many answers were graded."""
        counts: Floats = np.isfinite(self.grade_SEIK).sum(axis=-1, dtype=np.float64)
        return counts

    @property
    def correct_SEI(self) -> Floats:
        """How many of them are right."""
        right: Floats = np.nansum(self.grade_SEIK, axis=-1)
        return right

    @property
    def rate_SI(self) -> Floats:
        """Share of right answers, or pass@k, the evaluations averaged."""
        of_cell = self.correct_SEI / self.answers_SEI
        if self.k > 1:
            of_cell = pass_at_k(self.correct_SEI.ravel(), self.answers_SEI.ravel(), self.k).reshape(
                of_cell.shape
            )
        mean: Floats = of_cell.mean(axis=1)
        return mean

    @property
    def score_S(self) -> Floats:
        """The score of each seed's run: the mean over problems."""
        mean: Floats = self.rate_SI.mean(axis=1)
        return mean

    @property
    def samples(self) -> int:
        """Answers per problem and evaluation; the fewest where they differ."""
        return int(self.answers_SEI.min())


def sampling_variance(baseline: GradedAnswers, treatment: GradedAnswers) -> OptionalFloat:
    """The variance by sampling of the mean difference `treatment` minus `baseline`.

    The mean is over their seeds and problems. None of pass@k, or without two answers.

    The same answer of a seed and problem shares its random numbers over arms and evaluations, other
    answers do not. So answer k counts as one draw, z_k = mean over evaluations of treatment minus
    baseline, and var_k(z) / K is the variance of a cell. An answer that was not graded once is left
    out of its cell, and a cell without two from the mean.
    """
    if baseline.k > 1:
        return None
    z_SIK = (treatment.grade_SEIK - baseline.grade_SEIK).mean(axis=1)
    answers_SI = np.isfinite(z_SIK).sum(axis=-1)
    several = answers_SI > 1
    if not several.any():
        return None
    cells = np.nanvar(z_SIK[several], axis=-1, ddof=1) / answers_SI[several]
    return float(cells.mean() / answers_SI.size)


def graded(
    rows: Sequence[tuple[Any, ...]], arms: Sequence[str], steps: int, k: int = 1
) -> dict[str, GradedAnswers]:
    """Per arm its runs as one block, over the problems of which every run has k grades in all of
    `steps` evaluations.

    `rows` are those of `store.answers.grades`. Arms without any run that was evaluated so often are
    left out.
    """
    counted = [row for row in rows if row[5] is not None and row[0] in arms]
    steps_of: dict[tuple[str, int], set[int]] = {}
    for arm, seed, step, *_ in counted:
        steps_of.setdefault((arm, seed), set()).add(step)
    cells = Counter(row[:4] for row in counted if len(steps_of[row[:2]]) == steps)
    enough = Counter(problem for (*_, problem), count in cells.items() if count >= k)
    runs = _places(run for run, evaluated in steps_of.items() if len(evaluated) == steps)
    problems = _places(name for name, count in enough.items() if count == steps * len(runs))
    if not problems:
        return {}
    step_places = {run: _places(steps_of[run]) for run in runs}
    samples = max(row[4] for row in counted) + 1
    grade_REIK = np.full((len(runs), steps, len(problems), samples), np.nan)
    for arm, seed, step, problem, sample, correct in counted:
        run = arm, seed
        if run in runs and problem in problems:
            grade_REIK[runs[run], step_places[run][step], problems[problem], sample] = correct
    out = {}
    for arm in arms:
        seeds = tuple(seed for of, seed in runs if of == arm)
        if seeds:
            grades = grade_REIK[[runs[arm, seed] for seed in seeds]]
            out[arm] = GradedAnswers(seeds, tuple(problems), grades, k)
    return out


def _places(names: Iterable[T]) -> dict[T, int]:
    """The names in their order, each with its place."""
    return {name: place for place, name in enumerate(sorted(names))}


@dataclass(frozen=True)
class VarianceComponents:
    """A difference on these problems and on new ones too, and the share of its variance that each
    source brings.
    """

    arm: str
    over_seeds: PairedT
    crossed: TwoWay
    shares: dict[str, float]


def noise(
    baseline: GradedAnswers, treatment: GradedAnswers, arm: str, alpha: float
) -> VarianceComponents | None:
    """The variance components of `treatment` minus `baseline`, over the seeds that both have.

    None without such a seed.
    """
    shared = [seed for seed in baseline.seeds if seed in treatment.seeds]
    if not shared:
        return None
    baseline = baseline.of(shared)
    treatment = treatment.of(shared)
    a = baseline.rate_SI
    b = treatment.rate_SI
    scale = float(max(a.max(), b.max()))
    crossed = two_way(b - a, alpha, scale=scale)
    over_seeds = paired_t(
        (b - a).mean(axis=1), alpha, scale=scale, items_variance=items_variance(b - a)
    )
    seeds = crossed.var_seeds
    items = crossed.var_items
    residual = crossed.var_residual
    if seeds is None or items is None or residual is None:
        return VarianceComponents(arm, over_seeds, crossed, {})
    split = {SEED: max(0.0, seeds - residual), PROBLEM: max(0.0, items - residual)}
    drawn = sampling_variance(baseline, treatment)
    if drawn is None:
        split[UNSPLIT] = residual
    else:
        sampling = min(residual, drawn)
        split |= {SAMPLING: sampling, INTERPLAY: residual - sampling}
    total = sum(split.values())
    return VarianceComponents(
        arm,
        over_seeds,
        crossed,
        {name: part / total for name, part in split.items()} if total else {},
    )


@dataclass(frozen=True)
class Flips:
    """How many problems each of two runs with one seed gets right, at the last evaluation."""

    arm: str
    seed: int
    both: int
    only_first: int
    only_second: int
    neither: int


def flips(baseline: GradedAnswers, treatment: GradedAnswers, arm: str) -> list[Flips]:
    """Seed by seed. A problem counts as right if at least half of its answers are."""
    out = []
    for seed in baseline.seeds:
        if seed in treatment.seeds:
            a = _right(baseline, seed)
            b = _right(treatment, seed)
            counts = (int(correct.sum()) for correct in (a & b, a & ~b, ~a & b, ~a & ~b))
            out.append(Flips(arm, seed, *counts))
    return out


def _right(answers: GradedAnswers, seed: int) -> NDArray[np.bool_]:
    place = answers.seeds.index(seed)
    right: NDArray[np.bool_] = answers.correct_SEI[place, -1] * 2 >= answers.answers_SEI[place, -1]
    return right


@once
def scores(source: Source) -> list[JsonObject]:
    """`store.answers.score_rows` of what the runs recorded as they trained."""
    return answers.score_rows(source.evidence, source.study)


MEASURED = ("step", "score", "errors", "answers")


@once
def evaluations(source: Source, bench: str) -> dict[str, Floats]:
    """Per run id its evaluations on a benchmark as four rows: step, score, answers not graded,
    answers; NaN: not measured.
    """
    rows: dict[str, list[list[OptionalFloat]]] = {}
    for row in sorted(scores(source), key=itemgetter("step")):
        if row["bench"] == bench:
            rows.setdefault(row["run_id"], []).append([row[name] for name in MEASURED])
    return {run: np.array(measured, dtype=np.float64).T for run, measured in rows.items()}


@once
def benches(source: Source) -> list[str]:
    """The benchmarks that any run was asked, the primary one first."""
    primary = source.declaration.primary
    names = {row["bench"] for row in scores(source)}
    return sorted(names, key=lambda bench: (bench != primary, bench))


@once
def tallies(source: Source, bench: str) -> "DataFrame":
    """`store.answers.tallies`: how many answers to each problem were graded and right, run by
    run.
    """
    return answers.tallies(source.evidence, source.study, bench)


def counted_wrong(source: Source, bench: str, run: str) -> dict[int, float]:
    """A run's score on a benchmark by step, with answers that could not be graded counted as
    wrong.
    """
    counts = tallies(source, bench)
    counts = counts[counts["run_id"] == run]
    k = score_named(bench).k
    of_problem = counts["correct"] / counts["answers"]
    if k > 1:
        of_problem[:] = pass_at_k(counts["correct"], counts["answers"], k)
    scored = of_problem.groupby(counts["step"]).mean()
    return {int(step): float(score) for step, score in zip(scored.index, scored, strict=True)}


def counts_by_problem(
    source: Source, bench: str, steps: Mapping[tuple[str, int], Sequence[int]]
) -> dict[str, dict[str, tuple[int, int]]]:
    """Per arm and problem the answers and the ungraded ones, over the evaluations after these steps
    of (arm, seed).
    """
    counts = tallies(source, bench)
    keys = zip(counts["arm"], counts["seed"], counts["step"], strict=True)
    rows = counts[[step in steps.get((arm, seed), ()) for arm, seed, step in keys]]
    sums = rows.groupby(["arm", "problem"], as_index=False)[["answers", "errors"]].sum()
    out: dict[str, dict[str, tuple[int, int]]] = {}
    for row in sums.to_dict("records"):
        out.setdefault(str(row["arm"]), {})[str(row["problem"])] = (
            int(row["answers"]),
            int(row["errors"]),
        )
    return out


@dataclass(frozen=True)
class EvaluatedBenchmark:
    """A benchmark as it was asked: while training (`evaluation` is empty), or later of the
    checkpoints. `steps` are the evaluations that make the final score."""

    evaluation: str
    bench: str
    steps: Integers

    @property
    def title(self) -> str:
        """The benchmark, for people, with the later evaluation that asked it."""
        return (
            self.bench
            if not self.evaluation
            else f"{self.bench} (later evaluation {self.evaluation})"
        )

    @property
    def key(self) -> str:
        """A word for it that no other has, for file names and JSON."""
        return f"{self.evaluation}-{self.bench}" if self.evaluation else self.bench


@once
def evaluated_benchmarks(source: Source) -> list[EvaluatedBenchmark]:
    """The evaluated benchmarks, by evaluation and benchmark."""
    finished = {run.id for run in runs(source, FINISHED)}
    asked: dict[tuple[str, str], set[int]] = {}
    for row in answers.score_rows(source.evidence, source.study, None):
        if row["run_id"] in finished and row["step"] > 0 and row["answers"] is not None:
            asked.setdefault((row["evaluation"], row["bench"]), set()).add(row["step"])
    rule = source.declaration.verdict
    out = []
    for (evaluation, bench), steps in sorted(asked.items()):
        deciding = sorted(steps)[-1:] if evaluation else rule.deciding(sorted(steps))
        out.append(EvaluatedBenchmark(evaluation, bench, tuple(deciding)))
    return out


@once
def answered(
    source: Source,
    benchmark: EvaluatedBenchmark,
    arms: Strings,
    seeds: Integers | None = None,
    *,
    counted_wrong: bool = False,
) -> dict[str, GradedAnswers]:
    """Per arm the graded answers to a benchmark, over the problems that all runs of these arms and
    seeds answered.

    `seeds` None: all. Ungraded answers are left out, or `counted_wrong`."""
    rows = [row for row in _grades(source, benchmark) if seeds is None or row[1] in seeds]
    if counted_wrong:
        rows = [(*row[:5], row[5] or 0.0) for row in rows]
    return graded(rows, arms, len(benchmark.steps), score_named(benchmark.bench).k)


@once
def _grades(source: Source, benchmark: EvaluatedBenchmark) -> list[tuple[Any, ...]]:
    return answers.grades(
        source.evidence, source.study, benchmark.bench, benchmark.steps, benchmark.evaluation
    )


def in_training(source: Source, bench: OptionalText) -> EvaluatedBenchmark | None:
    """A benchmark as it was asked while training; None where no finished run answered it."""
    evaluated = (
        benchmark for benchmark in evaluated_benchmarks(source) if not benchmark.evaluation
    )
    return next((benchmark for benchmark in evaluated if benchmark.bench == bench), None)


def answers_variance(
    source: Source,
    weights: Mapping[str, float],
    seeds: Sequence[int],
    *,
    bench: OptionalText = None,
    counted_wrong: bool = False,
) -> OptionalFloat:
    """The variance of a weighted sum of arms' final scores on one seed that is due to finitely many
    answers; None where the answers are not stored. Options as of `weighted_rates`.
    """
    rates_SI = weighted_rates(source, weights, seeds, bench=bench, counted_wrong=counted_wrong)
    return None if rates_SI is None else items_variance(rates_SI)


def weighted_rates(
    source: Source,
    weights: Mapping[str, float],
    seeds: Sequence[int],
    *,
    bench: OptionalText = None,
    counted_wrong: bool = False,
) -> Floats | None:
    """The weighted sum of arms' rates at the end by seed and problem, [S, I], of the seeds that all
    of these arms have; None where the answers are not stored.

    They are on `bench` (None: the primary one). Ungraded answers are left out, or `counted_wrong`.
    """
    benchmark = in_training(source, bench or source.declaration.primary)
    if benchmark is None:
        return None
    arms = tuple(sorted(weights))  # in one order, so that they are read once
    blocks = answered(source, benchmark, arms, tuple(seeds), counted_wrong=counted_wrong)
    common = [
        seed
        for seed in seeds
        if all(arm in blocks and seed in blocks[arm].seeds for arm in weights)
    ]
    if not common:
        return None
    rates_ASI = [weight * blocks[arm].of(common).rate_SI for arm, weight in weights.items()]
    total_SI: Floats = np.sum(rates_ASI, axis=0)
    return total_SI


KEYS = ["run_id", "step", "bench"]
COUNTS = ("answers", "repeats", "long", "truncated", "errors", "by_others")


@dataclass(frozen=True)
class CheckpointAnswers:
    """A checkpoint's answers to one benchmark. `score` and `pass_at_k`, of the `k` answers that
    every graded problem has at least, are None where nothing was graded; `graded` has its problems:
    problem, correct, graded (counts).
    """

    run_id: str
    bench: str
    step: int
    problems: int
    samples: int
    distinct: float
    """The mean over problems of how many of the answers differ."""
    counts: dict[str, int]
    error: OptionalText
    answered_by: OptionalText
    how: JsonObject
    """The declaration of the evaluation."""
    graded: "DataFrame"
    score: CheckpointScore | None
    k: OptionalInt
    pass_at_k: OptionalFloat


def checkpoints(
    evidence: Evidence, runs: Sequence[str], evaluation: str
) -> Iterator[CheckpointAnswers]:
    """Every checkpoint of these runs (or model, or server), run by run in the order of `runs`, by
    step.
    """
    later = read_later_evaluations(evidence, runs)
    rows = later[later["evaluation"] == evaluation]
    how = {
        str(run): json.loads(content)
        for run, content in zip(rows["run_id"], rows["content"], strict=True)
    }
    frame = answers.by_problem(evidence, runs, evaluation)
    parts = [part for _, part in frame.groupby(KEYS, sort=False)]
    for part in sorted(
        parts, key=lambda rows: (runs.index(rows["run_id"].iloc[0]), rows["step"].iloc[0])
    ):
        run, step, bench = part[KEYS].iloc[0]
        graded = part[part["graded"] > 0]
        k = int(graded["graded"].min()) if len(graded) else None
        yield CheckpointAnswers(
            run_id=str(run),
            bench=str(bench),
            step=int(step),
            problems=len(part),
            samples=int(part["answers"].max()),
            distinct=float(part["distinct"].mean()),
            counts={name: int(part[name].sum()) for name in COUNTS},
            error=min(part["error"].dropna(), default=None),
            answered_by=min(part["answered_by"].dropna(), default=None),
            how=how.get(str(run), {}),
            graded=graded,
            score=None if k is None else checkpoint_score(graded["correct"], graded["graded"]),
            k=k,
            pass_at_k=(
                None
                if k is None
                else float(pass_at_k(graded["correct"], graded["graded"], k).mean())
            ),
        )


def arms_apart(source: Source, evaluation: str) -> Iterator[tuple[str, str, int, TwoWay]]:
    """Benchmark, arm, number of problems and the difference to the study's baseline after the last
    step, with an interval for new problems and new seeds."""
    recorded = source.evidence.runs(source.study)
    frame = answers.by_problem(source.evidence, list(recorded["run_id"]), evaluation)
    frame = frame.merge(recorded[["run_id", "arm", "seed"]], on="run_id")
    frame = frame[
        (frame["graded"] > 0) & (frame["step"] == frame.groupby("run_id")["step"].transform("max"))
    ]
    frame["rate"] = frame["correct"] / frame["graded"]
    by_arm = {
        arm: part.pivot(index="seed", columns="problem", values="rate")
        for arm, part in frame.groupby("arm")
    }
    baseline = source.declaration.baseline
    for arm in source.declaration.treatments:
        if arm in by_arm and baseline in by_arm:
            difference = (by_arm[arm] - by_arm[baseline]).dropna(how="all").dropna(axis=1)
            crossed = two_way(difference.to_numpy(), source.declaration.verdict.alpha)
            yield str(frame["bench"].iloc[0]), arm, difference.shape[1], crossed
