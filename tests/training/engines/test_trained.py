"""Large models: an optimizer without copies and one gradient for a tied head.

They change the memory, not what is learnt. What a worker frees is free for others.
"""

import copy
import platform
import subprocess
import sys
from typing import Any

import pytest
import torch

from gspo_lab.study.schema import UpdateTable
from gspo_lab.training.engines.native import lm_head, trainable_model
from gspo_lab.training.engines.native.trainable_model import TrainableModel
from gspo_lab.training.models import shapes
from gspo_lab.training.models.builtin_models import build

SETTINGS = UpdateTable(learning_rate=1e-3, warmup_updates=2, weight_decay=0.1)


def learn(record: TrainableModel, updates: int) -> None:
    ids = torch.randint(0, 200, (4, 12), generator=torch.Generator().manual_seed(3))
    for _ in range(updates):
        loss = record.model(input_ids=ids, labels=ids).loss
        loss.backward()
        before = weights(record).double()
        columns, _ = record.step(float(loss.detach()), measure=True)
        update = (weights(record) - before).norm() / before.norm()
        assert columns["relative_update_norm"] == pytest.approx(float(update), rel=1e-4)
        assert columns["weight_norm"] == pytest.approx(
            float(weights(record).double().norm()), rel=1e-5
        )


def pair(monkeypatch: pytest.MonkeyPatch) -> tuple[TrainableModel, TrainableModel]:
    """One model as a small one and as a large one."""
    model = build("tiny-qwen3", seed=1)
    small = TrainableModel(model, SETTINGS)
    monkeypatch.setattr(trainable_model, "LARGE", 0)
    return small, TrainableModel(copy.deepcopy(model), SETTINGS)


def weights(item: TrainableModel) -> Any:
    return torch.cat([parameter.flatten() for parameter in item.model.parameters()]).detach()


def test_a_large_model_learns_what_a_small_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = pair(monkeypatch)
    assert (small.optimizer.defaults["fused"], large.optimizer.defaults["fused"]) == (None, True)
    initial = weights(small)
    for item in (small, large):
        learn(item, 3)
    # AdamW's step is about the learning rate whatever the gradient's size: rounding shows where
    # that is nearly 0.
    assert float((weights(small) - initial).norm()) > 100 * float(
        (weights(small) - weights(large)).norm()
    )


def test_the_embedding_s_gradient_is_added_to_the_tied_head_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small, large = pair(monkeypatch)
    ids = torch.randint(0, 200, (4, 12), generator=torch.Generator().manual_seed(3))
    grads = []
    for item in (small, large):
        for _ in range(2):  # the second pass adds to the first one's
            item.model(input_ids=ids, labels=ids).loss.backward()
        grads.append(item.model.get_input_embeddings().weight.grad)
    torch.testing.assert_close(grads[0], grads[1], atol=1e-6, rtol=1e-4)


def test_the_plan_s_estimate_knows_the_engine_s_sizes() -> None:
    assert (shapes.LARGE, shapes.HEAD_KEPT) == (trainable_model.LARGE, lm_head.KEPT)


FREED = """
import os
from pathlib import Path
from gspo_lab.training.engines.native.trainable_model import trim_freed_memory

def resident():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024

if os.fork():
    os.wait()
else:
    trim_freed_memory()
largest = bytearray(b"x") * (24 << 20)
del largest  # glibc's threshold is 24 MiB now, if it is its own
before = resident()
pieces, pins = [], []
for _ in range(32):  # 2 MiB that go, and behind each a little that stays
    pieces.append(bytearray(b"x") * (2 << 20))
    pins.append(bytearray(b"x") * 50_000)
pieces.clear()
print(resident() - before)
"""  # noqa: E501


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the threshold is glibc's")
def test_pieces_of_a_mebibyte_go_back_to_the_system_between_others_that_stay() -> None:
    process = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    trimmed, plain = map(int, process.stdout.split())
    assert trimmed < 8 << 20 < 48 << 20 < plain, (trimmed, plain)
