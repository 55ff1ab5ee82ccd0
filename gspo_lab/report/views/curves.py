"""The open figures: reward and score by compute, paired differences, clipped tokens, stability,
routing.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from gspo_lab.analysis.findings.clip_fractions import rule_arms, saturated
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.imported_metrics import imported_metrics
from gspo_lab.analysis.findings.paired_comparisons import compared
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, outcomes
from gspo_lab.analysis.findings.training_curves import AXES, course
from gspo_lab.analysis.readings import Source, summarise
from gspo_lab.analysis.readings.answers import benches as benches_of
from gspo_lab.analysis.readings.answers import scores as scores_of
from gspo_lab.analysis.readings.reading import CLIP
from gspo_lab.common.plain_data import JsonMapping, Strings
from gspo_lab.common.text import MINUS, difference, level
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.recording.store.records import step_rows
from gspo_lab.report.chart import Chart, Reference, Series
from gspo_lab.report.series import (
    DRAWN,
    ByRun,
    all_lines,
    axes,
    by_run,
    curve,
    pair_lines,
    points,
    sides_of,
    steps_of,
)
from gspo_lab.report.templating import format_number, percent, statement
from gspo_lab.report.views.view import View, by_id
from gspo_lab.study.contrast import side_names

BAND = (
    "Pairs are runs of one seed. Faint: pairs. Thick: their mean. Shaded: the {level} t interval at"
    " each point by itself. It is not a test: along a curve some point leaves such a band by"
    " chance."
)
REWARD = (
    "In the paper (2507.18071, Fig. 1: 30B-A3B, one run per arm) GSPO learns more than GRPO with"
    " routing replay from equal compute; it gives no end figures."
)
OTHER_FUNCTIONS = (
    "The logs do not name the same reward functions: levels of rewards are not compared."
)
CLIPPED = (Reference(0.15, "paper, GSPO: 15 %"), Reference(0.0013, "paper, GRPO: 0.13 %"))
"""The published shares of clipped response tokens: the values of claim C04."""
CLIPPING = (
    "The share of response tokens whose term the clip stops: A > 0 and ratio above the range, or A"
    " < 0 and ratio below it. Mean over the step's mini-batches. Dotted: the GSPO paper's values,"
    " read off a bar chart (2507.18071, sec. 5.2: 30B-A3B, 4 mini-batches). Zero has a row of its"
    " own at the bottom."
)
EXPERT_CHANGE = (Reference(0.10, "paper: about 10 %"),)
"""Claim C09."""
ROUTING = (
    "The share of activated experts that the router would now choose differently than under the old"
    " policy. Mean over the step's mini-batches. Dotted: the GSPO paper's value after one update"
    " (2507.18071, sec. 5.3: 30B-A3B)."
)
GRADIENT = (
    "All mini-batches. The sum of r |A| |e_y − p| over the tokens that the clip binds, divided by"
    " the same sum over all: what the clip takes from the update. Only the native engine records"
    " it."
)
STABLE = (
    "The share of an arm's runs that are still stable. A run leaves at the first step of its"
    " collapse or regression, and at the end if its final score is below half of its best one."
    " Counted: {runs}."
)
STABLE_AT_THE_END = (
    "The share of an arm's runs that stayed stable. All that did not were judged at their end:"
    " their final score is below half of their best one. Counted: {runs}."
)
FEW_ARMS = 4
"""A heading names no more arms than this one by one."""


@dataclass(frozen=True)
class CurvesView(View):
    """The figures that every study opens with, as far as they were measured; others are folded."""

    id = "curves"
    title = "Figures"
    figures: dict[str, Chart]
    opened: Strings
    """The ids of the figures that are not folded."""


def curves_view(study: Source) -> CurvesView:
    """The open figures of any study."""
    compared_names = pair(study) or ()
    arms = arm_pair(study) or ()
    scores = dict(_scores(study))
    primary = scores.pop(study.declaration.primary or "", None)
    if primary is not None:
        primary = replace(primary, finding=score_difference(study))
    opened = by_id(
        _focus_on(_reward(study), compared_names),
        _focus_on(primary, compared_names),
        _focus_on(_score_difference(study), compared_names),
        _focus_on(_clip_curve(study), arms),
        _focus_on(_clipped_gradient(study), arms),
        _focus_on(stable_chart(study), arms),
        _focus_on(_routing(study), arms),
    )
    rewards = None
    if not _rewards_differ(study):
        rewards = _difference(study, "reward", "Training reward", points(study, "reward_mean"))
    folded = by_id(*(_focus_on(chart, compared_names) for chart in (*scores.values(), rewards)))
    return CurvesView(opened | folded, tuple(opened))


def _focus_on(chart: Chart | None, arms: Strings) -> Chart | None:
    """A chart in which all other arms are grey."""
    return None if chart is None else replace(chart, focus=arms)


def _rewards_differ(study: Source) -> bool:
    """Whether the arms' logs may sum different reward functions."""
    logged = imported_metrics(study)
    return logged is not None and logged.rewards_differ


