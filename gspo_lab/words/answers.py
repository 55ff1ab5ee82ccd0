"""The answer to a study's question in English: a label, a sentence, its ground, the command to type."""

from collections.abc import Callable, Mapping, Sequence

from gspo_lab.findings.answer import StudyAnswer
from gspo_lab.findings.run_outcomes import NOT_JUDGED
from gspo_lab.findings.stability import UnstableRunCounts
from gspo_lab.stats.paired import LEAST_SEEDS
from gspo_lab.stats.proportions import clopper_pearson
from gspo_lab.stats.ranking import Ranking
from gspo_lab.stats.stability import StabilityVerdict
from gspo_lab.stats.verdict import Comparison, Reason
from gspo_lab.words.decision import swept
from gspo_lab.words.reasons import fill, label, sentences
from gspo_lab.words.text import MINUS, capital, counted, difference, listed, percent, signed
from gspo_lab.words.verdicts import because, grouped, headline, stated, statements

CHIPS = {"regime not reached": "no unstable runs", "not resolved": "inconclusive", "withheld": "no verdict"}
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
    """The answer as one sentence with its numbers, then what limits it, and what is said of the other arms."""
    if answer.why:
        return [_say(answer.why)]
    first, *later = answer.verdicts
    if first.baseline is None:
        return [headline(answer.verdicts)] if later else statements(first)
    arms = [f"Other arms against {first.baseline}: {grouped(later)}."] if later else []
    return [*stated(first), *arms]


def ground_text(answer: StudyAnswer) -> str:
    """Its ground. The numbers that the answer itself states are not repeated."""
    return " ".join(filter(None, (_ground(reason, answer) for reason in answer.grounds)))


def _ground(reason: Reason, answer: StudyAnswer) -> str:
    if reason.code == "differences" and not answer.why:
        return f"Margin ±{answer.verdicts[0].margin:g}."
    return _say(reason)


def lines(answer: StudyAnswer) -> tuple[str, str, str]:
    """For a terminal and a digest."""
    return answer_text(answer), ground_text(answer), f"Next: {answer.command}"


def to_json(answer: StudyAnswer) -> dict[str, str]:
    """Plain data, as the report's JSON has it."""
    texts = {
        "label": chip(answer),
        "said": answer_text(answer),
        "rests_on": ground_text(answer),
        "next": answer.command,
    }
    return {"word": answer.word, "colour": answer.colour, **texts}


def unstable_runs(counts: UnstableRunCounts, level: float | None = None) -> str:
    """The counts; with a `level`, of runs that were all stable, the interval of their rate."""
    if not counts.judged:
        return f"Whether runs were unstable is {NOT_JUDGED}: too few evaluations and training steps."
    if counts.unstable:
        collapsed = f", {counts.collapsed} of them collapsed" if counts.collapsed else ""
        was = "was" if counts.unstable == 1 else "were"
        return f"{counts.unstable} of {counted(counts.judged, 'run')} {was} unstable{collapsed}."
    unjudged = counts.finished - counts.judged
    who = "None" if counts.by_reward else "By scores alone, none"  # too few training steps to judge the reward
    none = f"{who} of {counted(counts.judged, 'run')} was unstable{f', {unjudged} {NOT_JUDGED}' if unjudged else ''}"
    if level is None:
        return f"{none}."
    high = clopper_pearson(0, counts.judged, level).high
    return f"{none} ({percent(level)} interval of the rate: 0 to {percent(high)})."


def best_arms(ranking: Ranking) -> str:
    """Which arms may be the best."""
    arms, best = len(ranking.places), ranking.may_be_best
    if ranking.seeds < LEAST_SEEDS:
        return f"Fewer than {LEAST_SEEDS} seeds cannot rank the {arms} arms."
    pairs = f"{ranking.apart or 'none'} of {ranking.compared} pairs of arms differ over {ranking.seeds} seeds"
    if len(best) == arms:
        return f"Any of the {arms} arms may be the best: {pairs}."
    return f"The best of the {arms} arms is {listed(best, 'or')}: {pairs}."


