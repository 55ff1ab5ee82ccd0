"""What no single key can say: settings that only together make no sense, each as one line with the way out."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from gspo_lab.study.schema import Settings, VerdictTable
from gspo_lab.study.study import Arm, flat

RATIO_KEYS = (
    "objective.preset",
    "objective.importance_sampling_level",
    "objective.clip",
    "objective.clip_low",
    "objective.clip_high",
    "objective.clip_target",
    "objective.dual_clip",
)
"""Settings that act through the importance ratio only: with one update per rollout batch they do nothing."""


def broken_rules(arms: Mapping[str, Arm], seeds: Sequence[int], verdict: VerdictTable) -> list[str]:
    """One line per broken rule of a study whose single values are all valid."""
    out: list[str] = []
    for arm in arms.values():
        out += [f"arm.{arm.name}: {line}" for line in _within(arm.settings) if f"{line}" not in " ".join(out)]
    out += _between(arms)
    names = [bench.name for bench in next(iter(arms.values())).settings.bench] if arms else []
    for name in sorted({name for name in names if names.count(name) > 1}):
        out.append(f"bench: two benchmarks are named '{name}'")
    if verdict.primary is not None and verdict.primary not in names:
        out.append(f"verdict.primary: no benchmark '{verdict.primary}'; this study has {', '.join(names) or 'none'}")
    if verdict.baseline is not None and verdict.baseline not in arms:
        out.append(f"verdict.baseline: no arm '{verdict.baseline}'; this study has {', '.join(arms)}")
    return out


def _within(settings: Settings) -> list[str]:
    rollout, update, objective = settings.rollout, settings.update, settings.objective
    out = []
    if rollout.prompts_per_step % update.minibatches:
        out.append(
            f"rollout.prompts_per_step = {rollout.prompts_per_step} cannot be split into "
            f"update.minibatches = {update.minibatches} equal parts"
        )
    if rollout.top_p < 1 and update.old_logprobs == "sampler":
        out.append(
            "update.old_logprobs = 'sampler' with rollout.top_p < 1: the sampler's log-probs are renormalised over the "
            "nucleus and are not the policy's; use top_p = 1 or old_logprobs = 'trainer'"
        )
    if objective.aggregation == "constant" and objective.aggregation_constant <= 1:
        out.append("objective.aggregation_constant: with aggregation = 'constant' give a length in tokens, > 1")
    return out


def _between(arms: Mapping[str, Arm]) -> list[str]:
    out = []
    resolved = {name: flat(arm.settings.model_dump(mode="json")) for name, arm in arms.items()}
    for a, b in combinations(arms, 2):
        different = [key for key in resolved[a] if resolved[a][key] != resolved[b].get(key)]
        if not [key for key in different if key != "objective.preset"]:
            out.append(f"arm.{b}: changes nothing that arm.{a} does not have too; the two would be the same run twice")
        elif not [key for key in different if not _idle(key, arms[a].settings, arms[b].settings, resolved[b][key])]:
            out.append(
                f"arm.{a} and arm.{b} differ only in {', '.join(different)}, which does nothing with "
                "update.minibatches = 1 and epochs = 1: every ratio is 1, the two are identical; use minibatches >= 2"
            )
    return out


def _idle(key: str, a: Settings, b: Settings, _value: Any) -> bool:
    """Whether a difference in `key` cannot make two arms differ: one on-policy update, so all ratios are 1."""
    one = all(s.update.minibatches * s.update.epochs == 1 and s.update.old_logprobs == "trainer" for s in (a, b))
    if not one:
        return False
    old_policy_only = {a.routing_replay, b.routing_replay} <= {"none", "old-policy"}
    return key in RATIO_KEYS or (key == "routing_replay" and old_policy_only)
