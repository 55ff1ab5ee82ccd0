"""From a study's evidence to a word for each claim."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from gspo_lab.claims.claim import Claim, Need, Result, Roles, Word
from gspo_lab.claims.estimates import Estimates, Side, Untestable, weigh
from gspo_lab.claims.grammar import from_table
from gspo_lab.claims.library import LIBRARY
from gspo_lab.claims.recorded import Recorded
from gspo_lab.claims.roles import find_roles
from gspo_lab.findings import Findings
from gspo_lab.stats import Reason, holm
from gspo_lab.study.claim_rules import CLAIM_ROLES


def judge(found: Findings, *, every: bool = False) -> list[Result]:
    """The study's declared claims; with `every` the rest of the library too, which is descriptive.

    Arms that are no pairs by the study's certificate are compared by no claim. The declared claims are a family:
    Holm's rule over all of them that can be tested statistically, whether or not this study's data then allow it, for
    that was fixed before the run.
    """
    recorded = [Recorded(found), *([Recorded(found, wrong=True)] if found.scores["errors"].any() else [])]
    declared = [
        (from_table(table) if table.metric is not None else LIBRARY[table.name], table.arms or {})
        for table in found.declaration.claims
    ]
    results = [_read(recorded, claim, given, declared=True) for claim, given in declared]
    family = sum(claim.unrecorded is None and not claim.exact for claim, _ in declared)
    tested = [result.p if not result.claim.exact else None for result in results]
    adjusted = holm(tested, family)
    results = [_adjust(result, p) for result, p in zip(results, adjusted, strict=True)]
    if every:
        known = {claim.id for claim, _ in declared}
        results += [
            _adjust(_read(recorded, claim, {}, declared=False), None)
            for claim in LIBRARY.values()
            if claim.id not in known
        ]
    return results


def _read(readings: Sequence[Recorded], claim: Claim, given: Mapping[str, str], *, declared: bool) -> Result:
    """The claim's reading, its word still open: `_adjust` gives it. A second one counts as wrong what could not be
    graded; where it says something else, those answers decide, and the claim is not testable."""
    recorded, *others = readings
    if claim.evaluate is None:
        return Result(claim, "not testable here", _why(claim.unrecorded or "nothing evaluates it"), declared, {})
    found = find_roles(recorded, given, moe=claim.moe)
    if claim.moe and False in recorded.mixtures.values() and not any(recorded.mixtures.values()):
        reason = "no arm has a mixture of experts: no expert choice was recorded in any of them"
        return Result(claim, "not testable here", _why(reason), declared, {})
    missing = [role for role in claim.roles if role not in found]
    roles = {role: found[role] for role in claim.roles if role in found}
    if missing:
        wanted = ", ".join(f"{role} ({CLAIM_ROLES.get(role, 'name it under arms')})" for role in missing)
        return Result(claim, "not testable here", _why(f"no arm plays {wanted}"), declared, roles)
    unmet = [*_unmatched(recorded.found, roles), *_unmet(claim.needs, recorded, roles)]
    if unmet:
        return Result(claim, "not testable here", tuple(unmet), declared, roles)
    lacking = tuple(_unmet(claim.for_support, recorded, roles))
    try:
        reading = claim.evaluate(recorded, roles)
        for other in others:
            if (left_out := _alone(reading)) != (wrong := _alone(claim.evaluate(other, roles))):
                said = f"left out it is {left_out or 'inconclusive'}, counted as incorrect {wrong or 'inconclusive'}"
                raise Untestable(f"answers that could not be graded decide: {said}")
    except Untestable as reason:
        return Result(claim, "not testable here", (*lacking, *_why(str(reason))), declared, roles)
    side, p = weigh(reading.parts)
    if lacking and side != "contradicted":
        p = None
    return Result(claim, "not resolved", (), declared, roles, reading, p, lacking=lacking)


def _alone(reading: Estimates) -> Side | None:
    """What a reading says before Holm's rule; None: not resolved."""
    side, p = weigh(reading.parts)
    return side if p is None or p < reading.alpha else None


