"""Scores per arm and benchmark: every seed, avg@k and pass@k with intervals, their noise, and
problems that flipped; several studies side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.paired_comparisons import compared as compared_of
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, outcomes
from gspo_lab.analysis.findings.stability import verdicts as verdicts_of
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
from gspo_lab.common.states import State
from gspo_lab.common.text import last_evaluations
from gspo_lab.report.arm_table import axis_half_width, count_unstable, drawn
from gspo_lab.report.markup import (
    NONE,
    NOT_MEASURED,
    Html,
    between,
    format_number,
    h,
    percent,
    signed,
    slug,
    table,
)
from gspo_lab.report.section import CollapsibleSection, Part, Section, grid, paragraph

BY_PROBLEM = "Problem by problem: differences, where their noise comes from, and what changed sides"
HEAD = [
    "arm",
    "final score",
    "each seed",
    "start",
    "gain",
    "unstable",
    "runs finished",
    "answers not graded",
]
READINGS = (
    "final",
    "final_counted_wrong",
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
NOISE = (
    "Where the noise of a difference comes from, as shares of its variance. Training seed: other"
    " runs would differ. Problems: other problems would. Sampling: the same models, asked again"
    " with other random numbers. More seeds shrink all but the problems' share, more problems all"
    " but the training seed's."
)


def scores(study: Source) -> Section | None:
    """Tables and charts per benchmark, then what `gspo-lab eval` asked later."""
    declared = study.declaration
    counted = decision(study).runs
    benches = sorted(benches_of(study))
    evaluations = evaluated_benchmarks(study)
    if not benches and not evaluations:
        return Section("scores", "Scores", (h("p", NOT_MEASURED, class_="missing"),))
    body: list[Part] = []
    data: dict[str, Any] = {}
    later: dict[str, Any] = {}
    for bench in benches:
        ended = outcomes(study, bench)
        by_arm = {arm: [run for run in ended if run.arm == arm] for arm in study.arms}
        last = declared.verdict.last
        failed = any(run.errors for run in ended)
        caption = f"{bench}: {last_evaluations(last)} of a finished run. Means: {counted.label()}"
        if failed:
            caption += (
                ". In the second line of an arm what was not graded is counted as wrong, above it"
                " is left out"
            )
        rows = []
        data[bench] = {}
        for arm, runs in by_arm.items():
            row, data[bench][arm] = _of_arm(arm, runs, counted, len(declared.seeds))
            rows.append(row)
            if failed:
                wrong = average(run.counted_wrong for run in runs if counted.has(run))
                seeds = ", ".join(format_number(run.counted_wrong) for run in runs)
                rows.append([f"{arm}, counted as wrong", format_number(wrong), seeds, *[NONE] * 5])
        body += [h("h3", bench), grid(HEAD, rows, caption)]
        evaluation = in_training(study, bench)
        if evaluation is not None and (more := _by_problem(study, evaluation)) is not None:
            # With one answer to a problem its table repeats the scores above.
            folds = [
                part.body if isinstance(part, CollapsibleSection) else (part,) for part in more.body
            ]
            body += (
                more.body
                if more.data["samples"] > 1
                else [CollapsibleSection(BY_PROBLEM, sum(folds, ()))]
            )
            data[bench]["problems"] = more.data
    for benchmark in evaluations:
        if benchmark.evaluation:
            missing = Section(
                benchmark.key, benchmark.title, (h("p", NOT_MEASURED, class_="missing"),)
            )
            problems = _by_problem(study, benchmark) or missing
            body += [h("h3", problems.title), *problems.body]
            later[slug(benchmark.key)] = {
                "evaluation": benchmark.evaluation,
                "bench": benchmark.bench,
                **problems.data,
            }
    parts = {
        "benches": data,
        "readings": {name: f"score.{name}" for name in READINGS},
        "seeds": counted.label(),
    }
    parts |= {"later": later} if later else {}
    return Section("scores", "Scores", tuple(body), parts)


def _by_problem(study: Source, benchmark: EvaluatedBenchmark) -> Section | None:
    """An evaluation's answers problem by problem: of each arm, and folded how arms differ.

    None without any grade.
    """
    alpha = study.declaration.verdict.alpha
    graded = answered(study, benchmark, study.arms, decision(study).seeds)
    if not graded:
        return None
    samples = min(block.samples for block in graded.values())
    ks = [k for k in (1 << i for i in range(1, 11)) if k < samples] + (
        [samples] if samples > 1 else []
    )
    head = [
        "arm",
        f"avg@{samples}",
        "interval, new seeds",
        "interval, new problems too",
        *(f"pass@{k}" for k in ks),
    ]
    levels = {arm: _level(block, alpha, ks) for arm, block in graded.items()}
    rows = [[arm, *row] for arm, (row, _) in levels.items()]
    problems = len(next(iter(graded.values())).problems)
    spread = " of the last evaluations" if len(benchmark.steps) > 1 else ""
    caption = (
        f"{benchmark.title}: {problems} problems, {samples} answer{'' if samples == 1 else 's'}"
        f" each, mean{spread}. New seeds: other runs on these problems. New problems too: other"
        " runs on other problems of the kind"
    )
    tables, apart = _differences(study, benchmark.title, graded, samples)
    folds = [CollapsibleSection(BY_PROBLEM, tuple(tables))] if tables else []
    data = {
        "samples": samples,
        "problems": problems,
        "levels": {arm: level for arm, (_, level) in levels.items()},
    }
    return Section(
        benchmark.key, benchmark.title, (grid(head, rows, caption), *folds), data | apart
    )


def _differences(
    study: Source, title: str, graded: Mapping[str, GradedAnswers], samples: int
) -> tuple[list[Html], dict[str, Any]]:
    """How arms differ from the baseline, where that noise comes from, what changed sides: tables
    and data.
    """
    baseline = study.declaration.baseline
    rule = study.declaration.verdict
    alpha = rule.alpha
    margin = rule.margin
    if baseline not in graded:
        return [], {}
    arms = {arm: block for arm, block in graded.items() if arm != baseline}
    noises = [
        part for arm, block in arms.items() if (part := noise(graded[baseline], block, arm, alpha))
    ]
    changed = [line for arm, block in arms.items() for line in flips(graded[baseline], block, arm)]
    tables: list[Html] = []
    data: dict[str, Any] = {}
    if noises:
        rows = []
        data["differences"] = {}
        for p in noises:
            seeds = p.over_seeds
            both = p.crossed
            error = format_number(
                None if both.variance is None else float(np.sqrt(both.variance)), 2
            )
            ends = [between(part.low, part.high, part.reason, margin) for part in (seeds, both)]
            rows.append([p.arm, signed(both.estimate, seeds.low, seeds.high), *ends, error])
            intervals = {"these_problems": _ends(seeds), "new_problems_too": _ends(both)}
            data["differences"][p.arm] = {"estimate": both.estimate, **intervals}
        columns = [
            "arm",
            "difference",
            "interval, these problems",
            "interval, new problems too",
            "standard error",
        ]
        tables.append(
            table(columns, rows, caption=f"{title}: differences to {baseline}, problem by problem")
        )
        names = [name for name in SOURCES if any(name in part.shares for part in noises)]
        shares = [
            [p.arm, *(percent(p.shares.get(name), 2) for name in names)] for p in noises if p.shares
        ]
        tables.append(table(["arm", *names], shares, caption=NOISE))
        data["noise"] = {p.arm: p.shares for p in noises}
    if changed:
        rows = [
            [f"{f.arm}, seed {f.seed}", *map(str, (f.both, f.only_first, f.only_second, f.neither))]
            for f in changed
        ]
        columns = ["pair", "both right", f"only {baseline}", "only the arm", "both wrong"]
        at = (
            "a problem is right if at least half of its answers are"
            if samples > 1
            else "one answer each"
        )
        about = (
            f"{title}: problems that changed sides between {baseline} and the arm, last evaluation;"
            f" {at}"
        )
        tables.append(table(columns, rows, caption=about))
        data["flips"] = [vars(f) for f in changed]
    return tables, data


def _level(block: GradedAnswers, alpha: float, ks: list[int]) -> tuple[list[str], dict[str, Any]]:
    seeds = paired_t(block.score_S, alpha, scale=1.0)
    both = two_way(block.rate_SI, alpha, scale=1.0)
    right = block.correct_SEI.ravel().astype(int)
    answers = block.answers_SEI.ravel().astype(int)
    passed = {k: average(pass_at_k(right, answers, k).tolist()) or 0.0 for k in ks}
    intervals = [
        (
            str(part.reason)
            if part.low is None or part.high is None
            else f"{format_number(max(part.low, 0.0))} to {format_number(min(part.high, 1.0))}"
        )
        for part in (seeds, both)
    ]
    mean = seeds.estimate or 0.0
    data = {
        "avg": mean,
        "new_seeds": _ends(seeds),
        "new_seeds_and_problems": _ends(both),
        "pass": passed,
    }
    return [format_number(mean), *intervals, *map(format_number, passed.values())], data


def _ends(part: PairedT | TwoWay) -> list[float | None] | None:
    return None if part.low is None else [part.low, part.high]


def _of_arm(
    arm: str, runs: list[RunOutcome], seeds: Seeds, planned: int
) -> tuple[list[str], dict[str, Any]]:
    """An arm's row of the table, and its data."""
    counted = [run for run in runs if seeds.has(run)]
    means = {
        name: average(getattr(run, name) for run in counted) for name in ("final", "start", "gain")
    }
    by_seed = {}
    each = []
    for run in runs:
        data = {
            name: getattr(run, name)
            for name in ("state", "start", "final", "latest", "carried", "errors")
        }
        data["collapse_step"] = None if run.stability is None else run.stability.collapse
        data["collapse_cause"] = None if run.stability is None else run.stability.cause
        by_seed[str(run.seed)] = {**data, "final_counted_wrong": run.counted_wrong}
        so_far = "" if run.latest is None else f", at {format_number(run.latest)}"
        each.append(f"({run.state}{so_far})" if run.final is None else format_number(run.final))
    final = format_number(means["final"])
    start = format_number(means["start"])
    gain = signed(means["gain"])
    finished = f"{sum(run.state == State.FINISHED for run in runs)} of {planned}"
    errors = str(sum(run.errors for run in runs))
    row = [
        arm,
        final,
        ", ".join(each) or "not begun",
        start,
        gain,
        count_unstable(counted),
        finished,
        errors,
    ]
    return row, {**means, "seeds": by_seed}