def _reward(study: Source) -> Chart:
    return curve(
        study,
        "reward_mean",
        "Training reward",
        id="m-reward",
        note=OTHER_FUNCTIONS if _rewards_differ(study) else REWARD,
        compute=True,
        finding=reward_difference(study),
    )


def _clip_curve(study: Source) -> Chart:
    return curve(
        study,
        CLIP_FRACTION,
        "Clipped tokens",
        id="m-clip",
        note=CLIPPING,
        log=True,
        references=CLIPPED,
        finding=clip_gap(study),
    )


def _clipped_gradient(study: Source) -> Chart | None:
    if not course(study).measured("clip_fraction_gradient"):
        return None
    return curve(
        study,
        "clip_fraction_gradient",
        "Clipped share of the gradient",
        note=GRADIENT,
    )


def _routing(study: Source) -> Chart | None:
    if not course(study).measured("expert_change"):
        return None
    return curve(
        study,
        "expert_change",
        "Expert change",
        note=ROUTING,
        references=EXPERT_CHANGE,
    )


def _scores(study: Source) -> Iterator[tuple[str, Chart]]:
    """Each benchmark's scores, beside each score what the run had consumed when it was evaluated:
    nothing before the first step."""
    recorded = {row["step"] - 1 for row in scores_of(study)}
    totals = list(AXES.values())
    spent = {
        (row["run_id"], row["step"] + 1): row
        for row in step_rows(study.evidence, study.study, totals, recorded)
    }
    offered = axes(study)[0]
    scores = []
    for row in scores_of(study):
        then = spent.get((row["run_id"], row["step"]), {})
        unknown = None if row["step"] else 0
        scores.append(row | {axis: then.get(total, unknown) for axis, total in offered.items()})
    for bench in benches_of(study):
        rows = [row for row in scores if row["bench"] == bench]
        by_arm = by_run(study, rows, "step", "score")
        chart = Chart(
            f"m-score-{bench}",
            f"Benchmark {bench}",
            "step",
            "score",
            all_lines(by_arm, sides_of(study, by_arm)),
            note=f"{_protocol(rows)}{DRAWN}",
            reach=(0.0, float(steps_of(study))),
            reading=f"score.{bench}",
        )
        yield bench, chart


def _protocol(rows: Sequence[JsonMapping]) -> str:
    """How many problems were asked how often; empty where a log does not say."""
    answers = max(row["answers"] or 0 for row in rows)
    problems = max(row["problems"] or 0 for row in rows)
    if not problems or not answers:
        return ""
    noun = "answer" if answers == problems else "answers"
    return f"{problems} held-out problems, {answers / problems:g} {noun} each. "


def _score_difference(study: Source) -> Chart | None:
    primary = study.declaration.primary
    rows = [row for row in scores_of(study) if row["bench"] == primary]
    by_score = by_run(study, rows, "step", "score")
    return _difference(study, f"score-{primary}", f"Benchmark {primary}", by_score)


def _difference(study: Source, name: str, title: str, by_arm: ByRun) -> Chart | None:
    """Arm minus baseline, pair by pair, or one side of a declared contrast minus the other; None
    for a sweep (its arms have no one baseline) and for a single arm."""
    declared = study.declaration
    baseline = declared.baseline
    subjects = list(declared.treatments)
    subject_name = "arm"
    if sides := sides_of(study, by_arm):
        by_arm = sides
        baseline, *subjects = sides
        subject_name = subjects[0]
    if declared.sweep is not None or not by_arm.get(baseline) or not subjects:
        return None
    series: list[Series] = []
    for arm in subjects:
        series += pair_lines(arm, by_arm[baseline], by_arm.get(arm, {}), declared.verdict.alpha)
    if not series:
        return None
    scored = name.startswith("score")
    last = steps_of(study) if scored else steps_of(study) - 1
    return Chart(
        f"m-{name}-difference",
        f"{title}: {subject_name} {MINUS} {baseline}",
        "step",
        "difference",
        tuple(series),
        reading="score.difference" if scored else "reward_mean.difference",
        note=BAND.format(level=level(declared.verdict.alpha)),
        reach=(0.0, float(max(1, last))),
    )


def unstable_from(run: RunOutcome, last: int) -> int | None:
    """The step from which on a run counts as unstable; None where it is stable to its end."""
    dated = None if run.stability is None else run.stability.unstable_at
    return last if dated is None and run.ended_below_half else dated


