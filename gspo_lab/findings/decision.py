"""The decision on a study: which pairs of runs count, what forbids a verdict, and the words. Terminal and report alike.

The words themselves are those of `stats.decide_all`.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gspo_lab.findings.answered import answers_variance
from gspo_lab.findings.dose_response import DoseResponse, dose_response
from gspo_lab.findings.lengths import lengths
from gspo_lab.findings.matched import study_certificate
from gspo_lab.findings.outcomes import RunOutcome, outcomes
from gspo_lab.findings.recorded import not_counted
from gspo_lab.findings.starting import about
from gspo_lab.findings.ungraded import Ungraded, doubted
from gspo_lab.matching import Certificate
from gspo_lab.readings import Seeds, Source, average, once
from gspo_lab.readings.runs import decided
from gspo_lab.states import State
from gspo_lab.stats.looks import first_resolving
from gspo_lab.stats.verdict import Rule, Scores, Verdict, decide_all
from gspo_lab.study import Declaration


@dataclass(frozen=True)
class Decision:
    """What a study says of its question so far, in `sentences`.

    `seeds` are those that it is of: the ones declared before the first step, up to the look that resolved every arm.
    `verdicts` has each arm but the baseline, judged on the final scores in `ended`, and `missing` in words the runs of
    the two that have none. The last three are empty where no score can decide; a sweep has `doses` instead, one of
    lengths its laws in `sentences`.
    """

    baseline: str
    primary: str | None
    matched: Certificate
    sentences: tuple[str, ...]
    seeds: tuple[int, ...]
    planned: int
    """How many seeds it could be of."""
    doses: DoseResponse | None = None
    ended: tuple[RunOutcome, ...] = ()
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    described: tuple[str, ...] = ()
    """What the runs of other seeds show, which changes no word."""
    ungraded: dict[str, Ungraded] = field(default_factory=dict)
    """Per arm with answers that were not graded, its own or the baseline's, what becomes of the verdict if they are
    counted as wrong."""

    @property
    def runs(self) -> Seeds:
        """The runs that it is of: the one set of seeds behind every number beside it."""
        return decided(self.seeds)

    @property
    def resolved(self) -> bool:
        """Whether a word has been said of every arm."""
        return bool(self.verdicts) and all(verdict.resolved for verdict in self.verdicts.values())

    @property
    def stopped(self) -> bool:
        """Whether an earlier look than the last has resolved the study: the declared runs of later seeds are not
        needed."""
        return self.resolved and len(self.seeds) < self.planned

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of the verdicts must know of single runs and of looks, in sentences. All of these runs are
        counted."""
        told = {
            "Collapsed and still counted": [_name(one) for one in self.ended if one.collapsed],
            "Updates that were not finite, skipped or of a dead model": [
                f"{_name(one)} ({one.nonfinite})" for one in self.ended if one.nonfinite
            ],
            "Evaluations that could not be graded repeat the one before": [
                _name(one) for one in self.ended if one.carried
            ],
        }
        tuning = self.matched.tuning
        looked = f"Resolved at the declared look after {len(self.seeds)} of {self.planned} seeds."
        return (
            *(f"{one[0].upper()}{one[1:]}." for one in (*self.matched.on_trust, self.matched.grade) if one),
            *([] if tuning is None else [f"{tuning.detail[0].upper()}{tuning.detail[1:]}."]),
            *(f"{what}: {', '.join(runs)}." for what, runs in told.items() if runs),
            *(one.sentence for one in self.ungraded.values()),
            *([looked] if self.stopped else []),
            *self.described,
        )


