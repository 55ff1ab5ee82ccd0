"""Does the verdict cry wolf? Thousands of studies in which nothing differs, through the production code.

What decides a user's study (`decide`, `two_way`, the curve scalars) is called here as it stands.
Three popular methods that are known to fail run beside it: if one of them passes, this check itself is broken.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator

from gspo_lab.errors import LabError
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.binary import Proportion, binomial_band, clopper_pearson
from gspo_lab.stats.paired import paired_t, welch
from gspo_lab.stats.series import last_fifth, normalised_auc
from gspo_lab.stats.simulate import NOISE, Arms, Benchmark, benchmark_scores, curves, scores
from gspo_lab.stats.two_way import two_way
from gspo_lab.stats.verdict import decide

LEAST_STUDIES = 100
RESAMPLES = 1000
CHUNK = 100
"""Studies drawn at once: bounds the memory."""

Expectation = Literal["inside the band", "at most the band", "must fail"]


@dataclass(frozen=True)
class Row:
    """One method on one kind of study.

    `rate`: share of all studies with a false alarm (the interval excludes the true difference, 0), with its 99 %
    Clopper-Pearson interval; `withheld` studies had no interval and raised none. `lowest`, `highest`: where the rate
    must lie, None where that side is free. `coverage`: share of the intervals given that hold the truth; it and
    `median_width` are None for a method that gives words.
    """

    cell: str
    method: str
    n: int
    studies: int
    rate: Proportion
    coverage: float | None
    median_width: float | None
    withheld: int
    expectation: Expectation
    lowest: float | None
    highest: float | None

    @property
    def passed(self) -> bool:
        """Whether the rate lies where it must; for a method that must fail, whether it did."""
        rate = self.rate.k / self.rate.n
        return (self.lowest is None or rate >= self.lowest) and (self.highest is None or rate <= self.highest)


@dataclass(frozen=True)
class Calibration:
    """All rows; `ok` when every one lies where it must, the negative controls among them."""

    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether every row passed."""
        return all(row.passed for row in self.rows)


def run_calibration(
    studies: int, rng: Generator, progress: Callable[[Row], None] | None = None, alpha: float = 0.05
) -> Calibration:
    """Run every cell with `studies` studies each; rates are held against the exact 99 % binomial band of alpha.

    A fixed seed makes a test of this: with seeds of your own a two-sided row leaves its band by chance once in 100
    times, and the two-way row on 400 x 4 items at n = 3, whose true rate is about .057, once in ten at 2,000 studies.
    2,000 studies take half a minute on one core; 300 take seconds and see only coarse faults.
    """
    if studies < LEAST_STUDIES:
        raise LabError(f"{studies} studies are too few to tell false-positive rates apart; use {LEAST_STUDIES} or more")
    rows = []
    for cell, own_rng in zip(CELLS, rng.spawn(len(CELLS)), strict=True):
        for row in _measure(cell, studies, own_rng, alpha):
            rows.append(row)
            if progress is not None:
                progress(row)
    return Calibration(tuple(rows))


class Outcome(NamedTuple):
    """What a method said of one study: a false alarm or not, and the width of its interval (None: it gives words)."""

    alarm: bool
    width: float | None


class Method(NamedTuple):
    """`judge(a, b, alpha, rng)` of one study, None without an interval; a method that must fail exceeds `least`."""

    name: str
    judge: Callable[[Floats, Floats, float, Generator], Outcome | None]
    expectation: Expectation
    least: float | None = None


class Cell(NamedTuple):
    """One kind of study, `draw(rng, studies=...)`, and the methods put to it."""

    name: str
    n: int
    draw: Callable[..., Arms]
    methods: tuple[Method, ...]


