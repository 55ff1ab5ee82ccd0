"""Judges each claim of a study by its records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, starmap
from typing import Literal

from gspo_lab.analysis.claims.claim import Claim
from gspo_lab.analysis.claims.data import ClaimData, Roles, mixtures
from gspo_lab.analysis.claims.estimates import Estimate, Estimates, Side, Untestable, weigh
from gspo_lab.analysis.claims.in_place import from_table
from gspo_lab.analysis.claims.library import LIBRARY
from gspo_lab.analysis.claims.preconditions import Need, unstable_runs
from gspo_lab.analysis.claims.published import UNTESTED
from gspo_lab.analysis.claims.roles import find_roles
from gspo_lab.analysis.findings.answer import StudyAnswer, answer_of
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings.answers import scores
from gspo_lab.analysis.stats import holm
from gspo_lab.analysis.stats.verdict import Verdict
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.common.reason import Reason, Reasons
from gspo_lab.study import ClaimTable
from gspo_lab.study.claim_validation import CLAIM_ROLES

ClaimLabel = Literal["supported", "contradicted", "inconclusive", "not testable here"]


@dataclass(frozen=True)
class Result:
    """The verdict of a study on one claim. `p` is the claim's own, `p_adjusted` Holm's over the
    declared family.

    Outside the family `p_adjusted` is None, and the claim is descriptive. `lacking` says what
    support would also need: without it the claim can only be contradicted.
    `unstable` has per arm the unstable runs, and the judged ones."""

    claim: Claim
    word: ClaimLabel
    reasons: Reasons
    declared: bool
    roles: Roles
    reading: Estimates = Estimates(())
    p: OptionalFloat = None
    p_adjusted: OptionalFloat = None
    lacking: Reasons = ()
    unstable: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The verdict with the estimate of the first deciding number."""
        deciding = self.parts[0] if self.parts else Estimate("", "", 0, None)
        return Verdict(
            question="claim",
            subject=self.claim.id,
            baseline=None,
            word=self.word,
            estimate=deciding.estimate,
            interval=deciding.interval,
            level=deciding.alpha,
            reasons=self.reasons,
        )

    @property
    def parts(self) -> tuple[Estimate, ...]:
        """The deciding numbers."""
        return self.reading.parts

    @property
    def supplementary(self) -> tuple[Estimate, ...]:
        """The numbers shown beside them."""
        return self.reading.also


def judge(source: Source, *, every: bool = False) -> list[Result]:
    """The study's declared claims; with `every` also the remaining library, which is descriptive.

    Claims compare only arms that the certificate calls matched. The declared claims are a family:
    Holm's rule over all that can be tested statistically. Claims that the data then do not allow
    count too, since the family was fixed before the run.
    """
    results = [_declared_claim(source, table) for table in source.declaration.claims]
    tested = [
        result for result in results if result.claim.id not in UNTESTED and not result.claim.exact
    ]
    p_values = [None if result.claim.exact else result.p for result in results]
    adjusted = holm(p_values, len(tested))
    results = list(starmap(_adjust, zip(results, adjusted, strict=True)))
    if every:
        declared = {result.claim.id for result in results}
        undeclared = (claim for claim in LIBRARY.values() if claim.id not in declared)
        results += [
            _adjust(_evaluate(source, claim, {}, declared=False), None) for claim in undeclared
        ]
    return results


def _declared_claim(source: Source, table: ClaimTable) -> Result:
    if table.metric is not None:
        return _evaluate(source, from_table(table), table.arms or {}, declared=True)
    if table.name in UNTESTED:
        why = UNTESTED[table.name]
        claim = Claim(table.name, "D", why, "", "", "", Estimates, ())
        reason = Reason("untested", f"no study here tests it: {why}")
        return Result(claim, "not testable here", (reason,), True, {})
    return _evaluate(source, LIBRARY[table.name], table.arms or {}, declared=True)


def _evaluate(source: Source, claim: Claim, named: Mapping[str, str], *, declared: bool) -> Result:
    """The result before `_adjust` gives its word."""
    roles: dict[str, str] = {}

    def not_testable(*reasons: Reason) -> Result:
        return Result(claim, "not testable here", reasons, declared, roles)

    routed = mixtures(source).values()
    if claim.moe and False in routed and not any(routed):
        text = "no arm has a mixture of experts: no expert choice was recorded in any of them"
        return not_testable(Reason("no-mixture", text))
    arms = find_roles(source, named, moe=claim.moe)
    roles |= {role: arms[role] for role in claim.roles if role in arms}
    missing = [role for role in claim.roles if role not in arms]
    if missing:
        meanings = [f"{role} ({CLAIM_ROLES.get(role, 'name it under arms')})" for role in missing]
        return not_testable(Reason("no-arm-plays", f"no arm plays {', '.join(meanings)}"))
    data = ClaimData(source, roles)
    unmet = (*_mismatches(source, roles), *_unmet(claim.needs, data))
    if unmet:
        return not_testable(*unmet)
    lacking = _unmet(claim.for_support, data)
    try:
        reading = _read_twice(claim, data)
    except Untestable as untestable:
        return not_testable(*lacking, untestable.reason)
    side, p = weigh(reading.parts)
    if lacking and side != "contradicted":
        p = None
    counts = {} if claim.exact else unstable_runs(data)
    return Result(
        claim, "inconclusive", (), declared, roles, reading, p, lacking=lacking, unstable=counts
    )


