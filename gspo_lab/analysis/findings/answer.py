"""The answer to a study's declared question: for report, terminal, digest and Python.

`[verdict] question` names what answers: the final score, the stability of runs, or claims. The
package `claims` judges claims; call its `answer`.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gspo_lab.analysis.findings.clip_fractions import rule_arms
from gspo_lab.analysis.findings.decision import NO_PAIRS, NO_SCORE, UNPAIRED, decision
from gspo_lab.analysis.findings.executions import REPLICATION, all_executions
from gspo_lab.analysis.findings.imported_metrics import imported_metrics
from gspo_lab.analysis.findings.paired_comparisons import ranked
from gspo_lab.analysis.findings.rate_curve import rate_curve
from gspo_lab.analysis.findings.reference_levels import ReferenceLevels, reference_levels
from gspo_lab.analysis.findings.run_outcomes import NOT_JUDGED
from gspo_lab.analysis.findings.stability import count_unstable_runs, stability_verdicts
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.analysis.stats.paired import LEAST_SEEDS
from gspo_lab.analysis.stats.verdict import (
    EQUIVALENT,
    NOT_SHOWN_BEYOND,
    Comparison,
    Verdict,
)
from gspo_lab.common.plain_data import Strings
from gspo_lab.common.states import State
from gspo_lab.common.text import capital, counted, first_few
from gspo_lab.study.overrides import drop_options
from gspo_lab.study.schema import RATE
from gspo_lab.study.verdict_tables import score_named

Colour = Literal["green", "blue", "grey", "red"]
"""Answered; answered in part, or against the arms; not answered; runs must be fixed first."""

UNDER_WAY = (State.RUNNING, State.QUEUED)
ENOUGH_SEEDS = 5
MOST_SEEDS = 20
"""For more seeds than this the answer proposes `plan`, which compares what else could decide."""
HERE = ("run", "plan", "replicate", "records")
"""Commands that train or grade, which are useless for imported runs."""
REPAIRS = {
    NO_PAIRS: "give runs that belong together the same seed (import --seed), or name the logs to"
    " gspo-lab compare ARM=LOG... ARM=LOG..., which pairs them in order",
    NO_SCORE: "name the score when you import or compare: --score-metric reward, or another column",
}
"""What to do, by the reason why imported runs have no verdict."""
NAMED_RUNS = 4
"""Missing runs that an answer names one by one."""
OPEN: frozenset[str] = frozenset({"inconclusive", "no verdict"})


@dataclass(frozen=True)
class Statement:
    """What a macro of the report's text.j2, `name`, states of verdicts or of a decision."""

    name: str
    of: Any


@dataclass(frozen=True)
class StudyAnswer:
    """`word` is the answer in a word or two. `verdicts` answer the question; without any, `why`
    says why not.

    `grounds` are the facts behind the answer, `next` the arguments of the proposed gspo-lab
    command. Imported runs have none; `instead` says what to do. The macros `answer` and `grounds`
    of the report's text.j2 write it.
    """

    word: str
    colour: Colour
    next: Strings
    grounds: tuple[str | Statement, ...]
    verdicts: tuple[Verdict, ...] = ()
    why: str | Statement = ""
    instead: str = ""
    levels: Mapping[str, ReferenceLevels] = field(default_factory=dict)
    """The levels that a verdict on final scores compares, by its subject."""

    @property
    def command(self) -> str:
        """The command to type next, or what to do where there is none."""
        return self.instead or f"gspo-lab {shlex.join(self.next)}"

    @property
    def first_levels(self) -> ReferenceLevels | None:
        """The levels of the arms that the first verdict compares; None where none is measured."""
        return self.levels.get(self.verdicts[0].subject) if self.verdicts else None


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
        if trained:
            ground = f"The score is {', '.join(trained)}, a training reward."
            answer = replace(answer, grounds=(*answer.grounds, ground))
    for reason in decision(source).described:
        if reason.code == UNPAIRED:
            answer = replace(answer, grounds=(*answer.grounds, reason.sentence))
    if source.declaration.recorded is not None and answer.next[0] in HERE:
        unanswered = decision(source).reason
        few = " (5 or more)" if len(decision(source).seeds) < ENOUGH_SEEDS else ""
        advice = f"import more seeds{few}"
        if answer.colour == "red":
            advice = "import complete logs of every run"
        elif unanswered is not None:
            advice = REPAIRS.get(unanswered.code, advice)
        return replace(answer, next=(), instead=advice)
    return answer


