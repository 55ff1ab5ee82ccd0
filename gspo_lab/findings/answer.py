"""The answer to a study's declared question: a word, its colour and three lines, for report, terminal and digest.

`[verdict] question` says what answers: the final score, the stability of runs, or claims. These are judged in the room
above, whose `answer` is the one to call.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from gspo_lab.findings.executions import REPLICATION
from gspo_lab.findings.outcomes import NOT_JUDGED
from gspo_lab.findings.steadiness import Regime, Steadiness
from gspo_lab.states import State
from gspo_lab.stats.dose import DoseRatio
from gspo_lab.stats.paired import LEAST_SEEDS
from gspo_lab.stats.verdict import Verdict
from gspo_lab.study.command import without

if TYPE_CHECKING:
    from gspo_lab.findings.findings import Findings

Colour = Literal["green", "blue", "grey", "red"]
"""Answered; answered in part; not answered; something must be mended first."""

UNDER_WAY = (State.RUNNING, State.QUEUED)
CAUSES = {"non-finite": "numbers that are not finite", "reward": "the reward fell and stayed low"}
"""`Stability.cause` in words."""
MOST_SEEDS = 20
"""More seeds than this are not proposed: `plan` says what else could settle it."""


@dataclass(frozen=True)
class Said:
    """A declared claim's word, as the room above judged it."""

    name: str
    word: str
    reason: str


@dataclass(frozen=True)
class Answer:
    """`word` in a few words, `said` as a sentence, `rests_on` its ground, `next` the command to type."""

    word: str
    colour: Colour
    said: str
    rests_on: str
    next: str

    @property
    def lines(self) -> tuple[str, str, str]:
        """For a terminal and a digest."""
        return self.said, self.rests_on, f"Next: {self.next}"

    def to_json(self) -> dict[str, str]:
        """Plain data, as the report's JSON has it."""
        return vars(self)


def answer_of(found: "Findings", claims: Sequence[Said] = ()) -> Answer:
    """The answer by the declared rule. `claims` are the words of those that the question names."""
    said = _answer(found, claims)
    if found.declaration.recorded is not None and said.next.split()[1] in ("run", "plan", "check", "replicate"):
        more = f"gspo-lab import SOURCE PATH --study {shlex.quote(found.study)} --arm ARM --seed SEED"
        return replace(said, next=more)  # what another program trained, no command of ours trains on
    return said


def _answer(found: "Findings", claims: Sequence[Said]) -> Answer:
    declared, decided, fallen = found.declaration, found.decision, found.regime
    states = [run.state for run in found.runs if run.seed in decided.seeds]
    if declared.trials_of is not None:
        said = " ".join(decided.sentences)
        return Answer("trials", "grey", said, f"{len(states)} trials.", f"gspo-lab show {declared.trials_of}")
    planned = len(declared.arms) * len(decided.seeds)
    if not decided.resolved and any(state in UNDER_WAY for state in states):
        done = f"{states.count(State.FINISHED)} of {planned} runs are finished"
        return Answer("running", "grey", "Not answered yet: the study is still running.", f"{done}{_so_far(fallen)}.",
                      f"gspo-lab report {declared.name} --watch")  # fmt: skip
    if fallen.all_collapsed and fallen.finished == planned:
        said = f"All {fallen.finished} runs collapsed, in every arm: nothing is left to compare."
        return Answer("all collapsed", "red", said, f"{_causes(found)}.", _elsewhere(found, 0.25, "calmer"))
    if claims:
        return _of_claims(found, claims)
    if decided.doses is not None:
        return _of_doses(found, fallen)
    if not decided.verdicts:
        return Answer("no verdict", "grey", " ".join(decided.sentences), f"{len(states)} runs.", _again(found, "check"))
    return _refused(found) or (_of_stability if declared.verdict.question == "stability" else _of_scores)(found)


