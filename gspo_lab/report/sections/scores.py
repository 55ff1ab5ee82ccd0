"""Scores per arm and benchmark: every seed, avg@k and pass@k with intervals, their noise, and problems that flipped."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from gspo_lab.findings.decision import decision
from gspo_lab.findings.outcomes import RunOutcome, outcomes
from gspo_lab.readings import Seeds, Source, average
from gspo_lab.readings.answers import EvaluatedBenchmark, answered, evaluated_benchmarks
from gspo_lab.readings.answers import benches as benches_of
from gspo_lab.readings.graded import (
    INTERPLAY,
    PROBLEM,
    SAMPLING,
    SEED,
    UNSPLIT,
    GradedAnswers,
    VarianceComponents,
    flips,
    noise,
)
from gspo_lab.report.arms import fell
from gspo_lab.report.markup import (
    NONE,
    NOT_MEASURED,
    Html,
    between,
    h,
    markdown_table,
    number,
    percent,
    plain,
    signed,
    slug,
    table,
)
from gspo_lab.report.section import Fold, Part, Section
from gspo_lab.states import State
from gspo_lab.stats import PairedT, TwoWay, paired_t, two_way
from gspo_lab.stats.passk import pass_at_k

BY_PROBLEM = "Problem by problem: differences, where their noise comes from, and what changed sides"
HEAD = ["arm", "final score", "each seed", "start", "gain", "unstable", "runs finished", "answers not graded"]
SOURCES = (SEED, PROBLEM, SAMPLING, INTERPLAY, UNSPLIT)
"""Of a difference's variance."""
READINGS = (
    *("final", "final_counted_wrong", "start", "gain", "latest", "avg", "pass", "new_seeds", "new_seeds_and_problems"),
    *("differences", "noise"),
)
"""The keys of the section's JSON that hold numbers made of scores."""
NOISE = (
    "Where the noise of a difference comes from, as shares of its variance. Training seed: other runs would differ. "
    "Problems: other problems would. Sampling: the same models, asked again with other random numbers. More seeds "
    "shrink all but the problems' share, more problems all but the training seed's."
)


def scores(found: Source) -> Section | None:
    """Tables and charts per benchmark, then what `gspo-lab eval` asked later."""
    declared = found.declaration
    benches, every = sorted(benches_of(found)), evaluated_benchmarks(found)
    if not benches and not every:
        return Section("scores", "Scores", (h("p", NOT_MEASURED, class_="missing"),))
    body: list[Part] = []
    data: dict[str, Any] = {}
    markdown = []
    for bench in benches:
        ended = outcomes(found, bench)
        by_arm = {arm: [one for one in ended if one.arm == arm] for arm in found.arms}
        rows = [_row(arm, runs, decision(found).runs, len(declared.seeds)) for arm, runs in by_arm.items()]
        last = declared.verdict.last
        caption = (
            f"{bench}: mean of the last {last} evaluations of a finished run. Means: {decision(found).runs.label()}"
        )
        if any(one.errors for one in ended):
            caption += ". In the second line of an arm what was not graded is counted as wrong, above it is left out"
            second = [_counted_wrong(arm, runs, decision(found).runs) for arm, runs in by_arm.items()]
            rows = [row for both in zip(rows, second, strict=True) for row in both]
        body += [h("h3", bench), table(HEAD, rows, caption=caption)]
        data[bench] = {arm: _data(runs, decision(found).runs) for arm, runs in by_arm.items()}
        markdown.append(f"{caption}\n\n{markdown_table(HEAD, rows)}")
        own = next((one for one in every if one.bench == bench and not one.evaluation), None)
        if own is not None and (more := _by_problem(found, own)) is not None:
            # With one answer to a problem its table repeats the scores above.
            body += more.body if more.data["samples"] > 1 else (_folded(more.body),)
            data[bench] = {**data[bench], "problems": more.data}
    later: dict[str, Any] = {}
    for one in every:
        if one.evaluation:
            asked = _by_problem(found, one)
            body += [h("h3", one.title), *(asked.body if asked else (h("p", NOT_MEASURED, class_="missing"),))]
            later[slug(one.key)] = {"evaluation": one.evaluation, "bench": one.bench, **(asked.data if asked else {})}
            markdown += [asked.markdown] if asked else []
    final = {name: f"score.{name}" for name in READINGS}
    parts = {
        "benches": data,
        **({"later": later} if later else {}),
        "readings": final,
        "seeds": decision(found).runs.label(),
    }
    return Section("scores", "Scores", tuple(body), parts, "\n\n".join(markdown))


