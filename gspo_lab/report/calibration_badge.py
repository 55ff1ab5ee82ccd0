"""How often the verdict's rule is wrong when nothing differs, as measured on this code; the section with all rates."""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gspo_lab.readings import Source
from gspo_lab.report.chart import Section
from gspo_lab.report.markup import h, table
from gspo_lab.stats import simulation_cells as cells
from gspo_lab.stats.simulate import UNEVEN
from gspo_lab.stats.simulation_cells import Method
from gspo_lab.stats.verdict import Comparison

HEAD = ("kind of study", "pairs", "reading", "share of studies", "99 % interval")
MUST_FAIL = "must fail"
ALPHA = 0.05
"""The simulated studies were judged at this level; of others nothing was measured."""


@functools.cache
def record() -> dict[str, Any]:
    """What `gspo-lab calibrate --json` printed of the code of this version: `calibration.json` in this package."""
    return dict(json.loads(Path(__file__).with_name("calibration.json").read_text(encoding="utf-8")))


def calibration(study: Source) -> Section | None:
    """The rates of this report's rules, and of common analyses that fail; None where no score decides."""
    if study.declaration.primary is None or len(study.arms) < 2:
        return None
    about = (
        f"{record()['studies']:,} simulated studies a row whose truth is known, judged by the code that judged this "
        "study. A valid rule is wrong in 5 % of them or fewer; the rows of true equivalence show how often the rule "
        "says so. gspo-lab calibrate runs it all again."
    )
    rows: dict[bool, list[tuple[str, ...]]] = {True: [], False: []}
    for row in record()["rows"]:
        rate, ends = f"{row['rate']:.3f}", f"{row['rate_low']:.3f} to {row['rate_high']:.3f}"
        rows[row["expectation"] == MUST_FAIL].append((row["cell"], str(row["n"]), row["method"], rate, ends))
    body = (
        h("p", about),
        table(HEAD, rows[True], caption="Common analyses with inflated false-positive rates"),
        h("details", h("summary", f"This report's rules, {len(rows[False])} rows"), table(HEAD, rows[False])),
    )
    return Section("calibration", "Calibration", body)


def calibration_lines(verdicts: Sequence[Comparison]) -> list[str]:
    """Per kind of verdict, and of several arms and of looks, its own measured rate in one line each;
    none where nothing was measured (n < 3, another alpha)."""
    n, alpha, family = max(verdict.paired.n for verdict in verdicts), verdicts[0].alpha, len(verdicts)
    looks = verdicts[0].rule.looks
    lines = [
        calibration_line(n, alpha),
        _row_line(n, alpha, cells.HOLM, f"with any of {family} arms called better", arms=family)
        if family > 1
        else None,
        _row_line(looks[-1], alpha, cells.LOOKED, "over all looks (after 5 and 8 seeds)") if len(looks) > 1 else None,
        any(verdict.word == "practically equivalent" for verdict in verdicts) and _equivalence_line(n, alpha),
    ]
    return [line for line in lines if line]


def calibration_line(n: int, alpha: float) -> str | None:
    """The plain interval's false alarms at `n` pairs in one line; None where it was never measured."""
    rows = _rows(n, alpha, lambda row: row["method"] == cells.PAIRED.name and row["cell"].startswith("score"))
    if not rows:
        return None
    shares = {row["cell"]: row["rate"] for row in rows}
    uneven = ""
    if (rates := _uneven_rates(n, alpha, cells.UNEVEN_PAIRED)) is not None:
        uneven = (
            f"; {_percent(rates[1])} where 15 % of the runs of only one arm are unstable, {_percent(rates[2])} where "
            f"only one arm is skewed ({rates[0]} pairs, means equal)"
        )
    return (
        f"Calibrated: {_percent(shares['score, normal'])} false alarms in {record()['studies']:,} simulated studies of "
        f"{rows[0]['n']} pairs without a difference, at most {_percent(max(shares.values()))} where both arms are "
        f"alike skewed, heavy-tailed or collapsing, or one is noisier{uneven}"
    )


def uneven_line(verdict: Comparison) -> str | None:
    """Beside a "better" that rests on arms with unstable runs: how often it is said there though the means are equal.

    No rule on few pairs keeps alpha there: where none of an arm's runs happens to be unstable, its scores look like
    those of a better arm. None for other words, without unstable runs, and where nothing was measured.
    """
    if verdict.better is None or not any(k for k, _ in verdict.unstable or ()):
        return None
    looks = verdict.rule.looks
    methods = (
        (cells.UNEVEN_HOLM, cells.UNEVEN_LOOKED) if verdict.family > 1 else (cells.UNEVEN_PAIRED, cells.UNEVEN_LOOKED)
    )
    if verdict.question == "contrast":
        methods = (cells.UNEVEN_CONTRAST, cells.UNEVEN_CONTRAST_LOOKED)
    elif verdict.rule.order:
        methods = (cells.UNEVEN_ORDER, cells.UNEVEN_ORDER_LOOKED)
    method = methods[len(looks) > 1]
    rates = _uneven_rates(looks[-1] if len(looks) > 1 else verdict.paired.n, verdict.alpha, method)
    if not rates:
        return None
    n, unstable, *skewed = rates
    return (
        f"runs are unstable here: in simulated studies of {n} pairs with equal means 'better' is said in "
        f"{_percent(unstable)} where 15 % of one arm's runs are unstable"
        + "".join(f", in {_percent(rate)} where one arm is skewed" for rate in skewed)
    )


def _uneven_rates(n: int, alpha: float, method: Method) -> tuple[Any, ...] | None:
    """Pairs, and the rates where one arm alone has unstable runs and, if simulated, where its scores are skewed."""
    rows = _rows(n, alpha, lambda row: row["method"] == method.name)
    rates = [row["rate"] for name in UNEVEN for row in rows if name in row["cell"]]
    return (rows[0]["n"], *rates) if rows else None


def _row_line(n: int, alpha: float, method: Method, what: str, arms: int = 0) -> str | None:
    """The worst of a method's rows; of cells that name a number of arms, those nearest to `arms`."""
    rows = _rows(n, alpha, lambda row: row["method"] == method.name)
    if arms and rows:
        nearest = min((int(row["cell"].split()[0]) for row in rows), key=lambda size: abs(size - arms))
        rows = [row for row in rows if int(row["cell"].split()[0]) == nearest]
        what += f" ({nearest} simulated)"
    return f"{_percent(max(row['rate'] for row in rows))} false alarms {what}, {rows[0]['n']} pairs" if rows else None


def _equivalence_line(n: int, alpha: float) -> str | None:
    wrong = _rows(n, alpha, lambda row: row["method"] == cells.AT_MARGIN.name)
    right = [row["rate"] for row in _rows(n, alpha, lambda row: row["method"] == cells.AT_ZERO.name)]
    return None if not wrong else (
        f"'Equivalent within the margin' was concluded of arms that differ by the margin in at most "
        f"{_percent(max(row['rate'] for row in wrong))} of the studies of {wrong[0]['n']} pairs, of arms that do not "
        f"differ in {_percent(min(right))} to {_percent(max(right))}, by their noise"
    )  # fmt: skip


def _rows(n: int, alpha: float, holds: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """The wanted rows with the most pairs that are no more than `n`; none where alpha is not the simulated one."""
    rows = [row for row in record()["rows"] if holds(row) and row["n"] <= n and alpha == ALPHA]
    return [row for row in rows if row["n"] == max(row["n"] for row in rows)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
