"""Verdicts, the decision on a study and the answer to its question, in English sentences."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gspo_lab.analysis.claims import Estimate, Result
from gspo_lab.analysis.findings.answer import StudyAnswer
from gspo_lab.analysis.findings.decision import Decision, Ungraded
from gspo_lab.analysis.findings.executions import VerdictReplication
from gspo_lab.analysis.findings.run_outcomes import NOT_JUDGED
from gspo_lab.analysis.findings.stability import UnstableRunCounts
from gspo_lab.analysis.findings.sweeps import (
    PUBLISHED,
    QUANTITIES,
    ArmResponse,
    DoseResponse,
    Lengths,
)
from gspo_lab.analysis.stats import PairedT
from gspo_lab.analysis.stats.ed50 import DoseLimits
from gspo_lab.analysis.stats.paired import LEAST_SEEDS
from gspo_lab.analysis.stats.proportions import clopper_pearson
from gspo_lab.analysis.stats.random_effects import CombinedEstimate
from gspo_lab.analysis.stats.random_effects import ReplicationOutcome as Outcome
from gspo_lab.analysis.stats.ranking import Ranking
from gspo_lab.analysis.stats.stability import StabilityVerdict
from gspo_lab.analysis.stats.verdict import Comparison, Reason, Verdict, VerdictLabel
from gspo_lab.common.text import (
    MINUS,
    capital,
    counted,
    difference,
    level,
    listed,
    percent,
    signed,
)
from gspo_lab.report.words.reasons import (
    ALIKE,
    APART,
    better,
    fill,
    label,
    reason_text,
    sentences,
    short,
)


def because(verdict: Verdict) -> str | None:
    """Why there is no verdict; None where nothing stands against one."""
    return "; ".join(map(reason_text, verdict.reasons)) or None


def sentence(verdict: Verdict, *, bounded: bool = True) -> str:
    """The verdict in words, without numbers; with `bounded` those that bound what was not seen."""
    return " ".join(statements(verdict, bounded=bounded))


def statements(verdict: Verdict, *, bounded: bool = True) -> list[str]:
    """The verdict as one sentence, then what limits it."""
    first = verdict.subject
    second = verdict.baseline
    about = reason_text(verdict.about) if verdict.about else ""
    if second is None:
        text = f"{first} is {short(verdict)}."
    elif verdict.word == "withheld":
        text = f"No verdict on {first} against {second}: {because(verdict)}."
    elif verdict.word in APART:
        text = (
            f"{first} is"
            f" {APART[verdict.word].format(better=better(verdict), second=second, about=about)}."
        )
    elif verdict.word in ALIKE:
        text = f"{first} and {second} are {ALIKE[verdict.word]}{about}."
    else:
        why = f": {because(verdict)}" if verdict.reasons else ""
        text = f"{_whether([verdict])} is inconclusive{why}."
    out = [text]
    if isinstance(verdict, Comparison):
        if bounded and verdict.word == "practically equivalent":
            out.append(rare_event_bound(verdict))
        if verdict.flips:
            out.append("Leaving out one seed turns the sign.")
        if verdict.unproven:
            out.append(
                f"The pairs are taken on trust: {', '.join(verdict.unproven)} not recorded"
                " everywhere."
            )
    return out


def stated(verdict: Verdict) -> list[str]:
    """The verdict as one sentence with its numbers, then what limits it."""
    first, *further = statements(verdict)
    if verdict.estimate is None or verdict.paired is None or verdict.word == "withheld":
        return [first, *further]
    drop = f"the drop of {verdict.subject} from its best, relative to the gain, is smaller by "
    measure = drop if verdict.question == "stability" else ""
    numbers = difference(
        verdict.estimate, verdict.interval or (None, None), verdict.level, verdict.margin
    )
    return [
        f"{first.rstrip('.')}: {measure}{numbers}, {counted(verdict.paired.n, 'seed')}.",
        *further,
    ]


def _whether(verdicts: Sequence[Verdict]) -> str:
    first = verdicts[0]
    about = reason_text(first.about) if first.about else ""
    differs = "differs in stability" if first.question == "stability" else "differs"
    return (
        f"Whether {listed([verdict.subject for verdict in verdicts], 'or')} {differs} from"
        f" {first.baseline}{about}"
    )


def rare_event_bound(verdict: Comparison) -> str:
    """What runs without a collapse leave open: the bounds of the rate (Clopper-Pearson)."""
    both = (verdict.baseline, verdict.subject)
    known = [
        (rate, arm) for rate, arm in zip(verdict.collapsed or (), both, strict=False) if rate.n
    ]
    interval = f"{percent(1 - verdict.alpha)} interval"
    if verdict.collapsed is not None and not known:
        return "Whether runs collapse is not judged."
    if len(known) < 2 and not any(rate.k for rate, _ in known):
        none = clopper_pearson(0, verdict.paired.n, 1 - verdict.alpha)
        return (
            f"An event seen in none of an arm's {none.n} runs can still have a rate of up to"
            f" {percent(none.high)} ({interval})."
        )
    if len(known) == 2 and known[0][0] == known[1][0]:
        rate = known[0][0]
        return (
            f"{rate.k} of {rate.n} runs of each arm collapsed ({interval} of the rate: up to"
            f" {percent(rate.high)})."
        )
    counts = " and ".join(f"{rate.k} of {rate.n} runs of {arm}" for rate, arm in known)
    high = " and ".join(percent(rate.high) for rate, _ in known)
    return f"{counts} collapsed ({interval} of the rate: up to {high})."


def headline(verdicts: Sequence[Verdict], *, bounded: bool = True) -> str:
    """All verdicts of one question in one sentence."""
    if len(verdicts) == 1:
        return sentence(verdicts[0], bounded=bounded)
    first = verdicts[0]
    if first.baseline is None:
        return f"{'; '.join(f'{verdict.subject} is {short(verdict)}' for verdict in verdicts)}."
    words = {verdict.word for verdict in verdicts}
    if words == {"not resolved"}:
        return f"{_whether(verdicts)} is inconclusive."
    if words == {"withheld"}:
        return (
            f"No verdict on {listed([verdict.subject for verdict in verdicts], 'or')} against"
            f" {first.baseline}."
        )
    about = reason_text(first.about) if first.about else ""
    return f"Against {first.baseline}{about}: {grouped(verdicts)}."


def grouped(verdicts: Sequence[Verdict]) -> str:
    """The arms of each verdict, one group after the other."""
    groups: dict[tuple[VerdictLabel, int], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.word, verdict.direction), []).append(verdict)
    parts = []
    for (word, _), alike in groups.items():
        subjects = [verdict.subject for verdict in alike]
        withheld = word == "withheld"
        parts.append(
            f"no verdict on {listed(subjects, 'or')}"
            if withheld
            else f"{listed(subjects)} {short(alike[0])}"
        )
    return "; ".join(parts)


SHOWN = ("name", "criterion", "n", "estimate", "low", "high", "p", "side", "word", "detectable")
"""The fields of an estimate that plain data hold."""


def claim_to_json(result: Result) -> dict[str, Any]:
    """For a report's .json and for scripts."""

    def number(part: Estimate) -> dict[str, Any]:
        note = None if part.reason is None else reason_text(part.reason)
        return {**{name: getattr(part, name) for name in SHOWN}, "note": note}

    return {
        **result.claim.as_data(),
        "word": result.word,
        "reason": because(result.verdict) or "",
        "codes": [reason.code for reason in result.reasons],
        "declared": result.declared,
        "arms": dict(result.roles),
        "unstable_runs": {arm: {"runs": k, "of": n} for arm, (k, n) in result.unstable.items()},
        "p": result.p,
        "p_adjusted": result.p_adjusted,
        "parts": list(map(number, result.parts)),
        "also": list(map(number, result.supplementary)),
    }