def _refused(found: "Findings") -> Answer | None:
    """Where there is no word on any arm: runs that are missing or no pairs, too few seeds."""
    decided, verdicts = found.decision, list(found.decision.verdicts.values())
    if any(one.word != "withheld" for one in verdicts):
        return None
    lacking = list(dict.fromkeys(run for runs in decided.missing.values() for run in runs))
    if lacking:
        more = f" and {len(lacking) - 4} more" if len(lacking) > 4 else ""
        said = f"Not answered: {len(lacking)} run{'s are' if len(lacking) > 1 else ' is'} missing."
        return Answer("withheld", "red", said, f"{', '.join(lacking[:4])}{more}.", _again(found, "run"))
    barred = [one for one in verdicts if one.reason != one.paired.reason]
    if barred:
        command = "grade" if decided.matched.ok else "certify"
        said = f"Not answered: {barred[0].reason}."
        return Answer("withheld", "red", said, _numbers(verdicts), f"gspo-lab {command} {found.study}")
    seeds = len(decided.seeds)
    if seeds < LEAST_SEEDS:
        told = "one seed" if seeds == 1 else f"{seeds} seeds"
        said = f"Not answered: {told} cannot tell a difference from luck; three are the least."
        return Answer(told, "grey", said, _numbers(verdicts), _more_seeds(found, 5))
    return None


def _of_scores(found: "Findings") -> Answer:
    verdicts = list(found.decision.verdicts.values())
    words = {one.word for one in verdicts}
    said = verdicts[0].sentence if len(verdicts) == 1 else headline(verdicts)
    # One bound on what may still fall is enough: the sentence's own, where it has one.
    bounded = _unbounded(found, said) != said
    fallen = found.regime.told(None if bounded else 1 - found.declaration.verdict.alpha)
    best = [found.ranking.sentence] if found.ranking is not None else []
    ground = " ".join([_numbers(verdicts), *best, f"{fallen.capitalize()}."])
    if words == {"withheld"}:
        return Answer("withheld", "grey", said, ground, _replicate(found))
    if words <= {"not resolved", "withheld"}:
        wanted = max((one.more_seeds or 0 for one in verdicts), default=0) + len(found.decision.seeds)
        return Answer("not resolved", "grey", said, ground, _more_seeds(found, wanted))
    partly = bool(words & {"not resolved", "withheld", "better, size not resolved against the margin"})
    return Answer(_word(verdicts), "blue" if partly else "green", said, ground, _replicate(found))


def _word(verdicts: Sequence[Verdict]) -> str:
    """All arms in a few words."""
    words = {one.word for one in verdicts}
    if words == {"practically equivalent"}:
        return "equivalent"
    if words & {"not resolved", "withheld"}:
        return "resolved in part"
    if len(verdicts) == 1:
        return f"{verdicts[0].better} better"
    return "arm by arm"


def _of_stability(found: "Findings") -> Answer:
    """Grey, too, where no run fell: then nothing says what would have become of either arm."""
    every, fallen = list(found.steadiness.values()), found.regime
    words = {one.word for one in every}
    told = fallen.told(1 - found.declaration.verdict.alpha)
    if not fallen.judged:
        return Answer(NOT_JUDGED, "grey", f"Not answered: {told}.", f"{fallen.finished} runs.", _again(found, "check"))
    if not fallen.reached and not words & {"more stable", "less stable"}:
        scores = _of_scores(found)
        return Answer(
            "regime not reached",
            "grey",
            "Not answered: the runs never came to where training becomes unstable.",
            f"{told[0].upper()}{told[1:]}. Final scores alone: {_unbounded(found, scores.said)}",
            _elsewhere(found, 2.0, "further"),
        )
    ground = f"{'; '.join(one.counts for one in every[:3])}. {told[0].upper()}{told[1:]}. {_losses(every)}"
    if words <= {"not resolved", "withheld"}:
        said = (
            every[0].sentence if len(every) == 1 else f"Which arm is more stable{every[0].lost.about} is not resolved."
        )
        return Answer("not resolved", "grey", said, ground, _more_seeds(found, max(8, 2 * len(found.decision.seeds))))
    said = every[0].sentence if len(every) == 1 else _grouped(every)
    partly = bool(words & {"not resolved", "withheld"})
    word = every[0].word if len(words) == 1 else "resolved in part" if partly else "arm by arm"
    return Answer(word, "blue" if partly else "green", said, ground, _replicate(found))