@once
def decision(found: Source) -> Decision:
    """Each arm against the baseline by the declared rule, on the seeds that were declared before the first step."""
    declared, matched, doses = found.declaration, study_certificate(found), dose_response(found)
    baseline, bench = declared.baseline, declared.primary
    every = declared.deciding

    def without(*said: str) -> Decision:
        return Decision(baseline, bench, matched, said, every, len(every), doses, described=not_counted(found))

    if declared.trials_of is not None:
        return without(f"No verdict: these are the trials on which the arms of {declared.trials_of} chose.")
    if (swept := doses or lengths(found)) is not None:
        return without(*(f"{sentence}." for sentence in swept.told(matched.on(every))))
    if bench is None:
        return without("No verdict: the study declares no benchmark, so the score that would decide is not measured.")
    if not declared.treatments:
        return without(f"No verdict: {baseline} is the only arm, so there is nothing to compare it with.")
    ended = outcomes(found, bench)
    look, judged = first_resolving(declared.looks, lambda look: _judged(found, ended, every[:look]), _Judged.ends)
    seeds = every[:look]
    verdicts = {arm: replace(verdict, about=about(declared)) for arm, verdict in judged.verdicts.items()}
    return Decision(
        baseline=baseline,
        primary=bench,
        matched=matched,
        sentences=tuple(verdict.sentence for verdict in verdicts.values()),
        seeds=seeds,
        planned=len(every),
        ended=tuple(one for one in ended if one.seed in seeds),
        verdicts=verdicts,
        missing=judged.missing,
        described=tuple(_described(declared, ended, seeds)),
        ungraded=judged.ungraded,
    )


S = TypeVar("S", bound=Source)


def against(of: S, baseline: str) -> S:
    """The same records with another arm as the baseline: what its words say is description."""
    rule = of.declaration.verdict.model_copy(update={"baseline": baseline})
    changed = copy(of)
    changed.base = of
    # What does not depend on the baseline is known already.
    changed.known = {key: answer for key, answer in of.known.items() if key[1] not in DEPENDENT}
    # The seeds that decided: another baseline may ask for a look whose runs were never needed.
    changed.__dict__["declaration"] = replace(of.declaration, verdict=rule, seeds=decision(of).seeds, added=())
    return changed


DEPENDENT = {
    *("decision", "study_certificate", "deciding_runs", "dose_response", "lengths", "steadiness", "regime", "ranked"),
    *("new_problems", "compared", "all_executions"),
}
"""The functions of a source whose answers change with the baseline or with the seeds that decide."""


def _name(run: RunOutcome) -> str:
    return f"{run.arm} seed {run.seed}"


Pairs = dict[int, tuple[float, float]]
"""Per seed the final scores of the baseline and the arm."""


def _pairs(
    ended: Sequence[RunOutcome], seeds: Sequence[int], baseline: str, arm: str, absent: str = "not begun"
) -> tuple[Pairs, tuple[str, ...]]:
    """The final scores of every seed whose two runs have one, and in words the runs that lack it."""
    by_run = {(one.arm, one.seed): one for one in ended}
    pairs: Pairs = {}
    missing = []
    for seed in seeds:
        scores = []
        for name in (baseline, arm):
            run = by_run.get((name, seed))
            if run is not None and run.final is not None:
                scores.append(run.final)
            else:
                state = absent if run is None else "without a score" if run.state == State.FINISHED else run.state
                missing.append(f"{name} seed {seed} {state}")
        if len(scores) == 2:
            pairs[seed] = (scores[0], scores[1])
    return pairs, tuple(missing)


@dataclass(frozen=True)
class _Judged:
    """What one look gives: per arm the verdict, the runs that lack a score, and what was not graded."""

    verdicts: dict[str, Verdict]
    missing: dict[str, tuple[str, ...]]
    ungraded: dict[str, Ungraded]

    def ends(self) -> bool:
        """Whether no later look is asked: what lacks runs at one look lacks them at all later ones."""
        return any(self.missing.values()) or all(one.resolved for one in self.verdicts.values())


