"""Ungraded answers: scores leave them out, so a verdict must also hold if they count as wrong.

A grader that fails on the answers of one arm alone raises that arm's score.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gspo_lab.findings.run_outcomes import RunOutcome
from gspo_lab.readings import Source
from gspo_lab.readings.answers import counts_by_problem
from gspo_lab.stats.proportions import binomial_p
from gspo_lab.stats.verdict import Comparison, Reason

Judge = Callable[[Sequence[RunOutcome], bool], Mapping[str, Comparison]]
"""From the runs' final scores, and whether these count ungraded answers as wrong, to the verdict on each arm."""


@dataclass(frozen=True)
class Ungraded:
    """Ungraded answers of two arms at the deciding evaluations, over the seeds that both finished.

    `labels`, `answers` and `errors` are of the baseline and the arm. `more` counts for each the problems on which its
    share of ungraded answers is larger. `p` is the exact two-sided binomial of these counts, a sign test over problems;
    None without such a problem. `verdict` is the one with ungraded answers counted as wrong.
    """

    labels: tuple[str, str]
    answers: tuple[int, int]
    errors: tuple[int, int]
    more: tuple[int, int]
    p: float | None
    verdict: Comparison

    @property
    def counts(self) -> str:
        """How many of each arm's answers are ungraded, in words."""
        by_arm = zip(self.labels, self.errors, self.answers, strict=True)
        return ", ".join(f"{arm} {errors} of {answers}" for arm, errors, answers in by_arm)

    @property
    def uneven(self) -> bool:
        """Whether the shares differ beyond chance, at the verdict's alpha."""
        return self.p is not None and self.p < self.verdict.alpha

    def against(self, verdict: Comparison) -> tuple[Reason, ...]:
        """Why `verdict`, which leaves ungraded answers out, must be withheld."""
        reasons = []
        if self.uneven:
            data = {"counts": self.counts, "subject": self.labels[1], "baseline": self.labels[0]}
            reasons.append(Reason("ungraded answers are uneven", {**data, "more": self.more, "p": self.p}))
        if (verdict.word, verdict.direction) != (self.verdict.word, self.verdict.direction):
            both = {"left_out": verdict, "counted_wrong": self.verdict}
            reasons.append(Reason("ungraded answers decide", {"counts": self.counts, **both}))
        return tuple(reasons)

    def to_json(self) -> dict[str, Any]:
        """Plain data, as the report's JSON has it."""
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


def judge_twice(
    source: Source, ended: Sequence[RunOutcome], judge: Judge
) -> tuple[dict[str, Comparison], dict[str, Ungraded]]:
    """The verdicts of `judge` on the final scores, withheld where ungraded answers could change them.

    Also, per arm, the ungraded answers of it and of the baseline, where there are any.
    """
    verdicts = dict(judge(ended, False))
    if not any(run.errors for run in ended):
        return verdicts, {}
    second = judge([run if run.final is None else replace(run, final=run.counted_wrong) for run in ended], True)
    lacking = {}
    for arm, verdict in verdicts.items():
        ungraded = _of(source, (str(verdict.baseline), verdict.subject), ended, second[arm])
        if not any(ungraded.errors):
            continue
        lacking[arm] = ungraded
        reasons = ungraded.against(verdict)
        if verdict.word != "withheld" and reasons:
            verdicts[arm] = replace(verdict, word="withheld", direction=0, reasons=reasons)
    return verdicts, lacking


def _of(source: Source, labels: tuple[str, str], ended: Sequence[RunOutcome], verdict: Comparison) -> Ungraded:
    """Over the deciding evaluations of the seeds that both arms finished."""
    scored = {(run.arm, run.seed): run.steps for run in ended if run.final is not None}
    seeds = [seed for arm, seed in scored if arm == labels[1] and (labels[0], seed) in scored]
    deciding = {(arm, seed): scored[arm, seed] for arm in labels for seed in seeds}
    counts = counts_by_problem(source, source.declaration.primary or "", deciding)
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
