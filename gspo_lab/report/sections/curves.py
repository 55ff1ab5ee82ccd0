"""Training reward and benchmark scores as training goes, and how far each arm is ahead of the baseline."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gspo_lab.findings.compared import compared
from gspo_lab.findings.training_curves import AXES
from gspo_lab.readings import Source, runs
from gspo_lab.readings.answers import scores as scores_of
from gspo_lab.report.chart import Chart, Series, Value
from gspo_lab.report.frames import (
    MANY_RUNS,
    MEAN,
    MEAN_AND_RANGE,
    Points,
    axes,
    column,
    curve,
    groups,
    over_seeds,
    points,
    steps_of,
)
from gspo_lab.report.markup import signed
from gspo_lab.report.published import CURVES
from gspo_lab.report.section import Fold, Section
from gspo_lab.report.titles import above, at_the_end
from gspo_lab.stats.paired import LEAST_SEEDS, t_quantile
from gspo_lab.store.records import read_steps

UPPER = 0.975
BAND = (
    "Pairs are runs of one seed. Thin: one line per pair; thick: their mean. Shaded: the 95 % t interval at each point "
    "by itself, pointwise, not a test: along a curve some point leaves such a band by chance."
)


def curves(found: Source) -> Section | None:
    """The reward of every seed, one chart per benchmark, and the differences of the pairs."""
    primary = found.declaration.primary
    many = len(runs(found)) >= MANY_RUNS
    reward = curve(
        found,
        "reward_mean",
        id="m-reward",
        title="Training reward",
        unit="mean reward",
        note=" ".join([CURVES, *([] if many else [MEAN])]),
        compute=True,
    )
    reward = replace(reward, finding=_finding(found, reward, "training reward, area under its curve"))
    scores = _with_compute(found)
    charts = [
        Chart(
            f"m-score-{bench}",
            f"Benchmark {bench}",
            "step",
            "score",
            over_seeds(own, found.arms, "step", "score"),
            reach=(0.0, float(steps_of(found))),
            note=f"{_asked(own['problems'].max(), own['answers'].max())} {MEAN_AND_RANGE if many else MEAN}",
        )
        for bench, own in groups(scores, "bench")
    ]
    charts = [replace(one, finding=_finding(found, one, one.id.removeprefix("m-score-"))) for one in charts]
    charts.sort(key=lambda one: one.id != f"m-score-{primary}")
    decisive = scores[scores["bench"] == primary]
    differences = [
        _difference(found, "reward", "Training reward", points(found, "reward_mean"), steps_of(found) - 1),
        _difference(found, f"score-{primary}", f"Benchmark {primary}", _by_run(decisive), steps_of(found)),
    ]
    apart = tuple(chart for chart in differences if chart is not None and chart.series)
    title = f"Pair by pair: each arm less {found.declaration.baseline} over the steps"
    folds = (Fold("The other benchmarks", tuple(charts[1:])), Fold(title, apart))
    return Section("curves", "Learning curves", (reward, *charts[:1], *(fold for fold in folds if fold.body)))


def _finding(found: Source, chart: Chart, number: str) -> str:
    """The arm that is farthest from the baseline in a declared number of the runs, with its interval."""
    own = [one for one in compared(found) if one.scalar.name == number]
    apart = [(one.arm, one.paired) for one in own if one.paired.estimate is not None]
    if not apart or found.declaration.sweep is not None:
        return ""
    arm, paired = max(apart, key=lambda one: abs(one[1].estimate or 0.0))
    level = 100 * (1 - found.declaration.verdict.alpha)
    interval = f"{level:.3g} % interval {signed(paired.low)} to {signed(paired.high)}"
    what = "over the run" if chart.id == "m-reward" else "at the end"
    told = f" ({interval})" if paired.low is not None else ""
    return f"{chart.title}: {arm} {above(paired.estimate or 0.0, str(found.declaration.baseline))} {what}{told}"


def _asked(problems: int, answers: int) -> str:
    each = answers / problems
    return f"{problems} held-out problems, {each:g} answer{'' if each == 1 else 's'} each."


def _with_compute(found: Source) -> pd.DataFrame:
    """The scores, and beside each what the run had consumed when it was evaluated: nothing before the first step."""
    scores = scores_of(found)
    before = {int(step) - 1 for step in scores["step"]}
    spent = read_steps(found.evidence, found.study, list(AXES.values()), at=before)
    spent = spent.assign(step=spent["step"] + 1)[["run_id", "step", *AXES.values()]]
    both = scores.merge(spent, on=["run_id", "step"], how="left")
    both.loc[both["step"] == 0, list(AXES.values())] = 0.0
    return both.rename(columns={total: axis for axis, total in axes(found)[0].items()})


def _by_run(scores: pd.DataFrame) -> dict[str, dict[int, Points]]:
    out: dict[str, dict[int, Points]] = {}
    for (arm, seed), own in groups(scores, "arm", "seed"):
        x, y = (own[name].to_numpy(dtype=np.float64) for name in ("step", "score"))
        out.setdefault(str(arm), {})[int(seed)] = Points(x, y)
    return out


def _difference(found: Source, name: str, title: str, own: dict[str, dict[int, Points]], last: int) -> Chart | None:
    """Arm minus baseline, pair by pair; None for a sweep (its arms have no one baseline) and for a single arm."""
    declared, baseline = found.declaration, found.declaration.baseline
    if declared.sweep is not None or baseline not in own or not declared.treatments:
        return None
    series: list[Series] = []
    for colour, arm in enumerate(declared.arms):
        if arm != baseline:
            series += _pairs(arm, colour, own[baseline], own.get(arm, {}))
    shown = f"{title}: arm − {baseline}"
    reach = (0.0, float(max(1, last)))
    chart = Chart(f"m-{name}-difference", shown, "step", "difference", tuple(series), note=BAND, reach=reach)
    return replace(chart, finding=at_the_end(chart, title, baseline))


def _pairs(arm: str, colour: int, base: dict[int, Points], own: dict[int, Points]) -> list[Series]:
    """Every pair's difference at the steps that all pairs have, their mean, and from three pairs on the band."""
    begun = [{seed for seed, one in side.items() if np.isfinite(one.y).any()} for side in (base, own)]
    seeds = sorted(set.intersection(*begun))
    known = [one[seed] for seed in seeds for one in (base, own)]
    if not known:
        return []
    steps = known[0].x[np.isfinite(known[0].y)]
    for one in known[1:]:
        steps = np.intersect1d(steps, one.x[np.isfinite(one.y)])
    if not len(steps):
        return []

    def heights(one: Points) -> Any:
        there = np.isfinite(one.y)
        return one.y[there][np.searchsorted(one.x[there], steps)]

    apart = np.array([heights(own[seed]) - heights(base[seed]) for seed in seeds])
    x, label = tuple(steps.tolist()), arm
    low: tuple[Value, ...] = ()
    high: tuple[Value, ...] = ()
    if len(seeds) >= LEAST_SEEDS:
        half = t_quantile(len(seeds) - 1, UPPER) * apart.std(axis=0, ddof=1) / np.sqrt(len(seeds))
        low, high = column(apart.mean(axis=0) - half), column(apart.mean(axis=0) + half)
    thin = [Series(label, colour, x, column(row), seed=seed) for seed, row in zip(seeds, apart, strict=True)]
    lines = thin if 1 < len(seeds) < MANY_RUNS // 2 else []
    return [*lines, Series(label, colour, x, column(apart.mean(axis=0)), low=low, high=high)]
