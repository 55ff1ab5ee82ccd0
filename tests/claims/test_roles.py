"""Who plays GRPO and GSPO where arms differ in how old their rollouts are."""

from pathlib import Path

import pytest
from claim_lab import Numbers, evidence

from gspo_lab.claims.judge import find_roles
from gspo_lab.readings import Source


def arm(name: str, rollout: str = "") -> str:
    return f'[arm.{name}]\nobjective = "{name.partition("-")[0]}"\nrollout = {{{rollout}}}\n'


@pytest.mark.parametrize(
    ("arms", "grpo", "gspo"),
    [
        (arm("grpo-2", "staleness = 2") + arm("gspo-2", "staleness = 2") + arm("grpo") + arm("gspo"), "grpo", "gspo"),
        (arm("grpo-4", "tokens_per_step = 4") + arm("gspo") + arm("grpo-8", "tokens_per_step = 8"), "grpo-8", None),
        (arm("grpo") + arm("gspo-ds", "dynamic_sampling = 4, overlong_buffer = 8") + arm("gspo"), "grpo", "gspo"),
        (arm("grpo") + arm("gspo-over", "overlong_buffer = 8"), "grpo", None),
        (arm("grpo-2", "staleness = 2") + arm("gspo") + arm("gspo-2", "staleness = 2"), "grpo-2", "gspo-2"),
    ],
)
def test_rules_are_compared_at_the_least_and_at_one_staleness(
    tmp_path: Path, arms: str, grpo: str, gspo: str | None
) -> None:
    with evidence(tmp_path, Numbers(), arms=arms) as opened:
        roles = find_roles(Source(opened, "toy"), {})
    assert (roles["grpo"], roles.get("gspo")) == (grpo, gspo)