PAIRS = ("number", "arm", "difference", "pairs", "p", "p, adjusted")


def pairs(study: Source) -> Section | None:
    """A row per number and arm, scores over the margin and rewards on a scale of their own; None
    without two arms.
    """
    compared = compared_of(study)
    if study.declaration.sweep is not None or not compared:
        return None
    margin = study.declaration.verdict.margin
    margins = {True: margin, False: None}
    wide = {}
    for scored, shaded in margins.items():
        of_kind = (result.paired for result in compared if result.scalar.scored is scored)
        wide[scored] = axis_half_width(of_kind, shaded)
    rows = []
    data = []
    for result in compared:
        scalar = result.scalar
        paired = result.paired
        name = result.scalar.title
        ends = (paired.low, paired.high)
        scored = result.scalar.scored
        svg = drawn(
            paired.estimate,
            ends,
            paired.differences,
            result.arm,
            wide[scored],
            margins[scored],
            paired.reason,
        )
        p = NONE if paired.p is None else format_number(paired.p, 2)
        adjusted = NONE if result.p_adjusted is None else format_number(result.p_adjusted, 2)
        rows.append(
            (name, result.arm, svg, str(paired.n), p, "decides" if scalar.primary else adjusted)
        )
        data.append(
            {name: getattr(paired, name) for name in ("estimate", "low", "high", "p", "reason")}
            | {
                "number": name,
                "arm": result.arm,
                "primary": scalar.primary,
                "p_adjusted": result.p_adjusted,
            }
            | {
                "reading": (
                    f"score.{scalar.bench}" if scalar.bench else f"reward_mean.{scalar.name}"
                ),
                "pairs": paired.n,
            }
        )
    level = 100 * (1 - study.declaration.verdict.alpha)
    caption = (
        f"Differences to {study.declaration.baseline}, paired by seed, each with its own {level:g}"
        " % interval; the verdict's intervals are wider where several arms share its error rate."
        " Of scores, none is narrower than the noise of the answers alone makes it. Dots: pairs."
        f" Shaded: the margin of scores, ±{margin:g}. Only the primary score carries the verdict; p"
        " of the others is adjusted over all of them by Holm's rule"
    )
    return Section(
        "pairs", "Pairs and differences", (grid(PAIRS, rows, caption),), {"scalars": data}
    )


