"""Measured error rates of this report's rules, in a table and in the lines beside a verdict."""

from collections.abc import Iterator, Mapping, Sequence
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
from gspo_lab.analysis.stats.simulation_draws import SKEWED, UNEVEN, UNSTABLE
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


@dataclass(frozen=True)
class UnevenRow:
    """The rate of a rule on studies of which one side is uneven."""

    condition: str
    """What is uneven."""
    row: CalibrationRow
    favourable: float | None
    """The share of studies with a false word that favours the uneven side; None where one side is
    only noisier."""


@dataclass(frozen=True)
class FalseWords:
    """How often a rule calls arms different that are not."""

    subject: str
    plain: CalibrationRow
    uneven: list[UnevenRow]


@dataclass(frozen=True)
class EquivalenceRates:
    """How often "equivalent" is said of arms that differ by the margin, and of arms that do not
    differ."""

    pairs: int
    wrong: float
    least_right: float
    most_right: float


@dataclass(frozen=True)
class UnevenRate:
    """How often the side that is called better here is called better though the means are equal.
    text.j2 writes it."""

    condition: str
    """What is uneven in the simulated studies."""
    of_falling: bool
    """Whether that side is the one with unstable runs."""
    share: float
    pairs: int


@dataclass(frozen=True)
class StatedRates:
    """The measured error rates of a study's kinds of verdict. text.j2 writes them."""

    false_words: list[FalseWords]
    equivalence: EquivalenceRates | None


def stated_rates(
    verdicts: Sequence[Comparison],
    contrast: Comparison | None = None,
    *,
    own_best: bool = False,
) -> StatedRates:
    """Per kind of verdict, of a contrast, of several arms and of looks, its own measured rates;
    none where nothing was measured (n < 3, another alpha). `own_best`: the verdicts compare arms
    each at its own best value."""
    if verdicts[0].alpha != ALPHA:
        return StatedRates([], None)
    n = max(verdict.paired.n for verdict in verdicts)
    if own_best:
        own_best_rates = _own_best_rates(n)
        return StatedRates([own_best_rates] if own_best_rates else [], None)
    rates = _rates(n, len(verdicts), verdicts[0].rule.looks, contrast)
    equivalent = any(verdict.word == EQUIVALENT for verdict in verdicts)
    return StatedRates(
        [rate for rate in rates if rate is not None],
        _equivalence_rates(n) if equivalent else None,
    )


def _own_best_rates(pairs: int) -> FalseWords | None:
    kinds = {"5 values, alike": ""}
    kinds |= {f"5 values, {name}": name for name in (UNSTABLE, "one arm 4x as noisy", SKEWED)}
    return _false_words("Each arm at its own best value", kinds, METHODS["own-best"], pairs)


def _rates(
    n: int, family: int, looks: Sequence[int], contrast: Comparison | None
) -> Iterator[FalseWords | None]:
    """The rates of a contrast, of `n` pairs of two arms, of `family` arms, and of looks."""
    looked = len(looks) > 1
    suffix = f", {AT_LOOKS}"
    if contrast is not None:
        kinds = {"2 x 2, normal": ""}
        kinds |= {f"2 x 2, {name}": name for name in UNEVEN_CONTRASTS}
        if looked:
            kinds = {f"{kind}{suffix}": name for kind, name in kinds.items()}
        method = METHODS["contrast-looked" if looked else "by-contrast"]
        yield _false_words("A contrast of four arms", kinds, method, contrast.paired.n)
    kinds = {"score, normal": "", **{f"score, {name}": name for name in UNEVEN}}
    yield _false_words("A pair of arms", kinds, METHODS["paired"], n)
    if family > 1:
        kinds = {_nearest(name, family): name for name in ("", *UNEVEN_FAMILIES)}
        yield _false_words(f"Any of {family} arms", kinds, METHODS["holm"], n)
    if looked:
        kinds = {f"normal{suffix}": "", **{f"{name}{suffix}": name for name in UNEVEN}}
        yield _false_words("A pair over all looks", kinds, METHODS["looked"], looks[-1])


def _nearest(name: str, family: int) -> str:
    """The simulated kind of study whose number of arms is nearest to `family`."""
    sizes = UNEVEN_FAMILIES[name] if name else (2, 3, 5, 11)
    return against_one(min(sizes, key=lambda size: abs(size - family)), name)


def _false_words(
    subject: str, kinds: Mapping[str, str], method: Method, n: int
) -> FalseWords | None:
    """The method's rates: of the first kind of study, and of the others with what is uneven there.

    `kinds` has what is uneven by the cell's name.
    """
    rows = _measured_rows(tuple(kinds), method, n)
    if not rows:
        return None
    plain, *uneven = rows
    further = []
    for row in uneven:
        condition = kinds[row.cell]
        favourable = None if "noisy" in condition else _directions(row)[0]
        further.append(UnevenRow(condition, row, favourable))
    return FalseWords(subject, plain, further)


def _directions(row: CalibrationRow) -> tuple[float, float]:
    """The shares of studies with a false word that favours the side that is unstable or skewed, and
    that favours the other side.
    """
    uneven = row.for_baseline / row.studies
    even = row.for_treatment / row.studies
    return (even, uneven) if "every treatment" in row.cell else (uneven, even)


def uneven_rate(verdict: Comparison) -> UnevenRate | None:
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
    rows = _measured_rows((kind,), method, n)
    if not rows:
        return None
    with_falls, without_falls = _directions(rows[0])
    _, _, condition = kind.removesuffix(f", {AT_LOOKS}").rpartition(", ")
    share = with_falls if same_side else without_falls
    return UnevenRate(condition, same_side, share, rows[0].n)


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


def _equivalence_rates(n: int) -> EquivalenceRates | None:
    names = tuple(
        row.cell
        for row in recorded_rates()
        if row.method == METHODS["at-margin"].name and row.n == 5
    )
    wrong = _measured_rows(names, METHODS["at-margin"], n)
    if not wrong:
        return None
    right = [row.share for row in _measured_rows(names, METHODS["at-zero"], n)]
    worst = max(row.share for row in wrong)
    return EquivalenceRates(wrong[0].n, worst, min(right), max(right))


def _measured_rows(names: Sequence[str], method: Method, n: int) -> list[CalibrationRow]:
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
