"""The decision on a study: which pairs of runs count, what forbids a verdict, and what `stats.decide_all` says."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gspo_lab.findings.dose_response import DoseResponse, dose_response
from gspo_lab.findings.lengths import Lengths, lengths
from gspo_lab.findings.matched import study_certificate
from gspo_lab.findings.outcomes import RunOutcome, outcomes
from gspo_lab.findings.starting import about
from gspo_lab.findings.ungraded import Ungraded, doubted
from gspo_lab.matching import Certificate
from gspo_lab.readings import Seeds, Source, average, once
from gspo_lab.readings.answers import answers_variance, contrast_variance
from gspo_lab.readings.runs import decided, not_counted
from gspo_lab.states import State
from gspo_lab.stats.levels import first_resolving
from gspo_lab.stats.verdict import Comparison, Reason, Rule, Scores, decide_all
from gspo_lab.study import Declaration
from gspo_lab.study.contrast import formula, sides


@dataclass(frozen=True)
class Decision:
    """What a study says of its question so far, as codes and data.

    `seeds` are those that it is of: the ones declared before the first step, up to the look that resolved every arm.
    `verdicts` has each arm but the baseline, judged on the final scores in `ended`, and `missing` in words the runs of
    the two that have none. The last three are empty where no score can decide: `reason` says why, or a sweep has
    `doses` instead, one of lengths its `lengths`.
    """

    baseline: str
    primary: str | None
    matched: Certificate
    seeds: tuple[int, ...]
    planned: int
    """How many seeds it could be of."""
    doses: DoseResponse | None = None
    lengths: Lengths | None = None
    reason: Reason | None = None
    ended: tuple[RunOutcome, ...] = ()
    verdicts: dict[str, Comparison] = field(default_factory=dict)
    contrast: Comparison | None = None
    """The declared contrast, which then answers the question in place of the arms."""
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    described: tuple[Reason, ...] = ()
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
        """Whether the question has an answer: on the contrast where one is declared, else on every arm."""
        return bool(self.verdicts) and all(verdict.resolved for verdict in self.answering)

    @property
    def answering(self) -> tuple[Comparison, ...]:
        """The verdicts on final scores that answer the question."""
        return tuple(self.verdicts.values()) if self.contrast is None else (self.contrast,)

    @property
    def stopped(self) -> bool:
        """Whether an earlier look than the last has resolved the study: the declared runs of later seeds are not
        needed."""
        return self.resolved and len(self.seeds) < self.planned


@once
def decision(found: Source) -> Decision:
    """Each arm against the baseline by the declared rule, on the seeds that were declared before the first step."""
    declared, matched, doses = found.declaration, study_certificate(found), dose_response(found)
    baseline, bench = declared.baseline, declared.primary
    every = declared.deciding

    def without(reason: Reason | None = None) -> Decision:
        described, laws = not_counted(found), lengths(found)
        return Decision(baseline, bench, matched, every, len(every), doses, laws, described=described, reason=reason)

    if declared.trials_of is not None:
        return without(Reason("trials", {"of": declared.trials_of}))
    if doses is not None or lengths(found) is not None:
        return without()
    if bench is None:
        return without(Reason("no benchmark"))
    if not declared.treatments:
        return without(Reason("one arm", {"arm": baseline}))
    ended = outcomes(found, bench)
    look, judged = first_resolving(declared.looks, lambda look: _judged(found, ended, every[:look]), _Judged.ends)
    seeds = every[:look]
    verdicts = {arm: replace(verdict, about=about(declared)) for arm, verdict in judged.verdicts.items()}
    return Decision(
        baseline=baseline,
        primary=bench,
        matched=matched,
        seeds=seeds,
        planned=len(every),
        ended=tuple(one for one in ended if one.seed in seeds),
        verdicts=verdicts,
        contrast=judged.contrast and replace(judged.contrast, about=about(declared)),
        missing=judged.missing,
        described=tuple(_described(declared, ended, seeds)),
        ungraded=judged.ungraded,
    )


S = TypeVar("S", bound=Source)


def against(of: S, baseline: str) -> S:
    """The same records with another arm as the baseline: its verdicts are descriptive."""
    rule = of.declaration.verdict.model_copy(update={"baseline": baseline, "order": None})
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

    verdicts: dict[str, Comparison]
    missing: dict[str, tuple[str, ...]]
    ungraded: dict[str, Ungraded]
    contrast: Comparison | None = None

    def ends(self) -> bool:
        """Whether no later look is asked: what lacks runs at one look lacks them at all later ones."""
        answering = self.verdicts.values() if self.contrast is None else (self.contrast,)
        return any(self.missing.values()) or all(one.resolved for one in answering)


def _judged(found: Source, ended: Sequence[RunOutcome], seeds: Sequence[int]) -> _Judged:
    """These seeds by the declared rule, read with and without the answers that could not be graded."""
    declared = found.declaration
    absent = "not begun" if declared.recorded is None else "not imported"
    missing = {arm: _pairs(ended, seeds, declared.baseline, arm, absent)[1] for arm in declared.treatments}
    looked_at = [one for one in ended if one.seed in seeds]
    verdicts, ungraded = doubted(found, looked_at, lambda scored, wrong: _verdicts(found, scored, seeds, wrong))
    return _Judged(verdicts, missing, ungraded, _contrast(found, looked_at, seeds, verdicts))


def _verdicts(
    found: Source, ended: Sequence[RunOutcome], seeds: Sequence[int], counted_wrong: bool
) -> dict[str, Comparison]:
    """Per arm the verdict of these seeds by the declared rule; withheld while a pair is missing or runs are not
    matched. `counted_wrong`: whether answers without a grade are wrong in the scores of `ended`."""
    declared = found.declaration
    rule = _rule(declared)
    matched = study_certificate(found).on(seeds)
    forbidden = matched.reasons
    running = any(one.state == State.RUNNING for one in ended)
    scores = []
    for arm in declared.treatments:
        pairs, _ = _pairs(ended, seeds, declared.baseline, arm)
        forbids = [*forbidden.get(arm, ()), *_of_other_steps(declared, ended, pairs, arm)]
        withheld = [Reason("not matched", {"why": why}) for why in forbids]
        if len(pairs) < len(seeds):
            data = {"running": running, "complete": len(pairs), "planned": len(seeds)}
            withheld.append(Reason("pairs incomplete", data))
        scores.append(
            Scores(
                first=[first for first, _ in pairs.values()],
                second=[second for _, second in pairs.values()],
                labels=(declared.baseline, arm),
                items_variance=answers_variance(
                    found, declared.baseline, arm, list(pairs), counted_wrong=counted_wrong
                ),
                collapsed=_collapses(ended, pairs, declared.baseline, arm),
                unstable=_unstable(ended, pairs, declared.baseline, arm),
                withheld_because=tuple(withheld),
                unproven=matched.unproven,
            )
        )
    return dict(zip(declared.treatments, decide_all(scores, rule), strict=True))


def _rule(declared: Declaration) -> Rule:
    verdict = declared.verdict
    return Rule(verdict.margin, verdict.alpha, declared.looks, order=tuple(verdict.order or ()))


def _contrast(
    found: Source, ended: Sequence[RunOutcome], seeds: Sequence[int], verdicts: Mapping[str, Comparison]
) -> Comparison | None:
    """The declared contrast as one comparison of two weighted means, which has alpha to itself; None where none is
    declared. What withholds the verdict on one of its arms withholds it too, and so do ungraded answers that turn it.
    """
    declared = found.declaration
    weights = declared.verdict.contrast
    if weights is None:
        return None
    barred = [verdicts[arm] for arm in weights if arm in verdicts and verdicts[arm].barred]
    both = [
        _weighed(found, ended, seeds, weights, wrong, barred[0].reasons if barred else ()) for wrong in (False, True)
    ]
    judged, wrong = (replace(one, question="contrast") for one in both)
    if (judged.word, judged.direction) != (wrong.word, wrong.direction):
        counts = f"{sum(run.errors for run in ended if run.arm in weights)} of its arms"
        why = Reason("ungraded answers decide", {"counts": counts, "left_out": judged, "counted_wrong": wrong})
        return replace(judged, word="withheld", direction=0, reasons=(why,))
    return judged


def _weighed(
    found: Source,
    ended: Sequence[RunOutcome],
    seeds: Sequence[int],
    weights: Mapping[str, float],
    wrong: bool,
    reasons: tuple[Reason, ...],
) -> Comparison:
    negative, positive = sides(weights)
    finals = {(run.arm, run.seed): run.counted_wrong if wrong else run.final for run in ended}
    whole = [seed for seed in seeds if all(finals.get((arm, seed)) is not None for arm in weights)]
    first, second = (
        [sum(weight * (finals[arm, seed] or 0.0) for arm, weight in side.items()) for seed in whole]
        for side in (negative, positive)
    )
    if len(whole) < len(seeds) and not reasons:
        running = any(run.state == State.RUNNING for run in ended)
        data = {"running": running, "complete": len(whole), "planned": len(seeds)}
        reasons = (Reason("pairs incomplete", data),)
    signed = {arm: -weight for arm, weight in negative.items()} | positive
    variance = contrast_variance(found, signed, whole, counted_wrong=wrong)
    unproven = study_certificate(found).on(seeds).unproven
    labels = formula(negative), formula(positive)
    scores = Scores(first, second, labels, variance, withheld_because=reasons, unproven=unproven)
    return decide_all([scores], replace(_rule(found.declaration), order=()))[0]


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


def _unstable(ended: Sequence[RunOutcome], seeds: Pairs, *arms: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Per arm how many runs were unstable, of those that could be judged."""
    runs = [[run for run in ended if run.arm == arm and run.seed in seeds and run.fall_judged] for arm in arms]
    first, second = ((sum(run.fell for run in of_arm), len(of_arm)) for of_arm in runs)
    return first, second


def _described(declared: Declaration, ended: Sequence[RunOutcome], seeds: Sequence[int]) -> Iterator[Reason]:
    """What runs of seeds that do not decide show, arm by arm: descriptive."""
    others = [seed for seed in declared.seeds if seed not in seeds]
    for arm in declared.treatments:
        pairs, _ = _pairs(ended, others, declared.baseline, arm)
        if pairs:
            mean = average(second - first for first, second in pairs.values())
            data = {"arm": arm, "baseline": declared.baseline, "seeds": tuple(pairs), "mean": mean}
            yield Reason("not counted pairs", data)