CHIPS = {
    "regime not reached": "no unstable runs",
    "not resolved": "inconclusive",
    "withheld": "no verdict",
}
CAUSES = {"non-finite": "numbers that are not finite", "reward": "the reward collapsed"}
"""`Stability.cause` in words."""


def chip(answer: StudyAnswer) -> str:
    """The answer in a few words; of a single verdict its label."""
    single = len(answer.verdicts) == 1 and not answer.why
    return label(answer.verdicts[0]) if single else CHIPS.get(answer.word, answer.word)


def answer_text(answer: StudyAnswer) -> str:
    """The answer as a sentence, with what limits it."""
    return " ".join(answer_sentences(answer))


def answer_sentences(answer: StudyAnswer) -> list[str]:
    """The answer as one sentence with its numbers, then what limits it, and what is said of the
    other arms.
    """
    if answer.why:
        return [_say(answer.why)]
    first, *later = answer.verdicts
    if first.baseline is None:
        return [headline(answer.verdicts)] if later else statements(first)
    arms = [f"Other arms against {first.baseline}: {grouped(later)}."] if later else []
    return [*stated(first), *arms]


def ground_text(answer: StudyAnswer) -> str:
    """Its ground. The numbers that the answer itself states are not repeated."""
    grounds = [
        (
            f"Margin ±{answer.verdicts[0].margin:g}."
            if reason.code == "differences" and not answer.why
            else _say(reason)
        )
        for reason in answer.grounds
    ]
    return " ".join(filter(None, grounds))


