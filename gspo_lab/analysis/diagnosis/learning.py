"""Signals of learning: entropy, gradient, reward and score."""

import numpy as np

from gspo_lab.analysis.diagnosis.log import ANSWERS, consistent_count
from gspo_lab.analysis.diagnosis.signals import Case, Finding, signal
from gspo_lab.analysis.stats.collapse import (
    SMALL_ENTROPY,
    entropy_adrift,
    entropy_collapse,
    stability,
)
from gspo_lab.analysis.stats.proportions import clopper_pearson

FEW_ROWS = 4
"""Fewer rows than this have no trend."""
SPIKE = 10.0
LUCK = 5.0
"""Standard deviations of the later rows within which a first row may lie above them by chance."""
FEW_ANSWERS = 100
SCORE = "score/"


@signal("entropy")
def entropy(case: Case) -> Finding:
    """The entropy and its fall."""
    series = case.log.first_of("entropy")
    if series is None or series.hidden:
        return case.not_recorded("entropy", "entropy")
    value = f"{series.start:.3g} to {series.end:.3g} ({series.name})"
    if series.values.min() < 0 or not series.values.any():
        return Finding("unknown", f"{value}: not the entropy of a policy that samples")
    if len(series) < FEW_ROWS:
        return Finding("ok", f"{value}; a trend needs {FEW_ROWS} rows")
    onset = entropy_collapse(series.steps, series.values, len(series))
    if onset.step is not None:
        value += f": collapsed from step {onset.step} on"
        return Finding("error", value, case.setup.keys("entropy"))
    if series.end < SMALL_ENTROPY * series.start:
        return Finding("warn", f"{value}: below a tenth of its start", case.setup.keys("entropy"))
    if entropy_adrift(series.values)[-FEW_ROWS:].all():
        return Finding("warn", f"{value}: three times its start", case.setup.keys("rate"))
    return Finding("ok", value)


@signal("gradient")
def gradient(case: Case) -> Finding:
    """Gradients that are not finite, absent or in spikes."""
    advice = case.setup.keys("gradient", "rate")
    dead = case.log.first_of("nonfinite")
    if dead is not None and dead.values.any():
        step = dead.steps[np.argmax(dead.values > 0)]
        return Finding("error", f"loss or gradient not finite, first at step {step:g}", advice)
    norm = case.log.first_of("grad_norm")
    if norm is None or norm.hidden:
        return case.not_recorded("gradient", "grad_norm")
    middle = float(np.median(norm.values))
    value = f"median {middle:.2g}, largest {norm.values.max():.2g} ({norm.name})"
    if middle == 0:
        value += ": 0 in half of the rows, which train nothing"
        return Finding("error", value, case.setup.keys("groups"))
    if len(norm) > FEW_ROWS and norm.values.max() > SPIKE * middle:
        return Finding("note", f"{value}: spikes", advice)
    return Finding("ok", value)


@signal("reward")
def reward(case: Case) -> Finding:
    """A reward that falls after its best."""
    names = ("reward_mean", "training reward")
    series = case.log.first_of(*names)
    if series is None or series.hidden:
        return case.not_recorded("reward", *names)
    value = f"{series.start:.3g} to {series.end:.3g} ({series.name})"
    if not series.values.any():
        value += ": 0 in all rows, which train nothing"
        return Finding("warn", value, case.setup.keys("groups"))
    outcome = stability(series.steps, series.values, len(series))
    if not outcome.judged:
        return Finding("ok", f"{value}; not judged: that needs 19 rows")
    value += f", best moving average {outcome.peak:.3g}"
    advice = f"stop at the best score; {case.setup.keys('rate', 'range')}"
    onset = outcome.unstable_at
    if onset is not None:
        value += f": it falls, from step {onset} on"
        return Finding("error" if outcome.collapse else "warn", value, advice)
    # A fall within the first rows, whose mean is the start there.
    first, *later = series.values
    if first - series.end > max(0.5 * abs(first), LUCK * np.std(later)):
        return Finding("warn", f"{value}: below half of the first row, {first:.3g}", advice)
    return Finding("ok", value)


@signal("score")
def score(case: Case) -> Finding:
    """The benchmark's score that stands on the fewest answers."""
    scores = [_of_bench(case, name) for name in case.log.rows if name.startswith(SCORE)]
    if not scores:
        return case.not_recorded("score")
    value, count = min(scores, key=lambda entry: entry[1] or np.inf)
    if count is None:
        return Finding("unknown", f"{value}; number of answers not recorded")
    if count < FEW_ANSWERS:
        return Finding("warn", value, case.setup.keys("score"))
    return Finding("ok", value)


def _of_bench(case: Case, name: str) -> tuple[str, int | None]:
    """The last score of a benchmark with its interval, and the number of answers."""
    bench = name.removeprefix(SCORE)
    scores = list(case.log.rows[name].values())
    value = f"{bench} {scores[-1]:.3g}"
    recorded = case.log.first_of(ANSWERS + bench)
    count = consistent_count(scores) if recorded is None else int(recorded.values[-1])
    if count is None or not 0 <= scores[-1] <= 1:
        return value, None
    interval = clopper_pearson(round(scores[-1] * count), count)
    basis = "" if recorded else "perhaps, by its digits, "
    return f"{value} ({interval.low:.2f} to {interval.high:.2f}; {basis}{count} answers)", count
