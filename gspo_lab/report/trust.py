"""How far to trust the answer: one strip of the grounds that decide, each a link to its section."""

import json
from collections.abc import Iterator
from typing import Literal, NamedTuple

from gspo_lab.findings.compared import new_problems
from gspo_lab.findings.decision import decision
from gspo_lab.findings.matched import study_certificate
from gspo_lab.findings.other_executions import all_executions
from gspo_lab.findings.stability import regime
from gspo_lab.matching import Certificate
from gspo_lab.matching.pairing import UNKNOWN
from gspo_lab.readings import Source
from gspo_lab.readings import runs as runs_of
from gspo_lab.report.calibration import calibration_lines
from gspo_lab.report.markup import NOT_MEASURED, Html, h, signed
from gspo_lab.report.sections.replications import linked
from gspo_lab.states import State
from gspo_lab.study.recorded import ABSENT
from gspo_lab.words.text import capital

Grade = Literal["good", "warn", "neutral"]
MARKS: dict[Grade, str] = {"good": "✓", "warn": "!", "neutral": "·"}
ENOUGH, LEAST = 5, 3
"""Pairs from which "equivalent" can be said, and from which there is an interval at all."""


class Ground(NamedTuple):
    """One thing that the answer stands on. Good only where all that it needs was recorded."""

    name: str
    said: str
    grade: Grade
    target: str


def trust(found: Source, progress: str) -> Html:
    """The strip."""
    shown = map(_shown, grounds(found, progress))
    return h("div", h("h3", "How far to trust this"), h("ul", *shown, class_="trust"))


def _shown(one: Ground) -> Html:
    mark = h("b", MARKS[one.grade], aria_hidden="true")
    said = h("span", one.said.rstrip("."), "." if one.said.endswith(".") else "")
    return h("li", mark, h("a", one.name, href=f"#{one.target}"), " ", said, class_=f"badge {one.grade}")


def grounds(found: Source, progress: str) -> Iterator[Ground]:
    """Matching and completeness first: without them there is no word."""
    declared, matched, verdicts = found.declaration, study_certificate(found), list(decision(found).verdicts.values())
    lacking = matched.unproven or any(states[UNKNOWN] for states in matched.states().values())
    grade: Grade = "warn" if matched.undeclared else "neutral" if lacking or not matched.pairs else "good"
    yield Ground("Matching", badge_text(matched), grade, "certificate")
    planned, runs = len(declared.arms) * len(declared.seeds), regime(found)
    states = [run.state for run in runs_of(found)]
    whole = states.count(State.FINISHED) == (len(states) if decision(found).stopped else planned)
    grade = "warn" if runs.all_collapsed else "good" if whole and not runs.collapsed else "neutral"
    yield Ground("Runs", progress, grade, "provenance")
    pairs = min((one.paired.n for one in verdicts), default=len(declared.deciding))
    grade = "good" if pairs >= ENOUGH else "neutral" if pairs >= LEAST else "warn"
    yield Ground("Seeds", f"{_pairs(pairs)} of runs", grade, "limits")
    yield Ground("Starts", *_starts(found), "limits")
    yield Ground("Model", _model(found), "neutral", "limits")
    if verdicts:
        family, alpha = len(verdicts), verdicts[0].alpha
        shared = f", shared by {family} arms (Holm)" if family > 1 else ""
        yield Ground("Errors", f"alpha {alpha:g}{shared}", "good", "calibration")
        yield Ground("New problems", *_new_problems(found), "scores")
        rates = calibration_lines(verdicts)
        told = ". ".join(rates) or f"{NOT_MEASURED} for {_pairs(pairs)} at alpha {alpha:g}"
        yield Ground("Calibration", told, "good" if rates else "neutral", "calibration")
    again = all_executions(found)
    link = linked(again)
    grade = "warn" if again.taken_back else "neutral"
    yield Ground("Replications", link or "none yet", grade, "replications")


def badge_text(matched: Certificate) -> str:
    """Whether the runs are matched, in one line; an accepted mismatch is always said with its reason."""
    return ". ".join([capital(matched.summary), *(f"Mismatch accepted: {one.reason}" for one in matched.acceptances)])


def _pairs(count: int) -> str:
    return f"{count} pair{'s' * (count != 1)}"


def _starts(found: Source) -> tuple[str, Grade]:
    if not all(found.declaration.told(arm, "model") for arm in found.arms):
        return ABSENT, "neutral"
    every = [arm.settings for arm in found.declaration.arms.values()]
    if not all(one.embedded for one in every):
        return "one checkpoint, which is the question", "neutral"
    own = all(one.warm_start.per_seed for one in every)
    return ("one per seed", "good") if own else ("one for all seeds", "neutral")


def _model(found: Source) -> str:
    names = sorted({arm.settings.model for arm in found.declaration.arms.values()})
    sizes = {
        json.loads(facts).get("parameters")
        for facts in found.evidence.runs(found.study)["facts"]
        if isinstance(facts, str)
    } - {None}
    return (
        f"{', '.join(names)}, {' or '.join(f'{size / 1e6:.3g} M' for size in sorted(sizes)) or NOT_MEASURED} parameters"
    )


def _new_problems(found: Source) -> tuple[str, Grade]:
    """The widest interval that holds for other problems too, and whether every arm has one."""
    known = [one for one in new_problems(found).values() if one.low is not None and one.high is not None]
    if not known:
        return NOT_MEASURED, "neutral"
    widest = max(known, key=lambda one: (one.high or 0.0) - (one.low or 0.0))
    told = f"{signed(widest.low)} to {signed(widest.high)}" + (", the widest" if len(known) > 1 else "")
    stored = len(known) == len(decision(found).verdicts) and all(
        one.paired.items_sd is not None for one in decision(found).verdicts.values()
    )
    return told, "good" if stored else "neutral"
