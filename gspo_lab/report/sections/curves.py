"""The open figures: reward and score by compute, paired differences, clipped tokens, stability,
routing.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from gspo_lab.analysis.findings.clip_fractions import rule_arms, saturated
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.paired_comparisons import compared
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, outcomes
from gspo_lab.analysis.findings.sentences import unstable_counts
from gspo_lab.analysis.findings.training_curves import AXES, course
from gspo_lab.analysis.readings import FINISHED, Source, average, read, runs
from gspo_lab.analysis.readings.answers import benches as benches_of
from gspo_lab.analysis.readings.answers import scores as scores_of
from gspo_lab.analysis.readings.reading import CLIP_EVERYWHERE
from gspo_lab.common.text import MINUS, difference, level
from gspo_lab.recording.store.records import read_steps
from gspo_lab.report.chart import Chart, Reference, Series
from gspo_lab.report.markup import format_number, percent
from gspo_lab.report.section import CollapsibleSection, Section
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
CLIPPED = (Reference(0.15, "paper, GSPO: 15 %"), Reference(0.0013, "paper, GRPO: 0.13 %"))
"""Of all response tokens: the values of claim C04."""
CLIP = (
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
STABLE = (
    "The share of an arm's runs that are still stable. A run leaves at the first step of its"
    " collapse or regression, and at the end if its final score is below half of its best one."
    " Counted: {runs}."
)


FEW_ARMS = 4
"""A heading names no more arms than this one by one."""


def curves(study: Source) -> Section | None:
    """The five figures that every study opens with, as far as they were measured; all others are
    folded.
    """
    about = pair(study) or ()
    reward = curve(
        study,
        "reward_mean",
        "Training reward",
        "mean reward",
        id="m-reward",
        note=REWARD,
        compute=True,
        finding=reward_difference(study),
    )
    scores = dict(_scores(study))
    primary = scores.pop(study.declaration.primary or "", None)
    if primary is not None:
        primary = replace(primary, finding=score_difference(study))
    clip = curve(
        study,
        "clip_fraction_tokens",
        "Clipped tokens",
        "share of tokens",
        id="m-clip",
        note=CLIP,
        log=True,
        share=True,
        references=CLIPPED,
        finding=clip_gap(study),
    )
    routing = None
    if course(study).measured("expert_change"):
        routing = curve(
            study,
            "expert_change",
            "Expert change",
            "share of experts",
            note=ROUTING,
            whole=True,
            share=True,
            references=EXPERT_CHANGE,
        )
    of_primary = scores_of(study)[scores_of(study)["bench"] == study.declaration.primary]
    by_score = by_run(study, of_primary, "step", "score")
    apart = _difference(
        study,
        f"score-{study.declaration.primary}",
        f"Benchmark {study.declaration.primary}",
        by_score,
    )
    arms = arm_pair(study) or ()
    shown = [replace(chart, focus=about) for chart in (reward, primary, apart) if chart is not None]
    shown += [
        replace(chart, focus=arms) for chart in (clip, _stable(study), routing) if chart is not None
    ]
    folded = [
        *scores.values(),
        _difference(study, "reward", "Training reward", points(study, "reward_mean")),
    ]
    more = tuple(replace(chart, focus=about) for chart in folded if chart is not None)
    title = "Other benchmarks, and the difference in training reward"
    return Section(
        "curves", "Figures", (*shown, *([CollapsibleSection(title, more)] if more else []))
    )


def _scores(study: Source) -> Iterator[tuple[str, Chart]]:
    # Beside each score what the run had consumed when it was evaluated: nothing before the first
    # step.
    before = {int(step) - 1 for step in scores_of(study)["step"]}
    spent = read_steps(study.evidence, study.study, list(AXES.values()), at=before)
    spent = spent.assign(step=spent["step"] + 1)[["run_id", "step", *AXES.values()]]
    scores = scores_of(study).merge(spent, on=["run_id", "step"], how="left")
    scores.loc[scores["step"] == 0, list(AXES.values())] = 0.0
    scores = scores.rename(columns={total: axis for axis, total in axes(study)[0].items()})
    for bench in benches_of(study):
        rows = scores[scores["bench"] == bench]
        answers = rows["answers"].max()
        problems = rows["problems"].max()
        each = f"{answers / problems:g} answer{'' if answers == problems else 's'} each"
        by_arm = by_run(study, rows, "step", "score")
        series = all_lines(by_arm, sides_of(study, by_arm))
        note = f"{problems} held-out problems, {each}. {DRAWN}"
        yield (
            bench,
            Chart(
                f"m-score-{bench}",
                f"Benchmark {bench}",
                "step",
                "score",
                series,
                note=note,
                reach=(0.0, float(steps_of(study))),
                reading=f"score.{bench}",
            ),
        )


def _difference(study: Source, name: str, title: str, by_arm: ByRun) -> Chart | None:
    """Arm minus baseline, pair by pair, or one side of a declared contrast minus the other; None
    for a sweep (its arms have no one baseline) and for a single arm."""
    declared = study.declaration
    baseline = study.declaration.baseline
    subjects = study.declaration.treatments
    if both := sides_of(study, by_arm):
        by_arm = both
        (baseline, *subjects) = both
    if declared.sweep is not None or not by_arm.get(baseline) or not subjects:
        return None
    alpha = declared.verdict.alpha
    series = [
        line
        for arm in subjects
        for line in pair_lines(arm, by_arm[baseline], by_arm.get(arm, {}), alpha)
    ]
    last = steps_of(study) - (0 if name.startswith("score") else 1)
    if not series:
        return None
    title = f"{title}: {subjects[0] if both else 'arm'} {MINUS} {baseline}"
    reading = f"{'score' if name.startswith('score') else 'reward_mean'}.difference"
    return Chart(
        f"m-{name}-difference",
        title,
        "step",
        "difference",
        tuple(series),
        reading=reading,
        note=BAND.format(level=level(alpha)),
        reach=(0.0, float(max(1, last))),
    )


def unstable_from(run: RunOutcome, last: int) -> int | None:
    """The step from which on a run counts as unstable; None where it is stable to its end."""
    stable = run.stability
    first = (
        [step for step in (stable.collapse, stable.regression) if step is not None]
        if stable
        else []
    )
    return min(first, default=last if run.ended_below_half else None)


def _stable(study: Source) -> Chart | None:
    last = steps_of(study)
    counted = [
        run for run in outcomes(study, study.declaration.primary) if decision(study).runs.has(run)
    ]
    by_arm = {
        arm: [run for run in counted if run.arm == arm and run.stability_judged]
        for arm in study.arms
    }
    series = []
    for arm, judged in by_arm.items():
        left = sorted(step for run in judged if (step := unstable_from(run, last)) is not None)
        x = sorted({0, *left, last})
        stays = tuple(1 - bisect_right(left, place) / len(judged) for place in x) if judged else ()
        series += [Series(arm, tuple(map(float, x)), stays)] if judged else []
    counts = {
        arm: (sum(run.unstable for run in judged), len(judged))
        for arm, judged in by_arm.items()
        if judged
    }
    if not counts:
        return None
    about = arm_pair(study)
    note = STABLE.format(runs=decision(study).runs.label())
    if len(counts) > FEW_ARMS and about is not None:  # those of the pair, and the others' sum
        others = zip(*(count for arm, count in counts.items() if arm not in about), strict=True)
        unstable, known = map(sum, others)
        counts = {
            **{arm: counts[arm] for arm in about if arm in counts},
            "the other arms": (unstable, known),
        }
    return Chart(
        "m-stable",
        "Runs still stable",
        "step",
        "share of runs",
        tuple(series),
        note=note,
        whole=True,
        share=True,
        steps=True,
        reach=(0.0, float(last)),
        reading="stable",
        finding=unstable_counts(counts),
    )


def arm_pair(study: Source) -> tuple[str, str] | None:
    """The baseline and the arm that the study is about:

    GSPO's, else the first one. None for a sweep and one arm.
    """
    declared = study.declaration
    rules = rule_arms(study)
    if declared.sweep is not None or not declared.treatments:
        return None
    subject = (
        rules[1]
        if rules is not None and rules[1] in declared.treatments
        else next(iter(declared.treatments))
    )
    return declared.baseline, subject


def pair(study: Source) -> tuple[str, str] | None:
    """What the study compares, by name: the sides of its contrast, else two arms."""
    rule = study.declaration.verdict
    return arm_pair(study) if rule.contrast is None else side_names(rule)


def score_difference(study: Source) -> str:
    """The pair's difference in final scores as its verdict states it; empty where there is none."""
    about = arm_pair(study)
    decided = decision(study)
    verdict = decided.contrast or (None if about is None else decided.verdicts.get(about[1]))
    if verdict is None or verdict.estimate is None or verdict.word == "no verdict":
        return ""
    numbers = difference(
        verdict.estimate, verdict.interval or (None, None), verdict.level, verdict.margin
    )
    return f"{verdict.subject} {MINUS} {verdict.baseline}, final score: {numbers}"