def stable_chart(study: Source) -> Chart | None:
    """The share of an arm's runs that are stable, over the steps at which runs became unstable."""
    last = steps_of(study)
    judged = _judged_runs(study)
    if not judged:
        return None
    counts = {}
    departures = {}
    for arm, runs in judged.items():
        counts[arm] = (sum(run.unstable for run in runs), len(runs))
        steps = [unstable_from(run, last) for run in runs]
        departures[arm] = sorted(step for step in steps if step is not None)
    groups = counts
    if len(counts) > FEW_ARMS:
        unstable, judged_runs = map(sum, zip(*counts.values(), strict=True))
        groups = {"all arms": (unstable, judged_runs)}
    finding = statement("unstable", groups)
    label = decision(study).runs.label()
    stabilities = [run.stability for run in chain(*judged.values())]
    if all(stable is None or stable.unstable_at is None for stable in stabilities):
        return _stable_at_the_end(counts, finding, STABLE_AT_THE_END.format(runs=label))
    series = []
    for arm, dates in departures.items():
        x = sorted({0, *dates, last})
        stays = tuple(1 - bisect_right(dates, place) / counts[arm][1] for place in x)
        series.append(Series(arm, tuple(map(float, x)), stays))
    return Chart(
        "m-stable",
        "Runs still stable",
        "step",
        "share of runs",
        tuple(series),
        note=STABLE.format(runs=label),
        steps=True,
        reach=(0.0, float(last)),
        reading="stable",
        finding=finding,
    )


def _judged_runs(study: Source) -> dict[str, list[RunOutcome]]:
    """The runs of the verdict's seeds that are long enough to be judged, by arm."""
    runs = decision(study).runs
    judged: dict[str, list[RunOutcome]] = {arm: [] for arm in study.arms}
    for run in outcomes(study, study.declaration.primary):
        if runs.has(run) and run.stability_judged and run.arm in judged:
            judged[run.arm].append(run)
    return {arm: members for arm, members in judged.items() if members}


def _stable_at_the_end(counts: dict[str, tuple[int, int]], finding: str, note: str) -> Chart:
    """The stable runs of each arm where nothing dates the others."""
    series = []
    for arm, (unstable, runs) in counts.items():
        series.append(Series(arm, (arm,), (1 - unstable / runs,)))
    return Chart(
        "m-stable",
        "Runs that stayed stable",
        "arm",
        "share of runs",
        tuple(series),
        kind="dots",
        note=note,
        reading="stable",
        finding=finding,
    )


def arm_pair(study: Source) -> tuple[str, str] | None:
    """The baseline and the arm that the study is about: GSPO's, else its first treatment. None for
    a sweep and one arm."""
    declared = study.declaration
    if declared.sweep is not None or not declared.treatments:
        return None
    rules = rule_arms(study)
    if rules is not None and rules[1] in declared.treatments:
        return declared.baseline, rules[1]
    return declared.baseline, next(iter(declared.treatments))


def pair(study: Source) -> tuple[str, str] | None:
    """What the study compares, by name: the sides of its contrast, else two arms."""
    rule = study.declaration.verdict
    return arm_pair(study) if rule.contrast is None else side_names(rule)


def score_difference(study: Source) -> str:
    """The pair's difference in final scores as its verdict states it; empty where there is none."""
    arms = arm_pair(study)
    decided = decision(study)
    verdict = decided.contrast
    if verdict is None and arms is not None:
        verdict = decided.verdicts.get(arms[1])
    if verdict is None or verdict.estimate is None or verdict.word == "no verdict":
        return ""
    ends = verdict.interval or (None, None)
    numbers = difference(verdict.estimate, ends, verdict.level, verdict.margin)
    return f"{verdict.subject} {MINUS} {verdict.baseline}, final score: {numbers}"


def reward_difference(study: Source) -> str:
    """The pair's difference in training reward, mean over the steps; of a contrast it is not
    tested.
    """
    names = pair(study)
    if names is None:
        return ""
    for result in compared(study):
        paired = result.paired
        if result.scalar.scored or result.arm != names[1] or paired.estimate is None:
            continue
        numbers = difference(paired.estimate, (paired.low, paired.high), paired.alpha, None)
        return f"{names[1]} {MINUS} {names[0]}, mean training reward: {numbers}"
    return ""


def clip_gap(study: Source) -> str:
    """How many times as many tokens GSPO's arm clips as GRPO's: the numbers of the answer's
    table."""
    arms = rule_arms(study)
    if arms is None or arm_pair(study) not in (arms, arms[::-1]):
        return ""
    seeds = decision(study).runs
    shares = [summarise(study, CLIP, arm, seeds).mean for arm in arms]
    low, high = shares
    if low is None or high is None:
        return ""
    text = f"{arms[1]} clips {percent(high, 2)} of the tokens, {arms[0]} {percent(low, 2)}"
    if not 0 < low < high:
        return text
    ceiling = "; its ceiling is reached" if saturated(study, arms[1]) else ""
    return f"{text}: {factor(high / low)} times as many (mini-batches ≥ 1{ceiling})"


def factor(ratio: float) -> str:
    """A ratio as a heading tells it: two digits, whole numbers from ten on."""
    return f"{ratio:,.0f}" if ratio >= 10 else format_number(ratio, 2)
