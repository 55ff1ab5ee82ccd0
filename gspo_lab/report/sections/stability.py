"""Which runs were unstable, when and after what; a sweep's collapses by swept value; response
length.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.run_outcomes import NOT_JUDGED, RunOutcome, outcomes, stabilities
from gspo_lab.analysis.findings.sweep_sentences import bounds, decided_sentences
from gspo_lab.analysis.findings.sweeps import (
    PUBLISHED,
    QUANTITIES,
    DosePoint,
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
from gspo_lab.analysis.readings.read import SIGNALS
from gspo_lab.analysis.stats.collapse import FROZEN, SMALL_ENTROPY, entropy_adrift, length_pinned
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.markup import NOT_MEASURED, format_number, h, percent
from gspo_lab.report.section import Part, Section, bullets, grid, paragraph
from gspo_lab.report.sections.curves import CLIPPED
from gspo_lab.report.series import DOTS, dots_of

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
HEAD = [
    "run",
    "collapsed at",
    "by",
    "regressed at",
    "entropy collapsed at",
    "signals that crossed before",
    "flags",
]
NAMES = ("drift k3", "gradient norm", "clipped tokens", "expert change", "entropy")
TOLD = dict(zip(SIGNALS, NAMES, strict=True))


def collapse(study: Source) -> Section | None:
    """One row per run that collapsed or regressed, or whose entropy did, with the signals that
    crossed before, and how often they crossed in stable runs."""
    judged = stabilities(study)
    if not judged:
        return None
    tracks = [track for track in course(study).tracks if track.run in judged]
    spent = {
        run: onset.step
        for run, onset in entropy_collapses(study).items()
        if onset.judged and run in judged
    }
    dated = {
        run: [step for step in (of.collapse, of.regression) if step is not None]
        for run, of in judged.items()
    }
    fell = {run: min(steps, default=None) for run, steps in dated.items()}
    # When a run became unstable; of a stable one when its entropy collapsed.
    events = {run: spent.get(run) if step is None else step for run, step in fell.items()}
    listed = [track for track in tracks if events[track.run] is not None]
    seeds = decision(study).runs
    ended = outcomes(study, study.declaration.primary)
    known = [run for run in ended if run.stability is not None]
    summary = _summary([run for run in known if seeds.has(run)])
    if not all(map(seeds.has, known)):
        summary += f" Counted: {seeds.label()}."
    if gone := sum(step is not None for step in spent.values()):
        summary += f" The entropy collapsed in {gone} of {len(spent)} runs."
    title = "Collapse and what came before"
    rules = h("p", RULES, class_="soft")
    if not listed:
        return Section("collapse", title, (paragraph(summary), rules), {"runs": {}})
    onsets = {track.run: onsets_of(study, track.run) for track in tracks}
    runs = {}
    rows = []
    firsts = []
    for track in listed:
        stable = judged[track.run]
        entropy = spent.get(track.run)
        signals = onsets[track.run]
        event = events[track.run]
        crossed = {
            signal: onset.step for signal, onset in signals.items() if onset.step is not None
        }
        before = {
            signal: step
            for signal, step in sorted(crossed.items(), key=itemgetter(1))
            if step < (event or 0)
        }
        early = [
            f"{TOLD[signal]} at {step} ({(event or 0) - step} before)"
            for signal, step in before.items()
        ]
        known_signals = {signal: onset.step for signal, onset in signals.items() if onset.judged}
        if not known_signals:
            early = ["too few steps to judge" if signals else NOT_MEASURED]
        elif fell[track.run] is not None:
            firsts.append(
                [TOLD[signal] for signal, step in before.items() if step == min(before.values())]
            )
        dates = (
            "" if step is None else str(step)
            for step in (stable.collapse, stable.regression, entropy)
        )
        at, regressed, entropy_at = dates
        name = f"{track.arm} s{track.seed}"
        shown = "; ".join(early) or "none"
        rows.append(
            [name, at, stable.cause or "", regressed, entropy_at, shown, "; ".join(_flags(track))]
        )
        fate = {key: getattr(stable, key) for key in ("collapse", "cause", "regression")}
        runs[name] = {
            **fate,
            "entropy_collapse": entropy,
            "signals": known_signals,
            "crossed_before": before,
        }
    if firsts:
        counts = Counter(signal for signals_ in firsts for signal in signals_).most_common()
        parts = [f"{signal} in {count}" for signal, count in counts]
        parts += [f"nothing in {firsts.count([])}"] if [] in firsts else []
        summary += (
            f" What left its range first, in {len(firsts)} unstable runs: {', '.join(parts)}."
        )
    steady = [
        onsets[track.run]
        for track in tracks
        if judged[track.run].judged and fell[track.run] is None
    ]
    alarms = {}
    for signal in SIGNALS:
        if of_runs := [
            signals[signal] for signals in steady if signal in signals and signals[signal].judged
        ]:
            alarms[signal] = [sum(onset.step is not None for onset in of_runs), len(of_runs)]
    alarmed = ", ".join(
        f"{TOLD[signal]} in {count} of {of}" for signal, (count, of) in alarms.items()
    )
    told = f"False alarms, that is crossings in runs that stayed stable: {alarmed}."
    if not alarms:
        told = "False alarms: no stable run is long enough to count them."
    data = {"runs": runs, "false_alarms": alarms, "reading": "stability.step"}
    return Section(
        "collapse", title, (paragraph(summary), grid(HEAD, rows), paragraph(told), rules), data
    )


def _summary(runs: list[RunOutcome]) -> str:
    known = [run for run in runs if run.stability_judged]
    collapsed = sum(run.collapsed for run in known)
    halved = sum(run.ended_below_half and not (run.collapsed or run.regressed) for run in known)
    unstable = sum(run.unstable for run in known)
    counts = {"collapsed": collapsed, "regressed": unstable - collapsed - halved}
    how = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if halved:
        below = (
            "ended below half of its best score"
            if halved == 1
            else "ended below half of their best score"
        )
        who = "" if how else "all " * (unstable > 1)
        how = ", ".join(
            filter(None, (how, f"{who}{halved} because {'it' if halved == 1 else 'they'} {below}"))
        )
    sentences = [f"{unstable} of {len(known)} runs were unstable{': ' * bool(how)}{how}."]
    if not known:
        sentences = [f"Whether runs were unstable is {NOT_JUDGED}."]
    if short := sum(not run.judged for run in runs):
        sentences.append(
            f"{short} ha{'ve' if short > 1 else 's'} too few steps for the reward to be judged."
        )
    return " ".join(sentences)


def _flags(track: Track) -> list[str]:
    entropy = track.columns["entropy"]
    out = []
    known = np.isfinite(entropy)
    if known.any() and len(adrift := np.flatnonzero(entropy_adrift(entropy[known]))):
        out.append(
            f"entropy above 300 % of its start around step {track.steps[known][adrift[0]]:g}"
        )
    cut = track.columns["truncated_responses"]
    pinned = [
        step for step, share in zip(track.steps, cut, strict=True) if length_pinned(float(share))
    ]
    if pinned:
        out.append(f"more than 90 % of responses cut at the limit around step {pinned[0]:g}")
    return out


FITTED = (
    "Per arm a Firth-penalised logistic fit of collapse on log10 of the swept value; intervals from"
    " its profile, so that values at which all or none collapse still bound it. Runs count as"
    " independent."
)


def stability(study: Source) -> Section | None:
    """None for a study that sweeps nothing.

    What it says is the answer: no half collapse where runs are not matched.
    """
    doses = dose_response(study)
    lines = decided_sentences(decision(study))
    if doses is None:
        return None
    rows = [
        [
            arm.arm,
            f"{at.dose:g}",
            f"{at.collapsed} of {at.runs}" if at.runs else NOT_MEASURED,
            format_number(at.score),
        ]
        for arm in doses.arms
        for at in arm.points
    ]
    body: tuple[Part, ...] = (
        bullets(lines),
        h("p", FITTED, class_="soft"),
        *_charts(doses),
        grid(["arm", doses.key, "collapsed", "final score"], rows, "Every value"),
    )
    return Section("stability", "Stability margin", body, doses.to_json())


def _charts(doses: DoseResponse) -> tuple[Chart, ...]:
    def chart(
        name: str, title: str, unit: str, value: Callable[[DosePoint], float | None], **look: Any
    ) -> Chart:
        series = tuple(
            Series(
                arm.arm,
                tuple(f"{point.dose:g}" for point in arm.points),
                tuple(map(value, arm.points)),
            )
            for arm in doses.arms
        )
        return Chart(
            f"m-{name}-by-dose", title, doses.key, unit, series, kind="dots", whole=True, **look
        )

    return (
        chart(
            "collapsed",
            "Collapsed runs by swept value",
            "share of runs",
            lambda point: point.collapsed / point.runs if point.runs else None,
            share=True,
            reading="collapsed",
        ),
        chart(
            "score",
            "Final score by swept value",
            "score",
            lambda point: point.score,
            reading="score.final",
        ),
    )


EVERY_LENGTH = ("arm", "limit", "length", *QUANTITIES.values(), "reward at the start", "gain")
LAWS_HEAD = ("y ~ L^exponent", "exponent", "95 % interval over seeds", "per seed")
RULE = (
    "A law is a straight line of log y on log L through a seed's runs; its interval is the t"
    " interval of the seeds' slopes. Independent token log-ratios would give the spread of log s"
    " over that of l_t the exponent −1/2; the expected l_t is −KL at every length, a drift that"
    " averaging does not shrink."
)


def lengths(study: Source) -> Section | None:
    """None for a study that does not sweep the answers' limit, and while no run of it has
    finished.
    """
    laws = lengths_of(study)
    lines = decided_sentences(decision(study))
    if laws is None or not any(laws.runs.values()):
        return None
    rows = [
        (family, f"{limit:g}", *_means(runs))
        for family, limits in laws.runs.items()
        for limit, runs in limits.items()
    ]
    fitted = []
    for law in laws.laws:
        ends = bounds(law.exponent).strip("[]") or law.exponent.reason or NOT_MEASURED
        by_seed = ", ".join(map(format_number, law.exponent.differences))
        fitted.append(
            (
                f"{law.family}: {QUANTITIES[law.quantity]}",
                format_number(law.exponent.estimate),
                ends,
                by_seed,
            )
        )
    body: tuple[Part, ...] = (
        bullets(lines),
        h("p", RULE, class_="soft"),
        *_length_charts(laws),
        grid(LAWS_HEAD, fitted, "The laws"),
        grid(
            EVERY_LENGTH,
            rows,
            "Every length, means over seeds; log-ratios in nats, of mini-batches ≥ 1",
        ),
    )
    return Section("lengths", "Response length", body, laws.to_json())


def _means(runs: Mapping[int, LengthMeasurement]) -> list[str]:
    shares = ("clipped_grpo", "clipped_gspo")
    names = ("length", *QUANTITIES, "reward_first", "gain")
    means = {name: average(getattr(run, name) for run in runs.values()) for name in names}
    return [
        NOT_MEASURED if y is None else percent(y) if name in shares else format_number(y)
        for name, y in means.items()
    ]


def _length_charts(laws: Lengths) -> tuple[Chart, ...]:
    """The two spreads and the clipped shares, length by length."""
    spread = [
        line
        for name in laws.runs
        for line in _of_family(laws, name, name, attrgetter("spread"), None)
    ]
    clipped = [
        line
        for colour, (rule, family) in enumerate(zip(PUBLISHED, laws.rules or (), strict=False))
        for line in _of_family(
            laws, family, f"{rule.upper()}'s range", attrgetter(f"clipped_{rule}"), colour
        )
    ]
    return (
        Chart(
            "m-spread-by-length",
            "Spread of log s by length",
            "tokens",
            "nats",
            tuple(spread),
            kind="dots",
            log=True,
            note=DOTS,
            reading="spread.by-length",
        ),
        Chart(
            "m-clip-by-length",
            "Clipped tokens by length",
            "tokens",
            "share of tokens",
            tuple(clipped),
            kind="dots",
            log=True,
            share=True,
            references=CLIPPED,
            reading="clip_fraction_tokens.by-length",
            note=f"Each rule on its own arm's batches, all mini-batches. {DOTS} Dotted: the GSPO paper's values.",  # noqa: E501
        ),
    )


def _of_family(
    laws: Lengths,
    family: str,
    label: str,
    value: Callable[[LengthMeasurement], float],
    colour: int | None,
) -> list[Series]:
    limits = laws.runs[family]
    seeds = sorted({seed for runs in limits.values() for seed in runs})
    by_seed = {
        seed: {
            f"{limit:,.0f}": value(runs[seed]) if seed in runs else None
            for limit, runs in limits.items()
        }
        for seed in seeds
    }
    return dots_of(label, [f"{limit:,.0f}" for limit in limits], by_seed, colour)
