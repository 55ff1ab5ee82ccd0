"""The decision on a study: which pairs of runs count, what withholds a verdict, and the resulting
verdicts.

Scores leave ungraded answers out. A grader that fails on the answers of one arm alone raises its
score, so a verdict must also hold if they count as wrong.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gspo_lab.analysis.findings.clip_fractions import warm_up_only
from gspo_lab.analysis.findings.imported_metrics import imported_metrics
from gspo_lab.analysis.findings.matched import starting_models, study_certificate
from gspo_lab.analysis.findings.run_outcomes import RunOutcome, outcomes
from gspo_lab.analysis.findings.sweeps import DoseResponse, Lengths, dose_response, lengths
from gspo_lab.analysis.matching import Certificate
from gspo_lab.analysis.readings import Seeds, Source, average, once, runs
from gspo_lab.analysis.readings.answers import answers_variance, counts_by_problem
from gspo_lab.analysis.readings.runs import decided, not_counted
from gspo_lab.analysis.stats.levels import first_resolving
from gspo_lab.analysis.stats.moderated import contrast_variance
from gspo_lab.analysis.stats.proportions import binomial_p
from gspo_lab.analysis.stats.verdict import Comparison, Rule, Scores, decide_all
from gspo_lab.common.plain_data import Integers, OptionalFloat, Strings
from gspo_lab.common.reason import Reason, Reasons
from gspo_lab.common.states import State
from gspo_lab.common.text import MINUS, counted, seed_numbers, seeds_text, signed
from gspo_lab.study import Declaration
from gspo_lab.study.contrast import side_names, sides, signed_sides
from gspo_lab.study.verdict_tables import score_named


@dataclass(frozen=True)
class Ungraded:
    """Ungraded answers of two arms at the deciding evaluations, over the seeds that both finished.

    `labels`, `answers` and `errors` (ungraded answers) each hold the baseline's value, then the
    arm's. `more` counts for each the problems on which its share of ungraded answers is larger.
    `p` is a sign test over these problems (exact, two-sided); None without one. `verdict` counts
    ungraded answers as incorrect.
    """

    labels: tuple[str, str]
    answers: tuple[int, int]
    errors: tuple[int, int]
    more: tuple[int, int]
    p: OptionalFloat
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

    def reasons_against(self, verdict: Comparison) -> Reasons:
        """Why `verdict`, which leaves ungraded answers out, must be withheld."""
        reasons = []
        if self.uneven:
            (baseline, subject) = self.labels
            (fewer, more) = self.more
            text = (
                f"more answers of one arm could not be graded, beyond chance ({self.counts}; the"
                f" larger share is {subject}'s on {more} problems and {baseline}'s on {fewer},"
                f" p = {self.p:.2g})"
            )
            reasons.append(Reason("ungraded-answers-are-uneven", text))
        if verdict.word != self.verdict.word:
            reasons.append(_ungraded_answers_decide(self.counts, verdict, self.verdict))
        return tuple(reasons)


def _ungraded_answers_decide(counts: str, left_out: Comparison, wrong: Comparison) -> Reason:
    text = (
        f"answers that could not be graded ({counts}) decide: left out it reads"
        f" '{left_out.word}', counted as incorrect '{wrong.word}'"
    )
    return Reason("ungraded-answers-decide", text)


@dataclass(frozen=True)
class Decision:
    """A study's verdicts so far.

    `seeds` are those declared before the first step, up to the look that resolved every arm.
    `verdicts` has each arm except the baseline, judged on the final scores in `ended`. `missing`
    names the runs without a score. These three are empty if no score can decide: then `reason`
    says why, or a sweep has `doses` or `lengths` instead.
    """

    baseline: str
    primary: str | None
    matched: Certificate
    seeds: Integers
    planned: int
    """How many seeds the declaration has."""
    doses: DoseResponse | None = None
    lengths: Lengths | None = None
    reason: Reason | None = None
    ended: tuple[RunOutcome, ...] = ()
    verdicts: dict[str, Comparison] = field(default_factory=dict)
    contrast: Comparison | None = None
    """The declared contrast, which then answers the question in place of the arms."""
    missing: dict[str, Strings] = field(default_factory=dict)
    described: Reasons = ()
    """Descriptive: what the runs of the remaining seeds show."""
    ungraded: dict[str, Ungraded] = field(default_factory=dict)
    """Per arm the ungraded answers of it or of the baseline, with the verdict that counts them as
    wrong.
    """

    @property
    def runs(self) -> Seeds:
        """The deciding runs: one set of seeds behind all numbers of the report."""
        return decided(self.seeds)

    @property
    def resolved(self) -> bool:
        """Whether the question has an answer: on the contrast where one is declared, else on every
        arm.
        """
        return bool(self.verdicts) and all(verdict.resolved for verdict in self.answering)

    @property
    def answering(self) -> tuple[Comparison, ...]:
        """The verdicts on final scores that answer the question."""
        return tuple(self.verdicts.values()) if self.contrast is None else (self.contrast,)

    @property
    def swept(self) -> bool:
        """Whether the study sweeps a setting, which then answers the question."""
        return self.doses is not None or self.lengths is not None

    def ends(self) -> bool:
        """Whether later looks can be skipped: the study is resolved, or runs are missing at this
        look already.
        """
        return any(self.missing.values()) or self.resolved

    @property
    def stopped(self) -> bool:
        """Whether an early look has resolved the study, so that the runs of later seeds are not
        needed.
        """
        return self.resolved and len(self.seeds) < self.planned


Sides = tuple[Mapping[str, float], Mapping[str, float]]
"""The arms of both sides with their weights: the baseline's side, then the subject's.

