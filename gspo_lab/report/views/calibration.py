"""Measured error rates of this report's rules, in a table and in the lines beside a verdict."""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.stats import Comparison
from gspo_lab.analysis.stats import simulation_cells as cells
from gspo_lab.analysis.stats.simulation_cells import UNEVEN, Method
from gspo_lab.analysis.stats.verdict import EQUIVALENT
from gspo_lab.report.views.view import PageOnly, View

MUST_FAIL = "must fail"
ALPHA = 0.05
"""The simulated studies were judged at this level; of others nothing was measured."""


@functools.cache
def record() -> dict[str, Any]:
    """What `gspo-lab certify --rule --json` printed of the code of this version: calibration.json
    of the package `gspo_lab.report`.
    """
    path = Path(__file__).parents[1] / "calibration.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class CalibrationView(View):
    """The rates of this report's rules, and of common analyses that fail."""

    id = "calibration"
    title = "Calibration"
    studies: PageOnly[int]
    failing: PageOnly[list[list[str]]]
    """Kind of study, pairs, reading, rate, its interval."""
    rules: PageOnly[list[list[str]]]


def calibration_view(study: Source) -> CalibrationView | None:
    """None where no score decides."""
    if study.declaration.primary is None or len(study.arms) < 2:
        return None
    failing = []
    rules = []
    for row in record()["rows"]:
        interval = f"{_percent(row['rate_low'])} to {_percent(row['rate_high'])}"
        cell = [row["cell"], str(row["n"]), row["method"], _percent(row["rate"]), interval]
        if row["expectation"] == MUST_FAIL:
            failing.append(cell)
        else:
            rules.append(cell)
    return CalibrationView(record()["studies"], failing, rules)


def calibration_lines(
    verdicts: Sequence[Comparison], contrast: Comparison | None = None
) -> list[str]:
    """Per kind of verdict, of a contrast, of several arms and of looks, its own measured rate in
    one line each; none where nothing was measured (n < 3, another alpha)."""
    n = max(verdict.paired.n for verdict in verdicts)
    alpha = verdicts[0].alpha
    family = len(verdicts)
    looks = verdicts[0].rule.looks
    lines = []
    if contrast is not None:
        lines.append(_contrast_line(contrast.paired.n, alpha, looked=len(looks) > 1))
    lines.append(calibration_line(n, alpha))
    if family > 1:
        about = f"with any of {family} arms called better"
        lines.append(_row_line(n, alpha, cells.HOLM, about, arms=family))
    if len(looks) > 1:
        about = "over all looks (after 5 and 8 seeds)"
        lines.append(_row_line(looks[-1], alpha, cells.LOOKED, about))
    if any(verdict.word == EQUIVALENT for verdict in verdicts):
        lines.append(_equivalence_line(n, alpha))
    return [line for line in lines if line]


def keeps_alpha(verdicts: Sequence[Comparison]) -> bool:
    """Whether no error rate that `calibration_lines` states lies above alpha."""
    n = max(verdict.paired.n for verdict in verdicts)
    alpha = verdicts[0].alpha
    looks = verdicts[0].rule.looks
    methods = [(cells.PAIRED, n), (cells.UNEVEN_PAIRED, n), (cells.AT_MARGIN, n)]
    if len(verdicts) > 1:
        methods.append((cells.HOLM, n))
    if len(looks) > 1:
        methods.append((cells.LOOKED, looks[-1]))
    rates = []
    for method, pairs in methods:
        rates += [row["rate"] for row in _rows(method, pairs, alpha)]
    return max(rates, default=0.0) <= alpha


def calibration_line(n: int, alpha: float) -> str | None:
    """The plain interval's false alarms at `n` pairs in one line; None where it was never
    measured.
    """
    rows = [row for row in _rows(cells.PAIRED, n, alpha) if row["cell"].startswith("score")]
    if not rows:
        return None
    shares = {row["cell"]: row["rate"] for row in rows}
    normal = shares.pop("score, normal")
    uneven = ""
    rates = _uneven_rates(n, alpha, cells.UNEVEN_PAIRED)
    if rates is not None:
        pairs, unstable, skewed = rates
        uneven = (
            f"; {_percent(unstable)} where 15 % of the runs of only one arm are unstable,"
            f" {_percent(skewed)} where only one arm is skewed ({pairs} pairs, means equal)"
        )
    return (
        f"Calibrated: {_percent(normal)} false alarms in {record()['studies']:,} simulated studies"
        f" of {rows[0]['n']} pairs without a difference, at most {_percent(max(shares.values()))}"
        f" where both arms are alike skewed, heavy-tailed or collapsing, or one is noisier{uneven}"
    )