def lines(answer: StudyAnswer) -> tuple[str, str, str]:
    """For a terminal and a digest."""
    return answer_text(answer), ground_text(answer), f"Next: {answer.command}"


def answer_to_json(answer: StudyAnswer) -> dict[str, str]:
    """Plain data, as the report's JSON has it."""
    said = answer_text(answer)
    ground = ground_text(answer)
    texts = {"label": chip(answer), "said": said, "rests_on": ground, "next": answer.command}
    return {"word": answer.word, "colour": answer.colour, **texts}


def unstable_runs(counts: UnstableRunCounts, level: float | None = None) -> str:
    """The counts; with a `level`, of runs that were all stable, the interval of their rate."""
    if not counts.judged:
        return (
            f"Whether runs were unstable is {NOT_JUDGED}: too few evaluations and training steps."
        )
    if counts.unstable:
        collapsed = f", {counts.collapsed} of them collapsed" if counts.collapsed else ""
        was = "was" if counts.unstable == 1 else "were"
        return f"{counts.unstable} of {counted(counts.judged, 'run')} {was} unstable{collapsed}."
    unjudged = counts.finished - counts.judged
    who = (
        "None" if counts.by_reward else "By scores alone, none"
    )  # too few training steps to judge the reward
    none = (
        f"{who} of {counted(counts.judged, 'run')} was"
        f" unstable{f', {unjudged} {NOT_JUDGED}' if unjudged else ''}"
    )
    if level is None:
        return f"{none}."
    high = clopper_pearson(0, counts.judged, level).high
    return f"{none} ({percent(level)} interval of the rate: 0 to {percent(high)})."


def best_arms(ranking: Ranking) -> str:
    """Which arms may be the best."""
    arms = len(ranking.places)
    best = ranking.may_be_best
    if ranking.seeds < LEAST_SEEDS:
        return f"Fewer than {LEAST_SEEDS} seeds cannot rank the {arms} arms."
    pairs = (
        f"{ranking.apart or 'none'} of {ranking.compared} pairs of arms differ over {ranking.seeds}"
        " seeds"
    )
    if len(best) == arms:
        return f"Any of the {arms} arms may be the best: {pairs}."
    if len(best) > 1:
        return f"Any of {listed(best, 'or')} may be the best of the {arms} arms: {pairs}."
    return f"The best of the {arms} arms is {best[0]}: {pairs}."


def _differences(verdicts: Sequence[Comparison]) -> str:
    known = [(verdict, verdict.estimate) for verdict in verdicts if verdict.estimate is not None]
    if not known:
        return "No difference is measured."
    first, estimate = known[0]
    margin = f"margin ±{first.margin:g}"
    pairs = f"{counted(first.paired.n, 'pair')} of runs"
    if len(known) > 1:
        values = [value for _, value in known]
        return (
            f"Differences of {signed(min(values))} to {signed(max(values))}, {margin}, {pairs} an"
            " arm."
        )
    text = difference(estimate, (first.paired.low, first.paired.high), first.alpha, first.margin)
    return f"{first.subject} {MINUS} {first.baseline}: {text}, {margin}, {pairs}."


def unstable_counts(counts: Mapping[str, tuple[int, int]]) -> str:
    """ "Unstable, of 7: grpo 3, gspo 1" of unstable and judged runs by arm; each arm's number where
    they differ.
    """
    sizes = {n for _, n in counts.values()}
    if len(sizes) == 1:
        return (
            f"Unstable, of {sizes.pop()}:"
            f" {', '.join(f'{arm} {k}' for arm, (k, _) in counts.items())}"
        )
    return f"Unstable: {', '.join(f'{arm} {k} of {n}' for arm, (k, n) in counts.items())}"


