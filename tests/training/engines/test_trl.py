"""The engine trl against native: the same samples in the same mini-batches, and what becomes of
them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lottery import MakeRun, Memory
from safetensors.torch import load_file

from gspo_lab.recording.records import UpdateRecord
from gspo_lab.study import Run
from gspo_lab.tasks import Problem
from gspo_lab.training.engines.native.build_run import set_up
from gspo_lab.training.engines.native.experience import Experience
from gspo_lab.training.engines.native.loop import Loop
from gspo_lab.training.engines.native.optimizer_update import MinibatchRows, UpdateResult
from gspo_lab.training.samplers.base import Request, Rollout

pytest.importorskip("trl", reason="TRL is not installed: nox -s trl")
pytestmark = [pytest.mark.trl, pytest.mark.filterwarnings("ignore")]

CLOSE = 1e-5
SAME = (
    "responses",
    "evaluated_responses",
    "response_tokens",
    "active_tokens",
    "nonfinite",
    "learning_rate",
)
COMPARED = (
    "loss",
    "grad_norm",
    "router_grad_norm",
    "effective_fraction_tokens",
    "log_ratio_std_tokens",
    "stale_k3",
    "clip_fraction_tokens",
    "clip_fraction_tokens_high",
    "clip_fraction_tokens_low",
    "clip_fraction_responses",
    "would_clip_fraction_tokens_grpo",
    "would_clip_fraction_tokens_gspo",
    "flip_fraction_tokens_gspo",
    "log_ratio_std_responses",
    "log_ratio_max_abs",
    "ess_tokens",
    "ess_responses",
    "router_entropy",
)


class Given(Loop):
    """The native loop on another's samples, in another's mini-batches."""

    def __init__(
        self, given: Sequence[tuple[Sequence[Rollout], Sequence[torch.Tensor]]], *how: Any
    ) -> None:
        super().__init__(*how)
        self.given = given

    def sample(self, requests: Sequence[Request], problems: Sequence[Problem]) -> list[Rollout]:
        (rollouts,) = [
            rollouts
            for rollouts, _ in self.given
            if [r.request for r in rollouts] == list(requests)
        ]
        return list(rollouts)

    def _minibatches(self, step: int, experience: Experience) -> list[MinibatchRows]:
        return [
            MinibatchRows(step, i, rows, fresh=i == 0) for i, rows in enumerate(self.given[step][1])
        ]


def by_trl(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Memory, list[tuple[Any, Any]]]:
    """A run trained by TRL in this process; what was recorded, and of each step the samples and
    mini-batches.
    """
    from gspo_lab.training.engines.trl import gather, trainer

    made: dict[int, tuple[Sequence[Rollout], list[torch.Tensor]]] = {}
    plain = gather.updated

    def seen(accelerator: Any, course: Any, batch: Any, *how: Any) -> UpdateResult:
        done = plain(accelerator, course, batch, *how)
        made.setdefault(batch.index, (batch.rollouts, []))[1].append(done.minibatch.rows)
        return done

    monkeypatch.setattr(trainer, "updated", seen)
    memory = Memory()
    trainer.train(run, memory, folder, lambda: False, 1, 1)
    return memory, [made[step] for step in sorted(made)]


def close(name: str, one: UpdateRecord, other: UpdateRecord) -> None:
    a = getattr(one, name)
    b = getattr(other, name)
    told = f"{name} of update {one.step}.{one.minibatch}: {a} and {b}"
    assert (a is None) == (b is None), told
    assert a is None or a == pytest.approx(b, rel=CLOSE, abs=CLOSE), told


R2 = ("model=tiny-qwen3-moe", "routing_replay=old-policy")


@pytest.mark.parametrize(
    ("arm", "overrides"),
    [
        *((arm, overrides) for arm in ("grpo", "gspo") for overrides in ((), R2[:1], R2)),
        ("gspo", (*R2, "update.epochs=2")),
        ("gspo", (*R2, "update.gradient_checkpointing=true")),
        ("gspo", ("update.lora_rank=4",)),
    ],
)
def test_on_the_same_samples_every_update_is_natives(
    arm: str,
    overrides: tuple[str, ...],
    make_run: MakeRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = make_run(arm, "update.checkpoint_every=9", *overrides)
    theirs, given = by_trl(run, tmp_path / "trl", monkeypatch)
    ours = Memory()
    Given(given, run, set_up(run, None), ours, tmp_path / "native").run(lambda: False)
    per_step = run.settings.update.per_rollout_batch
    assert [(u.step, u.minibatch) for u in theirs.updates] == [
        (s, m) for s in range(2) for m in range(per_step)
    ]
    for one, other in zip(theirs.updates, ours.updates, strict=True):
        for name in SAME:
            assert getattr(one, name) == getattr(other, name), (name, one.step, one.minibatch)
        for name in COMPARED:
            close(name, one, other)
        if one.minibatch == 0:
            assert one.log_ratio_max_abs in (0.0, None)
        own = one.engine_metrics
        assert own["loss"] == pytest.approx(one.loss, abs=1e-6)
        level = one.clip_fraction_tokens if arm == "grpo" else one.clip_any_responses
        assert own["clip_ratio/region_mean"] == pytest.approx(level, abs=1e-6)
    assert any(update.clip_fraction_tokens for update in ours.updates)
    if R2[0] in overrides:
        assert any(update.expert_change for update in ours.updates)
        for one, other in zip(theirs.updates, ours.updates, strict=True):
            close("expert_change", one, other)


def test_bfloat16_trains_float32_weights(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, _ = by_trl(make_run("gspo", "update.dtype=bfloat16"), tmp_path / "run", monkeypatch)
    assert all(update.nonfinite == 0 for update in theirs.updates)
    assert all(
        update.log_ratio_max_abs in (0.0, None)
        for update in theirs.updates
        if update.minibatch == 0
    )
    assert theirs.steps[0].mismatch_abs_max > 1e-4  # the sampler stays in float32
    weights = load_file(tmp_path / "run/checkpoints/final/model.safetensors")
    assert {str(value.dtype) for value in weights.values()} == {"torch.float32"}
