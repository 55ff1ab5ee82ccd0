"""The answer to a study's declared question, as codes and data: for report, terminal, digest and
Python.

`[verdict] question` names what answers: the final score, the stability of runs, or claims. The
package `claims` judges claims; call its `answer`. `words` turns the answer into English.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gspo_lab.analysis.findings.clip_fractions import rule_arms
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.executions import REPLICATION, all_executions
from gspo_lab.analysis.findings.imported_metrics import imported_metrics
from gspo_lab.analysis.findings.paired_comparisons import ranked
from gspo_lab.analysis.findings.run_outcomes import NOT_JUDGED
from gspo_lab.analysis.findings.stability import count_unstable_runs, stability_verdicts
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.analysis.stats.ed50 import DoseLimits
from gspo_lab.analysis.stats.paired import LEAST_SEEDS
from gspo_lab.analysis.stats.stability import StabilityVerdict
from gspo_lab.analysis.stats.verdict import Comparison, Reason, Verdict
from gspo_lab.common.states import State
from gspo_lab.study.overrides import drop_options
from gspo_lab.study.verdict_tables import score_named

Colour = Literal["green", "blue", "grey", "red"]
"""Answered; answered in part, or against the arms; not answered; runs must be fixed first."""

UNDER_WAY = (State.RUNNING, State.QUEUED)
ENOUGH_SEEDS = 5
MOST_SEEDS = 20
"""For more seeds than this the answer proposes `plan`, which compares what else could decide."""
HERE = ("run", "plan", "replicate", "records")
"""Commands that train or grade, which are useless for imported runs."""


@dataclass(frozen=True)
class StudyAnswer:
    """`word` is a code. `verdicts` answer the question; without any, `why` says why not.

    `grounds` are the facts behind the answer, `next` the arguments of the proposed gspo-lab
    command. Imported runs have none; `instead` says what to do.
    """

    word: str
    colour: Colour
    next: tuple[str, ...]
    grounds: tuple[Reason, ...]
    verdicts: tuple[Verdict, ...] = ()
    why: Reason | None = None
    instead: str = ""

    @property
    def command(self) -> str:
        """The command to type next, or what to do where there is none."""
        return self.instead or f"gspo-lab {shlex.join(self.next)}"


def answer_of(source: Source, claims: Sequence[Verdict] = ()) -> StudyAnswer:
    """The answer by the declared rule.

    `claims` are the verdicts on the claims that the question names.
    """
    answer = _answer(source, claims)
    # GSPO's arm comes first: the answer's sentence is about it.
    subject = None if (rules := rule_arms(source)) is None else rules[1]
    answer = replace(
        answer,
        verdicts=tuple(sorted(answer.verdicts, key=lambda verdict: verdict.subject != subject)),
    )
    if (logged := imported_metrics(source)) is not None and (
        primary := source.declaration.primary
    ) is not None:
        trained = logged.scored_rewards(score_named(primary).bench)
        grounds = (Reason("score is a reward", {"names": trained}),) if trained else ()
        answer = replace(answer, grounds=(*answer.grounds, *grounds))
    if source.declaration.recorded is not None and answer.next[0] in HERE:
        few = " (5 or more)" if len(decision(source).seeds) < ENOUGH_SEEDS else ""
        advice = (
            "import complete logs of every run"
            if answer.colour == "red"
            else f"import more seeds{few}"
        )
        return replace(answer, next=(), instead=advice)
    return answer


def _answer(source: Source, claims: Sequence[Verdict]) -> StudyAnswer:
    declared = source.declaration
    decided = decision(source)
    runs = count_unstable_runs(source)
    states = [run.state for run in runs_of(source) if run.seed in decided.seeds]
    count = Reason("runs", {"runs": len(states)})
    if declared.trials_of is not None:
        return StudyAnswer(
            "trials", "grey", ("show", declared.trials_of), (count,), why=decided.reason
        )
    planned = len(declared.arms) * len(decided.seeds)
    if not decided.resolved and any(state in UNDER_WAY for state in states):
        data = {
            "finished": states.count(State.FINISHED),
            "planned": planned,
            "collapsed": runs.collapsed,
        }
        watch = ("report", declared.name, "--watch")
        return StudyAnswer(
            "running", "grey", watch, (Reason("runs finished", data),), why=Reason("still running")
        )
    if runs.all_collapsed and runs.finished == planned:
        why = Reason("all collapsed", {"runs": runs.finished})
        return StudyAnswer(
            "all collapsed", "red", _other_rate(source, 0.25, "calmer"), (_causes(source),), why=why
        )
    if claims:
        return _of_claims(source, claims)
    if decided.doses is not None:
        return _of_doses(source)
    if not decided.verdicts:
        why = decided.reason or Reason("swept", {"decided": decided})
        command = _rerun(source, "plan")
        if declared.sweep is None and declared.baseline not in declared.arms:
            command = ("run", *drop_options(_commands(source), "--arms"))
        return StudyAnswer("no verdict", "grey", command, (count,), why=why)
    return _withheld(source) or (
        _of_stability if declared.verdict.question == "stability" else _of_scores
    )(source)


def _withheld(source: Source) -> StudyAnswer | None:
    """The answer where every verdict is withheld: runs are missing or unmatched, or seeds too
    few.
    """
    decided = decision(source)
    verdicts = decision(source).answering
    if any(verdict.word != "withheld" for verdict in verdicts):
        return None
    lacking = tuple(dict.fromkeys(run for runs in decided.missing.values() for run in runs))
    if lacking:
        why = Reason("runs missing", {"runs": len(lacking)})
        runs = Reason("these runs", {"runs": lacking})
        return StudyAnswer("withheld", "red", _rerun(source, "run"), (runs,), why=why)
    measured = (Reason("differences", {"verdicts": verdicts}),)
    barred = [verdict for verdict in verdicts if verdict.barred]
    if barred:
        command = ("records", "regrade") if decided.matched.ok else ("certify",)
        why = Reason("barred", {"verdict": barred[0]})
        return StudyAnswer("withheld", "red", (*command, source.study), measured, why=why)
    seeds = len(decided.seeds)
    if seeds < LEAST_SEEDS:
        word = "one seed" if seeds == 1 else f"{seeds} seeds"
        why = Reason("too few seeds", {"seeds": seeds})
        return StudyAnswer(word, "grey", _more_seeds(source, 5), measured, why=why)
    return None


def _colour(verdicts: Sequence[Verdict], *, partly: bool) -> Colour:
    """Green where every verdict is conclusive and at least one favours its arm."""
    return "blue" if partly or all(verdict.direction < 0 for verdict in verdicts) else "green"


def _of_scores(source: Source) -> StudyAnswer:
    verdicts = decision(source).answering
    words = {verdict.word for verdict in verdicts}
    # State one bound on the rate of unstable runs; a single equivalence verdict has its own.
    bounded = words == {"practically equivalent"} and len(verdicts) == 1
    ranking = None if decision(source).contrast is not None else ranked(source)
    best = () if ranking is None else (Reason("best arms", {"ranking": ranking}),)
    grounds = (
        Reason("differences", {"verdicts": verdicts}),
        *best,
        _unstable(source, bounded=not bounded),
    )
    if words == {"withheld"}:
        return StudyAnswer("withheld", "grey", _replicate(source), grounds, verdicts)
    if words <= {"not resolved", "withheld"}:
        needed = max((verdict.more_seeds or 0 for verdict in verdicts), default=0) + len(
            decision(source).seeds
        )
        return StudyAnswer("not resolved", "grey", _more_seeds(source, needed), grounds, verdicts)
    partly = bool(
        words & {"not resolved", "withheld", "better, size not resolved against the margin"}
    )
    return StudyAnswer(
        _word(verdicts), _colour(verdicts, partly=partly), _replicate(source), grounds, verdicts
    )


def _word(verdicts: Sequence[Comparison]) -> str:
    words = {verdict.word for verdict in verdicts}
    if words == {"practically equivalent"}:
        return "equivalent"
    if words & {"not resolved", "withheld"}:
        return "resolved in part"
    return f"{verdicts[0].better} better" if len(verdicts) == 1 else "arm by arm"


def _of_stability(source: Source) -> StudyAnswer:
    """Grey, too, where no run was unstable: then stability cannot be compared."""
    verdicts: tuple[StabilityVerdict, ...] = tuple(stability_verdicts(source).values())
    words = {verdict.word for verdict in verdicts}
    if not count_unstable_runs(source).judged:
        count = Reason("runs", {"runs": count_unstable_runs(source).finished})
        return StudyAnswer(
            NOT_JUDGED,
            "grey",
            _rerun(source, "plan"),
            (count,),
            why=Reason("stability not judged"),
        )
    if not count_unstable_runs(source).reached and not words & {"more stable", "less stable"}:
        scores = Reason("scores alone", {"verdicts": tuple(decision(source).verdicts.values())})
        command = _other_rate(source, 2.0, "further")
        why = Reason("stability unknown")
        return StudyAnswer(
            "regime not reached", "grey", command, (_unstable(source), scores), why=why
        )
    grounds = (
        Reason("unstable by arm", {"verdicts": verdicts}),
        Reason("drops", {"verdicts": verdicts}),
    )
    if words <= {"not resolved", "withheld"}:
        more = _more_seeds(source, max(8, 2 * len(decision(source).seeds)))
        return StudyAnswer("not resolved", "grey", more, grounds, verdicts)
    partly = bool(words & {"not resolved", "withheld"})
    word = verdicts[0].word if len(words) == 1 else "resolved in part" if partly else "arm by arm"
    return StudyAnswer(
        word, _colour(verdicts, partly=partly), _replicate(source), grounds, verdicts
    )


def _of_doses(source: Source) -> StudyAnswer:
    doses = decision(source).doses
    assert doses is not None
    why = Reason("swept", {"decided": decision(source)})
    if not decision(source).matched.on(decision(source).seeds).ok:
        return StudyAnswer(
            "withheld", "red", ("certify", source.study), (Reason("unmatched sweep"),), why=why
        )
    grounds = (
        _unstable(source),
        Reason("values", {"key": doses.key, "values": len(doses.arms[0].points)}),
    )
    resolved = [_excludes_one(ratio) for ratio in doses.ratios.values()]
    if all(resolved) and resolved:
        signs = {(ratio.low or 0) > 1 for ratio in doses.ratios.values()}
        word = (
            "arm by arm" if len(signs) > 1 else "more stable" if signs == {True} else "less stable"
        )
        return StudyAnswer(
            word, "blue" if signs == {False} else "green", _replicate(source), grounds, why=why
        )
    if any(resolved):
        return StudyAnswer("resolved in part", "blue", _replicate(source), grounds, why=why)
    if not count_unstable_runs(source).reached:
        return StudyAnswer("regime not reached", "grey", _rerun(source, "plan"), grounds, why=why)
    return StudyAnswer("not resolved", "grey", _rerun(source, "plan"), grounds, why=why)


def _excludes_one(ratio: DoseLimits) -> bool:
    return (
        ratio.resolved
        and ratio.low is not None
        and ratio.high is not None
        and not ratio.low <= 1 <= ratio.high
    )


def _of_claims(source: Source, claims: Sequence[Verdict]) -> StudyAnswer:
    words = [claim.word for claim in claims]
    grounds = (Reason("claims", {"verdicts": tuple(claims[:2])}),)
    decided = [claim for claim in claims if claim.resolved]
    if not decided:
        untested = set(words) == {"not testable here"}
        stable = untested and any(
            reason.code == "no unstable runs" for claim in claims for reason in claim.reasons
        )
        word = (
            "regime not reached" if stable else "not testable here" if untested else "not resolved"
        )
        command = _other_rate(source, 2.0, "further") if stable else ("claims", source.study)
        return StudyAnswer(word, "grey", command, grounds, tuple(claims))
    word = decided[0].word if len({*words}) == 1 else "claim by claim"
    partly = len(decided) < len(claims)
    return StudyAnswer(
        word, _colour(claims, partly=partly), _replicate(source), grounds, tuple(claims)
    )


def _unstable(source: Source, *, bounded: bool = True) -> Reason:
    level = 1 - source.declaration.verdict.alpha if bounded else None
    return Reason("unstable runs", {"counts": count_unstable_runs(source), "level": level})


def _causes(source: Source) -> Reason:
    known = [run.stability for run in decision(source).ended if run.stability is not None]
    steps = [stability.collapse for stability in known if stability.collapse is not None]
    causes = tuple(
        dict.fromkeys(stability.cause for stability in known if stability.cause is not None)
    )
    return Reason(
        "causes", {"steps": (min(steps), max(steps)) if steps else None, "causes": causes}
    )


def _commands(source: Source) -> tuple[str, ...]:
    return (
        source.declaration.commands[-1]
        if source.declaration.commands
        else (f"studies/{source.study}.toml",)
    )


def _rerun(source: Source, command: str) -> tuple[str, ...]:
    return (command, *(_commands(source) if command == "run" else _commands(source)[:1]))


def _variant(source: Source, option: str, value: Any, name: str) -> tuple[str, ...]:
    """Run the study with one option changed, under a new name: a declaration does not change."""
    replaced = {"--seeds": ("--seeds", "--seed"), "--set": ()}.get(option, (option,))
    unchanged = drop_options(_commands(source), "--name", *replaced)
    return ("run", *unchanged, option, str(value), "--name", f"{source.study}-{name}")


def _more_seeds(source: Source, seeds: int) -> tuple[str, ...]:
    if seeds <= len(decision(source).seeds):
        return _replicate(source)
    if seeds > MOST_SEEDS:
        return _rerun(source, "plan")
    declared = source.declaration.seeds
    further = range(max(declared) + 1, max(declared) + 1 + seeds - len(declared))
    of_file = not {"--seeds", "--seed"}.intersection(_commands(source))
    listed = str(seeds) if of_file else ",".join(map(str, (*declared, *further)))
    return _variant(source, "--seeds", listed, f"{seeds}-seeds")


def _other_rate(source: Source, times: float, name: str) -> tuple[str, ...]:
    """The study at another learning rate, which most directly makes runs unstable or stable."""
    rate = next(iter(source.declaration.arms.values())).settings.update.learning_rate
    return _variant(source, "--set", f"update.learning_rate={times * rate:.3g}", name)


def _replicate(source: Source) -> tuple[str, ...]:
    """One more execution until there are enough to confirm a verdict; then `certify`."""
    members = all_executions(source)
    if members.can_confirm:
        return ("certify", source.study)
    replicated = any(execution.relation == REPLICATION for execution in members.executions)
    return ("replicate", source.study, *(["--new"] if replicated and not members.under_way else []))
