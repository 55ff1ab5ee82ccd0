"""What a figure shows of its study, in a sentence: the headings of figures, computed from what they draw.

They describe the runs at hand, seed by seed; whether a difference is more than luck is for the verdict and
the claims to say.
"""

import math
from collections.abc import Callable, Iterable, Mapping

from gspo_lab.findings.clipped import saturated
from gspo_lab.readings import FINISHED, Source, average, read, runs
from gspo_lab.readings.named import CLIP_EVERYWHERE
from gspo_lab.report.chart import Chart
from gspo_lab.report.markup import number, percent, signed

Runs = Mapping[int | None, float]
"""Seed -> one number of a run."""

SHORTER = ", over the steps that both have"
NAMED = 4
"""A title names no more series than this one by one."""


def over_training(chart: Chart, baseline: str | None, *, times: bool) -> str:
    """How the mean of an arm's curve stands to the baseline's, seed by seed, of the arm that is farthest from it; empty
    where nothing can be compared. Runs of one seed are compared over the steps that both have: one may be ahead of the
    other. `times`: as a ratio, of what is above zero; else as a difference."""
    runs = _runs(chart)
    found = []
    for arm, own in runs.items():
        if arm == baseline or baseline not in runs:
            continue
        first, second, shorter = _over_common_steps(runs[baseline], own)
        if apart := _apart(first, second, times=times):
            found.append((_size(apart, times=times), arm, apart, shorter))
    if not found:
        return ""
    _, arm, apart, shorter = max(found, key=lambda one: one[0])
    return f"{chart.title}{SHORTER * shorter}: {_said(arm, str(baseline), apart, times=times)}"


def at_the_end(chart: Chart, what: str, baseline: str) -> str:
    """Of differences to the baseline: the arm that is farthest from it at the last step that its pairs have."""
    ended = {
        arm: (max(next(iter(own.values()))), {seed: run[max(run)] for seed, run in own.items()})
        for arm, own in _runs(chart).items()
        if own
    }
    if not ended:
        return ""
    arm = max(ended, key=lambda name: _size(ended[name][1], times=False))
    step, apart = ended[arm]
    return f"{what} at step {step:g}: {_said(arm, baseline, apart, times=False)}"


def clip_gap(of: Source, first: str, second: str) -> str:
    """How many times as many tokens the second arm clips as the first, in finished pairs, over all mini-batches."""
    values, shares = read(of, CLIP_EVERYWHERE), {first: dict[int | None, float](), second: dict[int | None, float]()}
    for run in runs(of, FINISHED, (first, second)):
        if (share := values[run.id].value) is not None:
            shares[run.arm][run.seed] = share
    low, high = (average(by_seed.values()) for by_seed in shares.values())
    if low is None or high is None:
        return ""
    if apart := _apart(shares[first], shares[second], times=True):
        grown = {seed: change for seed, change in apart.items() if change > 1}
        if len(grown) == len(apart):
            notes = [*_by_seed(apart, factor), *(["its ceiling is reached"] if saturated(of, second) else [])]
            noted = f" ({'; '.join(notes)})" if notes else ""
            return f"{second} clips {factor(_centre(apart, times=True))} times as many tokens as {first}{noted}"
    return f"{second} clips {percent(high, 2)} of the tokens, {first} {percent(low, 2) if low else 'none'}"


def from_first_to_last(chart: Chart) -> str:
    """Of the series that ends highest: its values in the first category that has any but zero, and in the last."""
    known = {label: [(x, y) for x, y in own if y] for label, own in _known(chart).items()}
    known = {label: own for label, own in known.items() if len(own) > 1}
    if not known:
        return ""
    label = max(known, key=lambda name: known[name][-1][1])
    (first, a), (last, b) = known[label][0], known[label][-1]
    return f"{chart.title}: {label} from {chart.shown(a)} on {first} to {chart.shown(b)} on {last}"


def one_over_other(chart: Chart) -> str:
    """How many times the first series' mean each other one's is, over the categories that have both."""
    first, *others = chart.means
    told = []
    for one in others:
        both = [(a, b) for a, b in zip(first.y, one.y, strict=True) if a is not None and b is not None]
        if both and all(a and b for a, b in both):
            told.append(f"{one.label} {_span([b / a for a, b in both])}")
    return f"{chart.title}: {', '.join(told)} times {first.label}" if told else ""


def first_above_zero(chart: Chart) -> str:
    """Per series the first category with any; of so many series that a title can name them."""
    first = {label: next((f"at {x}" for x, y in own if y > 0), "nowhere") for label, own in _known(chart).items()}
    told = [f"{label} first {where}" if where != "nowhere" else f"{label} {where}" for label, where in first.items()]
    return f"{chart.title}: {', '.join(told)}" if 0 < len(told) <= NAMED else ""


def each_best(chart: Chart) -> str:
    """Per series the category with the highest mean; of so many series that a title can name them."""
    best = {label: max(own, key=lambda one: one[1]) for label, own in _known(chart).items()}
    told = [f"{label} best at {x} ({chart.shown(y)})" for label, (x, y) in best.items()]
    return f"{chart.title}: {', '.join(told)}" if 0 < len(told) <= NAMED else ""