def study_comparison(sources: Sequence[Source]) -> Section:
    """One table of all comparisons, one of the final scores by arm; nothing is pooled over
    studies.
    """
    verdicts: list[list[Any]] = []
    scores: dict[str, dict[str, float | None]] = {}
    for study in sources:
        for verdict in verdicts_of(study).values():
            low, high = verdict.interval or (None, None)
            link = h("a", study.label, href=f"#{slug(study.label)}")
            pairs = verdict.paired.n if verdict.paired else 0
            verdicts.append(
                [
                    link,
                    verdict.label,
                    signed(verdict.estimate),
                    between(low, high, None, verdict.margin),
                    str(pairs),
                ]
            )
        primary = study.declaration.primary
        ended = [] if primary is None else outcomes(study, primary)
        for arm in study.arms:
            finals = (
                run.final for run in ended if run.arm == arm and decision(study).runs.has(run)
            )
            scores.setdefault(arm, {})[study.label] = average(finals)
    names = [study.label for study in sources]
    head = ["study", "verdict", "difference to its baseline", "interval", "pairs"]
    rows = [
        [arm, *(format_number(of[name]) if name in of else NONE for name in names)]
        for arm, of in scores.items()
    ]
    caption = (
        "Final score on each study's primary benchmark, mean over the seeds that its verdict"
        " rests on"
    )
    body = (
        paragraph(
            "Each study by its own rule; nothing is pooled. An arm has the same colour in every"
            " study."
        ),
        grid(head, verdicts, "Verdicts"),
        grid(["arm", *names], rows, caption),
    )
    return Section("together", "Studies side by side", body, {"scores": scores})
