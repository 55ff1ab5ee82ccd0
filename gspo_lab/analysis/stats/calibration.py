"""How often is the verdict untrue? Thousands of studies whose truth is known, judged by the
production code.

`simulation_cells.py` has the kinds of study and their judges: the code that decides users' studies,
and beside it popular methods that are known to fail. If one of those passes, this check itself is
broken. `error_rates.csv` of this folder has the counts that reports state.
"""

import csv
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import cast

from numpy.random import Generator

from gspo_lab.analysis.stats.proportions import Proportion, binomial_band, clopper_pearson
from gspo_lab.analysis.stats.simulation_cells import CELLS, Cell, Conclusion, Expectation, Method
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject, OptionalFloat

ALPHA = 0.05
"""The level at which the simulated studies are judged."""
STUDIES = 2000
"""Simulated studies per row of the recorded rates."""
SEED = 20250724
"""The seed of the recorded rates.

It is fixed, so that the table is a test: with other seeds a two-sided row leaves its band by chance
once in a hundred times.
"""
LEAST_STUDIES = 100
CHUNK = 100
"""Studies drawn at once: bounds the memory."""
COLUMNS = ("cell", "n", "method", "expectation", "false_words", "for_baseline", "for_treatment")
"""The columns of the table of recorded rates."""


@dataclass(frozen=True)
class CalibrationRow:
    """One method on one kind of study.

    `false_words` counts the studies with an untrue word, or with an interval that misses the true
    difference. `for_baseline` and `for_treatment` count those that favour one side; words without
    a direction are in neither. For a row "power" `false_words` counts the true answers.
    """

    cell: str
    n: int
    method: str
    expectation: Expectation
    studies: int
    false_words: int
    for_baseline: int
    for_treatment: int

    @property
    def rate(self) -> Proportion:
        """The share of all studies with a false word, with its 99 % interval."""
        return clopper_pearson(self.false_words, self.studies, level=0.99)

    @property
    def share(self) -> float:
        """The share of all studies with a false word."""
        return self.false_words / self.studies

    @property
    def limits(self) -> tuple[OptionalFloat, OptionalFloat]:
        """The lowest and the highest allowed rate, None where that side is free: ends of the exact
        99 % binomial band of alpha; of a method that must fail 1.5 alpha.
        """
        low, high = binomial_band(ALPHA, self.studies)
        return {
            "inside the band": (low, high),
            "at most the band": (None, high),
            "at most half": (None, binomial_band(ALPHA / 2, self.studies)[1]),
            "must fail": (1.5 * ALPHA, None),
        }.get(self.expectation, (None, None))

    @property
    def passed(self) -> bool:
        """Whether the rate lies where it must; for a method that must fail, whether it did."""
        lowest, highest = self.limits
        return (lowest is None or self.share >= lowest) and (
            highest is None or self.share <= highest
        )

    def to_json(self) -> JsonObject:
        """Plain data, as `gspo-lab certify --rule --json` prints it."""
        lowest, highest = self.limits
        return {
            **vars(self),
            "rate": self.share,
            "rate_low": self.rate.low,
            "rate_high": self.rate.high,
            "lowest": lowest,
            "highest": highest,
            "passed": self.passed,
        }


@functools.cache
def recorded_rates() -> tuple[CalibrationRow, ...]:
    """The measured rates that reports state; `benchmarks/error_rates.py` measures them again."""
    text = resources.files(__package__).joinpath("error_rates.csv").read_text(encoding="utf-8")
    rows = []
    for row in csv.DictReader(text.splitlines()):
        counts = (int(row[name]) for name in COLUMNS[-3:])
        expectation = cast(Expectation, row["expectation"])
        rows.append(
            CalibrationRow(row["cell"], int(row["n"]), row["method"], expectation, STUDIES, *counts)
        )
    return tuple(rows)


def run_calibration(
    studies: int,
    rng: Generator,
    progress: Callable[[CalibrationRow], None] | None = None,
    cells: Sequence[Cell] = CELLS,
) -> tuple[CalibrationRow, ...]:
    """The rates of every cell, of `studies` studies each.

    2,000 studies take four minutes on one core; 300 take seconds and see only coarse faults.
    """
    if studies < LEAST_STUDIES:
        raise LabError(
            f"{studies} studies are too few to tell false-positive rates apart; use {LEAST_STUDIES}"
            " or more"
        )
    rows = []
    for cell, own_rng in zip(cells, rng.spawn(len(cells)), strict=True):
        for row in _measure(cell, studies, own_rng):
            rows.append(row)
            if progress is not None:
                progress(row)
    return tuple(rows)


def _measure(cell: Cell, studies: int, rng: Generator) -> Iterator[CalibrationRow]:
    conclusions: dict[Method, list[Conclusion]] = {method: [] for method in cell.methods}
    for start in range(0, studies, CHUNK):
        drawn = cell.draw(rng, studies=min(CHUNK, studies - start))
        for a, b in zip(drawn.a, drawn.b, strict=True):
            for method in cell.methods:
                conclusions[method].append(method.judge(a, b, ALPHA, rng))
    for method, concluded in conclusions.items():
        counts = (sum(column) for column in zip(*concluded, strict=True))
        yield CalibrationRow(cell.name, cell.n, method.name, method.expectation, studies, *counts)
