"""Signals of learning: entropy, gradient, reward and score."""

import numpy as np

from gspo_lab.analysis.diagnosis.log import TrainingLog, consistent_count
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
FEW_ANSWERS = 100
SCORE = "score/"


@signal(
    "entropy",
    needs="the policy's entropy in 4 rows; 19 to tell a collapse",
    usual="it falls as the reward rises; below a tenth of its start it has collapsed",
    source="2505.22617; docs/explanation/reliability.md",
)
def entropy(case: Case) -> Finding:
    """The entropy and its fall."""
    series = case.log.named("entropy", "ppo_actor/update/entropy/avg")
    series = series or case.log.quantity("entropy")
    if series is None:
        return case.lacking("entropy", "entropy")
    start = series.start()
    end = series.end()
    value = f"{start:.3g} to {end:.3g} nats per token ({series.name})"
    if len(series) < FEW_ROWS or start <= 0:
        return Finding("ok", f"{value}; {len(series)} rows show no trend")
    onset = entropy_collapse(series.steps, series.values, len(series))
    if onset.step is not None:
        return Finding(
            "error", f"{value}: collapsed from step {onset.step} on", case.setup.key("entropy")
        )
    if end < SMALL_ENTROPY * start:
        return Finding("warn", f"{value}: below a tenth of its start", case.setup.key("entropy"))
    if entropy_adrift(series.values)[-max(1, len(series) // 5) :].all():
        return Finding("warn", f"{value}: above three times its start", case.setup.key("rate"))
    return Finding("ok", value)


@signal(
    "gradient",
    needs="the gradient's norm before clipping",
    usual=f"finite, not 0, and no row above {SPIKE:g} times the median",
    source="the bounds are this program's choice",
)
def gradient(case: Case) -> Finding:
    """Gradients that are not finite, absent or in spikes."""
    dead = case.log.named("nonfinite")
    if dead is not None and dead.values.any():
        step = int(dead.steps[np.flatnonzero(dead.values)[0]])
        value = f"the loss or the gradient is not finite, first at step {step}"
        return Finding("error", value, f"{case.setup.key('rate')}, {case.setup.key('gradient')}")
    norm = case.log.named("grad_norm")
    if norm is None:
        return case.lacking("gradient", "grad_norm")
    middle = float(np.median(norm.values))
    value = f"median {middle:.2g}, largest {norm.values.max():.2g} ({norm.name})"
    empty = float(np.mean(norm.values == 0))
    if empty > 0.5:
        return Finding(
            "error",
            f"{value}: 0 in {100 * empty:.0f} % of the rows; nothing is trained",
            case.setup.key("groups"),
        )
    spikes = int((norm.values > SPIKE * middle).sum())
    if spikes and len(norm) > FEW_ROWS:
        value += f": {spikes} of {len(norm)} rows above {SPIKE:g} times the median"
        return Finding("note", value, f"{case.setup.key('gradient')}, {case.setup.key('rate')}")
    return Finding("ok", value)


@signal(
    "reward",
    needs="the mean reward in 19 rows",
    usual="its moving average keeps half of its gain, and half of its best",
    source="the rule of docs/explanation/reliability.md for every arm of a study",
)
def reward(case: Case) -> Finding:
    """A reward that falls after its best."""
    series = case.log.named("reward_mean") or case.log.quantity("training reward")
    if series is None:
        return case.missing("reward")
    value = f"{series.start():.3g} to {series.end():.3g} ({series.name})"
    outcome = stability(series.steps, series.values, len(series))
    if not outcome.judged or outcome.peak is None:
        return Finding("ok", f"{value}; not judged: {len(series)} rows, 19 are needed")
    value += f", best moving average {outcome.peak:.3g}"
    advice = f"stop at the best evaluation; {case.setup.key('rate')}, {case.setup.key('range')}"
    if outcome.collapse is not None:
        value += f": it lost half of its best, for good from step {outcome.collapse} on"
        return Finding("error", value, advice)
    if outcome.regression is not None:
        value += f": it lost half of its gain from step {outcome.regression} on"
        return Finding("warn", value, advice)
    return Finding("ok", value)


@signal(
    "score",
    needs="a held-out score, and its number of answers",
    usual=f"{FEW_ANSWERS} answers or more",
    source="2504.07086: 5 to 15 points of sd over small evaluations; exact binomial interval",
)
def score(case: Case) -> Finding:
    """A score that stands on few answers."""
    names = [name for name in case.log.rows if name.startswith(SCORE)]
    if not names:
        return case.missing("score")
    values = [_score_text(case.log, name) for name in names]
    few = [text for text, count in values if count is not None and count < FEW_ANSWERS]
    if few:
        return Finding("warn", "; ".join(few), case.setup.key("score"))
    unknown = [text for text, count in values if count is None]
    if unknown:
        return Finding("unknown", "; ".join(unknown[:3]), case.setup.recorded_by("score"))
    return Finding("ok", "; ".join(text for text, _ in values[:3]))


def _score_text(log: TrainingLog, name: str) -> tuple[str, int | None]:
    """The last score of a benchmark with its interval, and the number of answers."""
    bench = name.removeprefix(SCORE)
    numbers = list(log.rows[name].values())
    last = numbers[-1]
    recorded = log.named(f"answers/{bench}")
    count = int(recorded.values[-1]) if recorded is not None else None
    basis = f"{count} answers"
    if count is None:
        count = consistent_count(numbers)
        basis = f"all its scores are multiples of 1/{count}, so it may stand on as few answers"
    if count is None or not 0 <= last <= 1:
        return f"{bench} {last:.3g}; number of answers not recorded", None
    interval = clopper_pearson(round(last * count), count)
    return f"{bench} {last:.3g} ({interval.low:.2f} to {interval.high:.2f}; {basis})", count