Each side's weights sum to 1.
"""


def with_sides(source: Source) -> Iterator[tuple[Comparison, Sides]]:
    """Each verdict on final scores, the contrast's too, with the arms that it compares."""
    current = decision(source)
    for arm, verdict in current.verdicts.items():
        yield verdict, ({current.baseline: 1.0}, {arm: 1.0})
    if current.contrast is not None:
        yield current.contrast, sides(source.declaration.verdict.contrast or {})


@once
def decision(source: Source) -> Decision:
    """Each arm against the baseline by the declared rule, on the seeds that were declared before
    the first step.

    For imported runs only the seeds count that all arms have.
    """
    declared = source.declaration
    seeds, unpaired = _paired_seeds(source)
    bench = declared.primary
    matched = study_certificate(source)
    undecided = Decision(
        declared.baseline, bench, matched, seeds, len(seeds), dose_response(source), lengths(source)
    )
    reason = _nothing_decides(declared, swept=undecided.swept) or _unlike_rewards(source)
    if reason is None and not seeds:
        text = "no verdict: no seed has a run of every arm, so that no pair can be made"
        reason = Reason(NO_PAIRS, text)
    if reason is not None or undecided.swept:
        described = (*unpaired, *not_counted(source), *warm_up_only(source))
        return replace(undecided, described=described, reason=reason)
    ended = outcomes(source, bench)
    _, judged = first_resolving(
        declared.looks, lambda look: _look(source, ended, undecided, seeds[:look]), Decision.ends
    )
    return replace(
        judged,
        described=(
            *unpaired,
            *_extra_comparisons(declared, ended, judged.seeds),
            *warm_up_only(source),
        ),
    )


def _paired_seeds(source: Source) -> tuple[Integers, list[Reason]]:
    """The deciding seeds, and the reasons why other seeds of imported runs do not count."""
    declared = source.declaration
    if declared.recorded is None:
        return declared.deciding, []
    by_arm = {arm: {run.seed for run in runs(source) if run.arm == arm} for arm in declared.arms}
    common = set.intersection(*by_arm.values())
    reasons = []
    for arm, seeds in by_arm.items():
        extra = sorted(seeds - common)
        if extra:
            text = f"not compared: {seeds_text(extra)} of {arm}, which not every arm has"
            reasons.append(Reason(UNPAIRED, text))
    return tuple(seed for seed in declared.deciding if seed in common), reasons


def _nothing_decides(declared: Declaration, *, swept: bool) -> Reason | None:
    """Why no score of the study can decide."""
    if declared.parent is not None and not declared.has_verdict:
        arms = f"the arms of {declared.parent.study}"
        text = f"no verdict: these are the trials on which {arms} chose"
        return Reason("trials", text)
    if swept:
        return None
    if declared.primary is None:
        text = (
            "no verdict: the study declares no benchmark, so the score that would decide is not"
            " measured"
        )
        return Reason(NO_SCORE, text)
    if declared.baseline not in declared.arms:
        text = (
            f"no verdict: {declared.baseline}, the declared baseline, is not among the arms of"
            " these runs, so there is nothing to compare them with"
        )
        return Reason("no-baseline", text)
    if not declared.treatments:
        text = (
            f"no verdict: {declared.baseline} is the only arm, so there is nothing to compare it"
            " with"
        )
        return Reason("one-arm", text)
    return None


