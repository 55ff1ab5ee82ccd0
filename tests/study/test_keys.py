"""What follows from the keys' own declaration.

A key declared to be costly, tunable or an engine's is treated as such.
"""

import pytest

from gspo_lab.analysis.matching.checks import SAMPLING, STARTING
from gspo_lab.common.keys import Key
from gspo_lab.exchange.importers.metric_names import tables
from gspo_lab.study.schema import KEYS, Settings, TaskTable, cost, obeyed, unread


def test_a_key_inside_a_table_has_what_the_table_says_unless_it_says_its_own() -> None:
    assert (KEYS["rollout.group_size"].arms, KEYS["rollout.temperature"].arms) == ("vary", "choose")
    assert (KEYS["rollout.group_size"].affects, KEYS["rollout.staleness"].affects) == (
        "sampling",
        "update",
    )
    assert KEYS["critic.value_clip"].read is KEYS["critic"].read
    assert KEYS["record.rollouts"] == Key(arms="study", affects="update")
    assert KEYS["objective.bapo_share"].arms == "choose", "a loss's own keys are keys of the study"


def test_runs_cost_alike_on_the_same_side_of_what_is_dear() -> None:
    run = Settings(task=TaskTable(name="addition"))
    priced = [
        cost(run.replace(objective=run.objective.replace(kl_coef=weight)).model_dump(mode="json"))
        for weight in (0.0, 0.1, 0.2)
    ]
    assert priced[0] != priced[1] == priced[2]
    assert "update.learning_rate" not in priced[0]
    assert unread("update.lora_alpha", run) == "does nothing with lora_rank = 0"
    assert unread("update.learning_rate", run) is None


def test_a_certificate_excuses_by_what_a_key_acts_on() -> None:
    assert {"model", "task", "warm_start"} <= set(STARTING) < set(SAMPLING)
    assert "rollout.temperature" in SAMPLING
    assert not {"rollout.staleness", "update.epochs"} & set(SAMPLING)


@pytest.mark.parametrize("program", ["trl", "verl", "areal"])
def test_a_peer_s_name_makes_its_engine_obey_and_its_logs_known(program: str) -> None:
    assert {"model", "steps", "update.learning_rate", "objective.clip_low"} <= set(obeyed(program))
    assert not {"objective.policy_loss", "rollout.dynamic_sampling", "objective"} & set(
        obeyed(program)
    )
    name = KEYS["update.learning_rate"].names[program]
    assert tables()[program]["settings"][name] == ["update.learning_rate"]