def _folded(parts: Iterable[Part]) -> Fold:
    return Fold(
        BY_PROBLEM, tuple(part for whole in parts for part in (whole.body if isinstance(whole, Fold) else (whole,)))
    )


def _by_problem(study: Source, one: EvaluatedBenchmark) -> Section | None:
    """An evaluation's answers problem by problem: of each arm, and folded how arms differ. None without any grade."""
    baseline, alpha = study.declaration.baseline, study.declaration.verdict.alpha
    found = answered(study, one, study.arms, decision(study).seeds)
    if not found:
        return None
    samples = min(block.samples for block in found.values())
    ks = [k for k in (1 << i for i in range(1, 11)) if k < samples] + ([samples] if samples > 1 else [])
    head = ["arm", f"avg@{samples}", "interval, new seeds", "interval, new problems too", *(f"pass@{k}" for k in ks)]
    levels = {arm: _level(block, alpha, ks) for arm, block in found.items()}
    rows = [[arm, *row] for arm, (row, _) in levels.items()]
    problems = len(next(iter(found.values())).problems)
    spread = " of the last evaluations" if len(one.steps) > 1 else ""
    caption = (
        f"{one.title}: {problems} problems, {samples} answer{'' if samples == 1 else 's'} each, mean{spread}. "
        "New seeds: other runs on these problems. New problems too: other runs on other problems of the kind"
    )
    data: dict[str, Any] = {
        "samples": samples,
        "problems": problems,
        "levels": {arm: numbers for arm, (_, numbers) in levels.items()},
    }
    apart: list[Html] = []
    if baseline in found:
        others = {arm: block for arm, block in found.items() if arm != baseline}
        noises = [part for arm, block in others.items() if (part := noise(found[baseline], block, arm, alpha))]
        changed = [line for arm, block in others.items() for line in flips(found[baseline], block, arm)]
        if noises:
            differences = [
                [p.arm, signed(p.crossed.estimate, _width(p)), _ends(p.over_seeds), _ends(p.crossed), _error(p)]
                for p in noises
            ]
            columns = ["arm", "difference", "interval, these problems", "interval, new problems too", "standard error"]
            apart.append(
                table(columns, differences, caption=f"{one.title}: differences to {baseline}, problem by problem")
            )
            data["differences"] = {p.arm: _difference(p) for p in noises}
            data["noise"] = {p.arm: p.shares for p in noises}
            names = [name for name in SOURCES if any(name in part.shares for part in noises)]
            shares = [[p.arm, *(percent(p.shares.get(name), 2) for name in names)] for p in noises if p.shares]
            apart.append(table(["arm", *names], shares, caption=NOISE))
        if changed:
            sides = [
                [f"{f.arm}, seed {f.seed}", *map(str, (f.both, f.only_first, f.only_second, f.neither))]
                for f in changed
            ]
            columns = ["pair", "both right", f"only {baseline}", "only the arm", "both wrong"]
            at = "a problem is right if at least half of its answers are" if samples > 1 else "one answer each"
            about = f"{one.title}: problems that changed sides between {baseline} and the arm, last evaluation; {at}"
            apart.append(table(columns, sides, caption=about))
            data["flips"] = [vars(f) for f in changed]
    parts: tuple[Part, ...] = (table(head, rows, caption=caption), *([Fold(BY_PROBLEM, tuple(apart))] if apart else []))
    return Section(one.key, one.title, parts, data, f"{plain(caption)}\n\n{markdown_table(head, rows)}")