def _of_doses(found: "Findings", fallen: Regime) -> Answer:
    doses = found.decision.doses
    assert doses is not None
    said = " ".join(found.decision.sentences)
    if not found.decision.matched.on(found.decision.seeds).ok:
        return Answer("withheld", "red", said, "Runs of the sweep are no pairs.", f"gspo-lab certify {found.study}")
    told = fallen.told(1 - found.declaration.verdict.alpha)
    ground = f"{told[0].upper()}{told[1:]}, over {len(doses.arms[0].points)} doses of {doses.key}."
    apart = [_apart(ratio) for ratio in doses.ratios.values()]
    if all(apart) and apart:
        signs = {(ratio.low or 0) > 1 for ratio in doses.ratios.values()}
        word = "arm by arm" if len(signs) > 1 else "more stable" if signs == {True} else "less stable"
        return Answer(word, "green", said, ground, _replicate(found))
    if any(apart):
        return Answer("resolved in part", "blue", said, ground, _replicate(found))
    if not fallen.reached:
        return Answer("regime not reached", "grey", said, ground, _again(found, "check"))
    return Answer("not resolved", "grey", said, ground, _again(found, "plan"))


def _apart(ratio: DoseRatio) -> bool:
    """Whether the interval of a ratio of doses leaves 1 out."""
    return ratio.resolved and ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high


def _of_claims(found: "Findings", claims: Sequence[Said]) -> Answer:
    words = [one.word for one in claims]
    decided = [one for one in claims if one.word in ("supported", "contradicted")]
    said = f"{'; '.join(f'{one.name} is {one.word}' for one in claims)}."
    ground = " ".join(f"{one.reason[:1].upper()}{one.reason[1:]}." for one in claims[:2] if one.reason)
    untested = all(word == "not testable here" for word in words)
    away = untested and any("regime was not reached" in one.reason for one in claims)
    if not decided:
        word = "regime not reached" if away else "not testable here" if untested else "not resolved"
        command = _elsewhere(found, 2.0, "further") if away else f"gspo-lab claims {found.study}"
        return Answer(word, "grey", said, ground, command)
    whole = len(decided) == len(claims)
    word = decided[0].word if len({*words}) == 1 else "claim by claim"
    return Answer(word, "green" if whole else "blue", said, ground, _replicate(found))


def headline(verdicts: Sequence[Verdict]) -> str:
    """All comparisons in one sentence."""
    baseline, about = verdicts[0].labels[0], verdicts[0].about
    groups: dict[str, list[str]] = {}
    for verdict in verdicts:
        word = "worse" if verdict.better == baseline else "better"
        groups.setdefault(verdict.word.replace("better", word, 1), []).append(verdict.labels[1])
    if list(groups) == ["not resolved"]:
        return f"Whether {_listed(groups['not resolved'], 'or')} differs from {baseline}{about} is not resolved."
    if list(groups) == ["withheld"]:
        return f"No verdict on {_listed(groups['withheld'], 'or')} against {baseline}."
    told = [
        f"no verdict on {_listed(arms, 'or')}" if word == "withheld" else f"{_listed(arms, 'and')} {word}"
        for word, arms in groups.items()
    ]
    return f"Against {baseline}{about}: {'; '.join(told)}."


def _grouped(every: Sequence[Steadiness]) -> str:
    groups: dict[str, list[str]] = {}
    for one in every:
        groups.setdefault(one.word, []).append(one.labels[1])
    told = [f"{_listed(arms, 'and')} {word}" for word, arms in groups.items()]
    return f"Against {every[0].labels[0]}{every[0].lost.about}: {'; '.join(told)}."