def _why(*texts: str) -> tuple[Reason, ...]:
    return tuple(Reason("claim", {"why": text}) for text in texts)


def _unmet(needs: Sequence[Need], recorded: Recorded, roles: Roles) -> list[Reason]:
    """What is measured of the needs that are unmet; nothing after the first where no run could show the others."""
    out = []
    for need in needs:
        try:
            said = need.unmet(recorded, roles)
        except Untestable as reason:
            said = str(reason)
        if said is not None:
            out.append(Reason(need.code, {"why": said}))
            if not recorded.seeds(roles.values()):
                break
    return out


def _unmatched(found: Findings, roles: Mapping[str, str]) -> list[Reason]:
    """What keeps the runs of a claim's arms from being pairs."""
    return [
        Reason("not matched", {"why": f"{one} and {other} are not matched: {reason}"})
        for one, other in combinations(dict.fromkeys(roles.values()), 2)
        for reason in found.certificate.on(found.declaration.deciding).against(one).get(other, ())
    ]


def _adjust(result: Result, adjusted: float | None) -> Result:
    """The word, from the adjusted p where there is one, else from the claim's own."""
    if result.reading is None:
        return result
    side, p = weigh(result.parts)
    deciding = p if adjusted is None else adjusted
    decides = deciding is None or deciding < result.reading.alpha
    word: Word = side if side is not None and decides else "not resolved"
    if result.lacking and word != "contradicted":
        return replace(result, word="not testable here", reasons=result.lacking, p_adjusted=adjusted)
    return replace(result, word=word, reasons=_reasons(result, word, side, p, adjusted), p_adjusted=adjusted)


def _reasons(
    result: Result, word: Word, side: Side | None, p: float | None, adjusted: float | None
) -> tuple[Reason, ...]:
    assert result.reading is not None
    parts = result.reading.parts
    said = []
    if word == "contradicted":
        broken = [part for part in parts if part.exact and part.side == "contradicted"]
        if broken:
            bug = "this is a bug: " if result.claim.grade.startswith("A") else ""
            said += [f"{bug}{part.name} is {part.estimate:.3g}, {part.criterion} is required" for part in broken]
        else:
            against = [part.name for part in parts if part.side == "contradicted"]
            said.append(f"the whole interval lies on the other side: {', '.join(against)}")
    elif word == "not resolved":
        said.append(_unresolved(result.reading, side, p, adjusted))
    else:
        said.append("in every run" if result.claim.exact else "the whole interval lies on the stated side")
    alpha = result.reading.alpha
    if side is not None and p is not None and adjusted is not None and p < alpha <= adjusted:
        said.append(f"Holm's rule over the declared claims takes p from {p:.3g} to {adjusted:.3g}")
    if result.lacking:
        lacking = (str(reason.data["why"]) for reason in result.lacking)
        said.append(f"support would also have needed what is lacking here: {', '.join(lacking)}")
    said += [f"{part.name}: {part.note}" for part in parts if part.note]
    return _why(*said, *result.reading.notes)


def _unresolved(reading: Estimates, side: Side | None, p: float | None, adjusted: float | None) -> str:
    if p is not None and adjusted is not None and p < reading.alpha <= adjusted:
        return f"the interval alone would be {side}"
    lacking = [part for part in reading.parts if not part.resolved]
    said = []
    for part in lacking:
        if part.detectable is not None:
            seen = f"{'factor' if part.ratio else 'difference'} of {part.detectable:.3g}"
            said.append(f"{part.name}: these seeds could have seen a {seen}")
        elif part.note is None:  # else the note follows
            said.append(f"{part.name} is on neither side")
    judged = any(part.low is not None for part in lacking) or not lacking
    return "; ".join(["the interval covers both sides" if judged else "no interval decides", *said])
