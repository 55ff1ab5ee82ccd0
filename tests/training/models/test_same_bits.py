"""The built-in models' arithmetic against transformers' own."""

import pytest
import torch

from gspo_lab.training.models import same_bits
from gspo_lab.training.models.builtin_models import build
from gspo_lab.training.models.check import EMBEDDED


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_bits_are_those_of_transformers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of logits and gradients with padding, and of logits decoded with a cache."""
    model = build(name, 0)
    ids_BS = torch.randint(0, 256, (8, 12), generator=torch.Generator().manual_seed(0))
    mask_BS = torch.ones(8, 13).triu()

    def numbers() -> list[torch.Tensor]:
        model.zero_grad()
        out = model(ids_BS, mask_BS[:, :12], labels=ids_BS, use_cache=True)
        out.loss.backward()
        decoded = model(ids_BS[:, :1], mask_BS, past_key_values=out.past_key_values)
        return [out.logits, decoded.logits, *(weight.grad for weight in model.parameters())]

    ours = numbers()
    replaced: list[torch.Tensor] = []
    monkeypatch.setattr(same_bits, "applies", replaced.append)
    assert all(map(torch.equal, ours, numbers()))
    assert replaced
