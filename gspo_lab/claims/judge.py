"""From a study's evidence to a word for each claim."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from gspo_lab.claims.claim import Claim, ClaimLabel, Result
from gspo_lab.claims.data import ClaimData, mixtures
from gspo_lab.claims.estimates import Estimates, Side, Untestable, weigh
from gspo_lab.claims.grammar import from_table
from gspo_lab.claims.library import LIBRARY, UNTESTED
from gspo_lab.claims.needs import NEEDS, Roles, unstable
from gspo_lab.findings.answer import Answer, answer_of
from gspo_lab.findings.matched import study_certificate
from gspo_lab.readings import Source
from gspo_lab.readings.answers import scores
from gspo_lab.stats import Reason, holm
from gspo_lab.study import ClaimTable, Settings
from gspo_lab.study.dotted import alike_but


def judge(source: Source, *, every: bool = False) -> list[Result]:
    """The study's declared claims; with `every` the rest of the library too, which is descriptive.

    Arms that are no pairs by the study's certificate are compared by no claim. The declared claims are a family:
    Holm's rule over all of them that can be tested statistically, whether or not this study's data then allow it, for
    that was fixed before the run.
    """
    data = [ClaimData(source), *([ClaimData(source, wrong=True)] if scores(source)["errors"].any() else [])]
    results = [_declared(data, table) for table in source.declaration.claims]
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


def _unmatched(source: Source, roles: Roles) -> list[Reason]:
    matched = study_certificate(source).on(source.declaration.deciding)
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


def answer(source: Source) -> Answer:
    """By the score, by stability, or by the claims that the question names."""
    question = source.declaration.verdict.question
    named = [] if isinstance(question, str) else [result for result in judge(source) if result.claim.id in question]
    return answer_of(source, [result.verdict for result in named])


LUSPO = "seq-mean-token-sum"
LEVEL = "objective.importance_sampling_level"


def find_roles(source: Source, given: Mapping[str, str], *, moe: bool = False) -> dict[str, str]:
    """Role -> arm for every role that an arm of the study plays; `given` goes over what is found.

    With `moe` the arms are looked for among those whose model routes. A rule's arm with replay differs in that alone.
    """
    declared = source.declaration
    settings = {name: arm.settings for name, arm in declared.arms.items()}
    known = [arm for arm in settings if declared.is_known(arm, LEVEL)]
    pool = [arm for arm in known if not moe or mixtures(source)[arm] is not False]
    pool.sort(key=lambda arm: _behind(settings[arm]))  # the least stale arm plays a rule's part
    out: dict[str, str] = {}

    def play(role: str, fits: Callable[[Settings], bool], arms: list[str]) -> None:
        found = given.get(role) or next((arm for arm in arms if fits(settings[arm])), None)
        if found is not None and found in settings:
            out[role] = found

    play("grpo", lambda one: one.objective.preset == "grpo" and _plain(one) and _token(one), pool)
    if "grpo" not in out:
        play("grpo", lambda one: _token(one) and _plain(one), pool)
    grpo = settings.get(out.get("grpo", ""))
    alike = [
        arm
        for arm in pool
        if grpo is None or (grpo.model, _behind(grpo)) == (settings[arm].model, _behind(settings[arm]))
    ]
    for role, level in (("gspo", "sequence"), ("gspo-token", "sequence-token")):
        play(role, _plain, [arm for arm in alike if settings[arm].objective.importance_sampling_level == level])
    dumped = {name: one.model_dump(mode="json") for name, one in settings.items()}
    for role in ("grpo", "gspo"):
        own = dumped.get(out.get(role, ""))
        twins = [arm for arm in pool if own is not None and alike_but(dumped[arm], own, ("routing_replay",))]
        for replay in ("rollout", "old-policy"):
            play(f"{role}-replay", lambda one, replay=replay: one.routing_replay == replay, twins)  # type: ignore[misc]
    for role, usual in (("of", "gspo"), ("against", "grpo")):  # of a claim that is written in place
        arm = given.get(role, out.get(usual))
        if arm in settings:
            out[role] = arm
    return out


def _token(one: Settings) -> bool:
    return one.objective.importance_sampling_level == "token"


def _behind(one: Settings) -> tuple[int, ...]:
    """What its rollouts are beside plain ones: how far they lie behind the policy that trains on them, by weights, then
    by pieces; then whether groups are dropped, and from where length costs."""
    rollout = one.rollout
    budget = rollout.tokens_per_step
    return (
        *(rollout.staleness, int(budget is not None), -(budget or 0)),
        *(rollout.dynamic_sampling, rollout.overlong_buffer or 0),
    )


def _plain(one: Settings) -> bool:
    """The clip, no replay, no factors of token terms, and the papers' aggregation or one that is not LUSPO's."""
    objective = one.objective
    if objective.policy_loss != "clip":
        return False
    return one.routing_replay == "none" and objective.aggregation != LUSPO and not objective.weighs_tokens
