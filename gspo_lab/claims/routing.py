"""C09, and what C12 and C13 say of replay that is no row: mixtures of experts and how their routing moves."""

import json

import numpy as np

from gspo_lab.claims.claim import Roles
from gspo_lab.claims.estimates import Estimate, Estimates, Region, condition, over_seeds
from gspo_lab.claims.recorded import Recorded
from gspo_lab.stats.series import normalised_auc

DEEP = 48
"""Layers of the model whose 10 % the paper reports."""


def expert_change(recorded: Recorded, roles: Roles) -> Estimates:
    """Share of the natural experts that one update changes (mini-batch 1), and its slope over the layers."""
    arm = roles["grpo"]
    after_one, last, slope, layers = {}, {}, {}, 0
    for seed in recorded.seeds(roles.values()):
        rows = recorded.settled(arm, seed, "expert_change", "expert_change_layers", later=True).dropna()
        first = rows[rows["minibatch"] == 1]
        after_one[seed] = float(first["expert_change"].mean())
        last[seed] = float(rows[rows["minibatch"] == rows["minibatch"].max()]["expert_change"].mean())
        by_layer = np.mean([json.loads(text) for text in first["expert_change_layers"]], axis=0)
        layers = len(by_layer)
        slope[seed] = float(np.polyfit(np.arange(layers), by_layer, 1)[0]) if layers > 1 else 0.0
    above = Region(above=0)
    parts = [over_seeds("expert change after one update", after_one, above)]
    notes = ["one learning rate per arm: whether it rises with the learning rate is not judged"]
    if layers > 1:
        parts.append(over_seeds("its slope over the layers", slope, above))
    also = [over_seeds("expert change at the last mini-batch", last, above)]
    if layers >= DEEP:
        parts.append(over_seeds("its magnitude after one update", after_one, Region(0.05, 0.15)))
    else:
        notes.insert(
            0,
            f"direction only: the magnitude .05 to .15 is not testable here, the model has {layers} routed layers and "
            f"about {DEEP} are needed",
        )
    return Estimates(tuple(parts), tuple(also), tuple(notes))


def gained_by_grpo_alone(recorded: Recorded, roles: Roles) -> Estimate:
    """(GRPO's gain by replay) - (GSPO's gain by replay), in area under the reward."""
    values = {}
    for seed in recorded.seeds(roles.values()):
        area = {role: normalised_auc(*recorded.reward(arm, seed)) for role, arm in roles.items()}
        values[seed] = (area["grpo-replay"] - area["grpo"]) - (area["gspo-replay"] - area["gspo"])
    return over_seeds("what replay gives GRPO more than GSPO, reward AUC", values, Region(above=0))


def fewer_collapses(recorded: Recorded, roles: Roles) -> Estimate:
    pairs = recorded.seeds(roles.values())
    fell = {
        role: sum(recorded.stability(roles[role], seed).collapse is not None for seed in pairs)
        for role in ("grpo", "grpo-replay")
    }
    said = f"{fell['grpo-replay']} of {len(pairs)} runs collapsed with replay, {fell['grpo']} of {len(pairs)} without"
    return condition(
        "collapses, with replay - without",
        fell["grpo-replay"] < fell["grpo"],
        n=len(pairs),
        said=said,
        estimate=float(fell["grpo-replay"] - fell["grpo"]),
    )