def _read_twice(claim: Claim, data: ClaimData) -> Estimates:
    """The claim's estimates; Untestable where they say another thing with ungraded answers counted
    as wrong.
    """
    reading = claim.read(data)
    if not any(row["errors"] for row in scores(data.source)):
        return reading
    left_out = _side_before_holm(reading)
    counted_wrong = _side_before_holm(claim.read(replace(data, ungraded_wrong=True)))
    if left_out != counted_wrong:
        text = (
            "answers that could not be graded decide: left out it is"
            f" {left_out or 'inconclusive'}, counted as incorrect {counted_wrong or 'inconclusive'}"
        )
        raise Untestable("ungraded-answers-decide", text)
    return reading


def _side_before_holm(reading: Estimates) -> Side | None:
    """What a reading says before Holm's rule; None: inconclusive."""
    side, p = weigh(reading.parts)
    return side if p is None or p < reading.alpha else None


def _unmet(needs: Sequence[Need], data: ClaimData) -> Reasons:
    """Why each unmet need is unmet; only the first one where no seed could show the others."""
    unmet: list[Reason] = []
    for need in needs:
        try:
            reason = need.check(data)
        except Untestable as untestable:
            reason = untestable.reason
        if reason is not None:
            unmet.append(reason)
            if not data.seeds:
                break
    return tuple(unmet)


def _mismatches(source: Source, roles: Roles) -> list[Reason]:
    matched = study_certificate(source).on(source.declaration.deciding)
    reasons = []
    for baseline, arm in combinations(dict.fromkeys(roles.values()), 2):
        for why in matched.differences_from(baseline).get(arm, ()):
            text = f"{baseline} and {arm} are not matched: {why}"
            reasons.append(Reason("not-matched", text))
    return reasons


def _adjust(result: Result, adjusted: OptionalFloat) -> Result:
    """The result with its word, by the adjusted p where there is one, else by the claim's own."""
    if not result.parts:
        return result
    side, p = weigh(result.parts)
    deciding = p if adjusted is None else adjusted
    decides = deciding is None or deciding < result.reading.alpha
    word: ClaimLabel = side if side is not None and decides else "inconclusive"
    if result.lacking and word != "contradicted":
        return replace(
            result, word="not testable here", reasons=result.lacking, p_adjusted=adjusted
        )
    return replace(
        result, word=word, reasons=_reasons(result, word, side, p, adjusted), p_adjusted=adjusted
    )


def _reasons(
    result: Result, word: ClaimLabel, side: Side | None, p: OptionalFloat, adjusted: OptionalFloat
) -> Reasons:
    reading = result.reading
    raised = ""
    if p is not None and adjusted is not None and p < reading.alpha <= adjusted:
        raised = f"Holm's rule over the declared claims takes p from {p:.3g} to {adjusted:.3g}"
    if word == "contradicted":
        reasons = _reasons_contradicted(result)
    elif word == "supported":
        where = "in every run"
        if not result.claim.exact:
            where = "the whole interval lies on the stated side"
        reasons = [Reason("stated-side", where)]
    elif raised:
        reasons = [Reason("alone", f"the interval alone would be {side}")]
    else:
        reasons = _reasons_unresolved(reading)
    if side is not None and raised:
        reasons.append(Reason("holm", raised))
    return (*reasons, *_reasons_beside(result), *reading.reasons)


def _reasons_beside(result: Result) -> list[Reason]:
    """What a reader must know beside any word."""
    reasons = []
    for reason in result.lacking:
        text = f"support would also have needed what is lacking here: {reason.text}"
        reasons.append(Reason("support-lacks", text))
    for part in result.parts:
        if part.reason:
            reasons.append(Reason("of-a-number", f"{part.name}: {part.reason.text}"))
    for part in result.supplementary:
        if part.word == "contradicted":
            text = f"{part.name}, which decides nothing, is not met ({part.criterion})"
            reasons.append(Reason("beside-it", text))
    if any(count for count, _ in result.unstable.values()):
        counts = [f"{arm} {count} of {judged}" for arm, (count, judged) in result.unstable.items()]
        text = (
            f"unstable runs: {', '.join(counts)}; where runs are unstable, a claim's error rate is"
            " above alpha (gspo-lab certify --rule)"
        )
        reasons.append(Reason("unstable-runs", text))
    return reasons


def _reasons_contradicted(result: Result) -> list[Reason]:
    broken = [part for part in result.parts if part.exact and part.side == "contradicted"]
    if broken:
        bug = "this is a bug: " if result.claim.grade.startswith("A") else ""
        texts = [
            f"{bug}{part.name} is {part.estimate:.3g}, {part.criterion} is required"
            for part in broken
        ]
        return [Reason("broken", text) for text in texts]
    names = [part.name for part in result.parts if part.side == "contradicted"]
    text = f"the whole interval lies on the other side: {', '.join(names)}"
    return [Reason("other-side", text)]


def _reasons_unresolved(reading: Estimates) -> list[Reason]:
    unresolved = [part for part in reading.parts if not part.resolved]
    reasons = [Reason("no-interval-decides", "no interval decides")]
    if any(part.low is not None for part in unresolved) or not unresolved:
        reasons = [Reason("both-sides", "the interval covers both sides")]
    for part in unresolved:
        if part.detectable is not None:
            measure = "factor" if part.ratio else "difference"
            text = f"{part.name}: these seeds could have seen a {measure} of {part.detectable:.3g}"
            reasons.append(Reason("could-have-seen", text))
        elif part.reason is None:  # else the reason follows
            reasons.append(Reason("neither-side", f"{part.name} is on neither side"))
    return reasons


def answer(source: Source) -> StudyAnswer:
    """The study's answer: by the score, by stability, or by the claims that the question names."""
    question = source.declaration.verdict.question
    if isinstance(question, str):
        return answer_of(source)
    named = [result.verdict for result in judge(source) if result.claim.id in question]
    return answer_of(source, named)