UNPAIRED = "unpaired-seeds"
NO_PAIRS = "no-pairs"
NO_SCORE = "no-benchmark"


def _unlike_rewards(source: Source) -> Reason | None:
    """Why imported scores cannot decide, if they are training rewards of unlike arms.

    Arms may sum their training rewards from different functions.
    """
    logged = imported_metrics(source)
    if logged is None or not logged.rewards_differ:
        return None
    bench = score_named(source.declaration.primary or "").bench
    if not logged.scored_rewards(bench):
        return None
    text = f"no verdict: the score is a training reward. {' '.join(logged.apart)}"
    return Reason("rewards-differ", text)


S = TypeVar("S", bound=Source)


def with_baseline(source: S, baseline: str) -> S:
    """A source with these records and `baseline` as the baseline; its verdicts are descriptive."""
    rule = source.declaration.verdict.model_copy(update={"baseline": baseline, "order": None})
    changed = copy(source)
    changed.base = source
    # Keep the answers that do not depend on the baseline.
    changed.results = {
        key: answer for key, answer in source.results.items() if key[1] not in BASELINE_DEPENDENT
    }
    # Keep the deciding seeds: with another baseline a later look could decide, whose runs may not
    # exist.
    changed.__dict__["declaration"] = replace(
        source.declaration, verdict=rule, seeds=decision(source).seeds, added=()
    )
    return changed


BASELINE_DEPENDENT = {
    "all_executions",
    "compared",
    "count_unstable_runs",
    "deciding_runs",
    "decision",
    "dose_response",
    "lengths",
    "new_problems",
    "ranked",
    "reference_levels",
    "score_levels",
    "stability_verdicts",
    "study_certificate",
}
"""The functions of a source whose answers change with the baseline or with the deciding seeds."""

Pairs = dict[int, tuple[float, float]]
"""Per seed the final scores of the baseline and the arm."""


def _pairs(
    ended: Sequence[RunOutcome],
    seeds: Sequence[int],
    baseline: str,
    arm: str,
    absent: str = "not begun",
) -> tuple[Pairs, Strings]:
    """The final scores of each seed whose two runs have one, and the runs without one.

    A run without a score is named with its state; `absent` is that of a run without records.
    """
    by_run = {(run.arm, run.seed): run for run in ended}
    pairs: Pairs = {}
    missing = []
    for seed in seeds:
        scores = []
        for name in (baseline, arm):
            run = by_run.get((name, seed))
            if run is not None and run.final is not None:
                scores.append(run.final)
            else:
                state = (
                    absent
                    if run is None
                    else "without a score"
                    if run.state == State.FINISHED
                    else run.state
                )
                missing.append(f"{name} seed {seed} {state}")
        if len(scores) == 2:
            pairs[seed] = (scores[0], scores[1])
    return pairs, tuple(missing)


def _look(
    source: Source, ended: Sequence[RunOutcome], undecided: Decision, seeds: Integers
) -> Decision:
    """The decision on these seeds by the declared rule, with and without ungraded answers."""
    declared = source.declaration
    model = starting_models(source.declaration)
    absent = "not begun" if declared.recorded is None else "not imported"
    looked_at = tuple(run for run in ended if run.seed in seeds)
    verdicts, ungraded = _judge_twice(
        source, looked_at, lambda scored, wrong: _verdicts(source, scored, seeds, wrong)
    )
    contrast = _contrast(source, looked_at, seeds, verdicts)
    return replace(
        undecided,
        seeds=seeds,
        ended=looked_at,
        verdicts={arm: replace(verdict, about=model) for arm, verdict in verdicts.items()},
        contrast=contrast and replace(contrast, about=model),
        missing={
            arm: _pairs(ended, seeds, declared.baseline, arm, absent)[1]
            for arm in declared.treatments
        },
        ungraded=ungraded,
    )


