"""A run that is stopped and taken up again records, and leaves, what an uninterrupted one does, whatever it keeps."""

from itertools import count
from pathlib import Path

import pytest
from lottery import MakeRun, final, recorded, train

MOE = ("model=tiny-qwen3-moe", "routing_replay=rollout")
PIECES = ("task.stop=['a', 'b']", "rollout.tokens_per_step=3")
"""Fewer ends, so that most responses take several steps of three tokens."""
CRITIC = ("objective.advantage=gae", "objective.gae_lambda=0.9", "update.epochs=2")


@pytest.mark.parametrize(
    ("arm", "steps", "settings"),
    [
        ("gspo", 3, ("update.checkpoint_every=10",)),
        ("gspo", 3, ("update.checkpoint_every=10", "model=tiny-qwen3-moe")),
        ("gspo", 2, ("update.lora_rank=4", "update.lora_alpha=8", "rollout.dtype=bfloat16")),
        ("gspo", 2, ("update.dtype=float16", "rollout.dtype=float16")),
        ("grpo", 3, ("update.checkpoint_every=10", *CRITIC)),
        ("gspo", 3, ("update.checkpoint_every=10", *CRITIC)),
        ("grpo", 4, ("rollout.dynamic_sampling=5", "rollout.overlong_buffer=6")),
        ("gspo", 6, ("rollout.staleness=2",)),
        ("gspo", 6, PIECES),
        ("gspo", 6, (*PIECES, "rollout.staleness=2", "rollout.dtype=bfloat16", *MOE)),
        ("gspo", 6, ("rollout.staleness=1", "update.lora_rank=2", "update.old_logprobs=sampler")),
    ],
)
def test_a_stopped_run_goes_on_bit_for_bit(
    arm: str, steps: int, settings: tuple[str, ...], make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run(arm, f"steps={steps}", "bench.lottery.every=2", *settings)
    whole, half = train(run, tmp_path / "whole"), max(1, steps // 2)
    asked = count()
    first = train(run, tmp_path / "parts", stop=lambda: next(asked) > half)
    assert len(first.steps) == half
    if run.settings.rollout.tokens_per_step:
        assert first.steps[-1].waiting_responses
        assert any(step.mixed_version_share for step in whole.steps)
    second = train(run, tmp_path / "parts")
    assert second.statuses[0].step == half
    assert recorded(first, second) == recorded(whole)
    assert final(tmp_path / "whole") == final(tmp_path / "parts")
    critics = [memory.statuses[0].facts.get("critic") for memory in (whole, first, second)]
    assert critics[0] == critics[1]
    assert (critics[1] != critics[2]) is (critics[0] is not None), "what the critic has learnt is kept"