def reward_difference(study: Source) -> str:
    """The pair's difference in training reward, mean over the steps; of a contrast it is not
    tested.
    """
    about = pair(study)
    rewards = (result for result in compared(study) if not result.scalar.scored)
    known = [result.paired for result in rewards if about and result.arm == about[1]]
    if about is None or not known or known[0].estimate is None:
        return ""
    numbers = difference(known[0].estimate, (known[0].low, known[0].high), known[0].alpha, None)
    return f"{about[1]} {MINUS} {about[0]}, mean training reward: {numbers}"


def clip_gap(study: Source) -> str:
    """How many times as many tokens GSPO's arm clips as GRPO's, in finished pairs, over all
    mini-batches.
    """
    arms = rule_arms(study)
    if arms is None or arm_pair(study) not in (arms, arms[::-1]):
        return ""
    first, second = arms
    shares: dict[str, dict[int, float]] = {first: {}, second: {}}
    for run in runs(study, FINISHED, (first, second)):
        if (share := read(study, CLIP_EVERYWHERE)[run.id].value) is not None:
            shares[run.arm][run.seed] = share
    low, high = (average(by_seed.values()) for by_seed in shares.values())
    if low is None or high is None:
        return ""
    both = shares[first].keys() & shares[second].keys()
    ratios = [
        shares[second][seed] / shares[first][seed] for seed in sorted(both) if shares[first][seed]
    ]
    if not both or len(ratios) < len(both) or min(ratios) <= 1:
        return f"{second} clips {percent(high, 2)} of the tokens, {first} {percent(low, 2)}"
    ceiling = "; its ceiling is reached" if saturated(study, second) else ""
    spread = (
        f"by seed {factor(min(ratios))} to {factor(max(ratios))}" if len(ratios) > 1 else "one seed"
    )
    times = factor(math.exp(average(map(math.log, ratios)) or 0.0))
    return (
        f"{second} clips {times} times as many tokens as {first} over all mini-batches"
        f" ({spread}{ceiling})"
    )


def factor(ratio: float) -> str:
    """A ratio as a heading tells it: two digits, whole numbers from ten on."""
    return f"{ratio:,.0f}" if ratio >= 10 else format_number(ratio, 2)