def _judge_twice(
    source: Source,
    ended: Sequence[RunOutcome],
    judge: Callable[[Sequence[RunOutcome], bool], Mapping[str, Comparison]],
) -> tuple[dict[str, Comparison], dict[str, Ungraded]]:
    """The verdicts of `judge` on the final scores, withheld where ungraded answers could change
    them.

    Also, per arm, the ungraded answers of it and of the baseline, if any. The second argument of
    `judge` says whether the scores count ungraded answers as incorrect.
    """
    verdicts = dict(judge(ended, False))
    if not any(run.errors for run in ended):
        return verdicts, {}
    counted_wrong = judge(
        [run if run.final is None else replace(run, final=run.counted_wrong) for run in ended], True
    )
    lacking = {}
    for arm, verdict in verdicts.items():
        ungraded = _ungraded_answers(
            source, (str(verdict.baseline), verdict.subject), ended, counted_wrong[arm]
        )
        if not any(ungraded.errors):
            continue
        lacking[arm] = ungraded
        reasons = ungraded.reasons_against(verdict)
        if verdict.word != "no verdict" and reasons:
            verdicts[arm] = replace(verdict, word="no verdict", reasons=reasons)
    return verdicts, lacking


def _ungraded_answers(
    source: Source, labels: tuple[str, str], ended: Sequence[RunOutcome], verdict: Comparison
) -> Ungraded:
    """The ungraded answers of two arms at the deciding evaluations of seeds that both finished."""
    scored = {(run.arm, run.seed): run.steps for run in ended if run.final is not None}
    seeds = [seed for arm, seed in scored if arm == labels[1] and (labels[0], seed) in scored]
    deciding = {(arm, seed): scored[arm, seed] for arm in labels for seed in seeds}
    counts = counts_by_problem(source, source.declaration.primary or "", deciding)
    first, second = (counts.get(arm, {}) for arm in labels)
    both = [(first[problem], second[problem]) for problem in first.keys() & second.keys()]
    apart = [
        errors * answers_0 - errors_0 * answers for (answers_0, errors_0), (answers, errors) in both
    ]
    more = (sum(share < 0 for share in apart), sum(share > 0 for share in apart))
    return Ungraded(
        labels,
        (
            sum(answers for answers, _ in first.values()),
            sum(answers for answers, _ in second.values()),
        ),
        (sum(errors for _, errors in first.values()), sum(errors for _, errors in second.values())),
        more,
        binomial_p(more[1], sum(more)) if any(more) else None,
        verdict,
    )


def _verdicts(
    source: Source, ended: Sequence[RunOutcome], seeds: Sequence[int], counted_wrong: bool
) -> dict[str, Comparison]:
    """Per arm the verdict of these seeds by the declared rule; withheld while a pair is missing or
    runs are unmatched.

    `counted_wrong`: whether the scores of `ended` count ungraded answers as wrong.
    """
    declared = source.declaration
    matched = study_certificate(source).on(seeds)
    forbidden = matched.reasons
    running = any(run.state == State.RUNNING for run in ended)
    scores = []
    for arm in declared.treatments:
        both = (declared.baseline, arm)
        pairs, _ = _pairs(ended, seeds, *both)
        forbids = [*forbidden.get(arm, ()), *_different_last_steps(declared, ended, pairs, arm)]
        withheld = [Reason("not-matched", why) for why in forbids]
        if len(pairs) < len(seeds):
            withheld.append(_incomplete(running, pairs, seeds))
        first = [scored[0] for scored in pairs.values()]
        second = [scored[1] for scored in pairs.values()]
        variance = answers_variance(
            source, {both[0]: -1, arm: 1}, list(pairs), counted_wrong=counted_wrong
        )
        collapsed, unstable = (
            (_counts(ended, pairs, both[0], *names), _counts(ended, pairs, arm, *names))
            for names in (("judged", "collapsed"), ("stability_judged", "unstable"))
        )
        scores.append(
            Scores(
                first,
                second,
                both,
                variance,
                # Where only scores can judge the runs, collapses are unknown.
                collapsed=None
                if not any(n for _, n in collapsed) and any(n for _, n in unstable)
                else collapsed,
                unstable=unstable,
                withheld_because=tuple(withheld),
                unproven=matched.unproven,
            )
        )
    return dict(zip(declared.treatments, decide_all(scores, _rule(declared)), strict=True))


def _incomplete(running: bool, complete: Collection[int], seeds: Collection[int]) -> Reason:
    state = "the study is still running" if running else "runs are missing"
    return Reason(
        "pairs-incomplete", f"{state}, {len(complete)} of {len(seeds)} pairs are complete"
    )