def _listed(names: Sequence[str], last: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def _numbers(verdicts: Sequence[Verdict]) -> str:
    """The differences that the words rest on, in a sentence."""
    known = [(one, one.paired.estimate) for one in verdicts if one.paired.estimate is not None]
    if not known:
        return "No difference is measured."
    one, estimate = known[0]
    margin, pairs = f"margin ±{one.margin:g}", f"{one.paired.n} pair{'s' * (one.paired.n != 1)} of runs"
    if len(known) > 1:
        values = [value for _, value in known]
        return f"Differences of {_signed(min(values))} to {_signed(max(values))}, {margin}, {pairs} an arm."
    interval = ""
    if one.paired.low is not None:
        ends = f"{_signed(one.paired.low)} to {_signed(one.paired.high or 0.0)}"
        interval = f", {100 * (1 - one.alpha):.3g} % interval {ends}"
    return f"{one.labels[1]} - {one.labels[0]} is {_signed(estimate)}{interval}, {margin}, {pairs}."


def _signed(value: float) -> str:
    """Three decimals with their sign, which zero has not."""
    return f"{value:+.3f}" if abs(value) >= 5e-4 else "0.000"


def _unbounded(found: "Findings", said: str) -> str:
    """A sentence on two arms without its bound on what their runs do not show."""
    verdicts = list(found.decision.verdicts.values())
    return said.replace(f" {verdicts[0].unseen}", "") if len(verdicts) == 1 else said


def _losses(every: Sequence[Steadiness]) -> str:
    """How far final scores lie below the best ones, arm by arm, relative and in points of score."""
    known = [verdict for verdict in every if verdict.points.n]
    if not known:
        return ""
    arms = [(known[0].labels[0], known[0].drops[0]), *((verdict.labels[1], verdict.drops[1]) for verdict in known)]
    shares = ", ".join(f"{arm} {100 * share:.0f} %" for arm, (share, _) in arms)
    points = ", ".join(f"{points:.3f}" for _, (_, points) in arms)
    margin = f"margin ±{100 * known[0].lost.margin:.0f} %"
    return f"Drop from best, relative to the gain: {shares} ({margin}); in points of score: {points}."


def _so_far(fallen: Regime) -> str:
    return f", {fallen.collapsed} of them collapsed" if fallen.collapsed else ""


def _causes(found: "Findings") -> str:
    """At which steps and why the runs collapsed."""
    known = [one.stability for one in found.decision.ended if one.stability is not None]
    steps = [one.collapse for one in known if one.collapse is not None]
    causes = dict.fromkeys(one.cause for one in known if one.cause is not None)
    if not steps:
        return "Every one that could be judged"
    at = f"step {min(steps)}" if min(steps) == max(steps) else f"steps {min(steps)} to {max(steps)}"
    return f"Cause: {' and '.join(CAUSES[cause] for cause in causes)}, at {at}"


def _words(found: "Findings") -> tuple[str, ...]:
    return found.declaration.commands[-1] if found.declaration.commands else (f"studies/{found.study}.toml",)


def _again(found: "Findings", command: str) -> str:
    return f"gspo-lab {command} {shlex.join(_words(found) if command == 'run' else _words(found)[:1])}"


def _beside(found: "Findings", option: str, value: Any, name: str) -> str:
    """The study with something changed, under a name of its own: what is declared does not change."""
    kept = without(_words(found), "--name", *([option] if option != "--set" else []))
    return f"gspo-lab run {shlex.join([*kept, option, str(value), '--name', f'{found.study}-{name}'])}"


def _more_seeds(found: "Findings", seeds: int) -> str:
    if seeds <= len(found.decision.seeds):
        return _replicate(found)
    return _again(found, "plan") if seeds > MOST_SEEDS else _beside(found, "--seeds", seeds, f"{seeds}-seeds")


def _elsewhere(found: "Findings", times: float, name: str) -> str:
    """The study at another learning rate: the shortest way to where runs fall, or do not."""
    rate = next(iter(found.declaration.arms.values())).settings.update.learning_rate
    return _beside(found, "--set", f"update.learning_rate={times * rate:.3g}", name)


def _replicate(found: "Findings") -> str:
    """Until executions are enough to confirm a word one more of them; then whether the record is what was recorded."""
    again = found.executions
    if again.can_confirm:
        return f"gspo-lab certify {found.study}"
    replicated = any(one.relation == REPLICATION for one in again.every)
    return f"gspo-lab replicate {found.study}{' --new' * (replicated and not again.under_way)}"