def _unstable_by_arm(verdicts: Sequence[StabilityVerdict]) -> str:
    rates = [(str(verdicts[0].baseline), verdicts[0].unstable[0])]
    rates += [(verdict.subject, verdict.unstable[1]) for verdict in verdicts]
    return f"{unstable_counts({arm: (rate.k, rate.n) for arm, rate in rates})}."


def _drops(verdicts: Sequence[StabilityVerdict]) -> str:
    """How far final scores lie below the best ones, arm by arm, relative and in points of score."""
    known = [verdict for verdict in verdicts if verdict.points.n]
    if not known:
        return ""
    arms = [
        (known[0].baseline, known[0].drops[0]),
        *((verdict.subject, verdict.drops[1]) for verdict in known),
    ]
    shares = ", ".join(f"{arm} {percent(share)}" for arm, (share, _) in arms)
    points = ", ".join(f"{points:.3f}" for _, (_, points) in arms)
    margin = f"margin ±{percent(known[0].drop.margin)}"
    return (
        f"Drop from best, relative to the gain: {shares} ({margin}); in points of score: {points}."
    )


def _causes(steps: tuple[int, int] | None, causes: Sequence[str]) -> str:
    if steps is None:
        return "Every run that could be judged."
    at = f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]} to {steps[1]}"
    return f"Cause: {' and '.join(CAUSES[cause] for cause in causes)}, at {at}."


GROUNDS: Mapping[str, Callable[..., str] | str] = {
    "runs": lambda runs: f"{counted(runs, 'run')}.",
    "runs finished": lambda finished, planned, collapsed: (
        f"{finished} of {planned} runs are"
        f" finished{f', {collapsed} of them collapsed' if collapsed else ''}."
    ),
    "still running": "Not answered yet: the study is still running.",
    "all collapsed": "All {runs} runs collapsed, in every arm: nothing is left to compare.",
    "causes": _causes,
    "runs missing": lambda runs: (
        f"Not answered: {counted(runs, 'run')} {'is' if runs == 1 else 'are'} missing."
    ),
    "these runs": lambda runs: (
        f"{', '.join(runs[:4])}{f' and {len(runs) - 4} more' if len(runs) > 4 else ''}."
    ),
    "barred": lambda verdict: f"Not answered: {because(verdict)}.",
    "too few seeds": lambda seeds: (
        f"Not answered: {counted(seeds, 'seed')} cannot show a difference; at least {LEAST_SEEDS}"
        " are needed."
    ),
    "differences": _differences,
    "score is a reward": lambda names: f"The score is {', '.join(names)}, a training reward.",
    "best arms": best_arms,
    "unstable runs": unstable_runs,
    "stability not judged": lambda: (
        f"Not answered: whether runs were unstable is {NOT_JUDGED}: too few evaluations and"
        " training steps."
    ),
    "stability unknown": (
        "Not answered: no run became unstable, so these settings cannot compare stability."
    ),
    "scores alone": lambda verdicts: f"Final scores alone: {headline(verdicts, bounded=False)}",
    "unstable by arm": _unstable_by_arm,
    "drops": _drops,
    "swept": lambda decided: " ".join(f"{line}." for line in swept(decided)),
    "unmatched sweep": "The sweep's runs are not matched; see the certificate.",
    "values": "{values} values of {key} were swept.",
    "claims": lambda verdicts: " ".join(
        f"{capital(text)}." for verdict in verdicts if (text := because(verdict))
    ),
}


def _say(reason: Reason) -> str:
    return fill(GROUNDS[reason.code], reason) if reason.code in GROUNDS else sentences([reason])[0]


OUTCOMES: dict[Outcome, str] = {
    "taken back": "contradicted",
    "not said again": "not confirmed",
    "held": "confirmed",
}
"""The labels of replication outcomes, the worst first."""


def decided_sentences(decided: Decision) -> list[str]:
    """One per verdict; where no score can decide, what stands in their place."""
    if decided.verdicts:
        return [sentence(verdict) for verdict in decided.verdicts.values()]
    return (
        sentences([decided.reason]) if decided.reason else [f"{line}." for line in swept(decided)]
    )