def _counts(
    ended: Sequence[RunOutcome], seeds: Pairs, arm: str, judged: str, event: str
) -> tuple[int, int]:
    """How many of an arm's runs have the `event`, and how many can be `judged` by it."""
    counting = [run for run in ended if run.arm == arm and run.seed in seeds]
    counting = [run for run in counting if getattr(run, judged)]
    return sum(getattr(run, event) for run in counting), len(counting)


def _rule(declared: Declaration) -> Rule:
    verdict = declared.verdict
    return Rule(verdict.margin, verdict.alpha, declared.looks, order=tuple(verdict.order or ()))


def _contrast(
    source: Source,
    ended: Sequence[RunOutcome],
    seeds: Sequence[int],
    verdicts: Mapping[str, Comparison],
) -> Comparison | None:
    """The declared contrast as a comparison of two weighted means, at the whole alpha.

    None without a declared contrast. It is withheld if the verdict on one of its arms is, or if
    ungraded answers change it.
    """
    weights = source.declaration.verdict.contrast
    if weights is None:
        return None
    negative, positive = sides(weights)
    signed = signed_sides(negative, positive)
    withheld = [
        verdicts[arm].reasons for arm in weights if arm in verdicts and verdicts[arm].withheld
    ]
    running = any(run.state == State.RUNNING for run in ended)
    unproven = study_certificate(source).on(seeds).unproven
    labels = side_names(source.declaration.verdict)
    rule = replace(_rule(source.declaration), order=())

    def weighed(wrong: bool) -> Comparison:
        finals = {(run.arm, run.seed): run.counted_wrong if wrong else run.final for run in ended}
        complete = [
            seed for seed in seeds if all(finals.get((arm, seed)) is not None for arm in weights)
        ]
        by_arm = {arm: [finals[arm, seed] or 0.0 for seed in complete] for arm in weights}
        first = _weighted_sums(negative, by_arm)
        second = _weighted_sums(positive, by_arm)
        if withheld:
            why = withheld[0]
        elif len(complete) < len(seeds):
            why = (_incomplete(running, complete, seeds),)
        else:
            why = ()
        scores = Scores(
            first,
            second,
            labels,
            answers_variance(source, signed, complete, counted_wrong=wrong),
            contrast_variance(list(by_arm.values()), [signed[arm] for arm in by_arm]),
            withheld_because=why,
            unproven=unproven,
        )
        return replace(decide_all([scores], rule)[0], question="contrast")

    judged = weighed(False)
    wrong = weighed(True)
    if judged.word != wrong.word:
        counts = f"{sum(run.errors for run in ended if run.arm in weights)} of its arms"
        why = _ungraded_answers_decide(counts, judged, wrong)
        return replace(judged, word="no verdict", reasons=(why,))
    return judged


def _weighted_sums(
    weights: Mapping[str, float], scores: Mapping[str, Sequence[float]]
) -> list[float]:
    """Seed by seed the weighted sum of the arms' scores."""
    by_arm = [[weight * score for score in scores[arm]] for arm, weight in weights.items()]
    return [sum(of_seed) for of_seed in zip(*by_arm, strict=True)]


def _different_last_steps(
    declared: Declaration, ended: Sequence[RunOutcome], seeds: Pairs, arm: str
) -> Iterator[str]:
    """Why the final scores of imported runs cannot be subtracted: logs of unequal length end at
    other steps.
    """
    if declared.recorded is None:
        return
    last = {(run.arm, run.seed): run.steps[-1] for run in ended if run.steps}
    apart = [seed for seed in seeds if last[declared.baseline, seed] != last[arm, seed]]
    if apart:
        seed = apart[0]
        baseline = declared.baseline
        steps = f"step {last[baseline, seed]} in {baseline} and of step {last[arm, seed]} in {arm}"
        yield f"final scores are of {steps} (seed {seed})"


def _extra_comparisons(
    declared: Declaration, ended: Sequence[RunOutcome], seeds: Sequence[int]
) -> Iterator[Reason]:
    extra_seeds = [seed for seed in declared.seeds if seed not in seeds]
    for arm in declared.treatments:
        pairs, _ = _pairs(ended, extra_seeds, declared.baseline, arm)
        if pairs:
            mean = average(second - first for first, second in pairs.values()) or 0.0
            text = (
                f"not counted: {counted(len(pairs), 'pair')} of other seeds"
                f" ({seed_numbers(pairs)}), {arm} {MINUS} {declared.baseline} {signed(mean)}"
            )
            yield Reason("not-counted-pairs", text)
