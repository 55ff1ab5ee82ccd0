"""Which arm of a study plays which role of a claim."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from gspo_lab.analysis.claims.data import mixtures
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import Integers
from gspo_lab.study import Settings
from gspo_lab.study.dotted_keys import alike_but

LUSPO = "seq-mean-token-sum"
LEVEL = "objective.importance_sampling_level"
RULES = (("gspo", "sequence"), ("gspo-token", "sequence-token"))
USUAL = (("of", "gspo"), ("against", "grpo"))
"""The roles of a claim that is written in place, and whose arms play them by default."""


def find_roles(source: Source, named: Mapping[str, str], *, moe: bool = False) -> dict[str, str]:
    """Role -> arm for each role that an arm of the study plays; the roles in `named` come first.

    With `moe` only arms with a routed model count. A rule's arm with replay differs from it only in
    that.
    """
    declared = source.declaration
    settings = {name: arm.settings for name, arm in declared.arms.items()}
    pool = _candidates(source, moe=moe)
    roles: dict[str, str] = {}

    def play(role: str, fits: Callable[[Settings], bool], arms: Iterable[str]) -> None:
        arm = named.get(role) or next((name for name in arms if fits(settings[name])), None)
        if arm is not None and arm in settings:
            roles[role] = arm

    play("grpo", _plain_token, [arm for arm in pool if settings[arm].objective.preset == "grpo"])
    if "grpo" not in roles:
        play("grpo", _plain_token, pool)
    grpo = settings.get(roles.get("grpo", ""))
    for role, level in RULES:
        play(role, partial(_follows, level=level, grpo=grpo), pool)
    dumped = {name: arm.model_dump(mode="json") for name, arm in settings.items()}
    for rule in ("grpo", "gspo"):
        base = dumped.get(roles.get(rule, ""))
        twins = []
        if base is not None:
            twins = [arm for arm in pool if alike_but(dumped[arm], base, ("routing_replay",))]
        for replay in ("rollout", "old-policy"):
            play(f"{rule}-replay", partial(_replays, replay=replay), twins)
    for role, usual in USUAL:
        arm = named.get(role, roles.get(usual))
        if arm in settings:
            roles[role] = arm
    return roles


def _candidates(source: Source, *, moe: bool) -> list[str]:
    """The arms that may play a role, the least stale first."""
    arms = source.declaration.arms
    candidates = [arm for arm in arms if source.declaration.is_known(arm, LEVEL)]
    if moe:
        candidates = [arm for arm in candidates if mixtures(source)[arm] is not False]
    return sorted(candidates, key=lambda arm: _off_policy_settings(arms[arm].settings))


def _follows(settings: Settings, level: str, grpo: Settings | None) -> bool:
    """Whether an arm is plain at this level, with the model and the off-policy settings of GRPO's
    arm, if there is one.
    """
    if not _plain_at(settings, level) or grpo is None or settings.model != grpo.model:
        return grpo is None and _plain_at(settings, level)
    return _off_policy_settings(settings) == _off_policy_settings(grpo)


def _replays(settings: Settings, replay: str) -> bool:
    """Whether an arm replays the routing in this way."""
    return settings.routing_replay == replay


def _off_policy_settings(settings: Settings) -> Integers:
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


def _plain_at(settings: Settings, level: str) -> bool:
    """Whether an arm has the clip at this level of the ratio, no replay, no factors of token terms,
    and another aggregation than LUSPO's.
    """
    objective = settings.objective
    clips = objective.policy_loss == "clip" and objective.importance_sampling_level == level
    plain = settings.routing_replay == "none" and not objective.weighs_tokens
    return clips and plain and objective.aggregation != LUSPO


def _plain_token(settings: Settings) -> bool:
    return _plain_at(settings, "token")
