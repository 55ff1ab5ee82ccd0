"""A model that has died keeps being trained and recorded, and is never told from its records to be alive."""

from pathlib import Path

import pytest
import torch
from lottery import MakeRun, Memory

from gspo_lab.engines.native.loop import Loop
from gspo_lab.engines.native.setup import Parts, set_up
from gspo_lab.samplers.transformers_sampler import TransformersSampler
from gspo_lab.study import Run


def trained(run: Run, parts: Parts, folder: Path) -> Memory:
    folder.mkdir()
    memory = Memory()
    assert Loop(run, parts, memory, folder).run(lambda: False)
    return memory


@pytest.mark.parametrize("overrides", [(), ("update.skip_zero_advantage=false",), ("model=tiny-qwen3-moe",)])
def test_a_weight_that_is_no_number_is_in_every_update(
    overrides: tuple[str, ...], make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("gspo", *overrides)
    parts = set_up(run, None)
    with torch.no_grad():
        parts.policy.model.model.norm.weight[0] = torch.nan
    memory = trained(run, parts, tmp_path / "run")
    # All logits are NaN: every response is the same, and the grader likes it.
    assert [(step.reward_mean, step.zero_variance_groups) for step in memory.steps] == [(1.0, 1.0)] * 2
    assert [update.nonfinite for update in memory.updates] == [1] * 8


def test_a_sampler_that_is_dead_by_itself_is_told(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("gspo", "rollout.dtype=bfloat16")
    parts = set_up(run, None)
    assert isinstance(parts.sampler, TransformersSampler)
    with torch.no_grad():
        parts.sampler._model.model.norm.weight[0] = torch.nan  # of its own copy, until the first refresh
    memory = trained(run, parts, tmp_path / "run")
    assert [(update.step, update.nonfinite) for update in memory.updates] == [(0, 1)] * 4 + [(1, 0)] * 4


def test_a_run_whose_ratios_underflow_ends(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("gspo", "update.learning_rate=10", "steps=1")
    memory = trained(run, set_up(run, None), tmp_path / "run")
    on_policy, *moved = memory.updates
    assert on_policy.ess_tokens == 1.0
    assert [update.ess_tokens for update in moved] == [None] * 3
    assert all(update.log_ratio_max_abs is not None and update.log_ratio_max_abs > 1000 for update in moved)
