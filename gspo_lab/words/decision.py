"""The decision on a study in English: the verdict on each arm, notes on single runs, and replications of verdicts."""

from gspo_lab.findings.decision import Decision
from gspo_lab.findings.dose_response import ArmResponse, DoseResponse
from gspo_lab.findings.executions import VerdictReplication
from gspo_lab.findings.length_scaling import PUBLISHED, QUANTITIES, Lengths
from gspo_lab.findings.run_outcomes import RunOutcome
from gspo_lab.findings.ungraded_answers import Ungraded
from gspo_lab.stats import PairedT
from gspo_lab.stats.ed50 import DoseLimits
from gspo_lab.stats.paired import t_quantile
from gspo_lab.stats.random_effects import CombinedEstimate
from gspo_lab.stats.random_effects import ReplicationOutcome as Outcome
from gspo_lab.words.reasons import label, reason_text, sentences
from gspo_lab.words.text import MINUS, capital, signed
from gspo_lab.words.verdicts import sentence

OUTCOMES: dict[Outcome, str] = {"taken back": "contradicted", "not said again": "not confirmed", "held": "confirmed"}
"""The labels of replication outcomes, the worst first."""


def decided_sentences(decided: Decision) -> list[str]:
    """One per verdict; where no score can decide, what stands in their place."""
    if decided.verdicts:
        return [sentence(verdict) for verdict in decided.verdicts.values()]
    return sentences([decided.reason]) if decided.reason else [f"{line}." for line in swept(decided)]


def flags(decided: Decision) -> list[str]:
    """What a reader of the verdicts must know of single runs and of looks. All of these runs are counted."""
    runs = {
        "Collapsed and still counted": [_name(run) for run in decided.ended if run.collapsed],
        "Updates that were not finite, skipped or of a dead model": [
            f"{_name(run)} ({run.nonfinite})" for run in decided.ended if run.nonfinite
        ],
        "Evaluations that could not be graded repeat the one before": [
            _name(run) for run in decided.ended if run.carried
        ],
    }
    tuning = decided.matched.tuning
    looked = f"Resolved at the declared look after {len(decided.seeds)} of {decided.planned} seeds."
    return [
        *(f"{capital(note)}." for note in (*decided.matched.on_trust, decided.matched.grade) if note),
        *([] if tuning is None else [f"{capital(tuning.detail)}."]),
        *(f"{title}: {', '.join(names)}." for title, names in runs.items() if names),
        *(ungraded(answers) for answers in decided.ungraded.values()),
        *([looked] if decided.stopped else []),
        *sentences(decided.described),
    ]


def ungraded(lacking: Ungraded) -> str:
    """The second reading of answers that were not graded."""
    verdict = lacking.verdict
    apart = f"{verdict.subject} {MINUS} {verdict.baseline}"
    number = "" if verdict.estimate is None else f" {apart} is {signed(verdict.estimate)}:"
    return f"Answers not graded: {lacking.counts}. Counted as incorrect,{number} {label(verdict)}."


def _name(run: RunOutcome) -> str:
    return f"{run.arm} seed {run.seed}"


def became(word: VerdictReplication) -> str:
    """A verdict of one execution, and what a later one makes of it."""
    by = "in" if word.fate == "held" else "by"
    return f"{word.by}: {label(word.verdict)}; {OUTCOMES[word.fate]} {by} {word.later}."


def precision_note(both: CombinedEstimate) -> str:
    """What so many executions can show."""
    if both.k == 1:
        return "The executions share their seeds: each seed counts once, by its mean over them."
    times = f"{t_quantile(both.df, 1 - both.alpha / 2):.1f} standard errors to either side"
    if both.k > 2:
        return f"{both.k} executions on seeds of their own: the interval reaches {times}."
    return (
        f"Two executions on seeds of their own: the interval reaches {times}, because one difference says almost "
        "nothing about how executions vary. They can contradict each other, and hardly confirm."
    )


def swept(decided: Decision) -> list[str]:
    """A line per arm and per ratio, or per law; where runs are not matched, that instead."""
    matched = decided.matched.on(decided.seeds)
    if not matched.ok:
        return [f"No verdict: {matched.headline}"]
    if decided.doses is not None:
        return doses(decided.doses)
    return [] if decided.lengths is None else laws(decided.lengths)


def doses(response: DoseResponse) -> list[str]:
    """One line per arm, then one per ratio, then what does not count."""
    key, baseline = response.key, response.baseline
    about = "" if response.about is None else reason_text(response.about)
    lines = [f"{arm.arm}: {_half(arm, key)}" for arm in response.arms]
    lines += [f"{arm} / {baseline}: {_ratio(ratio, key)}{about}" for arm, ratio in response.ratios.items()]
    return lines + [f"Not counted, added after the first step: {', '.join(response.added)}"] * bool(response.added)


def laws(lengths: Lengths) -> list[str]:
    """The laws of the spread of log s, and the prediction, line by line."""
    lines = [
        f"{law.family}: {QUANTITIES[law.quantity]} ~ L^{interval(law.exponent)}"
        for law in lengths.laws
        if law.quantity in ("spread", "averaging")
    ]
    for prediction in lengths.predicted:
        published = f"{100 * PUBLISHED['gspo']:g} % were published"
        if prediction.share.low is not None and prediction.share.high is not None:
            inside = prediction.share.low <= PUBLISHED["gspo"] <= prediction.share.high
            published += ", inside the interval" if inside else ", outside the interval"
        share = f"predicted share clipped by GSPO at {prediction.length:,.0f} tokens: {interval(prediction.share)}"
        lines.append(f"{share}; {published}")
    return lines


def interval(of: PairedT, digits: int = 3) -> str:
    """An estimate with its interval."""
    if of.estimate is None:
        return "not measured"
    return f"{of.estimate:.{digits}g} {bounds(of, digits) or f'({of.reason})'}"


def bounds(of: PairedT, digits: int = 3) -> str:
    """The interval alone; empty where there is none."""
    return "" if of.low is None or of.high is None else f"[{of.low:.{digits}g}, {of.high:.{digits}g}]"


def _half(arm: ArmResponse, key: str) -> str:
    half = arm.half
    if half is None:
        return "fewer than two values have finished runs that are long enough to be judged"
    collapsed, judged = (sum(counts) for counts in zip(*((p.collapsed, p.runs) for p in arm.points), strict=True))
    runs = f"{collapsed} of {judged} runs collapsed"
    if half.resolved and half.estimate is not None:
        return f"50 % collapse point at {key} = {half.estimate:.3g} [{half.low:.3g}, {half.high:.3g}] ({runs})"
    return f"inconclusive ({runs}): {half.reason}{_needed(half)}"


def _ratio(ratio: DoseLimits, key: str) -> str:
    if ratio.resolved and ratio.estimate is not None:
        bounds = f"[{ratio.low:.3g}, {ratio.high:.3g}]"
        includes = ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high
        word = ": the interval includes 1, so the comparison is inconclusive" if includes else ""
        return f"tolerates {ratio.estimate:.3g} times the {key} {bounds}{word}"
    return f"inconclusive: {ratio.reason}{_needed(ratio)}"


def _needed(limits: DoseLimits) -> str:
    if limits.needed is None:
        return ""
    below, above = limits.needed.below, limits.needed.above
    sides = [f"below {below:.3g}" if below is not None else "", f"above {above:.3g}" if above is not None else ""]
    return f"; values {' and '.join(side for side in sides if side)} are needed"