def _level(block: GradedAnswers, alpha: float, ks: list[int]) -> tuple[list[str], dict[str, Any]]:
    """One arm's avg@k with its two intervals, and pass@k of the same answers: for the table, and for the .json."""
    seeds, both = paired_t(block.score_S, alpha, scale=1.0), two_way(block.rate_SI, alpha, scale=1.0)
    right, answers = block.correct_SEI.ravel().astype(int), block.answers_SEI.ravel().astype(int)
    passed = {k: average(pass_at_k(right, answers, k).tolist()) or 0.0 for k in ks}
    mean = seeds.estimate or 0.0
    return [number(mean), _between(seeds), _between(both), *map(number, passed.values())], {
        "avg": mean,
        "new_seeds": None if seeds.low is None else [seeds.low, seeds.high],
        "new_seeds_and_problems": None if both.low is None else [both.low, both.high],
        "pass": passed,
    }


def _between(found: PairedT | TwoWay) -> str:
    """An interval of scores, which lie in 0..1; without one, why."""
    if found.low is None or found.high is None:
        return str(found.reason)
    return f"{number(max(found.low, 0.0))} to {number(min(found.high, 1.0))}"


def _difference(one: VarianceComponents) -> dict[str, Any]:
    seeds, both = one.over_seeds, one.crossed
    return {
        "estimate": both.estimate,
        "these_problems": None if seeds.low is None else [seeds.low, seeds.high],
        "new_problems_too": None if both.low is None else [both.low, both.high],
    }


def _width(part: VarianceComponents) -> float | None:
    low, high = part.over_seeds.low, part.over_seeds.high
    return None if low is None or high is None else high - low


def _ends(found: PairedT | TwoWay) -> str:
    return between(found.low, found.high, found.reason)


def _error(part: VarianceComponents) -> str:
    variance = part.crossed.variance
    return number(None if variance is None else float(np.sqrt(variance)), 2)


def _row(arm: str, runs: list[RunOutcome], seeds: Seeds, planned: int) -> list[Any]:
    counted = [run for run in runs if seeds.has(run)]
    return [
        arm,
        number(average(run.final for run in counted)),
        ", ".join(_seed(one) for one in runs) or "not begun",
        number(average(run.start for run in counted)),
        signed(average(run.gain for run in counted)),
        fell(counted),
        f"{sum(one.state == State.FINISHED for one in runs)} of {planned}",
        str(sum(one.errors for one in runs)),
    ]


def _counted_wrong(arm: str, runs: list[RunOutcome], seeds: Seeds) -> list[Any]:
    finals = [run.counted_wrong for run in runs]
    mean = average(run.counted_wrong for run in runs if seeds.has(run))
    return [f"{arm}, counted as wrong", number(mean), ", ".join(map(number, finals)), *[NONE] * 5]


def _seed(one: RunOutcome) -> str:
    if one.final is not None:
        return number(one.final)
    return f"({one.state}{'' if one.latest is None else f', at {number(one.latest)}'})"


def _data(runs: list[RunOutcome], seeds: Seeds) -> dict[str, Any]:
    counted = [run for run in runs if seeds.has(run)]
    return {
        "final": average(run.final for run in counted),
        "start": average(run.start for run in counted),
        "gain": average(run.gain for run in counted),
        "seeds": {
            str(one.seed): {
                "state": one.state,
                "start": one.start,
                "final": one.final,
                "final_counted_wrong": one.counted_wrong,
                "latest": one.latest,
                "collapse_step": None if one.stability is None else one.stability.collapse,
                "collapse_cause": None if one.stability is None else one.stability.cause,
                "carried": one.carried,
                "errors": one.errors,
            }
            for one in runs
        },
    }
