"""Scores per arm and benchmark: every seed, avg@k and pass@k with intervals, their noise, and
problems that flipped; every declared number pair by pair."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.paired_comparisons import compared as compared_of
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, deciding_steps, outcomes
from gspo_lab.analysis.readings import Seeds, Source, average
from gspo_lab.analysis.readings.answers import (
    SOURCES,
    EvaluatedBenchmark,
    GradedAnswers,
    answered,
    evaluated_benchmarks,
    flips,
    in_training,
    noise,
)
from gspo_lab.analysis.readings.answers import benches as benches_of
from gspo_lab.analysis.stats import PairedT, TwoWay, paired_t, two_way
from gspo_lab.analysis.stats.passk import pass_at_k
from gspo_lab.common.plain_data import Interval, JsonObject, OptionalFloat
from gspo_lab.common.states import State
from gspo_lab.common.text import counted, last_evaluations
from gspo_lab.report.templating import NONE, between, format_number, limits, percent, signed, slug
from gspo_lab.report.views.drawing import Drawing, count_unstable, drawing, half_width
from gspo_lab.report.views.view import Inlined, PageOnly, View

READINGS = (
    "final",
    "counted_wrong",
    "best",
    "best_evaluation",
    "start",
    "gain",
    "latest",
    "avg",
    "pass",
    "new_seeds",
    "new_seeds_and_problems",
    "differences",
    "noise",
)
"""The keys of the section's JSON that hold numbers made of scores."""


@dataclass(frozen=True)
class ArmScores:
    """One arm on one benchmark; means are of the runs that the verdict rests on."""

    final: OptionalFloat
    start: OptionalFloat
    gain: OptionalFloat
    seeds: dict[int, RunOutcome]
    unstable: PageOnly[str]
    finished: PageOnly[str]
    counted_wrong: PageOnly[OptionalFloat]

    @property
    def each(self) -> str:
        """Every seed's score."""
        return ", ".join(map(_score_text, self.seeds.values())) or "not begun"

    @property
    def each_counted_wrong(self) -> str:
        """Every seed's score where what was not graded counts as wrong."""
        return ", ".join(format_number(run.counted_wrong) for run in self.seeds.values())

    @property
    def errors(self) -> int:
        """Answers that were not graded."""
        return sum(run.errors for run in self.seeds.values())


@dataclass(frozen=True)
class Differences:
    """How arms differ from the baseline problem by problem, where that noise comes from, and which
    problems changed sides."""

    differences: dict[str, JsonObject]
    noise: dict[str, dict[str, float]]
    flips: list[JsonObject]
    rows: PageOnly[list[list[str]]]
    noise_rows: PageOnly[list[list[str]]]
    sources: PageOnly[list[str]]
    baseline: PageOnly[str]

    @property
    def flip_rows(self) -> list[list[Any]]:
        """The table of problems that changed sides, a row for each pair of runs."""
        counts = ("both", "only_first", "only_second", "neither")
        rows = []
        for flip in self.flips:
            rows.append([f"{flip['arm']}, seed {flip['seed']}", *(flip[key] for key in counts)])
        return rows


@dataclass(frozen=True)
class ProblemScores:
    """An evaluation's answers problem by problem."""

    samples: int
    problems: int
    levels: dict[str, JsonObject]
    between_arms: Inlined[Differences | None]
    title: PageOnly[str]
    caption: PageOnly[str]
    columns: PageOnly[list[str]]
    rows: PageOnly[list[list[str]]]


@dataclass(frozen=True)
class BenchScores:
    """One benchmark that runs were evaluated on as they trained."""

    arms: Inlined[dict[str, ArmScores]]
    problems: ProblemScores | None
    caption: PageOnly[str]

    @property
    def rows(self) -> list[list[Any]]:
        """The table of arms; where answers were not graded each arm has a second line."""
        failed = any(arm.errors for arm in self.arms.values())
        rows: list[list[Any]] = []
        for name, arm in self.arms.items():
            gain = signed(arm.gain)
            cells = [arm.final, arm.each, arm.start, gain, arm.unstable, arm.finished, arm.errors]
            rows.append([name, *cells])
            if failed:
                wrong_counts = [arm.counted_wrong, arm.each_counted_wrong]
                rows.append(
                    [f"{name}, counted as wrong", *wrong_counts, NONE, NONE, NONE, NONE, NONE]
                )
        return rows


