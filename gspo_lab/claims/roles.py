"""Which arm plays which part in a claim, found from the arms' settings where the study does not say."""

from collections.abc import Callable, Mapping

from gspo_lab.claims.data import mixtures
from gspo_lab.readings import Source
from gspo_lab.study import Settings
from gspo_lab.study.dotted import alike_but

LUSPO = "seq-mean-token-sum"
LEVEL = "objective.importance_sampling_level"


def find_roles(of: Source, given: Mapping[str, str], *, moe: bool = False) -> dict[str, str]:
    """Role -> arm for every role that an arm of the study plays; `given` goes over what is found.

    With `moe` the arms are looked for among those whose model routes. A rule's arm with replay differs in that alone.
    """
    declared = of.declaration
    settings = {name: arm.settings for name, arm in declared.arms.items()}
    pool = [arm for arm in settings if declared.told(arm, LEVEL) and (not moe or mixtures(of)[arm] is not False)]
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
    for role in ("grpo", "gspo"):
        twins = [arm for arm in pool if role in out and _twins(settings[arm], settings[out[role]])]
        for replay in ("rollout", "old-policy"):
            play(f"{role}-replay", lambda one, replay=replay: one.routing_replay == replay, twins)  # type: ignore[misc]
    for role, usual in (("of", "gspo"), ("against", "grpo")):  # of a claim that is written in place
        arm = given.get(role, out.get(usual))
        if arm in settings:
            out[role] = arm
    return out


def _twins(one: Settings, other: Settings) -> bool:
    return alike_but(one.model_dump(mode="json"), other.model_dump(mode="json"), ("routing_replay",))


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
    """The clip, no replay, no mismatch correction, and the papers' aggregation or one that is not LUSPO's."""
    objective = one.objective
    if objective.policy_loss != "clip":
        return False
    return one.routing_replay == "none" and objective.aggregation != LUSPO and objective.mismatch_correction == "none"