def _answer(source: Source, claims: Sequence[Verdict]) -> StudyAnswer:
    declared = source.declaration
    decided = decision(source)
    runs = count_unstable_runs(source)
    states = [run.state for run in runs_of(source) if run.seed in decided.seeds]
    count = f"{counted(len(states), 'run')}." if states else ""
    if declared.parent is not None and not declared.has_verdict and decided.reason is not None:
        show = ("show", declared.parent.study)
        return StudyAnswer("trials", "grey", show, (count,), why=decided.reason.sentence)
    planned = len(declared.arms) * len(decided.seeds)
    if not decided.resolved and any(state in UNDER_WAY for state in states):
        collapsed = f", {runs.collapsed} of them collapsed" if runs.collapsed else ""
        finished = states.count(State.FINISHED)
        ground = f"{finished} of {planned} runs are finished{collapsed}."
        watch = ("report", declared.name, "--watch")
        why = "Not answered yet: the study is still running."
        return StudyAnswer("running", "grey", watch, (ground,), why=why)
    if runs.all_collapsed and runs.finished == planned:
        why = f"All {runs.finished} runs collapsed, in every arm: nothing is left to compare."
        calmer = _other_rate(source, 0.25, "calmer")
        causes = Statement("causes", [run.stability for run in decided.ended])
        return StudyAnswer("all collapsed", "red", calmer, (causes,), why=why)
    if claims:
        return _claims_answer(source, claims)
    if declared.verdict.over is not None and declared.primary is not None:
        return _rate_curve_answer(source)
    if decided.doses is not None:
        return _dose_answer(source)
    if not decided.verdicts:
        found = Statement("decision", decided)
        command = _rerun(source, "plan")
        if declared.sweep is None and declared.baseline not in declared.arms:
            command = ("run", *drop_options(_commands(source), "--arms"))
        return StudyAnswer("no verdict", "grey", command, (count,), why=found)
    return _withheld(source) or (
        _stability_answer if declared.verdict.question == "stability" else _score_answer
    )(source)


def _withheld(source: Source) -> StudyAnswer | None:
    """The answer where every verdict is withheld: runs are missing or unmatched, or seeds too
    few.
    """
    decided = decision(source)
    verdicts = decision(source).answering
    if any(verdict.word != "no verdict" for verdict in verdicts):
        return None
    lacking = tuple(dict.fromkeys(run for runs in decided.missing.values() for run in runs))
    if lacking:
        verb = "is" if len(lacking) == 1 else "are"
        why = f"Not answered: {counted(len(lacking), 'run')} {verb} missing."
        runs = f"{first_few(lacking, NAMED_RUNS)}."
        return StudyAnswer("no verdict", "red", _rerun(source, "run"), (runs,), why=why)
    measured = (Statement("differences", verdicts),)
    withheld = [verdict for verdict in verdicts if verdict.withheld]
    if withheld:
        command = ("records", "regrade") if decided.matched.ok else ("certify",)
        why = f"Not answered: {withheld[0].because}."
        return StudyAnswer("no verdict", "red", (*command, source.study), measured, why=why)
    seeds = len(decided.seeds)
    if seeds < LEAST_SEEDS:
        word = "one seed" if seeds == 1 else f"{seeds} seeds"
        why = (
            f"Not answered: {counted(seeds, 'seed')} cannot show a difference; at least"
            f" {LEAST_SEEDS} are needed."
        )
        return StudyAnswer(word, "grey", _more_seeds(source, 5), measured, why=why)
    return None


def _colour(verdicts: Sequence[Verdict], *, partly: bool) -> Colour:
    """Green where every verdict is conclusive and at least one favours its arm."""
    return "blue" if partly or all(verdict.direction < 0 for verdict in verdicts) else "green"


