"""Which arm plays which part in a claim, found from the arms' settings where the study does not say."""

from collections.abc import Callable, Mapping
from typing import Any

from gspo_lab.claims.recorded import Recorded

LUSPO = "seq-mean-token-sum"
UNCORRECTED = {"mismatch_correction": "none", "mismatch_low": None, "mismatch_high": None}

ROLES: dict[str, str] = {
    "grpo": "token-level ratio, no replay",
    "gspo": "sequence-level ratio, no replay",
    "gspo-token": "GSPO-token's ratio, no replay",
    "grpo-replay": "the grpo arm with routing replay",
    "gspo-replay": "the gspo arm with routing replay",
    "moe": "mixture of experts, no replay",
    "dense": "the moe arm's objective on a dense model",
    "moe-rollout-replay": "the moe arm with the sampler's routing replayed (R3)",
    "corrected": "an arm with a mismatch correction",
    "uncorrected": "the corrected arm without its correction",
    "luspo": "the gspo arm with aggregation = 'seq-mean-token-sum'",
}
"""Every role that a built-in claim may ask for, and the arm that plays it by default."""


def find_roles(recorded: Recorded, given: Mapping[str, str], *, moe: bool = False) -> dict[str, str]:
    """Role -> arm for every role that an arm of the study plays; `given` goes over what is found.

    With `moe` the arms are looked for among those whose model routes. Twins differ in the named setting only.
    """
    settings = recorded.settings
    pool = [arm for arm in settings if not moe or recorded.mixtures[arm] is not False]
    out: dict[str, str] = {}

    def play(role: str, fits: Callable[[dict[str, Any]], bool], arms: list[str] | None = None) -> None:
        found = given.get(role) or next((arm for arm in (pool if arms is None else arms) if fits(settings[arm])), None)
        if found is not None and found in settings:
            out[role] = found

    def twin(role: str, of: str, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        if of in out:
            original = settings[out[of]]
            wanted = {**original, **changed(original)}
            play(role, lambda one: one == wanted)

    play("grpo", lambda one: _level(one) == "token" and _plain(one))
    model = settings[out["grpo"]]["model"] if "grpo" in out else None
    play("gspo", lambda one: _level(one) == "sequence" and _plain(one) and model in (None, one["model"]))
    play("gspo-token", lambda one: _level(one) == "sequence-token" and _plain(one) and model in (None, one["model"]))
    twin("luspo", "gspo", lambda one: {"objective": {**one["objective"], "aggregation": LUSPO}})
    play("corrected", lambda one: _correction(one) != "none")
    twin("uncorrected", "corrected", lambda one: {"objective": {**one["objective"], **UNCORRECTED}})
    for role in ("grpo", "gspo"):
        twin(f"{role}-replay", role, lambda one: {"routing_replay": "rollout"})
        twin(f"{role}-replay", role, lambda one: {"routing_replay": "old-policy"})
    pool = [arm for arm in settings if recorded.mixtures[arm]]
    play("moe", _plain)
    if "moe" in out:
        twin("moe-rollout-replay", "moe", lambda one: {"routing_replay": "rollout"})
        objective = settings[out["moe"]]["objective"]
        dense = [arm for arm in settings if recorded.mixtures[arm] is False]
        play("dense", lambda one: one["objective"] == objective and _plain(one), dense)
    return out


def _level(settings: dict[str, Any]) -> str:
    return str(settings["objective"]["importance_sampling_level"])


def _plain(settings: dict[str, Any]) -> bool:
    """No replay, no mismatch correction, and the papers' aggregation or one that is not LUSPO's."""
    replay, aggregation = str(settings["routing_replay"]), str(settings["objective"]["aggregation"])
    return replay == "none" and aggregation != LUSPO and _correction(settings) == "none"


def _correction(settings: dict[str, Any]) -> str:
    """Studies recorded before there were corrections have none."""
    return str(settings["objective"].get("mismatch_correction", "none"))
