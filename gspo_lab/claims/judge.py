"""From a study's evidence to a word for each claim."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from gspo_lab.claims.claim import Claim, ClaimLabel, Result
from gspo_lab.claims.data import ClaimData, mixtures
from gspo_lab.claims.estimates import Estimates, Side, Untestable, weigh
from gspo_lab.claims.grammar import from_table
from gspo_lab.claims.library import LIBRARY, UNTESTED
from gspo_lab.claims.needs import NEEDS, Roles, unstable
from gspo_lab.claims.roles import find_roles
from gspo_lab.findings.matched import study_certificate
from gspo_lab.readings import Source
from gspo_lab.readings.answers import scores
from gspo_lab.stats import Reason, holm
from gspo_lab.study import ClaimTable


def judge(of: Source, *, every: bool = False) -> list[Result]:
    """The study's declared claims; with `every` the rest of the library too, which is descriptive.

    Arms that are no pairs by the study's certificate are compared by no claim. The declared claims are a family:
    Holm's rule over all of them that can be tested statistically, whether or not this study's data then allow it, for
    that was fixed before the run.
    """
    data = [ClaimData(of), *([ClaimData(of, wrong=True)] if scores(of)["errors"].any() else [])]
    results = [_declared(data, table) for table in of.declaration.claims]
    tested = [result for result in results if result.claim.id not in UNTESTED and not result.claim.exact]
    p_values = [None if result.claim.exact else result.p for result in results]
    adjusted = holm(p_values, len(tested))
    results = [_adjust(result, p) for result, p in zip(results, adjusted, strict=True)]
    if every:
        known = {result.claim.id for result in results}
        rest = (claim for claim in LIBRARY.values() if claim.id not in known)
        results += [_adjust(_read(data, claim, {}, declared=False), None) for claim in rest]
    return results


def _declared(data: Sequence[ClaimData], table: ClaimTable) -> Result:
    if table.metric is None and table.name in UNTESTED:
        why = UNTESTED[table.name]
        claim = Claim(table.name, "D", why, "", "", "", lambda data, roles: Estimates(()))
        return Result(claim, "not testable here", (Reason("untested", {"why": why}),), True, {})
    claim = from_table(table) if table.metric is not None else LIBRARY[table.name]
    return _read(data, claim, table.arms or {}, declared=True)


def _read(readings: Sequence[ClaimData], claim: Claim, given: Mapping[str, str], *, declared: bool) -> Result:
    """The claim's reading, its word still open: `_adjust` gives it. A second one counts as wrong what could not be
    graded; where it says something else, those answers decide, and the claim is not testable."""
    data, *others = readings
    routed = mixtures(data.of).values()
    if claim.moe and False in routed and not any(routed):
        return Result(claim, "not testable here", (Reason("no mixture"),), declared, {})
    found = find_roles(data.of, given, moe=claim.moe)
    missing = tuple(role for role in claim.roles if role not in found)
    roles = {role: found[role] for role in claim.roles if role in found}
    if missing:
        return Result(claim, "not testable here", (Reason("no arm plays", {"roles": missing}),), declared, roles)
    unmet = (*_unmatched(data.of, roles), *_unmet(claim.needs, data, roles))
    if unmet:
        return Result(claim, "not testable here", unmet, declared, roles)
    lacking = _unmet(claim.for_support, data, roles)
    try:
        reading = claim.evaluate(data, roles)
        for other in others:
            words = {"left_out": _alone(reading), "counted_wrong": _alone(claim.evaluate(other, roles))}
            if words["left_out"] != words["counted_wrong"]:
                raise Untestable("ungraded answers decide a claim", **words)
    except Untestable as untestable:
        return Result(claim, "not testable here", (*lacking, untestable.reason), declared, roles)
    side, p = weigh(reading.parts)
    if lacking and side != "contradicted":
        p = None
    counts = {} if claim.exact else unstable(data, roles)
    return Result(claim, "not resolved", (), declared, roles, reading, p, lacking=lacking, unstable=counts)


def _alone(reading: Estimates) -> Side | None:
    """What a reading says before Holm's rule; None: not resolved."""
    side, p = weigh(reading.parts)
    return side if p is None or p < reading.alpha else None


