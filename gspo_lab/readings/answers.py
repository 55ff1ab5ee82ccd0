"""A study's graded answers: scores by evaluation, counts by problem, and what finitely many answers leave uncertain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gspo_lab.readings.graded import GradedAnswers, graded
from gspo_lab.readings.runs import FINISHED, runs
from gspo_lab.readings.source import Source, once
from gspo_lab.stats.array_checks import Floats
from gspo_lab.stats.crossed_random_effects import items_variance
from gspo_lab.stats.passk import pass_at_k
from gspo_lab.store import answers
from gspo_lab.study.verdict_tables import score_named

if TYPE_CHECKING:
    from pandas import DataFrame


@once
def scores(source: Source) -> "DataFrame":
    """`store.answers.read_scores` of what the runs recorded as they trained."""
    return answers.read_scores(source.evidence, source.study)


@once
def evaluations(source: Source, bench: str) -> dict[str, Floats]:
    """Per run id its evaluations on a benchmark as three rows: step, score, answers not graded; NaN: not measured."""
    frame = scores(source)
    frame = frame[frame["bench"] == bench].sort_values("step")
    rows: dict[str, list[tuple[float, ...]]] = {}
    columns = (frame[name].to_numpy(dtype=float).tolist() for name in ("step", "score", "errors"))
    for run, *row in zip(frame["run_id"].tolist(), *columns, strict=True):
        rows.setdefault(run, []).append(tuple(row))
    return {run: np.array(measured).T for run, measured in rows.items()}


@once
def benches(source: Source) -> list[str]:
    """The benchmarks that any run was asked, the primary one first."""
    primary = source.declaration.primary
    return sorted(set(scores(source)["bench"]), key=lambda bench: (bench != primary, bench))


@once
def tallies(source: Source, bench: str) -> "DataFrame":
    """`store.answers.tallies`: how many answers to each problem were graded and right, run by run."""
    return answers.tallies(source.evidence, source.study, bench)


def counted_wrong(source: Source, bench: str, run: str) -> dict[int, float]:
    """A run's score on a benchmark by step, with answers that could not be graded counted as wrong."""
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
    """Per arm and problem the answers and the ungraded ones, over the evaluations after these steps of (arm, seed)."""
    counts = tallies(source, bench)
    keys = zip(counts["arm"], counts["seed"], counts["step"], strict=True)
    rows = counts[[step in steps.get((arm, seed), ()) for arm, seed, step in keys]]
    sums = rows.groupby(["arm", "problem"], as_index=False)[["answers", "errors"]].sum()
    out: dict[str, dict[str, tuple[int, int]]] = {}
    for row in sums.to_dict("records"):
        out.setdefault(str(row["arm"]), {})[str(row["problem"])] = int(row["answers"]), int(row["errors"])
    return out


@dataclass(frozen=True)
class EvaluatedBenchmark:
    """A benchmark as it was asked: while training (`evaluation` is empty), or later of the checkpoints. `steps` are the
    evaluations that make the final score."""

    evaluation: str
    bench: str
    steps: tuple[int, ...]

    @property
    def title(self) -> str:
        """The benchmark, for people, with the later evaluation that asked it."""
        return self.bench if not self.evaluation else f"{self.bench} (later evaluation {self.evaluation})"

    @property
    def key(self) -> str:
        """A word for it that no other has, for file names and JSON."""
        return f"{self.evaluation}-{self.bench}" if self.evaluation else self.bench


@once
def evaluated_benchmarks(source: Source) -> list[EvaluatedBenchmark]:
    """By evaluation and benchmark."""
    frame = answers.read_scores(source.evidence, source.study, None)
    finished = {run.id for run in runs(source, FINISHED)}
    frame = frame[frame["run_id"].isin(finished) & (frame["step"] > 0) & frame["answers"].notna()]
    last = source.declaration.verdict.last
    out = []
    for (evaluation, bench), rows in frame.groupby(["evaluation", "bench"], sort=True):
        steps = sorted(int(step) for step in rows["step"].unique())
        out.append(EvaluatedBenchmark(str(evaluation), str(bench), tuple(steps[-1:] if evaluation else steps[-last:])))
    return out


def answered(
    source: Source,
    benchmark: EvaluatedBenchmark,
    arms: Sequence[str],
    seeds: Sequence[int] | None = None,
    *,
    counted_wrong: bool = False,
) -> dict[str, GradedAnswers]:
    """Per arm the graded answers to a benchmark, over the problems that all runs of these arms and seeds answered.

    `seeds` None: all. Ungraded answers are left out, or `counted_wrong`."""
    frame = _grades(source, benchmark)
    chosen = frame if seeds is None else frame[frame["seed"].isin(seeds)]
    chosen = chosen.fillna({"correct": 0.0}) if counted_wrong else chosen
    return graded(chosen, arms, len(benchmark.steps), score_named(benchmark.bench).k)


@once
def _grades(source: Source, benchmark: EvaluatedBenchmark) -> "DataFrame":
    return answers.grades(source.evidence, source.study, benchmark.bench, benchmark.steps, benchmark.evaluation)


def in_training(source: Source, bench: str | None) -> EvaluatedBenchmark | None:
    """A benchmark as it was asked while training; None where no finished run answered it."""
    evaluated = (benchmark for benchmark in evaluated_benchmarks(source) if not benchmark.evaluation)
    return next((benchmark for benchmark in evaluated if benchmark.bench == bench), None)


def answers_variance(
    source: Source,
    weights: Mapping[str, float],
    seeds: Sequence[int],
    *,
    bench: str | None = None,
    counted_wrong: bool = False,
) -> float | None:
    """The variance of a weighted sum of arms' final scores on one seed that is due to finitely many answers.

    It is of the seeds that all arms have, on `bench` (None: the primary one). Ungraded answers are left out, or
    `counted_wrong`. None where the answers are not stored.
    """
    benchmark = in_training(source, bench or source.declaration.primary)
    blocks = {} if benchmark is None else answered(source, benchmark, list(weights), seeds, counted_wrong=counted_wrong)
    common = [seed for seed in seeds if all(arm in blocks and seed in blocks[arm].seeds for arm in weights)]
    if not common:
        return None
    return items_variance(sum(weight * blocks[arm].of(common).rate_SI for arm, weight in weights.items()))
