"""Signals of learning: entropy, gradient, reward and score."""

import numpy as np

from gspo_lab.analysis.diagnosis.log import consistent_count
from gspo_lab.analysis.diagnosis.signals import Case, Finding, Level, signal
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
FEW_ANSWERS = 100
SCORE = "score/"


@signal("entropy")
def entropy(case: Case) -> Finding:
    """The entropy and its fall."""
    series = case.log.first_of("entropy")
    if series is None:
        return case.not_recorded_or_rounded("entropy", "entropy")
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
    if norm is None:
        return case.not_recorded_or_rounded("gradient", "grad_norm")
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
    series = case.log.first_of("reward_mean", "training reward")
    if series is None:
        return case.not_recorded("reward")
    value = f"{series.start:.3g} to {series.end:.3g} ({series.name})"
    outcome = stability(series.steps, series.values, len(series))
    if not outcome.judged:
        return Finding("ok", f"{value}; not judged: that needs 19 rows")
    value += f", best moving average {outcome.peak:.3g}"
    levels: dict[Level, int | None] = {"error": outcome.collapse, "warn": outcome.regression}
    for level, onset in levels.items():
        if onset is not None:
            advice = f"stop at the best score; {case.setup.keys('rate', 'range')}"
            return Finding(level, f"{value}: it falls, from step {onset} on", advice)
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
    recorded = case.log.first_of(f"answers/{bench}")
    count = consistent_count(scores) if recorded is None else int(recorded.values[-1])
    if count is None or not 0 <= scores[-1] <= 1:
        return value, None
    interval = clopper_pearson(round(scores[-1] * count), count)
    basis = "" if recorded else "perhaps, by its digits, "
    return f"{value} ({interval.low:.2f} to {interval.high:.2f}; {basis}{count} answers)", count