def flags(decided: Decision) -> list[str]:
    """What a reader of the verdicts must know of single runs and of looks.

    All of these runs are counted.
    """
    ended = [(f"{run.arm} seed {run.seed}", run) for run in decided.ended]
    dead = [f"{name} ({run.nonfinite})" for name, run in ended if run.nonfinite]
    runs = {
        "Collapsed and still counted": [name for name, run in ended if run.collapsed],
        "Updates that were not finite, skipped or of a dead model": dead,
        "Evaluations that could not be graded repeat the one before": [
            name for name, run in ended if run.carried
        ],
    }
    tuning = decided.matched.tuning
    looked = f"Resolved at the declared look after {len(decided.seeds)} of {decided.planned} seeds."
    return [
        *(
            f"{capital(note)}."
            for note in (*decided.matched.on_trust, decided.matched.grade)
            if note
        ),
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


def became(word: VerdictReplication) -> str:
    """A verdict of one execution, and what a later one makes of it."""
    by = "in" if word.fate == "held" else "by"
    return f"{word.by}: {label(word.verdict)}; {OUTCOMES[word.fate]} {by} {word.later}."


def precision_note(both: CombinedEstimate) -> str:
    """What so many executions can show."""
    if both.k == 1:
        return "The executions share their seeds: each seed counts once, by its mean over them."
    if both.k > 2:
        return f"{both.k} executions on seeds of their own."
    return (
        "Two executions on seeds of their own: the combined interval is wide, because one"
        " difference says almost nothing about how executions vary. They can contradict each other,"
        " and hardly confirm."
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
    key = response.key
    baseline = response.baseline
    about = "" if response.about is None else reason_text(response.about)
    lines = [f"{arm.arm}: {_half(arm, key)}" for arm in response.arms]
    lines += [_ratio(arm, baseline, ratio, key, about) for arm, ratio in response.ratios.items()]
    return lines + (
        [f"Not counted, added after the first step: {', '.join(response.added)}"]
        if response.added
        else []
    )


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
        share = (
            f"predicted share clipped by GSPO at {prediction.length:,.0f} tokens:"
            f" {interval(prediction.share)}"
        )
        lines.append(f"{share}; {published}")
    return lines


def interval(of: PairedT, digits: int = 3) -> str:
    """An estimate with its interval."""
    if of.estimate is None:
        return "not measured"
    return f"{of.estimate:.{digits}g} {bounds(of, digits) or f'({of.reason})'}"


def bounds(of: PairedT, digits: int = 3) -> str:
    """The interval alone; empty where there is none."""
    return (
        "" if of.low is None or of.high is None else f"[{of.low:.{digits}g}, {of.high:.{digits}g}]"
    )


def _half(arm: ArmResponse, key: str) -> str:
    half = arm.half
    if half is None:
        return "fewer than two values have finished runs that are long enough to be judged"
    collapsed, judged = (
        sum(counts) for counts in zip(*((p.collapsed, p.runs) for p in arm.points), strict=True)
    )
    runs = f"{collapsed} of {judged} runs collapsed"
    if half.resolved and half.estimate is not None:
        return (
            f"50 % collapse point at {key} = {half.estimate:.3g} [{half.low:.3g}, {half.high:.3g}]"
            f" ({runs})"
        )
    return f"inconclusive ({runs}): {half.reason}{_needed(half)}"


def _ratio(arm: str, baseline: str, ratio: DoseLimits, key: str, about: str) -> str:
    if ratio.resolved and ratio.estimate is not None:
        includes = ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high
        at_level = "" if ratio.alpha is None else f"{level(ratio.alpha)} "
        ends = f"{at_level}interval {ratio.low:.3g} to {ratio.high:.3g}"
        text = f"{arm} tolerates {ratio.estimate:#.3g} times {baseline}'s {key}{about} ({ends})"
        return f"{text}: inconclusive" if includes else text
    return f"{arm} against {baseline}{about}: inconclusive: {ratio.reason}{_needed(ratio)}"


def _needed(limits: DoseLimits) -> str:
    if limits.needed is None:
        return ""
    below = limits.needed.below
    above = limits.needed.above
    sides = [
        f"below {below:.3g}" if below is not None else "",
        f"above {above:.3g}" if above is not None else "",
    ]
    return f"; values {' and '.join(side for side in sides if side)} are needed"
