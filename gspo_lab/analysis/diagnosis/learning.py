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


@signal(
    "entropy",
    needs="the policy's entropy in 4 rows; in 19, to tell a collapse",
    usual="it falls as the reward rises; below a tenth of its start it has collapsed",
    source="2505.22617; the rule of every report (docs/explanation/reliability.md)",
)
def entropy(case: Case) -> Finding:
    """The entropy and its fall."""
    series = case.log.named("entropy")
    if series is None:
        return case.lacking("entropy", "entropy")
    value = f"{series.start:.3g} to {series.end:.3g} ({series.name})"
    if len(series) < FEW_ROWS:
        return Finding("ok", f"{value}; {len(series)} rows show no trend")
    onset = entropy_collapse(series.steps, series.values, len(series))
    if onset.step is not None:
        value += f": collapsed from step {onset.step} on"
        return Finding("error", value, case.setup.key("entropy"))
    if series.end < SMALL_ENTROPY * series.start:
        return Finding("warn", f"{value}: below a tenth of its start", case.setup.key("entropy"))
    if entropy_adrift(series.values)[-FEW_ROWS:].all():
        return Finding("warn", f"{value}: three times its start", case.setup.key("rate"))
    return Finding("ok", value)


@signal(
    "gradient",
    needs="the gradient's norm before clipping",
    usual="finite, not 0, and no row above 10 times the median",
    source="the bounds are gspo-lab's choice",
)
def gradient(case: Case) -> Finding:
    """Gradients that are not finite, absent or in spikes."""
    advice = f"{case.setup.key('gradient')}, {case.setup.key('rate')}"
    dead = case.log.named("nonfinite")
    if dead is not None and dead.values.any():
        step = dead.steps[np.argmax(dead.values > 0)]
        return Finding("error", f"loss or gradient not finite, first at step {step:g}", advice)
    norm = case.log.named("grad_norm")
    if norm is None:
        return case.lacking("gradient", "grad_norm")
    middle = float(np.median(norm.values))
    value = f"median {middle:.2g}, largest {norm.values.max():.2g} ({norm.name})"
    if middle == 0:
        value += ": 0 in half of the rows, which train nothing"
        return Finding("error", value, case.setup.key("groups"))
    if len(norm) > FEW_ROWS and norm.values.max() > SPIKE * middle:
        return Finding("note", f"{value}: spikes", advice)
    return Finding("ok", value)


@signal(
    "reward",
    needs="the mean reward in 19 rows",
    usual="its moving average keeps half of its gain (warning) and half of its best (error); a fall"
    " within 3 MAD of its noise is none",
    source="the rule of every report (docs/explanation/reliability.md)",
)
def reward(case: Case) -> Finding:
    """A reward that falls after its best."""
    series = case.log.named("reward_mean", "training reward")
    if series is None:
        return case.missing("reward")
    value = f"{series.start:.3g} to {series.end:.3g} ({series.name})"
    outcome = stability(series.steps, series.values, len(series))
    if not outcome.judged:
        return Finding("ok", f"{value}; not judged: {len(series)} rows, 19 are needed")
    value += f", best moving average {outcome.peak:.3g}"
    levels: dict[Level, int | None] = {"error": outcome.collapse, "warn": outcome.regression}
    for level, onset in levels.items():
        if onset is not None:
            advice = f"stop at the best score; {case.setup.key('rate')}, {case.setup.key('range')}"
            return Finding(level, f"{value}: it falls, from step {onset} on", advice)
    return Finding("ok", value)


@signal(
    "score",
    needs="a held-out score, and its number of answers",
    usual="100 answers or more",
    source="2504.07086: 5 to 15 points of sd over small evaluations; exact binomial interval",
)
def score(case: Case) -> Finding:
    """The benchmark's score that stands on the fewest answers."""
    scores = [_of_bench(case, name) for name in case.log.rows if name.startswith(SCORE)]
    if not scores:
        return case.missing("score")
    value, count = min(scores, key=lambda entry: entry[1] or np.inf)
    if count is None:
        return Finding("unknown", f"{value}; number of answers not recorded")
    if count < FEW_ANSWERS:
        return Finding("warn", value, case.setup.key("score"))
    return Finding("ok", value)


def _of_bench(case: Case, name: str) -> tuple[str, int | None]:
    """The last score of a benchmark with its interval, and the number of answers."""
    bench = name.removeprefix(SCORE)
    scores = list(case.log.rows[name].values())
    value = f"{bench} {scores[-1]:.3g}"
    recorded = case.log.named(f"answers/{bench}")
    count = consistent_count(scores) if recorded is None else int(recorded.values[-1])
    if count is None or not 0 <= scores[-1] <= 1:
        return value, None
    interval = clopper_pearson(round(scores[-1] * count), count)
    basis = "" if recorded else "perhaps, by its digits, "
    return f"{value} ({interval.low:.2f} to {interval.high:.2f}; {basis}{count} answers)", count