def uneven_line(verdict: Comparison) -> str | None:
    """Beside a "better" that rests on arms with unstable runs: how often it is said there though
    the means are equal.

    No rule on few pairs keeps alpha there: where none of an arm's runs happens to be unstable, its
    scores look like those of a better arm. None for other words, without unstable runs, and where
    nothing was measured.
    """
    if verdict.better is None or not any(count for count, _ in verdict.unstable or ()):
        return None
    looks = verdict.rule.looks
    looked = len(looks) > 1
    if verdict.question == "contrast":
        method = cells.UNEVEN_CONTRAST_LOOKED if looked else cells.UNEVEN_CONTRAST
    elif verdict.rule.order:
        method = cells.UNEVEN_ORDER_LOOKED if looked else cells.UNEVEN_ORDER
    elif looked:
        method = cells.UNEVEN_LOOKED
    else:
        method = cells.UNEVEN_HOLM if verdict.family > 1 else cells.UNEVEN_PAIRED
    pairs = looks[-1] if looked else verdict.paired.n
    rates = _uneven_rates(pairs, verdict.alpha, method)
    if not rates:
        return None
    n, unstable, *skewed = rates
    text = (
        f"runs are unstable here: in simulated studies of {n} pairs with equal means 'better' is"
        f" said in {_percent(unstable)} where 15 % of one arm's runs are unstable"
    )
    for rate in skewed:
        text += f", in {_percent(rate)} where one arm is skewed"
    return text


def _uneven_rates(n: int, alpha: float, method: Method) -> tuple[Any, ...] | None:
    """Pairs, and the rates where one arm alone has unstable runs and, if simulated, where its
    scores are skewed.
    """
    rows = _rows(method, n, alpha)
    if not rows:
        return None
    rates = []
    for name in UNEVEN:
        rates += [row["rate"] for row in rows if name in row["cell"]]
    return rows[0]["n"], *rates


def _row_line(n: int, alpha: float, method: Method, about: str, arms: int = 0) -> str | None:
    """The worst of a method's rows; of cells that name a number of arms, those nearest to
    `arms`.
    """
    rows = _rows(method, n, alpha)
    if not rows:
        return None
    if arms:
        sizes = [int(row["cell"].split()[0]) for row in rows]
        nearest = min(sizes, key=lambda size: abs(size - arms))
        rows = [row for row, size in zip(rows, sizes, strict=True) if size == nearest]
        if nearest != arms:
            about += f" (simulated with {nearest} arms)"
    worst = max(row["rate"] for row in rows)
    return f"{_percent(worst)} false alarms {about}, {rows[0]['n']} pairs"


def _contrast_line(n: int, alpha: float, *, looked: bool) -> str | None:
    method = cells.UNEVEN_CONTRAST_LOOKED if looked else cells.UNEVEN_CONTRAST
    even = _rows(method._replace(name=method.name.removesuffix(", means equal")), n, alpha)
    uneven = _rows(method, n, alpha)
    if not even:
        return None
    return (
        f"{_percent(even[0]['rate'])} false alarms by a contrast of four arms,"
        f" {_percent(uneven[0]['rate'])} where 15 % of one arm's runs are unstable,"
        f" {even[0]['n']} pairs"
    )


def _equivalence_line(n: int, alpha: float) -> str | None:
    false_claims = _rows(cells.AT_MARGIN, n, alpha)
    right = [row["rate"] for row in _rows(cells.AT_ZERO, n, alpha)]
    if not false_claims:
        return None
    worst = max(row["rate"] for row in false_claims)
    return (
        f"'Equivalent within the margin' was concluded of arms that differ by the margin in at most"
        f" {_percent(worst)} of the studies of {false_claims[0]['n']} pairs, of arms that do not"
        f" differ in {_percent(min(right))} to {_percent(max(right))}, by their noise"
    )


def _rows(method: Method, n: int, alpha: float) -> list[dict[str, Any]]:
    """A method's rows with the most pairs that are no more than `n`; none where alpha is not the
    simulated one.
    """
    if alpha != ALPHA:
        return []
    rows = [row for row in record()["rows"] if row["method"] == method.name and row["n"] <= n]
    most = max((row["n"] for row in rows), default=0)
    return [row for row in rows if row["n"] == most]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
