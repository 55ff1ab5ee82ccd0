"""Collapse, regression and early signals: deterministic, the same code for every arm.

Steps are given beside every series, so that an onset is a training step and not a row number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gspo_lab.analysis.stats.array_checks import Bools, finite, same_length
from gspo_lab.analysis.stats.curve_summaries import ema
from gspo_lab.common.plain_data import OptionalFloat, OptionalInt

DECAY = 0.9
SMALL_ENTROPY = 0.1
"""The share of its start below which entropy has collapsed."""
FROZEN = 50
"""Steps after warm-up whose median and MAD serve as the fixed yardstick for signals."""


@dataclass(frozen=True)
class Stability:
    """The stability of a run's reward. Onsets are training steps; None: the event did not happen.

    `cause` of a collapse: "reward" or "non-finite". `window` (w) is the number of consecutive steps
    required. A collapse can begin only after the first w steps, which make the peak. With fewer
    than 2 w - 1 recorded steps `judged` is False, because a collapse could not show.
    """

    collapse: OptionalInt
    cause: str | None
    regression: OptionalInt
    peak: OptionalFloat
    start: OptionalFloat
    window: int
    judged: bool

    @property
    def unstable_at(self) -> OptionalInt:
        """The first step of its collapse or regression; None: it had neither."""
        steps = [step for step in (self.collapse, self.regression) if step is not None]
        return min(steps, default=None)


def required_steps(planned_steps: int) -> int:
    """max(10, 5 % of the planned steps)."""
    return max(10, int(np.ceil(0.05 * planned_steps)))


def stability(
    steps: ArrayLike, reward: ArrayLike, planned_steps: int, *, nonfinite_steps: Sequence[int] = ()
) -> Stability:
    """Regression: EMA(.9) of reward < peak - max(.5 (peak - start), 3 MAD) for w consecutive steps,
    the peak being the highest EMA so far. Collapse: such a window with EMA < .5 peak, or a
    non-finite update, whichever is first.

    start is the mean of the first w rewards, and the peak is taken from there on, so that a lucky
    first step is no peak; MAD is the raw median absolute deviation of reward - EMA. A peak below 0
    counts as peak - .5 |peak|.
    """
    steps_E = finite(steps, "steps")
    values = finite(reward, "reward")
    same_length(steps_E, values, "steps and reward")
    window = required_steps(planned_steps)
    fatal = min(nonfinite_steps, default=None)
    if len(values) < window:
        return Stability(
            fatal, None if fatal is None else "non-finite", None, None, None, window, False
        )
    smooth = ema(values, DECAY)
    start = float(values[:window].mean())
    peak = np.maximum.accumulate(np.concatenate([np.full(window - 1, start), smooth[window - 1 :]]))
    peak = np.maximum(peak, start)
    noise = values - smooth
    mad = float(np.median(np.abs(noise - np.median(noise))))
    # A constant reward does not fall by the rounding of its averages.
    fallen = smooth < peak - np.maximum(0.5 * (peak - start), 3 * mad + 1e-9 * np.abs(peak))
    halved = smooth < peak - 0.5 * np.abs(peak)

    regression = _first_window(fallen, window)
    by_reward = _first_window(fallen & halved, window)
    onset = None if by_reward is None else int(steps_E[by_reward])
    cause = None if onset is None else "reward"
    if fatal is not None and (onset is None or fatal <= onset):
        onset = int(fatal)
        cause = "non-finite"
    since = None if regression is None else int(steps_E[regression])
    return Stability(
        onset, cause, since, float(peak.max()), start, window, len(values) >= 2 * window - 1
    )


class Onset(NamedTuple):
    """The step at which a signal left its range, None if it never did; `judged` is False with too
    few steps to say.
    """

    step: OptionalInt
    judged: bool


def signal_onset(
    steps: ArrayLike, values: ArrayLike, warmup: int = 0, consecutive: int = 5
) -> Onset:
    """First step from which a signal stays outside median +- 5 MAD of the frozen window for
    `consecutive` steps.

    The lead of a signal is the reward's onset minus this.
    """
    steps_T = finite(steps, "steps")
    signal = finite(values, "signal")
    same_length(steps_T, signal, "steps and values")
    settled = np.flatnonzero(steps_T >= warmup)
    if len(settled) <= FROZEN:
        return Onset(None, False)
    later = np.zeros(len(steps_T), dtype=np.bool_)
    later[settled[FROZEN:]] = True
    frozen = signal[(steps_T >= warmup) & ~later]
    middle = np.median(frozen)
    outside = later & (np.abs(signal - middle) > 5 * np.median(np.abs(frozen - middle)))
    onset = _first_window(outside, consecutive)
    return Onset(None if onset is None else int(steps_T[onset]), True)


def entropy_collapse(steps: ArrayLike, entropy: ArrayLike, planned_steps: int) -> Onset:
    """First step from which the EMA(.9) of the token entropy is below 10 % of its start.

    It must stay there for w consecutive steps. w is the window of `stability`, and the start is the
    mean of the first w values. Not judged with fewer than 2 w - 1 values. arXiv 2505.22617 and the
    threads of users call this collapse; a reward may hold all the same."""
    steps_T = finite(steps, "steps")
    values = finite(entropy, "entropy")
    same_length(steps_T, values, "steps and entropy")
    window = required_steps(planned_steps)
    if len(values) < 2 * window - 1:
        return Onset(None, False)
    onset = _first_window(ema(values, DECAY) < SMALL_ENTROPY * values[:window].mean(), window)
    return Onset(None if onset is None else int(steps_T[onset]), True)


def length_pinned(truncated_share: float) -> bool:
    """Flag: more than 90 % of the responses are cut at the limit."""
    return truncated_share > 0.9


def entropy_adrift(entropy: ArrayLike) -> Bools:
    """Flag per step: token entropy above 300 % of its first value."""
    values = finite(entropy, "entropy")
    return np.asarray(values > 3 * values[:1], dtype=np.bool_)


def _first_window(holds: Bools, length: int) -> OptionalInt:
    """Index at which the first run of `length` consecutive True begins."""
    if len(holds) < length:
        return None
    so_far = np.concatenate([[0], np.cumsum(holds)])
    full = np.flatnonzero(so_far[length:] - so_far[:-length] == length)
    return int(full[0]) if len(full) else None