def _unmet(needs: Sequence[str], data: ClaimData, roles: Roles) -> tuple[Reason, ...]:
    """What is measured of the needs that are unmet; nothing after the first where no run could show the others."""
    out: list[Reason] = []
    for name in needs:
        try:
            reason = NEEDS[name](data, roles)
        except Untestable as untestable:
            reason = untestable.reason
        if reason is not None:
            out.append(reason)
            if not data.seeds(roles.values()):
                break
    return tuple(out)


def _unmatched(of: Source, roles: Roles) -> list[Reason]:
    """What keeps the runs of a claim's arms from being pairs."""
    matched = study_certificate(of).on(of.declaration.deciding)
    return [
        Reason("not matched", {"why": f"{first} and {second} are not matched: {why}"})
        for first, second in combinations(dict.fromkeys(roles.values()), 2)
        for why in matched.against(first).get(second, ())
    ]


def _adjust(result: Result, adjusted: float | None) -> Result:
    """The word, from the adjusted p where there is one, else from the claim's own."""
    if not result.parts:
        return result
    side, p = weigh(result.parts)
    deciding = p if adjusted is None else adjusted
    decides = deciding is None or deciding < result.reading.alpha
    word: ClaimLabel = side if side is not None and decides else "not resolved"
    if result.lacking and word != "contradicted":
        return replace(result, word="not testable here", reasons=result.lacking, p_adjusted=adjusted)
    return replace(result, word=word, reasons=_reasons(result, word, side, p, adjusted), p_adjusted=adjusted)


def _reasons(
    result: Result, word: ClaimLabel, side: Side | None, p: float | None, adjusted: float | None
) -> tuple[Reason, ...]:
    reading, parts = result.reading, result.parts
    raised = p is not None and adjusted is not None and p < reading.alpha <= adjusted
    out = []
    if word == "contradicted":
        broken = [part for part in parts if part.exact and part.side == "contradicted"]
        against = tuple(part.name for part in parts if part.side == "contradicted")
        bug = result.claim.grade.startswith("A")
        out += [Reason("broken", {"part": part, "bug": bug}) for part in broken]
        out += [] if broken else [Reason("the other side", {"parts": against})]
    elif word == "supported":
        out.append(Reason("in every run" if result.claim.exact else "the stated side"))
    elif raised:
        out.append(Reason("alone it would be", {"side": side}))
    else:
        out += _unresolved(reading)
    if side is not None and raised:
        out.append(Reason("Holm's rule", {"p": p, "adjusted": adjusted}))
    out += [Reason("support lacks", {"reason": reason}) for reason in result.lacking]
    out += [Reason("of a number", {"name": part.name, "reason": part.reason}) for part in parts if part.reason]
    beside = [part for part in reading.also if part.word == "contradicted"]
    out += [Reason("beside it", {"name": part.name, "criterion": part.criterion}) for part in beside]
    if any(count for count, _ in result.unstable.values()):
        out.append(Reason("unstable runs beside a claim", {"counts": result.unstable}))
    return (*out, *reading.reasons)


def _unresolved(reading: Estimates) -> list[Reason]:
    lacking = [part for part in reading.parts if not part.resolved]
    judged = any(part.low is not None for part in lacking) or not lacking
    out = [Reason("both sides" if judged else "no interval decides")]
    for part in lacking:
        if part.detectable is not None:
            seen = {"name": part.name, "ratio": part.ratio, "detectable": part.detectable}
            out.append(Reason("could have seen", seen))
        elif part.reason is None:  # else the reason follows
            out.append(Reason("neither side", {"name": part.name}))
    return out
