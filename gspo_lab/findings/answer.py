"""The answer to a study's declared question, as codes and data: for report, terminal, digest and Python.

`[verdict] question` says what answers: the final score, the stability of runs, or claims. These are judged in the
package above, whose `answer` is the one to call. `words` says it in English.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gspo_lab.findings.clipped import rule_arms
from gspo_lab.findings.compared import ranked
from gspo_lab.findings.decision import decision
from gspo_lab.findings.executions import REPLICATION, all_executions
from gspo_lab.findings.outcomes import NOT_JUDGED
from gspo_lab.findings.stability import regime, steadiness
from gspo_lab.readings import Source
from gspo_lab.readings import runs as runs_of
from gspo_lab.states import State
from gspo_lab.stats.dose import DoseLimits
from gspo_lab.stats.paired import LEAST_SEEDS
from gspo_lab.stats.stability import StabilityVerdict
from gspo_lab.stats.verdict import Comparison, Reason, Verdict
from gspo_lab.study.overrides import without

Colour = Literal["green", "blue", "grey", "red"]
"""Answered; answered in part, or against the arms; not answered; something must be mended first."""

UNDER_WAY = (State.RUNNING, State.QUEUED)
MOST_SEEDS = 20
"""More seeds than this are not proposed: `plan` says what else could settle it."""
HERE = ("run", "plan", "check", "replicate")
"""Commands that train on: none of them does for what another program trained."""


@dataclass(frozen=True)
class Answer:
    """`word` is a code. `verdicts` answer the question; where there are none, `why` is what is said instead.

    `grounds` are what the answer rests on, `next` the arguments of the gspo-lab command to type.
    """

    word: str
    colour: Colour
    next: tuple[str, ...]
    grounds: tuple[Reason, ...]
    verdicts: tuple[Verdict, ...] = ()
    why: Reason | None = None

    @property
    def command(self) -> str:
        """What to type next."""
        return f"gspo-lab {shlex.join(self.next)}"


def answer_of(found: Source, claims: Sequence[Verdict] = ()) -> Answer:
    """The answer by the declared rule. `claims` are the verdicts on those that the question names."""
    answer = _answer(found, claims)
    # GSPO's arm first, where the study has one: it is the arm that the answer's sentence is about.
    subject = None if (rules := rule_arms(found)) is None else rules[1]
    answer = replace(answer, verdicts=tuple(sorted(answer.verdicts, key=lambda verdict: verdict.subject != subject)))
    if found.declaration.recorded is not None and answer.next[0] in HERE:
        return replace(
            answer, next=("import", "SOURCE", "PATH", "--study", found.study, "--arm", "ARM", "--seed", "SEED")
        )
    return answer


def _answer(found: Source, claims: Sequence[Verdict]) -> Answer:
    declared, decided, runs = found.declaration, decision(found), regime(found)
    states = [run.state for run in runs_of(found) if run.seed in decided.seeds]
    count = Reason("runs", {"runs": len(states)})
    if declared.trials_of is not None:
        return Answer("trials", "grey", ("show", declared.trials_of), (count,), why=decided.reason)
    planned = len(declared.arms) * len(decided.seeds)
    if not decided.resolved and any(state in UNDER_WAY for state in states):
        data = {"finished": states.count(State.FINISHED), "planned": planned, "collapsed": runs.collapsed}
        watch = ("report", declared.name, "--watch")
        return Answer("running", "grey", watch, (Reason("runs finished", data),), why=Reason("still running"))
    if runs.all_collapsed and runs.finished == planned:
        why = Reason("all collapsed", {"runs": runs.finished})
        return Answer("all collapsed", "red", _elsewhere(found, 0.25, "calmer"), (_causes(found),), why=why)
    if claims:
        return _of_claims(found, claims)
    if decided.doses is not None:
        return _of_doses(found)
    if not decided.verdicts:
        why = decided.reason or Reason("swept", {"decided": decided})
        return Answer("no verdict", "grey", _again(found, "check"), (count,), why=why)
    return _refused(found) or (_of_stability if declared.verdict.question == "stability" else _of_scores)(found)


def _refused(found: Source) -> Answer | None:
    """Where no arm has a verdict: runs that are missing or unmatched, too few seeds."""
    decided, verdicts = decision(found), decision(found).answering
    if any(one.word != "withheld" for one in verdicts):
        return None
    lacking = tuple(dict.fromkeys(run for runs in decided.missing.values() for run in runs))
    if lacking:
        why = Reason("runs missing", {"runs": len(lacking)})
        return Answer("withheld", "red", _again(found, "run"), (Reason("these runs", {"runs": lacking}),), why=why)
    measured = (Reason("differences", {"verdicts": verdicts}),)
    barred = [one for one in verdicts if one.barred]
    if barred:
        command = "grade" if decided.matched.ok else "certify"
        why = Reason("barred", {"verdict": barred[0]})
        return Answer("withheld", "red", (command, found.study), measured, why=why)
    seeds = len(decided.seeds)
    if seeds < LEAST_SEEDS:
        word = "one seed" if seeds == 1 else f"{seeds} seeds"
        return Answer(word, "grey", _more_seeds(found, 5), measured, why=Reason("too few seeds", {"seeds": seeds}))
    return None


def _colour(verdicts: Sequence[Verdict], *, partly: bool) -> Colour:
    """Green where all is answered and not all of it speaks against the arms."""
    return "blue" if partly or all(one.direction < 0 for one in verdicts) else "green"


def _of_scores(found: Source) -> Answer:
    verdicts = decision(found).answering
    words = {one.word for one in verdicts}
    # One bound on what may still happen is enough: the sentence's own, where it has one.
    bounded = words == {"practically equivalent"} and len(verdicts) == 1
    ranking = None if decision(found).contrast is not None else ranked(found)
    best = () if ranking is None else (Reason("best arms", {"ranking": ranking}),)
    grounds = (Reason("differences", {"verdicts": verdicts}), *best, _unstable(found, bounded=not bounded))
    if words == {"withheld"}:
        return Answer("withheld", "grey", _replicate(found), grounds, verdicts)
    if words <= {"not resolved", "withheld"}:
        needed = max((one.more_seeds or 0 for one in verdicts), default=0) + len(decision(found).seeds)
        return Answer("not resolved", "grey", _more_seeds(found, needed), grounds, verdicts)
    partly = bool(words & {"not resolved", "withheld", "better, size not resolved against the margin"})
    return Answer(_word(verdicts), _colour(verdicts, partly=partly), _replicate(found), grounds, verdicts)


def _word(verdicts: Sequence[Comparison]) -> str:
    words = {one.word for one in verdicts}
    if words == {"practically equivalent"}:
        return "equivalent"
    if words & {"not resolved", "withheld"}:
        return "resolved in part"
    return f"{verdicts[0].better} better" if len(verdicts) == 1 else "arm by arm"


def _of_stability(found: Source) -> Answer:
    """Grey, too, where no run was unstable: then nothing says what would have become of either arm."""
    verdicts: tuple[StabilityVerdict, ...] = tuple(steadiness(found).values())
    words = {one.word for one in verdicts}
    if not regime(found).judged:
        count = Reason("runs", {"runs": regime(found).finished})
        return Answer(NOT_JUDGED, "grey", _again(found, "check"), (count,), why=Reason("stability not judged"))
    if not regime(found).reached and not words & {"more stable", "less stable"}:
        scores = Reason("scores alone", {"verdicts": tuple(decision(found).verdicts.values())})
        return Answer(
            "regime not reached",
            "grey",
            _elsewhere(found, 2.0, "further"),
            (_unstable(found), scores),
            why=Reason("stability unknown"),
        )
    grounds = (Reason("unstable by arm", {"verdicts": verdicts}), Reason("drops", {"verdicts": verdicts}))
    if words <= {"not resolved", "withheld"}:
        more = _more_seeds(found, max(8, 2 * len(decision(found).seeds)))
        return Answer("not resolved", "grey", more, grounds, verdicts)
    partly = bool(words & {"not resolved", "withheld"})
    word = verdicts[0].word if len(words) == 1 else "resolved in part" if partly else "arm by arm"
    return Answer(word, _colour(verdicts, partly=partly), _replicate(found), grounds, verdicts)


def _of_doses(found: Source) -> Answer:
    doses = decision(found).doses
    assert doses is not None
    why = Reason("swept", {"decided": decision(found)})
    if not decision(found).matched.on(decision(found).seeds).ok:
        return Answer("withheld", "red", ("certify", found.study), (Reason("unmatched sweep"),), why=why)
    grounds = (_unstable(found), Reason("values", {"key": doses.key, "values": len(doses.arms[0].points)}))
    apart = [_apart(ratio) for ratio in doses.ratios.values()]
    if all(apart) and apart:
        signs = {(ratio.low or 0) > 1 for ratio in doses.ratios.values()}
        word = "arm by arm" if len(signs) > 1 else "more stable" if signs == {True} else "less stable"
        return Answer(word, "blue" if signs == {False} else "green", _replicate(found), grounds, why=why)
    if any(apart):
        return Answer("resolved in part", "blue", _replicate(found), grounds, why=why)
    if not regime(found).reached:
        return Answer("regime not reached", "grey", _again(found, "check"), grounds, why=why)
    return Answer("not resolved", "grey", _again(found, "plan"), grounds, why=why)


def _apart(ratio: DoseLimits) -> bool:
    return ratio.resolved and ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high


def _of_claims(found: Source, claims: Sequence[Verdict]) -> Answer:
    words = [one.word for one in claims]
    grounds = (Reason("claims", {"verdicts": tuple(claims[:2])}),)
    decided = [one for one in claims if one.resolved]
    if not decided:
        untested = set(words) == {"not testable here"}
        away = untested and any(reason.code == "no unstable runs" for one in claims for reason in one.reasons)
        word = "regime not reached" if away else "not testable here" if untested else "not resolved"
        command = _elsewhere(found, 2.0, "further") if away else ("claims", found.study)
        return Answer(word, "grey", command, grounds, tuple(claims))
    word = decided[0].word if len({*words}) == 1 else "claim by claim"
    partly = len(decided) < len(claims)
    return Answer(word, _colour(claims, partly=partly), _replicate(found), grounds, tuple(claims))


def _unstable(found: Source, *, bounded: bool = True) -> Reason:
    level = 1 - found.declaration.verdict.alpha if bounded else None
    return Reason("unstable runs", {"regime": regime(found), "level": level})


def _causes(found: Source) -> Reason:
    known = [one.stability for one in decision(found).ended if one.stability is not None]
    steps = [one.collapse for one in known if one.collapse is not None]
    causes = tuple(dict.fromkeys(one.cause for one in known if one.cause is not None))
    return Reason("causes", {"steps": (min(steps), max(steps)) if steps else None, "causes": causes})


def _commands(found: Source) -> tuple[str, ...]:
    return found.declaration.commands[-1] if found.declaration.commands else (f"studies/{found.study}.toml",)


def _again(found: Source, command: str) -> tuple[str, ...]:
    return (command, *(_commands(found) if command == "run" else _commands(found)[:1]))


def _beside(found: Source, option: str, value: Any, name: str) -> tuple[str, ...]:
    """The study with something changed, under a name of its own: what is declared does not change."""
    kept = without(_commands(found), "--name", *([option] if option != "--set" else []))
    return ("run", *kept, option, str(value), "--name", f"{found.study}-{name}")


def _more_seeds(found: Source, seeds: int) -> tuple[str, ...]:
    if seeds <= len(decision(found).seeds):
        return _replicate(found)
    return _again(found, "plan") if seeds > MOST_SEEDS else _beside(found, "--seeds", seeds, f"{seeds}-seeds")


def _elsewhere(found: Source, times: float, name: str) -> tuple[str, ...]:
    """The study at another learning rate: the shortest way to where runs become unstable, or do not."""
    rate = next(iter(found.declaration.arms.values())).settings.update.learning_rate
    return _beside(found, "--set", f"update.learning_rate={times * rate:.3g}", name)


def _replicate(found: Source) -> tuple[str, ...]:
    """Until executions are enough to confirm a verdict one more of them; then whether the record is what was
    recorded."""
    again = all_executions(found)
    if again.can_confirm:
        return ("certify", found.study)
    replicated = any(one.relation == REPLICATION for one in again.every)
    return ("replicate", found.study, *(["--new"] if replicated and not again.under_way else []))
