"""Which runs were unstable, when and after what; a sweep's collapses by swept value; response
length.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.run_outcomes import NOT_JUDGED, RunOutcome, outcomes, stabilities
from gspo_lab.analysis.findings.stability import count_unstable_runs
from gspo_lab.analysis.findings.sweeps import (
    PUBLISHED,
    QUANTITIES,
    DoseResponse,
    LengthMeasurement,
    Lengths,
    dose_response,
)
from gspo_lab.analysis.findings.sweeps import lengths as lengths_of
from gspo_lab.analysis.findings.training_curves import Track, course
from gspo_lab.analysis.readings import Source, average
from gspo_lab.analysis.readings.curves import entropy_collapses
from gspo_lab.analysis.readings.curves import onsets as onsets_of
from gspo_lab.analysis.readings.reading import SIGNALS
from gspo_lab.analysis.stats import PairedT
from gspo_lab.analysis.stats.collapse import (
    FROZEN,
    SMALL_ENTROPY,
    Stability,
    entropy_adrift,
    length_pinned,
)
from gspo_lab.common.plain_data import OptionalFloat, OptionalInt
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.series import DOTS, dots_of
from gspo_lab.report.templating import NOT_MEASURED, format_number, percent, statements
from gspo_lab.report.views.curves import CLIPPED
from gspo_lab.report.views.view import Inlined, PageOnly, View, by_id

RULES = (
    "A run is unstable if it collapsed, regressed, or ended below half of its best score."
    " Regression: the reward's moving average stays below its peak by half of what it had gained"
    " (and three times its noise) for the required number of steps. Collapse: such a stretch below"
    " half of the peak, or a loss, gradient, weight or log-prob that is not finite. Both are dated"
    f" by their first step. A signal crosses when it leaves the median ± 5 MAD of the {FROZEN}"
    " steps after the warm-up for 5 steps on end. Entropy collapses where its moving average stays"
    f" below {SMALL_ENTROPY:.0%} of its start for the required number of steps; that alone makes no"
    " run unstable. The same rules for every arm, fixed before the run."
)
NAMES = ("drift k3", "gradient norm", "clipped tokens", "expert change", "entropy")
SIGNAL_NAMES = dict(zip(SIGNALS, NAMES, strict=True))


@dataclass(frozen=True)
class UnstableRun:
    """One run that collapsed or regressed, or whose entropy did."""

    collapse: OptionalInt
    cause: str | None
    regression: OptionalInt
    entropy_collapse: OptionalInt
    signals: dict[str, OptionalInt]
    """The step at which each signal left its range; None: it did not."""
    crossed_before: dict[str, int]
    """The signals that left their range before the run became unstable, the earliest first."""
    crossings: PageOnly[str]
    flags: PageOnly[str]
    unstable_at: PageOnly[OptionalInt]
    """None where only its entropy collapsed."""


@dataclass(frozen=True)
class CollapseView(View):
    """The runs that collapsed, with the signals that crossed before, and how often these crossed in
    stable runs."""

    id = "collapse"
    title = "Collapse and what came before"
    summary: str
    runs: dict[str, UnstableRun]
    false_alarms: dict[str, list[int]]
    """For each signal the number of stable runs in which it crossed, and of all stable runs."""
    false_alarms_text: str
    rules: PageOnly[str] = RULES
    reading: str = "stability.step"


def collapse_view(study: Source) -> CollapseView | None:
    """The timeline of every unstable run; None where no run is long enough to be judged."""
    judged = stabilities(study)
    if not judged:
        return None
    spent = {}
    for run, onset in entropy_collapses(study).items():
        if onset.judged and run in judged:
            spent[run] = onset.step
    tracks = [track for track in course(study).tracks if track.run in judged]
    runs: dict[str, UnstableRun] = {}
    steady = []
    for track in tracks:
        stability = judged[track.run]
        if (stability.unstable_at, spent.get(track.run)) != (None, None):
            runs[f"{track.arm} s{track.seed}"] = _unstable_run(study, track, stability, spent)
        if stability.judged and stability.unstable_at is None:
            steady.append(track)
    # Of a stable study no signals are read.
    alarms = _false_alarms(study, steady) if runs else {}
    return CollapseView(
        _summary(study, spent) + _first_signals(runs),
        runs,
        alarms,
        _alarms_text(alarms) if runs else "",
    )


def _unstable_run(
    study: Source, track: Track, stability: Stability, spent: dict[str, OptionalInt]
) -> UnstableRun:
    """What happened to a run before it became unstable or, of a stable one, before its entropy
    collapsed."""
    signals = onsets_of(study, track.run)
    event = stability.unstable_at
    if event is None:
        event = spent.get(track.run) or 0
    crossed = {name: onset.step for name, onset in signals.items() if onset.step is not None}
    earlier = {}
    texts = []
    for name, step in sorted(crossed.items(), key=lambda crossing: crossing[1]):
        if step < event:
            earlier[name] = step
            texts.append(f"{SIGNAL_NAMES[name]} at {step} ({event - step} before)")
    judged_signals = {name: onset.step for name, onset in signals.items() if onset.judged}
    if not judged_signals:
        texts = ["too few steps to judge" if signals else NOT_MEASURED]
    return UnstableRun(
        stability.collapse,
        stability.cause,
        stability.regression,
        spent.get(track.run),
        judged_signals,
        earlier,
        crossings="; ".join(texts) or "none",
        flags="; ".join(_flags(track)),
        unstable_at=stability.unstable_at,
    )


def _summary(study: Source, spent: dict[str, OptionalInt]) -> str:
    """How many runs were unstable and in which way."""
    seeds = decision(study).runs
    ended = [run for run in outcomes(study, study.declaration.primary) if run.stability is not None]
    text = _counts([run for run in ended if seeds.has(run)])
    if not all(map(seeds.has, ended)):
        text += f" Counted: {seeds.label()}."
    if collapsed := sum(step is not None for step in spent.values()):
        text += f" The entropy collapsed in {collapsed} of {len(spent)} runs."
    return text


def _counts(runs: list[RunOutcome]) -> str:
    judged = [run for run in runs if run.stability_judged]
    if not judged:
        return f"Whether runs were unstable is {NOT_JUDGED}."
    unstable = sum(run.unstable for run in judged)
    collapsed = sum(run.collapsed for run in judged)
    halved = sum(run.ended_below_half and not (run.collapsed or run.regressed) for run in judged)
    ways = {
        "collapsed": collapsed,
        "regressed": unstable - collapsed - halved,
        "ended below half of the best score": halved,
    }
    listed = ", ".join(f"{count} {way}" for way, count in ways.items() if count)
    text = f"{unstable} of {len(judged)} runs were unstable: {listed}."
    if not unstable:
        text = f"0 of {len(judged)} runs were unstable."
    short = sum(not run.judged for run in runs)
    return text if not short else f"{text} {short} too short to be judged by the reward."


def _first_signals(runs: dict[str, UnstableRun]) -> str:
    """Which signal left its range first, over all unstable runs with signals."""
    unstable = [run for run in runs.values() if run.unstable_at is not None and run.signals]
    if not unstable:
        return ""
    counts = Counter[str]()
    silent = 0
    for run in unstable:
        earliest = min(run.crossed_before.values(), default=None)
        silent += earliest is None
        counts.update(name for name, step in run.crossed_before.items() if step == earliest)
    texts = [f"{SIGNAL_NAMES[name]} in {count}" for name, count in counts.most_common()]
    if silent:
        texts.append(f"nothing in {silent}")
    return f" What left its range first, in {len(unstable)} unstable runs: {', '.join(texts)}."


def _false_alarms(study: Source, steady: list[Track]) -> dict[str, list[int]]:
    """For each signal in how many stable runs it crossed, and how many stable runs there are."""
    signals = [onsets_of(study, track.run) for track in steady]
    alarms = {}
    for name in SIGNALS:
        judged = [of_run[name] for of_run in signals if name in of_run and of_run[name].judged]
        if judged:
            alarms[name] = [sum(onset.step is not None for onset in judged), len(judged)]
    return alarms


def _alarms_text(alarms: dict[str, list[int]]) -> str:
    if not alarms:
        return "False alarms: no stable run is long enough to count them."
    counts = [f"{SIGNAL_NAMES[name]} in {count} of {n}" for name, (count, n) in alarms.items()]
    return f"False alarms, that is crossings in runs that stayed stable: {', '.join(counts)}."


def _flags(track: Track) -> list[str]:
    entropy = track.columns["entropy"]
    measured = np.isfinite(entropy)
    flags = []
    if measured.any() and len(adrift := np.flatnonzero(entropy_adrift(entropy[measured]))):
        step = track.steps[measured][adrift[0]]
        flags.append(f"entropy above 300 % of its start around step {step:g}")
    cut = track.columns["truncated_responses"]
    pinned = [
        step for step, share in zip(track.steps, cut, strict=True) if length_pinned(float(share))
    ]
    if pinned:
        flags.append(f"more than 90 % of responses cut at the limit around step {pinned[0]:g}")
    return flags


@dataclass(frozen=True)
class StabilityView(View):
    """A sweep: which values collapsed, and each arm's fitted half."""

    id = "stability"
    title = "Stability margin"
    lines: list[str]
    response: Inlined[DoseResponse]
    figures: dict[str, Chart]


