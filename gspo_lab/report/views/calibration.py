"""Measured error rates of this report's rules, in a table and in the lines beside a verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.stats import Comparison
from gspo_lab.analysis.stats.calibration import ALPHA, STUDIES, CalibrationRow, recorded_rates
from gspo_lab.analysis.stats.simulation_cells import (
    AT_LOOKS,
    METHODS,
    UNEVEN_CONTRASTS,
    UNEVEN_FAMILIES,
    Method,
    against_one,
)
from gspo_lab.analysis.stats.simulation_draws import UNEVEN, UNSTABLE
from gspo_lab.analysis.stats.verdict import EQUIVALENT
from gspo_lab.common.text import tenth_percent
from gspo_lab.report.views.view import PageOnly, View


@dataclass(frozen=True)
class CalibrationView(View):
    """The rates of this report's rules, and of common analyses that fail."""

    id = "calibration"
    title = "Calibration"
    studies: PageOnly[int]
    failing: PageOnly[list[list[str]]]
    """Kind of study, pairs, reading, rate, its interval, and the rates of both directions."""
    rules: PageOnly[list[list[str]]]


def calibration_view(study: Source) -> CalibrationView | None:
    """None where no score decides."""
    if study.declaration.primary is None or len(study.arms) < 2:
        return None
    failing = []
    rules = []
    for row in recorded_rates():
        cell = [
            row.cell,
            str(row.n),
            row.method,
            tenth_percent(row.share),
            f"{tenth_percent(row.rate.low or 0.0)} to {tenth_percent(row.rate.high or 1.0)}",
            tenth_percent(row.for_baseline / row.studies),
            tenth_percent(row.for_treatment / row.studies),
        ]
        if row.expectation == "must fail":
            failing.append(cell)
        else:
            rules.append(cell)
    return CalibrationView(STUDIES, failing, rules)


def calibration_lines(
    verdicts: Sequence[Comparison], contrast: Comparison | None = None
) -> list[str]:
    """Per kind of verdict, of a contrast, of several arms and of looks, its own measured rates in
    one line each; none where nothing was measured (n < 3, another alpha)."""
    if verdicts[0].alpha != ALPHA:
        return []
    n = max(verdict.paired.n for verdict in verdicts)
    family = len(verdicts)
    looks = verdicts[0].rule.looks
    looked = len(looks) > 1
    lines = []
    if contrast is not None:
        lines.append(_contrast_line(contrast.paired.n, looked=looked))
    kinds = {"score, normal": "", **{f"score, {name}": name for name in UNEVEN}}
    lines.append(_line("A pair of arms", kinds, METHODS["paired"], n))
    if family > 1:
        kinds = {_nearest("", family): ""}
        kinds |= {_nearest(name, family): name for name in UNEVEN_FAMILIES}
        lines.append(_line(f"Any of {family} arms", kinds, METHODS["holm"], n))
    if looked:
        kinds = {f"normal, {AT_LOOKS}": ""}
        kinds |= {f"{name}, {AT_LOOKS}": name for name in UNEVEN}
        lines.append(_line("A pair over all looks", kinds, METHODS["looked"], looks[-1]))
    if any(verdict.word == EQUIVALENT for verdict in verdicts):
        lines.append(_equivalence_line(n))
    return [line for line in lines if line]


def _contrast_line(n: int, *, looked: bool) -> str | None:
    method = METHODS["by-contrast"]
    suffix = ""
    if looked:
        method = METHODS["contrast-looked"]
        suffix = f", {AT_LOOKS}"
    kinds = {f"2 x 2, normal{suffix}": ""}
    kinds |= {f"2 x 2, {name}{suffix}": name for name in UNEVEN_CONTRASTS}
    return _line("A contrast of four arms", kinds, method, n)


def _nearest(name: str, family: int) -> str:
    """The simulated kind of study whose number of arms is nearest to `family`."""
    sizes = UNEVEN_FAMILIES[name] if name else (2, 3, 5, 11)
    return against_one(min(sizes, key=lambda size: abs(size - family)), name)