def _differences(verdicts: Sequence[Comparison]) -> str:
    known = [(verdict, verdict.estimate) for verdict in verdicts if verdict.estimate is not None]
    if not known:
        return "No difference is measured."
    first, estimate = known[0]
    margin, pairs = f"margin ±{first.margin:g}", f"{counted(first.paired.n, 'pair')} of runs"
    if len(known) > 1:
        values = [value for _, value in known]
        return f"Differences of {signed(min(values))} to {signed(max(values))}, {margin}, {pairs} an arm."
    text = difference(estimate, (first.paired.low, first.paired.high), first.alpha)
    return f"{first.subject} {MINUS} {first.baseline}: {text}, {margin}, {pairs}."


def unstable_counts(counts: Mapping[str, tuple[int, int]]) -> str:
    """ "Unstable, of 7: grpo 3, gspo 1" of unstable and judged runs by arm; each arm's number where they differ."""
    sizes = {n for _, n in counts.values()}
    if len(sizes) == 1:
        return f"Unstable, of {sizes.pop()}: {', '.join(f'{arm} {k}' for arm, (k, _) in counts.items())}"
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
    arms = [(known[0].baseline, known[0].drops[0]), *((verdict.subject, verdict.drops[1]) for verdict in known)]
    shares = ", ".join(f"{arm} {percent(share)}" for arm, (share, _) in arms)
    points = ", ".join(f"{points:.3f}" for _, (_, points) in arms)
    margin = f"margin ±{percent(known[0].drop.margin)}"
    return f"Drop from best, relative to the gain: {shares} ({margin}); in points of score: {points}."


def _missing(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - 4} more" if len(runs) > 4 else ""
    return f"{', '.join(runs[:4])}{more}."


def _finished(finished: int, planned: int, collapsed: int) -> str:
    return f"{finished} of {planned} runs are finished{f', {collapsed} of them collapsed' if collapsed else ''}."


def _causes(steps: tuple[int, int] | None, causes: Sequence[str]) -> str:
    if steps is None:
        return "Every run that could be judged."
    at = f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]} to {steps[1]}"
    return f"Cause: {' and '.join(CAUSES[cause] for cause in causes)}, at {at}."


GROUNDS: Mapping[str, Callable[..., str] | str] = {
    "runs": lambda runs: f"{counted(runs, 'run')}.",
    "runs finished": _finished,
    "still running": "Not answered yet: the study is still running.",
    "all collapsed": "All {runs} runs collapsed, in every arm: nothing is left to compare.",
    "causes": _causes,
    "runs missing": lambda runs: f"Not answered: {counted(runs, 'run')} {'is' if runs == 1 else 'are'} missing.",
    "these runs": _missing,
    "barred": lambda verdict: f"Not answered: {because(verdict)}.",
    "too few seeds": lambda seeds: (
        f"Not answered: {counted(seeds, 'seed')} cannot show a difference; at least {LEAST_SEEDS} are needed."
    ),
    "differences": _differences,
    "best arms": best_arms,
    "unstable runs": unstable_runs,
    "stability not judged": lambda: (
        f"Not answered: whether runs were unstable is {NOT_JUDGED}: too few evaluations and training steps."
    ),
    "stability unknown": "Not answered: no run became unstable, so these settings cannot compare stability.",
    "scores alone": lambda verdicts: f"Final scores alone: {headline(verdicts, bounded=False)}",
    "unstable by arm": _unstable_by_arm,
    "drops": _drops,
    "swept": lambda decided: " ".join(f"{line}." for line in swept(decided)),
    "unmatched sweep": "The sweep's runs are not matched; see the certificate.",
    "values": "{values} values of {key} were swept.",
    "claims": lambda verdicts: " ".join(f"{capital(text)}." for verdict in verdicts if (text := because(verdict))),
}


def _say(reason: Reason) -> str:
    return fill(GROUNDS[reason.code], reason) if reason.code in GROUNDS else sentences([reason])[0]