def _decided(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Outcome | None:
    paired = decide(a_S, b_S, margin=1.0, alpha=alpha).paired
    return _outcome(paired.low, paired.high)


def _words(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Outcome:
    """With b truly one margin ahead, "beyond margin", "equivalent" and "a is better" are all untrue."""
    verdict = decide(a_S, b_S + 1.0, margin=1.0, alpha=alpha, labels=("a", "b"))
    untrue = verdict.word in ("better beyond margin", "practically equivalent") or verdict.better == "a"
    return Outcome(untrue, None)


def _by_seed(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Outcome | None:
    return _decided(a_SI.mean(axis=1), b_SI.mean(axis=1), alpha, rng)


def _by_seed_and_item(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Outcome | None:
    both = two_way(b_SI - a_SI, alpha, scale=1.0)
    return _outcome(both.low, both.high)


def _by_area(a_ST: Floats, b_ST: Floats, alpha: float, rng: Generator) -> Outcome | None:
    steps = np.arange(a_ST.shape[1])
    a_S, b_S = (np.array([normalised_auc(steps, run_T) for run_T in arm_ST]) for arm_ST in (a_ST, b_ST))
    return _decided(a_S, b_S, alpha, rng)


def _by_tail(a_ST: Floats, b_ST: Floats, alpha: float, rng: Generator) -> Outcome | None:
    a_S, b_S = (np.array([last_fifth(run_T) for run_T in arm_ST]) for arm_ST in (a_ST, b_ST))
    return _decided(a_S, b_S, alpha, rng)


def _resampled_seeds(a_S: Floats, b_S: Floats, alpha: float, rng: Generator) -> Outcome | None:
    d_S = b_S - a_S
    means = d_S[rng.integers(len(d_S), size=(RESAMPLES, len(d_S)))].mean(axis=1)
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return _outcome(float(low), float(high))


def _items_only(a_SI: Floats, b_SI: Floats, alpha: float, rng: Generator) -> Outcome | None:
    items = paired_t((b_SI - a_SI).mean(axis=0), alpha)
    return _outcome(items.low, items.high)


def _steps_of_one_seed(a_ST: Floats, b_ST: Floats, alpha: float, rng: Generator) -> Outcome | None:
    steps = welch(a_ST[0, -100:], b_ST[0, -100:], alpha)
    return _outcome(steps.low, steps.high)


def _outcome(low: float | None, high: float | None) -> Outcome | None:
    return None if low is None or high is None else Outcome(low > 0 or high < 0, high - low)


EXACT = Method("paired t over seeds", _decided, "inside the band")
PAIRED = Method("paired t over seeds", _decided, "at most the band")
WORDS = Method("words, true difference = margin", _words, "at most the band")
BOOTSTRAP = Method("bootstrap over seeds", _resampled_seeds, "must fail", 0.15)
TWO_WAY = Method("two-way, seeds and items", _by_seed_and_item, "at most the band")
ITEM_MEANS = Method("paired t over seeds", _by_seed, "at most the band")
ITEMS_ONLY = Method("items only, seeds pooled", _items_only, "must fail", 0.15)
AREA = Method("area under the curve, paired t", _by_area, "at most the band")
TAIL = Method("last fifth, paired t", _by_tail, "at most the band")
ONE_SEED = Method("last 100 steps of one seed, Welch", _steps_of_one_seed, "must fail", 0.5)

NORMAL = {3: (EXACT, WORDS, BOOTSTRAP), 4: (EXACT, WORDS), 5: (EXACT, WORDS), 8: (EXACT, WORDS)}
BENCHMARKS = {
    "benchmark 30 x 16": (Benchmark(30, 16), (TWO_WAY, ITEM_MEANS)),
    "benchmark 400 x 4": (Benchmark(400, 4), (TWO_WAY, ITEM_MEANS, ITEMS_ONLY)),
    "benchmark 30 x 16, arms favour other items": (Benchmark(30, 16, arm_by_item=0.7), (TWO_WAY,)),
}
CURVES = {3: (AREA, TAIL, ONE_SEED), 5: (AREA, TAIL)}

CELLS = (
    *(
        Cell(f"score, {name}", n, partial(scores, noise=noise, seeds=n), methods if name == "normal" else (PAIRED,))
        for name, noise in NOISE.items()
        for n, methods in NORMAL.items()
    ),
    *(
        Cell(name, n, partial(benchmark_scores, bench=bench, seeds=n), methods)
        for name, (bench, methods) in BENCHMARKS.items()
        for n in (3, 5)
    ),
    *(Cell("curve, 500 steps", n, partial(curves, seeds=n), methods) for n, methods in CURVES.items()),
)


def _measure(cell: Cell, studies: int, rng: Generator, alpha: float) -> Iterator[Row]:
    outcomes: list[list[Outcome | None]] = [[] for _ in cell.methods]
    for done in range(0, studies, CHUNK):
        drawn = cell.draw(rng, studies=min(CHUNK, studies - done))
        for a, b in zip(drawn.a, drawn.b, strict=True):
            for kept, method in zip(outcomes, cell.methods, strict=True):
                kept.append(method.judge(a, b, alpha, rng))
    for kept, method in zip(outcomes, cell.methods, strict=True):
        yield _row(cell, method, kept, alpha)


def _row(cell: Cell, method: Method, outcomes: list[Outcome | None], alpha: float) -> Row:
    studies = len(outcomes)
    given = [outcome for outcome in outcomes if outcome is not None]
    widths = [outcome.width for outcome in given if outcome.width is not None]
    alarms = sum(outcome.alarm for outcome in given)
    band_low, band_high = binomial_band(alpha, studies)
    lowest, highest = {
        "inside the band": (band_low, band_high),
        "at most the band": (None, band_high),
        "must fail": (method.least, None),
    }[method.expectation]
    return Row(
        cell=cell.name,
        method=method.name,
        n=cell.n,
        studies=studies,
        rate=clopper_pearson(alarms, studies, level=0.99),
        coverage=1 - alarms / len(given) if widths else None,
        median_width=float(np.median(widths)) if widths else None,
        withheld=studies - len(given),
        expectation=method.expectation,
        lowest=lowest,
        highest=highest,
    )
