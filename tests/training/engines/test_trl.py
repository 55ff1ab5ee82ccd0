"""The engine trl against native: the same samples in the same mini-batches.

Also what becomes of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lottery import MakeRun, Memory
from safetensors.torch import load_file

from gspo_lab.common.plain_data import Strings
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
        self, inputs: Sequence[tuple[Sequence[Rollout], Sequence[torch.Tensor]]], *args: Any
    ) -> None:
        super().__init__(*args)
        self.given = inputs

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
    """A run trained by TRL in this process.

    What was recorded, and of each step the samples and mini-batches.
    """
    from gspo_lab.training.engines.trl import gather, trainer

    outputs: dict[int, tuple[Sequence[Rollout], list[torch.Tensor]]] = {}
    plain = gather.updated

    def seen(accelerator: Any, course: Any, batch: Any, *args: Any) -> UpdateResult:
        result = plain(accelerator, course, batch, *args)
        outputs.setdefault(batch.index, (batch.rollouts, []))[1].append(result.minibatch.rows)
        return result

    monkeypatch.setattr(trainer, "updated", seen)
    memory = Memory()
    trainer.train(run, memory, folder, lambda: False, 1, 1)
    return memory, [outputs[step] for step in sorted(outputs)]


def close(name: str, item: UpdateRecord, other: UpdateRecord) -> None:
    a = getattr(item, name)
    b = getattr(other, name)
    message = f"{name} of update {item.step}.{item.minibatch}: {a} and {b}"
    assert (a is None) == (b is None), message
    assert a is None or a == pytest.approx(b, rel=CLOSE, abs=CLOSE), message


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
    overrides: Strings,
    make_run: MakeRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = make_run(arm, "update.checkpoint_every=9", *overrides)
    peer, inputs = by_trl(run, tmp_path / "trl", monkeypatch)
    lab = Memory()
    Given(inputs, run, set_up(run, None), lab, tmp_path / "native").run(lambda: False)
    per_step = run.settings.update.per_rollout_batch
    assert [(u.step, u.minibatch) for u in peer.updates] == [
        (s, m) for s in range(2) for m in range(per_step)
    ]
    for record, other in zip(peer.updates, lab.updates, strict=True):
        for name in SAME:
            assert getattr(record, name) == getattr(other, name), (
                name,
                record.step,
                record.minibatch,
            )
        for name in COMPARED:
            close(name, record, other)
        if record.minibatch == 0:
            assert record.log_ratio_max_abs in (0.0, None)
        native = record.engine_metrics
        assert native["loss"] == pytest.approx(record.loss, abs=1e-6)
        level = record.clip_fraction_tokens if arm == "grpo" else record.clip_any_responses
        assert native["clip_ratio/region_mean"] == pytest.approx(level, abs=1e-6)
    assert any(update.clip_fraction_tokens for update in lab.updates)
    if R2[0] in overrides:
        assert any(update.expert_change for update in lab.updates)
        for record, other in zip(peer.updates, lab.updates, strict=True):
            close("expert_change", record, other)


def test_bfloat16_trains_float32_weights(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, _ = by_trl(make_run("gspo", "update.dtype=bfloat16"), tmp_path / "run", monkeypatch)
    assert all(update.nonfinite == 0 for update in peer.updates)
    assert all(
        update.log_ratio_max_abs in (0.0, None) for update in peer.updates if update.minibatch == 0
    )
    assert peer.steps[0].mismatch_abs_max > 1e-4  # the sampler stays in float32
    weights = load_file(tmp_path / "run/checkpoints/final/model.safetensors")
    assert {str(value.dtype) for value in weights.values()} == {"torch.float32"}