def _known(chart: Chart) -> dict[str, list[tuple[str, float]]]:
    """Per series with any value its categories and means, without those that are not known."""
    own = {s.label: [(str(x), y) for x, y in zip(s.x, s.y, strict=True) if y is not None] for s in chart.means}
    return {label: points for label, points in own.items() if points}


def over_length(chart: Chart) -> str:
    """How many times the value at the longest responses is that at the shortest, beside what the mean of independent
    token errors would do."""
    ends = [((_length(one.x[0]), one.y[0]), (_length(one.x[-1]), one.y[-1])) for one in chart.means if len(one.x) > 1]
    known = [(b / a, math.sqrt(short / long)) for (short, a), (long, b) in ends if a and b is not None]
    if not known:
        return ""
    seen, independent = (_span(own) for own in zip(*known, strict=True))
    return f"{chart.title}: {seen} times from the shortest to the longest (1/√length: {independent})"


def _length(place: float | str) -> float:
    return float(str(place).replace(",", ""))


def each_from_first_to_last(chart: Chart) -> str:
    """Per series its values in the first and the last category, where all have the same ones."""
    known = _known(chart)
    ends = {(own[0][0], own[-1][0]) for own in known.values()}
    if len(ends) != 1 or len(known) > NAMED:
        return ""
    (first, last) = ends.pop()
    told = [f"{label} {chart.shown(own[0][1], 2)} to {chart.shown(own[-1][1], 2)}" for label, own in known.items()]
    return "" if first == last else f"{chart.title}: {', '.join(told)} from {first} to {last} {chart.x_title}"


def largest(chart: Chart) -> str:
    """Of shares that fill a row: the largest part of each row."""
    parts = [
        [(y, one.label) for one in chart.means if (y := one.y[i]) is not None] for i in range(len(chart.categories))
    ]
    most = [max(own, key=lambda one: one[0]) for own in parts if own]
    if not most:
        return ""
    by_name = {name: [share for share, own in most if own == name] for _, name in most}
    told = [f"{name} {_span(own, lambda share: percent(share, 2))}" for name, own in by_name.items()]
    return f"{chart.title}: most by {', or '.join(told)}"


Courses = Mapping[int | None, Mapping[float, float]]
"""Seed -> place on the axis -> value, where it is known."""


def _runs(chart: Chart) -> dict[str, Courses]:
    """Per arm the curve of each run, or their mean where runs are not drawn; single points are marks, and left out."""
    out: dict[str, Courses] = {}
    for label in dict.fromkeys(series.label for series in chart.series):
        seeds = [one for one in chart.seeds if one.label == label and len(one.x) > 1]
        every = seeds or [one for one in chart.means if one.label == label]
        courses = {one.seed: {float(x): y for x, y in zip(one.x, one.y, strict=True) if y is not None} for one in every}
        out[label] = {seed: course for seed, course in courses.items() if course}
    return out


def _over_common_steps(first: Courses, second: Courses) -> tuple[Runs, Runs, bool]:
    """Both sides' means run by run over the places that a pair has in common, and whether a run has others beside."""
    means: tuple[dict[int | None, float], dict[int | None, float]] = ({}, {})
    shorter = False
    for seed in first:
        common = first[seed].keys() & second.get(seed, {}).keys()
        if common:
            for mean, course in zip(means, (first[seed], second[seed]), strict=True):
                mean[seed] = average(course[x] for x in sorted(common)) or 0.0
                shorter |= len(course) > len(common)
    return *means, shorter


def _apart(first: Runs, second: Runs, *, times: bool) -> dict[int | None, float]:
    """Seed by seed the second number over the first, or less the first; empty where a ratio has no meaning."""
    both = [seed for seed in first if seed in second]
    if times and any(first[seed] <= 0 or second[seed] <= 0 for seed in both):
        return {}
    return {seed: second[seed] / first[seed] if times else second[seed] - first[seed] for seed in both}


def _centre(apart: Runs, *, times: bool) -> float:
    values = [math.log(one) if times else one for one in apart.values()]
    mean = average(values) or 0.0
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
    return [f"by seed {_span(apart.values(), told)}"] if len(apart) > 1 else []


def _span(values: Iterable[float], told: Callable[[float], str] | None = None) -> str:
    low, high = (told or factor)(min(own := list(values))), (told or factor)(max(own))
    return low if low == high else f"{low} to {high}"


def above(difference: float, baseline: str) -> str:
    """How far above or below the baseline."""
    side = "above" if difference > 0 else "below" if difference < 0 else "on a level with"
    return f"{signed(abs(difference)).lstrip('+')} {side} {baseline}" if difference else f"{side} {baseline}"


def factor(value: float) -> str:
    """A ratio as a title tells it: two digits, whole numbers from ten on."""
    return f"{value:,.0f}" if value >= 10 else number(value, 2)