def stability_view(study: Source) -> StabilityView | None:
    """None for a study that sweeps nothing, and where scores answer and no run collapsed.

    No half collapse stands where runs are not matched.
    """
    doses = dose_response(study)
    if doses is None:
        return None
    if study.declaration.verdict.over is not None and not count_unstable_runs(study).collapsed:
        return None
    series = []
    for name, arm in doses.arms.items():
        x = tuple(f"{point.dose:g}" for point in arm.points)
        shares = [point.collapsed / point.runs if point.runs else None for point in arm.points]
        series.append(Series(name, x, tuple(shares)))
    chart = Chart(
        "m-collapsed-by-value",
        "Collapsed runs by swept value",
        doses.key,
        "share of runs",
        tuple(series),
        kind="dots",
        reading="collapsed",
    )
    return StabilityView(statements("decision", decision(study)), doses, by_id(chart))


@dataclass(frozen=True)
class LengthsView(View):
    """A sweep over answer length: the laws, and what was measured at every length."""

    id = "lengths"
    title = "Response length"
    lines: list[str]
    runs: dict[str, dict[str, dict[int, LengthMeasurement]]]
    """The measurements by arm, limit and seed."""
    exponents: dict[str, dict[str, PairedT]]
    """The exponents by arm and quantity."""
    published: dict[str, float]
    figures: dict[str, Chart]
    fitted: PageOnly[list[tuple[str, OptionalFloat, str, str]]]
    """Law, exponent, its interval, and each seed's."""
    means: PageOnly[list[list[str]]]
    """Arm and limit, then every quantity's mean over seeds."""
    quantities: PageOnly[list[str]]


