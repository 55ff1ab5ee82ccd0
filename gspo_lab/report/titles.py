"""What a figure shows of its study, in a sentence: the headings of figures, computed from what they draw.

They describe the runs at hand, seed by seed; whether a difference is more than luck is for the verdict and
the claims to say.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from gspo_lab.findings.clipped import Clipped
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.markup import number, percent, signed

Runs = Mapping[int | None, float]
"""Seed -> one number of a run."""


def over_training(chart: Chart, baseline: str | None, *, times: bool) -> str:
    """How the mean of an arm's curve stands to the baseline's, seed by seed, of the arm that is farthest from it; empty
    where nothing can be compared. `times`: as a ratio, of what is above zero; else as a difference."""
    runs = _runs(chart)
    found = [
        (_size(apart, times=times), arm, apart)
        for arm, own in runs.items()
        if arm != baseline and baseline in runs and (apart := _apart(runs[baseline], own, times=times))
    ]
    if not found:
        return ""
    _, arm, apart = max(found, key=lambda one: one[0])
    return f"{chart.title}: {_said(arm, str(baseline), apart, times=times)}"


def clip_gap(clipped: Clipped, first: str, second: str, seeds: Sequence[int]) -> str:
    """How many times as many tokens the second arm clips as the first, over all mini-batches."""
    shares: dict[str, Runs] = {
        arm: {
            seed: share
            for seed in seeds
            if (share := clipped.share(arm, seeds=[seed], all_minibatches=True)) is not None
        }
        for arm in (first, second)
    }
    low, high = (sum(own.values()) / len(own) if own else None for own in shares.values())
    if low is None or high is None:
        return ""
    if apart := _apart(shares[first], shares[second], times=True):
        grown = {seed: change for seed, change in apart.items() if change > 1}
        if len(grown) == len(apart):
            notes = [*_by_seed(apart, factor), *(["its ceiling is reached"] if clipped.saturated(second) else [])]
            noted = f" ({'; '.join(notes)})" if notes else ""
            return f"{second} clips {factor(_centre(apart, times=True))} times as many tokens as {first}{noted}"
    return f"{second} clips {percent(high, 2)} of the tokens, {first} {percent(low, 2) if low else 'none'}"


def highest(chart: Chart) -> str:
    """The categories with the highest and the lowest mean."""
    means = {str(x): y for series in chart.means for x, y in zip(series.x, series.y, strict=True) if y is not None}
    if len(means) < 2 or len(set(means.values())) < 2:
        return ""
    top, bottom = max(means, key=lambda name: means[name]), min(means, key=lambda name: means[name])
    return f"{chart.title}: {top} highest at {chart.shown(means[top])}, {bottom} lowest at {chart.shown(means[bottom])}"


def from_first_to_last(chart: Chart) -> str:
    """Of the series that ends highest: its values in the first category that has any but zero, and in the last."""
    known = [(series, [(str(x), y) for x, y in zip(series.x, series.y, strict=True) if y]) for series in chart.means]
    known = [(series, points) for series, points in known if len(points) > 1]
    if not known:
        return ""
    series, points = max(known, key=lambda one: one[1][-1][1])
    (first, a), (last, b) = points[0], points[-1]
    return f"{chart.title}: {series.label} from {chart.shown(a)} on {first} to {chart.shown(b)} on {last}"


def one_over_other(chart: Chart) -> str:
    """How many times the first series' mean the second's is, over all categories."""
    first, second = chart.means[:2]
    both = [b / a for a, b in zip(first.y, second.y, strict=True) if a and b]
    if not both or len(both) < len(first.y):
        return ""
    low, high = factor(min(both)), factor(max(both))
    return f"{chart.title}: {second.label} {low if low == high else f'{low} to {high}'} times {first.label}"


def ahead(chart: Chart, first: str, second: str) -> str:
    """In how many pairs the second category is higher."""
    ends = [series.y for series in chart.seeds if len(series.y) == 2]
    pairs = [(a, b) for a, b in ends if a is not None and b is not None]
    more = sum(b > a for a, b in pairs)
    return f"{second} ends above {first} in {more} of {len(pairs)} pairs" if pairs else ""


def _runs(chart: Chart) -> dict[str, Runs]:
    """Per arm the mean of each run's curve; of single points, which are marks, none."""
    out: dict[str, Runs] = {}
    for label in dict.fromkeys(series.label for series in chart.series):
        seeds = [one for one in chart.seeds if one.label == label and len(one.x) > 1]
        every = seeds or [one for one in chart.means if one.label == label]
        out[label] = {one.seed: mean for one in every if (mean := _mean(one)) is not None}
    return out


def _mean(series: Series) -> float | None:
    known = [y for y in series.y if y is not None]
    return sum(known) / len(known) if known else None


def _apart(first: Runs, second: Runs, *, times: bool) -> dict[int | None, float]:
    """Seed by seed the second number over the first, or less the first; empty where a ratio has no meaning."""
    both = [seed for seed in first if seed in second]
    if times and any(first[seed] <= 0 or second[seed] <= 0 for seed in both):
        return {}
    return {seed: second[seed] / first[seed] if times else second[seed] - first[seed] for seed in both}


def _centre(apart: Runs, *, times: bool) -> float:
    values = [math.log(one) if times else one for one in apart.values()]
    mean = sum(values) / len(values)
    return math.exp(mean) if times else mean


def _size(apart: Runs, *, times: bool) -> float:
    centre = _centre(apart, times=times)
    return abs(math.log(centre)) if times else abs(centre)


def _said(arm: str, baseline: str, apart: Runs, *, times: bool) -> str:
    even = 1.0 if times else 0.0
    up, down = (sum(sign * (one - even) > 0 for one in apart.values()) for sign in (1, -1))
    if up and down:
        return f"{arm} is above {baseline} in {up} of {len(apart)} seeds"
    if not up and not down:
        return "the arms are alike"
    centre, by_seed = _centre(apart, times=times), _by_seed(apart, factor if times else signed)
    told = f"{factor(centre)} times {baseline}" if times else above(centre, baseline)
    return f"{arm} {told} ({by_seed[0]})" if by_seed else f"{arm} {told}"


def _by_seed(apart: Runs, told: Callable[[float], str]) -> list[str]:
    low, high = told(min(apart.values())), told(max(apart.values()))
    return [f"by seed {low if low == high else f'{low} to {high}'}"] if len(apart) > 1 else []


def above(difference: float, baseline: str) -> str:
    """How far above or below the baseline."""
    side = "above" if difference > 0 else "below" if difference < 0 else "on a level with"
    return f"{signed(abs(difference)).lstrip('+')} {side} {baseline}" if difference else f"{side} {baseline}"


def factor(value: float) -> str:
    """A ratio as a title tells it: two digits, whole numbers from ten on."""
    return f"{value:,.0f}" if value >= 10 else number(value, 2)