def _line(subject: str, kinds: Mapping[str, str], method: Method, n: int) -> str | None:
    """The method's rates: of the first kind of study, and of the others with what is uneven there.

    `kinds` has what is uneven by the cell's name.
    """
    rows = _measured(tuple(kinds), method, n)
    if not rows:
        return None
    normal, *uneven = rows
    text = (
        f"{subject}: {tenth_percent(normal.share)} false words in {STUDIES:,} simulated studies of"
        f" {normal.n} pairs without a difference"
    )
    for row in uneven:
        what = kinds[row.cell]
        text += f"; {tenth_percent(row.share)} where {what}"
        if "noisy" not in what:
            favourable, _ = _directions(row)
            text += f" ({tenth_percent(favourable)} favour that side)"
    return text


def _directions(row: CalibrationRow) -> tuple[float, float]:
    """The shares of studies with a false word that favours the side that is unstable or skewed, and
    that favours the other side.
    """
    uneven = row.for_baseline / row.studies
    even = row.for_treatment / row.studies
    return (even, uneven) if "every treatment" in row.cell else (uneven, even)


def uneven_line(verdict: Comparison) -> str | None:
    """Beside a "better" that rests on arms with unstable runs: how often that side is called better
    though the means are equal.

    No rule on few pairs keeps alpha there: where none of an arm's runs happens to be unstable, its
    scores look like those of a better arm. None for other words, without unstable runs, and where
    nothing was measured.
    """
    if verdict.better is None or verdict.unstable is None or verdict.alpha != ALPHA:
        return None
    baseline, treatment = (count > 0 for count, _ in verdict.unstable)
    if not (baseline or treatment):
        return None
    favours_treatment = verdict.direction > 0
    same_side = treatment if favours_treatment else baseline
    kind, method, n = _uneven_kind(verdict, treatment_falls=favours_treatment == same_side)
    rows = _measured((kind,), method, n)
    if not rows:
        return None
    with_falls, without_falls = _directions(rows[0])
    side = "with" if same_side else "without"
    share = with_falls if same_side else without_falls
    _, _, uneven = kind.removesuffix(f", {AT_LOOKS}").rpartition(", ")
    return (
        f"runs are unstable here: where {uneven} and the means are equal, the side {side} unstable"
        f" runs is called better in {tenth_percent(share)} of simulated studies of"
        f" {rows[0].n} pairs"
    )


def _uneven_kind(verdict: Comparison, *, treatment_falls: bool) -> tuple[str, Method, int]:
    """The simulated kind of study with unstable runs that is nearest to the verdict's own, the
    method that judged it, and the pairs.
    """
    looks = verdict.rule.looks
    n = verdict.paired.n
    looked = len(looks) > 1
    if looked:
        n = looks[-1]
    if verdict.rule.order:
        name = f"2 x 2, {UNSTABLE}"
        if looked:
            return f"{name}, {AT_LOOKS}", METHODS["looked-in-order"], n
        return name, METHODS["in-order"], n
    if looked:
        return f"{UNSTABLE}, {AT_LOOKS}", METHODS["looked"], n
    if verdict.family == 1:
        return f"score, {UNSTABLE}", METHODS["paired"], n
    name = "15 % of the baseline's runs unstable"
    if treatment_falls:
        name = "20 % of every treatment's runs unstable"
    return _nearest(name, verdict.family), METHODS["holm"], n


def _equivalence_line(n: int) -> str | None:
    names = tuple(
        row.cell
        for row in recorded_rates()
        if row.method == METHODS["at-margin"].name and row.n == 5
    )
    wrong = _measured(names, METHODS["at-margin"], n)
    right = [row.share for row in _measured(names, METHODS["at-zero"], n)]
    if not wrong:
        return None
    worst = max(row.share for row in wrong)
    return (
        f"'Equivalent within the margin' was concluded of arms that differ by the margin in at most"
        f" {tenth_percent(worst)} of the studies of {wrong[0].n} pairs, of arms that do not differ"
        f" in {tenth_percent(min(right))} to {tenth_percent(max(right))}, by their noise"
    )


def _measured(names: Sequence[str], method: Method, n: int) -> list[CalibrationRow]:
    """The method's rows on these kinds of study, of the most pairs that all of them have and that
    are no more than `n`; none where no kind has so few pairs.
    """
    by_size: dict[int, dict[str, CalibrationRow]] = {}
    for row in recorded_rates():
        if row.method == method.name and row.cell in names and row.n <= n:
            by_size.setdefault(row.n, {})[row.cell] = row
    complete = [size for size, rows in by_size.items() if len(rows) == len(names)]
    if not complete:
        return []
    return [by_size[max(complete)][name] for name in names]
