"""Which arm plays which part in a claim, found from the arms' settings where the study does not say."""

from collections.abc import Callable, Mapping

from gspo_lab.claims.recorded import Recorded
from gspo_lab.study import Settings
from gspo_lab.study.dotted import alike_but

LUSPO = "seq-mean-token-sum"
REPLAY = "routing_replay"
LEVEL = "objective.importance_sampling_level"
CORRECTION = ("objective.mismatch_correction", "objective.mismatch_low", "objective.mismatch_high")


def find_roles(recorded: Recorded, given: Mapping[str, str], *, moe: bool = False) -> dict[str, str]:
    """Role -> arm for every role that an arm of the study plays; `given` goes over what is found.

    With `moe` the arms are looked for among those whose model routes. Twins differ in the named setting only.
    """
    settings = recorded.settings
    told = recorded.found.declaration.told
    pool = [arm for arm in settings if told(arm, LEVEL) and (not moe or recorded.mixtures[arm] is not False)]
    pool.sort(key=lambda arm: _behind(settings[arm]))  # the least stale arm plays a rule's part
    out: dict[str, str] = {}

    def play(role: str, fits: Callable[[Settings], bool], arms: list[str] | None = None) -> None:
        found = given.get(role) or next((arm for arm in (pool if arms is None else arms) if fits(settings[arm])), None)
        if found is not None and found in settings:
            out[role] = found

    def twin(role: str, of: str, keys: tuple[str, ...], fits: Callable[[Settings], bool]) -> None:
        if of in out:
            original = recorded.found.declaration.arms[out[of]].resolved
            play(role, lambda one: fits(one) and alike_but(one.model_dump(mode="json"), original, keys))

    play("grpo", lambda one: one.objective.preset == "grpo" and _plain(one) and _token(one))
    if "grpo" not in out:
        play("grpo", lambda one: _token(one) and _plain(one))
    grpo = settings.get(out.get("grpo", ""))
    alike = [
        arm
        for arm in pool
        if grpo is None or (grpo.model, _behind(grpo)) == (settings[arm].model, _behind(settings[arm]))
    ]
    for role, level in (("gspo", "sequence"), ("gspo-token", "sequence-token")):
        levels = [arm for arm in alike if settings[arm].objective.importance_sampling_level == level]
        play(role, _plain, levels)
    twin("luspo", "gspo", ("objective.aggregation",), lambda one: one.objective.aggregation == LUSPO)
    play("corrected", lambda one: one.objective.mismatch_correction != "none")
    twin("uncorrected", "corrected", CORRECTION, _uncorrected)
    for role in ("grpo", "gspo"):
        for replay in ("rollout", "old-policy"):
            twin(f"{role}-replay", role, (REPLAY,), lambda one, replay=replay: one.routing_replay == replay)  # type: ignore[misc]
    for role, usual in (("of", "gspo"), ("against", "grpo")):  # of a claim that is written in place
        arm = given.get(role, out.get(usual))
        if arm in settings:
            out[role] = arm
    pool = [arm for arm in settings if told(arm, LEVEL) and recorded.mixtures[arm]]
    play("moe", _plain)
    if "moe" in out:
        twin("moe-rollout-replay", "moe", (REPLAY,), lambda one: one.routing_replay == "rollout")
        objective = settings[out["moe"]].objective
        dense = [arm for arm in settings if recorded.mixtures[arm] is False]
        play("dense", lambda one: one.objective == objective and _plain(one), dense)
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
    """The clip, no replay, no mismatch correction, and the papers' aggregation or one that is not LUSPO's."""
    objective = one.objective
    if objective.policy_loss != "clip":
        return False
    return one.routing_replay == "none" and objective.aggregation != LUSPO and objective.mismatch_correction == "none"


def _uncorrected(one: Settings) -> bool:
    objective = one.objective
    return objective.mismatch_correction == "none" and objective.mismatch_low is objective.mismatch_high is None