def _score_answer(source: Source) -> StudyAnswer:
    verdicts = decision(source).answering
    words = {verdict.word for verdict in verdicts}
    # State one bound on the rate of unstable runs; a single equivalence verdict has its own.
    bounded = words == {EQUIVALENT} and len(verdicts) == 1
    ranking = None if decision(source).contrast is not None else ranked(source)
    grounds = (
        f"Margin ±{verdicts[0].margin:g}.",
        "" if ranking is None else Statement("ranking", ranking),
        _unstable(source, bounded=not bounded),
    )
    partly = bool(words & {*OPEN, *NOT_SHOWN_BEYOND})
    word = _word(verdicts)
    colour = _colour(verdicts, partly=partly)
    command = _replicate(source)
    if words == {"no verdict"}:  # the scores of every pair of runs are identical
        word = "no verdict"
        colour = "grey"
        command = _rerun(source, "plan")
    elif words <= OPEN:
        needed = max(verdict.more_seeds or 0 for verdict in verdicts)
        word = "inconclusive"
        colour = "grey"
        command = _more_seeds(source, needed + len(decision(source).seeds))
    levels = reference_levels(source)
    return StudyAnswer(word, colour, command, grounds, verdicts, levels=levels)


def _word(verdicts: Sequence[Comparison]) -> str:
    words = {verdict.word for verdict in verdicts}
    if words == {EQUIVALENT}:
        return EQUIVALENT
    if words & OPEN:
        return "resolved in part"
    return f"{verdicts[0].better} better" if len(verdicts) == 1 else "arm by arm"


def _stability_answer(source: Source) -> StudyAnswer:
    """Grey, too, where no run was unstable: then stability cannot be compared."""
    verdicts = tuple(stability_verdicts(source).values())
    words = {verdict.word for verdict in verdicts}
    counts = count_unstable_runs(source)
    if not counts.judged:
        ground = f"{counted(counts.finished, 'run')}."
        why = (
            f"Not answered: whether runs were unstable is {NOT_JUDGED}: too few evaluations and"
            " training steps."
        )
        return StudyAnswer(NOT_JUDGED, "grey", _rerun(source, "plan"), (ground,), why=why)
    if not counts.reached and not words & {"more stable", "less stable"}:
        scores = Statement("final_scores", tuple(decision(source).verdicts.values()))
        facts = (_unstable(source), scores)
        command = _other_rate(source, 2.0, "further")
        why = "Not answered: no run became unstable, so these settings cannot compare stability."
        return StudyAnswer("no unstable runs", "grey", command, facts, why=why)
    grounds = (Statement("steadiness", verdicts),)
    levels = reference_levels(source)
    if words <= OPEN:
        more = _more_seeds(source, max(8, 2 * len(decision(source).seeds)))
        return StudyAnswer("inconclusive", "grey", more, grounds, verdicts, levels=levels)
    partly = bool(words & OPEN)
    word = "resolved in part" if partly else "arm by arm"
    if len(words) == 1:
        word = verdicts[0].word
    colour = _colour(verdicts, partly=partly)
    return StudyAnswer(word, colour, _replicate(source), grounds, verdicts, levels=levels)


def _rate_curve_answer(source: Source) -> StudyAnswer:
    """The answer of `[verdict] over`: each arm at its own best value of the swept setting."""
    curve = rate_curve(source)
    assert curve is not None
    grounds = (Statement("score_curves", curve),)
    if not curve.comparisons:
        runs = f"{counted(len(curve.missing), 'run')} without a score."
        why = "Not answered: fewer than two seeds have a score at every value."
        return StudyAnswer("no verdict", "red", _rerun(source, "run"), (runs,), why=why)
    verdicts = tuple(comparison.verdict for comparison in curve.comparisons)
    levels = {comparison.arm: comparison.levels for comparison in curve.comparisons}
    words = {verdict.word for verdict in verdicts}
    if words <= OPEN:
        if curve.missing:
            command = _rerun(source, "run")
        else:
            command = _more_seeds(source, max(5, 2 * len(curve.seeds)))
        word = "no verdict" if words == {"no verdict"} else "inconclusive"
        return StudyAnswer(word, "grey", command, grounds, verdicts, levels=levels)
    partly = bool(words & {*OPEN, *NOT_SHOWN_BEYOND})
    colour = _colour(verdicts, partly=partly)
    word = _word(verdicts)
    return StudyAnswer(word, colour, _replicate(source), grounds, verdicts, levels=levels)