def lengths_view(study: Source) -> LengthsView | None:
    """None for a study that does not sweep the answers' limit, and while no run of it has
    finished.
    """
    laws = lengths_of(study)
    if laws is None or not any(laws.runs.values()):
        return None
    means = []
    by_limit: dict[str, dict[str, dict[int, LengthMeasurement]]] = {}
    exponents: dict[str, dict[str, PairedT]] = {}
    for family, limits in laws.runs.items():
        by_limit[family] = {f"{limit:g}": runs for limit, runs in limits.items()}
        exponents[family] = {}
        for limit, runs in by_limit[family].items():
            means.append([family, limit, *_means(list(runs.values()))])
    fitted = []
    for law in laws.laws:
        exponent = law.exponent
        exponents[law.family][law.quantity] = exponent
        ends = exponent.reason or NOT_MEASURED
        if exponent.low is not None and exponent.high is not None:
            ends = f"{exponent.low:.3g}, {exponent.high:.3g}"
        by_seed = ", ".join(map(format_number, exponent.differences))
        name = f"{law.family}: {law.title}"
        fitted.append((name, exponent.estimate, ends, by_seed))
    columns = ["arm", "limit", "length", *QUANTITIES.values(), "reward at the start", "gain"]
    return LengthsView(
        statements("decision", decision(study)),
        by_limit,
        exponents,
        PUBLISHED,
        by_id(_spread_chart(laws), _clipped_chart(laws)),
        fitted,
        means,
        columns,
    )


def _means(runs: list[LengthMeasurement]) -> list[str]:
    cells = []
    for name in ("length", *QUANTITIES, "reward_first", "gain"):
        mean = average(getattr(run, name) for run in runs)
        share = name in ("clipped_grpo", "clipped_gspo")
        cells.append(percent(mean) if share else format_number(mean))
    return cells


def _spread_chart(laws: Lengths) -> Chart:
    series: list[Series] = []
    for family in laws.runs:
        series += _series_of_family(laws, family, family, "spread")
    return Chart(
        "m-spread-by-length",
        "Spread of log s by length",
        "tokens",
        "nats",
        tuple(series),
        kind="dots",
        log=True,
        note=DOTS,
        reading="spread.by-length",
    )


def _clipped_chart(laws: Lengths) -> Chart:
    series: list[Series] = []
    for colour, (rule, family) in enumerate(zip(PUBLISHED, laws.rules or (), strict=False)):
        series += _series_of_family(
            laws, family, f"{rule.upper()}'s range", f"clipped_{rule}", colour=colour
        )
    return Chart(
        "m-clip-by-length",
        "Clipped tokens by length",
        "tokens",
        "share of tokens",
        tuple(series),
        kind="dots",
        log=True,
        references=CLIPPED,
        reading="clip_fraction_tokens.by-length",
        note=f"Each rule on its own arm's batches, all mini-batches. {DOTS}"
        " Dotted: the GSPO paper's values.",
    )


def _series_of_family(
    laws: Lengths, family: str, label: str, quantity: str, colour: OptionalInt = None
) -> list[Series]:
    """A quantity by length, of every seed and their mean."""
    limits = laws.runs[family]
    by_seed: dict[int, dict[str, OptionalFloat]] = {}
    for limit, runs in limits.items():
        for seed, run in runs.items():
            by_seed.setdefault(seed, {})[f"{limit:,.0f}"] = getattr(run, quantity)
    return dots_of(
        label, [f"{limit:,.0f}" for limit in limits], dict(sorted(by_seed.items())), colour
    )