def _judged(found: Source, ended: Sequence[RunOutcome], seeds: Sequence[int]) -> _Judged:
    """These seeds by the declared rule, read with and without the answers that could not be graded."""
    declared = found.declaration
    absent = "not begun" if declared.recorded is None else "not imported"
    missing = {arm: _pairs(ended, seeds, declared.baseline, arm, absent)[1] for arm in declared.treatments}
    looked_at = [one for one in ended if one.seed in seeds]
    verdicts, ungraded = doubted(found, looked_at, lambda scored, wrong: _verdicts(found, scored, seeds, wrong))
    return _Judged(verdicts, missing, ungraded)


def _verdicts(
    found: Source, ended: Sequence[RunOutcome], seeds: Sequence[int], counted_wrong: bool
) -> dict[str, Verdict]:
    """Per arm the verdict of these seeds by the declared rule; withheld while a pair is missing or runs are not
    matched. `counted_wrong`: whether answers without a grade are wrong in the scores of `ended`."""
    declared = found.declaration
    rule = Rule(declared.verdict.margin, declared.verdict.alpha, declared.looks)
    matched = study_certificate(found).on(seeds)
    forbidden = matched.reasons
    why = "the study is still running" if any(one.state == State.RUNNING for one in ended) else "runs are missing"
    scores = []
    for arm in declared.treatments:
        pairs, _ = _pairs(ended, seeds, declared.baseline, arm)
        withheld = [*forbidden.get(arm, ()), *_of_other_steps(declared, ended, pairs, arm)]
        if len(pairs) < len(seeds):
            withheld.append(f"{why}, {len(pairs)} of {len(seeds)} pairs are complete")
        scores.append(
            Scores(
                first=[first for first, _ in pairs.values()],
                second=[second for _, second in pairs.values()],
                labels=(declared.baseline, arm),
                items_variance=answers_variance(
                    found, declared.baseline, arm, list(pairs), counted_wrong=counted_wrong
                ),
                collapsed=_collapses(ended, pairs, declared.baseline, arm),
                withheld_because=tuple(withheld),
                unproven=matched.unproven,
            )
        )
    return dict(zip(declared.treatments, decide_all(scores, rule), strict=True))


def _of_other_steps(declared: Declaration, ended: Sequence[RunOutcome], seeds: Pairs, arm: str) -> Iterator[str]:
    """Why the final scores of imported runs cannot be subtracted: logs of unequal length end at other steps."""
    if declared.recorded is None:
        return
    last = {(run.arm, run.seed): run.steps[-1] for run in ended if run.steps}
    apart = [seed for seed in seeds if last[declared.baseline, seed] != last[arm, seed]]
    if apart:
        one, other = last[declared.baseline, apart[0]], last[arm, apart[0]]
        yield f"final scores are of step {one} in {declared.baseline} and of step {other} in {arm} (seed {apart[0]})"


def _collapses(ended: Sequence[RunOutcome], seeds: Pairs, *arms: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Per arm how many runs collapsed, of those that are long enough to be judged; None where scores alone judge."""
    runs = [[run for run in ended if run.arm == arm and run.seed in seeds] for arm in arms]
    first, second = ([run.collapsed for run in of_arm if run.judged] for of_arm in runs)
    if not first and not second and any(run.fall_judged for of_arm in runs for run in of_arm):
        return None
    return (sum(first), len(first)), (sum(second), len(second))


def _described(declared: Declaration, ended: Sequence[RunOutcome], seeds: Sequence[int]) -> Iterator[str]:
    """What runs of seeds that do not decide show, arm by arm: description."""
    others = [seed for seed in declared.seeds if seed not in seeds]
    for arm in declared.treatments:
        pairs, _ = _pairs(ended, others, declared.baseline, arm)
        if pairs:
            mean = average(second - first for first, second in pairs.values())
            yield (
                f"Not counted: {len(pairs)} pair{'s' * (len(pairs) > 1)} of other seeds "
                f"({', '.join(map(str, pairs))}), {arm} - {declared.baseline} {mean:+.3f}."
            )
