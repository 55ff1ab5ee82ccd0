"""Answers that could not be graded: they are left out of scores, so a verdict must survive that they were wrong.

A grader that fails on the answers of one arm alone raises that arm's score, whoever or whatever made it fail.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gspo_lab.findings.outcomes import RunOutcome
from gspo_lab.readings import Source
from gspo_lab.readings.answers import counts_by_problem
from gspo_lab.stats.binary import binomial_p
from gspo_lab.stats.verdict import Comparison, Reason

Judge = Callable[[Sequence[RunOutcome], bool], Mapping[str, Comparison]]
"""From the runs' final scores, and whether answers without a grade are wrong in them, to the verdict on each arm."""


@dataclass(frozen=True)
class Ungraded:
    """What was not graded of two arms' answers at the evaluations that decide, over the seeds that both finished.

    `labels`, `answers` and `errors` are of the baseline and the arm. `more` counts the problems on which the one and
    the other has the larger share of ungraded answers. `p` is the exact two-sided binomial of these counts (sign test:
    problems are the sample, these runs are given; either arm is as likely to have more where their runs lose grades
    alike); None without such a problem.
    `verdict` is the one that would be said if all that was not graded were wrong.
    """

    labels: tuple[str, str]
    answers: tuple[int, int]
    errors: tuple[int, int]
    more: tuple[int, int]
    p: float | None
    verdict: Comparison

    @property
    def counts(self) -> str:
        """How many of each arm's answers."""
        told = zip(self.labels, self.errors, self.answers, strict=True)
        return ", ".join(f"{arm} {errors} of {answers}" for arm, errors, answers in told)

    @property
    def uneven(self) -> bool:
        """Whether the shares differ beyond chance, at the verdict's alpha."""
        return self.p is not None and self.p < self.verdict.alpha

    def against(self, verdict: Comparison) -> tuple[Reason, ...]:
        """Why `verdict`, which leaves them out, must be withheld."""
        out = []
        if self.uneven:
            data = {"counts": self.counts, "subject": self.labels[1], "baseline": self.labels[0]}
            out.append(Reason("ungraded answers are uneven", {**data, "more": self.more, "p": self.p}))
        both = [(one.word, one.direction) for one in (verdict, self.verdict)]
        if both[0] != both[1]:
            out.append(
                Reason(
                    "ungraded answers decide",
                    {"counts": self.counts, "left_out": verdict, "counted_wrong": self.verdict},
                )
            )
        return tuple(out)

    def to_json(self) -> dict[str, Any]:
        """Both readings, for the report's .json."""
        paired = self.verdict.paired
        return {
            "answers": dict(zip(self.labels, self.answers, strict=True)),
            "not_graded": dict(zip(self.labels, self.errors, strict=True)),
            "problems_with_more": dict(zip(self.labels, self.more, strict=True)),
            "p": self.p,
            "counted_as_wrong": {
                "word": self.verdict.word,
                "better": self.verdict.better,
                "estimate": paired.estimate,
                "low": paired.low,
                "high": paired.high,
                "differences": list(paired.differences),
            },
        }


def doubted(
    found: Source, ended: Sequence[RunOutcome], judge: Judge
) -> tuple[dict[str, Comparison], dict[str, Ungraded]]:
    """The verdicts of `judge` on the final scores, withheld where answers that were not graded could turn them, and per
    arm with any what was not graded of it and of the baseline."""
    verdicts = dict(judge(ended, False))
    if not any(one.errors for one in ended):
        return verdicts, {}
    second = judge([one if one.final is None else replace(one, final=one.counted_wrong) for one in ended], True)
    lacking = {}
    for arm, verdict in verdicts.items():
        told = _of(found, (str(verdict.baseline), verdict.subject), ended, second[arm])
        if not any(told.errors):
            continue
        lacking[arm] = told
        reasons = told.against(verdict)
        if verdict.word != "withheld" and reasons:
            verdicts[arm] = replace(verdict, word="withheld", direction=0, reasons=reasons)
    return verdicts, lacking


def _of(found: Source, labels: tuple[str, str], ended: Sequence[RunOutcome], verdict: Comparison) -> Ungraded:
    """Over the deciding evaluations of the seeds that both arms finished."""
    scored = {(one.arm, one.seed): one.steps for one in ended if one.final is not None}
    seeds = [seed for arm, seed in scored if arm == labels[1] and (labels[0], seed) in scored]
    deciding = {(arm, seed): scored[arm, seed] for arm in labels for seed in seeds}
    counts = counts_by_problem(found, found.declaration.primary or "", deciding)
    first, second = (counts.get(arm, {}) for arm in labels)
    both = [(first[problem], second[problem]) for problem in first.keys() & second.keys()]
    apart = [errors * answers_0 - errors_0 * answers for (answers_0, errors_0), (answers, errors) in both]
    more = (sum(share < 0 for share in apart), sum(share > 0 for share in apart))
    return Ungraded(
        labels,
        (sum(answers for answers, _ in first.values()), sum(answers for answers, _ in second.values())),
        (sum(errors for _, errors in first.values()), sum(errors for _, errors in second.values())),
        more,
        binomial_p(more[1], sum(more)) if any(more) else None,
        verdict,
    )