def _dose_answer(source: Source) -> StudyAnswer:
    doses = decision(source).doses
    assert doses is not None
    why = Statement("decision", decision(source))
    if not decision(source).matched.on(decision(source).seeds).ok:
        ground = "The sweep's runs are not matched; see the certificate."
        return StudyAnswer("no verdict", "red", ("certify", source.study), (ground,), why=why)
    values = f"{len(doses.arms[doses.baseline].points)} values of {doses.key} were swept."
    grounds = (_unstable(source), values)
    resolved = [ratio.excludes_one for ratio in doses.ratios.values()]
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
        return StudyAnswer("no unstable runs", "grey", _rerun(source, "plan"), grounds, why=why)
    return StudyAnswer("inconclusive", "grey", _rerun(source, "plan"), grounds, why=why)


def _claims_answer(source: Source, claims: Sequence[Verdict]) -> StudyAnswer:
    words = [claim.word for claim in claims]
    whys = [f"{capital(claim.because)}." for claim in claims[:2] if claim.because]
    grounds = (" ".join(whys),)
    decided = [claim for claim in claims if claim.resolved]
    if not decided:
        untested = set(words) == {"not testable here"}
        stable = untested and any(
            reason.code == "no-unstable-runs" for claim in claims for reason in claim.reasons
        )
        word = "no unstable runs" if stable else "not testable here" if untested else "inconclusive"
        command = _other_rate(source, 2.0, "further") if stable else ("claims", source.study)
        return StudyAnswer(word, "grey", command, grounds, tuple(claims))
    word = decided[0].word if len({*words}) == 1 else "claim by claim"
    partly = len(decided) < len(claims)
    return StudyAnswer(
        word, _colour(claims, partly=partly), _replicate(source), grounds, tuple(claims)
    )


def _unstable(source: Source, *, bounded: bool = True) -> Statement:
    of_rate = "unstable_rate" if bounded else "unstable_runs"
    return Statement(of_rate, count_unstable_runs(source))


def _commands(source: Source) -> Strings:
    """The arguments of the last start; a file's absolute path is that from the folder of the runs'
    folder, or its name: a shared page must not tell where its author works.
    """
    if not source.declaration.commands:
        return (f"studies/{source.study}.toml",)
    file, *options = source.declaration.commands[-1]
    path = Path(file)
    if path.is_absolute():
        home = source.evidence.runs_folder.resolve().parent
        file = str(path.relative_to(home)) if path.is_relative_to(home) else path.name
    return (file, *options)


def _rerun(source: Source, command: str) -> Strings:
    return (command, *(_commands(source) if command == "run" else _commands(source)[:1]))


def _variant(source: Source, option: str, value: Any, name: str) -> Strings:
    """Run the study with one option changed, under a new name: a declaration does not change."""
    replaced = {"--seeds": ("--seeds", "--seed"), "--set": ()}.get(option, (option,))
    unchanged = drop_options(_commands(source), "--name", *replaced)
    return ("run", *unchanged, option, str(value), "--name", f"{source.study}-{name}")


def _more_seeds(source: Source, seeds: int) -> Strings:
    if seeds <= len(decision(source).seeds):
        return _replicate(source)
    if seeds > MOST_SEEDS:
        return _rerun(source, "plan")
    declared = source.declaration.seeds
    further = range(max(declared) + 1, max(declared) + 1 + seeds - len(declared))
    of_file = not {"--seeds", "--seed"}.intersection(_commands(source))
    listed = str(seeds) if of_file else ",".join(map(str, (*declared, *further)))
    return _variant(source, "--seeds", listed, f"{seeds}-seeds")


def _other_rate(source: Source, times: float, name: str) -> Strings:
    """The study at another learning rate, which most directly makes runs unstable or stable."""
    rate = source.declaration.first_arm.settings.update.adamw["lr"]
    return _variant(source, "--set", f"{RATE}={times * rate:.3g}", name)


def _replicate(source: Source) -> Strings:
    """One more execution until there are enough to confirm a verdict; then `certify`."""
    members = all_executions(source)
    if members.can_confirm:
        return ("certify", source.study)
    replicated = any(execution.relation == REPLICATION for execution in members.executions)
    return ("replicate", source.study, *(["--new"] if replicated and not members.under_way else []))