@dataclass(frozen=True)
class LaterEvaluation:
    """One benchmark that `gspo-lab eval` asked after training."""

    evaluation: str
    bench: str
    problems: Inlined[ProblemScores | None]
    title: PageOnly[str]


@dataclass(frozen=True)
class ScoresView(View):
    """Every benchmark, then what `gspo-lab eval` asked later."""

    id = "scores"
    title = "Scores"
    benches: dict[str, BenchScores]
    later: dict[str, LaterEvaluation]
    readings: dict[str, str]
    seeds: str


def scores_view(study: Source) -> ScoresView:
    """Tables per benchmark."""
    counted = decision(study).runs
    benches = {bench: _bench(study, bench, counted) for bench in sorted(benches_of(study))}
    later = {}
    for benchmark in evaluated_benchmarks(study):
        if benchmark.evaluation:
            later[slug(benchmark.key)] = LaterEvaluation(
                benchmark.evaluation,
                benchmark.bench,
                _by_problem(study, benchmark),
                benchmark.title,
            )
    readings = {name: f"score.{name}" for name in READINGS}
    return ScoresView(benches, later, readings, counted.label())


def _bench(study: Source, bench: str, counted: Seeds) -> BenchScores:
    declared = study.declaration
    ended = outcomes(study, bench)
    arms = {}
    for arm in study.arms:
        runs = [run for run in ended if run.arm == arm]
        arms[arm] = _arm(runs, counted, len(declared.seeds))
    last = last_evaluations(deciding_steps(study, bench))
    caption = f"{bench}: {last} of a finished run. Means: {counted.label()}"
    if any(run.errors for run in ended):
        caption += (
            ". In the second line of an arm what was not graded is counted as wrong, above it"
            " is left out"
        )
    evaluation = in_training(study, bench)
    problems = None if evaluation is None else _by_problem(study, evaluation)
    return BenchScores(arms, problems, caption)


def _arm(runs: list[RunOutcome], seeds: Seeds, planned: int) -> ArmScores:
    counted = [run for run in runs if seeds.has(run)]
    finished = sum(run.state == State.FINISHED for run in runs)
    return ArmScores(
        average(run.final for run in counted),
        average(run.start for run in counted),
        average(run.gain for run in counted),
        {run.seed: run for run in runs},
        count_unstable(counted),
        f"{finished} of {planned}",
        average(run.counted_wrong for run in counted),
    )


def _score_text(run: RunOutcome) -> str:
    """A run's final score, or its state with its latest one."""
    if run.final is not None:
        return format_number(run.final)
    latest = "" if run.latest is None else f", at {format_number(run.latest)}"
    return f"({run.state}{latest})"


def _by_problem(study: Source, benchmark: EvaluatedBenchmark) -> ProblemScores | None:
    """An evaluation's answers problem by problem: of each arm, and how arms differ. None without
    any grade.
    """
    alpha = study.declaration.verdict.alpha
    graded = answered(study, benchmark, tuple(study.arms), decision(study).seeds)
    if not graded:
        return None
    samples = min(block.samples for block in graded.values())
    ks = [k for k in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if k < samples]
    if samples > 1:
        ks.append(samples)
    levels = {arm: _level(arm, block, alpha, ks) for arm, block in graded.items()}
    problems = len(next(iter(graded.values())).problems)
    spread = " of the last evaluations" if len(benchmark.steps) > 1 else ""
    answers = counted(samples, "answer")
    return ProblemScores(
        samples,
        problems,
        {arm: data for arm, (data, _) in levels.items()},
        _differences(study, graded),
        benchmark.title,
        f"{benchmark.title}: {problems} problems, {answers} each, mean{spread}. New seeds: other"
        " runs on these problems. New problems too: other runs on other problems of the kind",
        [
            "arm",
            f"avg@{samples}",
            "interval, new seeds",
            "interval, new problems too",
            *(f"pass@{k}" for k in ks),
        ],
        [row for _, row in levels.values()],
    )


def _level(
    arm: str, block: GradedAnswers, alpha: float, ks: list[int]
) -> tuple[JsonObject, list[str]]:
    """An arm's mean score, with intervals for other runs and for other problems too, and pass@k; as
    data and as a row."""
    seeds = paired_t(block.score_S, alpha, scale=1.0)
    crossed = two_way(block.rate_SI, alpha, scale=1.0)
    right = block.correct_SEI.ravel().astype(int)
    answers = block.answers_SEI.ravel().astype(int)
    passed = {k: average(pass_at_k(right, answers, k).tolist()) or 0.0 for k in ks}
    mean = seeds.estimate or 0.0
    data = {
        "avg": mean,
        "new_seeds": _ends(seeds),
        "new_seeds_and_problems": _ends(crossed),
        "pass": passed,
    }
    intervals = [_share_interval(seeds), _share_interval(crossed)]
    return data, [arm, format_number(mean), *intervals, *map(format_number, passed.values())]


