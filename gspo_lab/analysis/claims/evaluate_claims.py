"""From a study's evidence to a word for each claim."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

from gspo_lab.analysis.claims.data import ClaimData, mixtures
from gspo_lab.analysis.claims.estimates import Estimate, Estimates, Side, Untestable, weigh
from gspo_lab.analysis.claims.library import LIBRARY, UNTESTED, Claim, from_table
from gspo_lab.analysis.claims.preconditions import NEEDS, Roles, unstable
from gspo_lab.analysis.findings.answer import StudyAnswer, answer_of
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings.answers import scores
from gspo_lab.analysis.stats import holm
from gspo_lab.analysis.stats.verdict import Verdict
from gspo_lab.common.reason import Reason
from gspo_lab.study import ClaimTable, Settings
from gspo_lab.study.claim_validation import CLAIM_ROLES
from gspo_lab.study.dotted_keys import alike_but

ClaimLabel = Literal["supported", "contradicted", "inconclusive", "not testable here"]


@dataclass(frozen=True)
class Result:
    """The verdict of a study on one claim. `p` is the claim's own, `p_adjusted` Holm's over the
    declared family.

    Outside the family `p_adjusted` is None, and the claim is descriptive. `lacking` blocks support.
    `unstable` has per arm the unstable runs, and the judged ones."""

    claim: Claim
    word: ClaimLabel
    reasons: tuple[Reason, ...]
    declared: bool
    roles: Roles
    reading: Estimates = Estimates(())
    p: float | None = None
    p_adjusted: float | None = None
    lacking: tuple[Reason, ...] = ()
    unstable: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The verdict with the estimate of the first deciding number."""
        first = next(iter(self.reading.parts), Estimate("", "", 0, None))
        return Verdict(
            question="claim",
            subject=self.claim.id,
            baseline=None,
            word=self.word,
            estimate=first.estimate,
            interval=first.interval,
            level=first.alpha,
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
    data = [
        ClaimData(source),
        *([ClaimData(source, wrong=True)] if scores(source)["errors"].any() else []),
    ]
    results = [_declared(data, table) for table in source.declaration.claims]
    tested = [
        result for result in results if result.claim.id not in UNTESTED and not result.claim.exact
    ]
    p_values = [None if result.claim.exact else result.p for result in results]
    adjusted = holm(p_values, len(tested))
    results = [_adjust(result, p) for result, p in zip(results, adjusted, strict=True)]
    if every:
        known = {result.claim.id for result in results}
        undeclared = (claim for claim in LIBRARY.values() if claim.id not in known)
        results += [_adjust(_read(data, claim, {}, declared=False), None) for claim in undeclared]
    return results


def _declared(data: Sequence[ClaimData], table: ClaimTable) -> Result:
    if table.metric is None and table.name in UNTESTED:
        why = UNTESTED[table.name]
        claim = Claim(table.name, "D", why, "", "", "", lambda data, roles: Estimates(()))
        reason = Reason("untested", f"no study here tests it: {why}")
        return Result(claim, "not testable here", (reason,), True, {})
    claim = from_table(table) if table.metric is not None else LIBRARY[table.name]
    return _read(data, claim, table.arms or {}, declared=True)


def _read(
    readings: Sequence[ClaimData], claim: Claim, named: Mapping[str, str], *, declared: bool
) -> Result:
    """The claim's estimates, without its label, which `_adjust` gives.

    A second reading counts ungraded answers as wrong. Where it disagrees, the claim is not
    testable.
    """
    data, *later = readings
    routed = mixtures(data.of).values()
    if claim.moe and False in routed and not any(routed):
        text = "no arm has a mixture of experts: no expert choice was recorded in any of them"
        return Result(claim, "not testable here", (Reason("no-mixture", text),), declared, {})
    arms = find_roles(data.of, named, moe=claim.moe)
    missing = tuple(role for role in claim.roles if role not in arms)
    roles = {role: arms[role] for role in claim.roles if role in arms}
    if missing:
        parts = [f"{role} ({CLAIM_ROLES.get(role, 'name it under arms')})" for role in missing]
        reason = Reason("no-arm-plays", f"no arm plays {', '.join(parts)}")
        return Result(claim, "not testable here", (reason,), declared, roles)
    unmet = (*_unmatched(data.of, roles), *_unmet(claim.needs, data, roles))
    if unmet:
        return Result(claim, "not testable here", unmet, declared, roles)
    lacking = _unmet(claim.for_support, data, roles)
    try:
        reading = claim.evaluate(data, roles)
        for counted_wrong in later:
            left_out = _alone(reading)
            wrong = _alone(claim.evaluate(counted_wrong, roles))
            if left_out != wrong:
                text = (
                    "answers that could not be graded decide: left out it is"
                    f" {left_out or 'inconclusive'}, counted as incorrect {wrong or 'inconclusive'}"
                )
                raise Untestable("ungraded-answers-decide", text)
    except Untestable as untestable:
        return Result(claim, "not testable here", (*lacking, untestable.reason), declared, roles)
    side, p = weigh(reading.parts)
    if lacking and side != "contradicted":
        p = None
    counts = {} if claim.exact else unstable(data, roles)
    return Result(
        claim, "inconclusive", (), declared, roles, reading, p, lacking=lacking, unstable=counts
    )


def _alone(reading: Estimates) -> Side | None:
    """What a reading says before Holm's rule; None: inconclusive."""
    side, p = weigh(reading.parts)
    return side if p is None or p < reading.alpha else None


def _unmet(needs: Sequence[str], data: ClaimData, roles: Roles) -> tuple[Reason, ...]:
    """What is measured of the needs that are unmet; nothing after the first where no run could show
    the others.
    """
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
        Reason("not-matched", f"{first} and {second} are not matched: {why}")
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
    word: ClaimLabel = side if side is not None and decides else "inconclusive"
    if result.lacking and word != "contradicted":
        return replace(
            result, word="not testable here", reasons=result.lacking, p_adjusted=adjusted
        )
    return replace(
        result, word=word, reasons=_reasons(result, word, side, p, adjusted), p_adjusted=adjusted
    )


def _reasons(
    result: Result, word: ClaimLabel, side: Side | None, p: float | None, adjusted: float | None
) -> tuple[Reason, ...]:
    reading = result.reading
    parts = result.parts
    raised = p is not None and adjusted is not None and p < reading.alpha <= adjusted
    out = []
    if word == "contradicted":
        out += _contradicted(result)
    elif word == "supported":
        text = (
            "in every run" if result.claim.exact else "the whole interval lies on the stated side"
        )
        out.append(Reason("stated-side", text))
    elif raised:
        out.append(Reason("alone", f"the interval alone would be {side}"))
    else:
        out += _unresolved(reading)
    if side is not None and raised:
        text = f"Holm's rule over the declared claims takes p from {p:.3g} to {adjusted:.3g}"
        out.append(Reason("holm", text))
    for reason in result.lacking:
        text = f"support would also have needed what is lacking here: {reason.text}"
        out.append(Reason("support-lacks", text))
    for part in parts:
        if part.reason:
            out.append(Reason("of-a-number", f"{part.name}: {part.reason.text}"))
    for part in reading.also:
        if part.word == "contradicted":
            text = f"{part.name}, which decides nothing, is not met ({part.criterion})"
            out.append(Reason("beside-it", text))
    if any(count for count, _ in result.unstable.values()):
        counts = [f"{arm} {count} of {judged}" for arm, (count, judged) in result.unstable.items()]
        text = (
            f"unstable runs: {', '.join(counts)}; where runs are unstable, a claim's error rate is"
            " above alpha (gspo-lab calibrate)"
        )
        out.append(Reason("unstable-runs", text))
    return (*out, *reading.reasons)


def _contradicted(result: Result) -> list[Reason]:
    broken = [part for part in result.parts if part.exact and part.side == "contradicted"]
    bug = "this is a bug: " if result.claim.grade.startswith("A") else ""
    if broken:
        return [
            Reason(
                "broken", f"{bug}{part.name} is {part.estimate:.3g}, {part.criterion} is required"
            )
            for part in broken
        ]
    names = [part.name for part in result.parts if part.side == "contradicted"]
    text = f"the whole interval lies on the other side: {', '.join(names)}"
    return [Reason("other-side", text)]


def _unresolved(reading: Estimates) -> list[Reason]:
    lacking = [part for part in reading.parts if not part.resolved]
    if any(part.low is not None for part in lacking) or not lacking:
        out = [Reason("both-sides", "the interval covers both sides")]
    else:
        out = [Reason("no-interval-decides", "no interval decides")]
    for part in lacking:
        if part.detectable is not None:
            what = "factor" if part.ratio else "difference"
            text = f"{part.name}: these seeds could have seen a {what} of {part.detectable:.3g}"
            out.append(Reason("could-have-seen", text))
        elif part.reason is None:  # else the reason follows
            out.append(Reason("neither-side", f"{part.name} is on neither side"))
    return out


def answer(source: Source) -> StudyAnswer:
    """The study's answer: by the score, by stability, or by the claims that the question names."""
    question = source.declaration.verdict.question
    named = (
        []
        if isinstance(question, str)
        else [result for result in judge(source) if result.claim.id in question]
    )
    return answer_of(source, [result.verdict for result in named])


LUSPO = "seq-mean-token-sum"
LEVEL = "objective.importance_sampling_level"


def find_roles(source: Source, named: Mapping[str, str], *, moe: bool = False) -> dict[str, str]:
    """Role -> arm for each role that an arm of the study plays; the roles in `named` come first.

    With `moe` only arms with a routed model count. A rule's arm with replay differs from it only in
    that.
    """
    declared = source.declaration
    settings = {name: arm.settings for name, arm in declared.arms.items()}
    known = [arm for arm in settings if declared.is_known(arm, LEVEL)]
    pool = [arm for arm in known if not moe or mixtures(source)[arm] is not False]
    pool.sort(
        key=lambda arm: _off_policy_settings(settings[arm])
    )  # the least stale arm plays a rule's part
    out: dict[str, str] = {}

    def play(role: str, fits: Callable[[Settings], bool], arms: list[str]) -> None:
        arm = named.get(role) or next((name for name in arms if fits(settings[name])), None)
        if arm is not None and arm in settings:
            out[role] = arm

    presets = [arm for arm in pool if settings[arm].objective.preset == "grpo"]
    play("grpo", _plain_token, presets)
    if "grpo" not in out:
        play("grpo", _plain_token, pool)
    grpo = settings.get(out.get("grpo", ""))
    alike = [
        arm
        for arm in pool
        if grpo is None
        or (grpo.model, _off_policy_settings(grpo))
        == (settings[arm].model, _off_policy_settings(settings[arm]))
    ]
    for role, level in (("gspo", "sequence"), ("gspo-token", "sequence-token")):
        play(
            role,
            _plain,
            [arm for arm in alike if settings[arm].objective.importance_sampling_level == level],
        )
    dumped = {name: arm.settings.model_dump(mode="json") for name, arm in declared.arms.items()}
    for role in ("grpo", "gspo"):
        base = dumped.get(out.get(role, ""))
        twins = [
            arm
            for arm in pool
            if base is not None and alike_but(dumped[arm], base, ("routing_replay",))
        ]
        for replay in ("rollout", "old-policy"):
            play(
                f"{role}-replay",
                lambda _: True,
                [arm for arm in twins if settings[arm].routing_replay == replay],
            )
    for role, usual in (("of", "gspo"), ("against", "grpo")):  # of a claim that is written in place
        arm = named.get(role, out.get(usual))
        if arm in settings:
            out[role] = arm
    return out


def _off_policy_settings(settings: Settings) -> tuple[int, ...]:
    """How its rollouts differ from plain ones: age in weights, then in pieces, dropped groups, a
    cost of length.
    """
    rollout = settings.rollout
    budget = rollout.tokens_per_step
    return (
        rollout.staleness,
        int(budget is not None),
        -(budget or 0),
        rollout.dynamic_sampling,
        rollout.overlong_buffer or 0,
    )


def _plain(settings: Settings) -> bool:
    """Whether an arm has the clip, no replay, no factors of token terms, and another aggregation
    than LUSPO's.
    """
    objective = settings.objective
    unreplayed = settings.routing_replay == "none"
    plain = objective.policy_loss == "clip" and not objective.weighs_tokens
    return plain and unreplayed and objective.aggregation != LUSPO


def _plain_token(settings: Settings) -> bool:
    return _plain(settings) and settings.objective.importance_sampling_level == "token"
