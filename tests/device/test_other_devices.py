"""Sizes that depend on the device are known on every device; "meta" stands for one that is neither CPU nor CUDA."""

import torch

from gspo_lab.engines.native.lm_head import _Blocks
from gspo_lab.samplers.transformers_sampler import sample_by_argmax


def test_the_head_has_blocks_on_any_device() -> None:
    blocks = _Blocks(torch.empty(2**14, 8, device="meta"), torch.empty(2500, 8, device="meta"), None, 1.0)
    assert blocks.columns() == [slice(0, 1024), slice(1024, 2048), slice(2048, 2500)]


def test_tokens_are_drawn_on_any_device() -> None:
    key_B = torch.empty(3, dtype=torch.int64, device="meta")
    drawn_B = sample_by_argmax(torch.empty(3, 50, device="meta"), key_B, key_B.clone())
    assert (drawn_B.shape, drawn_B.device.type) == ((3,), "meta")