def _share_interval(test: PairedT | TwoWay) -> str:
    """An interval of shares, which lie between 0 and 1."""
    if test.low is None or test.high is None:
        return str(test.reason)
    return limits((max(test.low, 0.0), min(test.high, 1.0)))


def _ends(test: PairedT | TwoWay) -> Interval | None:
    return None if test.low is None or test.high is None else (test.low, test.high)


def _differences(study: Source, graded: Mapping[str, GradedAnswers]) -> Differences | None:
    """None without the baseline, or where no arm has the baseline's problems."""
    baseline = study.declaration.baseline
    rule = study.declaration.verdict
    if baseline not in graded:
        return None
    noises = []
    changed = []
    for arm, block in graded.items():
        if arm == baseline:
            continue
        if estimate := noise(graded[baseline], block, arm, rule.alpha):
            noises.append(estimate)
        changed += flips(graded[baseline], block, arm)
    if not noises and not changed:
        return None
    sources = [name for name in SOURCES if any(name in entry.shares for entry in noises)]
    differences = {}
    rows = []
    noise_rows = []
    for entry in noises:
        seeds = entry.over_seeds
        crossed = entry.crossed
        error = None if crossed.variance is None else float(crossed.variance) ** 0.5
        intervals = [
            between(test.low, test.high, test.reason, rule.margin) for test in (seeds, crossed)
        ]
        written = signed(crossed.estimate, seeds.low, seeds.high)
        rows.append([entry.arm, written, *intervals, format_number(error, 2)])
        if entry.shares:
            shares = [percent(entry.shares.get(name), 2) for name in sources]
            noise_rows.append([entry.arm, *shares])
        differences[entry.arm] = {
            "estimate": crossed.estimate,
            "these_problems": _ends(seeds),
            "new_problems_too": _ends(crossed),
        }
    return Differences(
        differences,
        {entry.arm: entry.shares for entry in noises},
        [vars(flip) for flip in changed],
        rows,
        noise_rows,
        sources,
        baseline,
    )


@dataclass(frozen=True)
class PairedNumber:
    """One number's differences between an arm and the baseline, paired by seed."""

    number: str
    arm: str
    estimate: OptionalFloat
    low: OptionalFloat
    high: OptionalFloat
    p: OptionalFloat
    reason: str | None
    primary: bool
    p_adjusted: OptionalFloat
    reading: str
    pairs: int
    drawing: PageOnly[Drawing]

    @property
    def p_text(self) -> str:
        """Its p as the table has it."""
        return NONE if self.p is None else format_number(self.p, 2)

    @property
    def adjusted(self) -> str:
        """Its adjusted p as the table has it."""
        if self.primary:
            return "decides"
        return NONE if self.p_adjusted is None else format_number(self.p_adjusted, 2)


@dataclass(frozen=True)
class PairsView(View):
    """A row per number and arm, scores over the margin and rewards on a scale of their own."""

    id = "pairs"
    title = "Pairs and differences"
    scalars: list[PairedNumber]
    baseline: PageOnly[str]
    level: PageOnly[float]
    margin: PageOnly[float]


def pairs_view(study: Source) -> PairsView | None:
    """None without two arms."""
    compared = compared_of(study)
    rule = study.declaration.verdict
    if study.declaration.sweep is not None or not compared:
        return None
    widths = {}
    for scored in (True, False):
        tests = [result.paired for result in compared if result.scalar.scored is scored]
        widths[scored] = half_width(tests, rule.margin if scored else None)
    rows = []
    for result in compared:
        scalar = result.scalar
        paired = result.paired
        margin = rule.margin if scalar.scored else None
        rows.append(
            PairedNumber(
                scalar.title,
                result.arm,
                paired.estimate,
                paired.low,
                paired.high,
                paired.p,
                paired.reason,
                scalar.primary,
                result.p_adjusted,
                f"score.{scalar.bench}" if scalar.bench else f"reward_mean.{scalar.name}",
                paired.n,
                drawing(paired, result.arm, widths[scalar.scored], margin),
            )
        )
    level = 100 * (1 - rule.alpha)
    return PairsView(rows, study.declaration.baseline, level, rule.margin)
