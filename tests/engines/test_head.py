"""The head, piece by piece, against the whole logits: values, entropies, gradients, and what is kept in memory."""

from typing import Any

import pytest
import torch

from gspo_lab.engines.native import head
from gspo_lab.engines.native.head import plain_head, token_logprobs
from gspo_lab.models.embedded import build

TEMPERATURE = 0.7
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)


def gemma() -> Any:
    """A model whose logits are capped after the head."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=3.0,
        attn_implementation="eager",
    )
    return Gemma2ForCausalLM(config)


def batch(model: Any) -> tuple[dict[str, Any], torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(0, model.config.vocab_size, (3, 9), generator=generator)
    return {"input_ids": ids[:, :-1]}, ids[:, -4:]


def whole(model: Any, inputs: dict[str, Any], target_BT: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The plain way: all logits at once."""
    logp_BTV = (model(**inputs).logits[:, -4:].float() / TEMPERATURE).log_softmax(-1)
    entropy_BT = -(logp_BTV.exp() * logp_BTV).sum(-1)
    return logp_BTV.gather(2, target_BT[..., None])[..., 0] * MASK, entropy_BT.detach() * MASK


def gradient(model: Any, logp_BT: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    (logp_BT * torch.arange(1, 13).view(3, 4)).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("tokens", [1, 3, 1000], ids=lambda n: f"pieces of {n}")
@pytest.mark.parametrize("name", ["tiny-qwen3", "tiny-qwen3-moe", "tiny-olmoe", "gemma2"])
def test_pieces_give_the_log_probs_entropies_and_gradients_of_the_whole(
    name: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gemma() if name == "gemma2" else build(name, seed=1)
    monkeypatch.setattr(head, "PIECE_BYTES", 4 * model.config.vocab_size * tokens)
    inputs, target_BT = batch(model)
    logp_BT, entropy_BT = token_logprobs(model, inputs, target_BT, MASK, temperature=TEMPERATURE, entropy=True)
    want_logp_BT, want_entropy_BT = whole(model, inputs, target_BT)
    torch.testing.assert_close(logp_BT, want_logp_BT, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(entropy_BT, want_entropy_BT, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(gradient(model, logp_BT), gradient(model, want_logp_BT), atol=1e-5, rtol=1e-4)
    assert plain_head(model) == (name != "gemma2")


def test_no_logits_are_kept_for_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the graph saves holds nothing as large as one piece's logits."""
    model = build("tiny-qwen3", seed=1)
    vocabulary = model.config.vocab_size
    monkeypatch.setattr(head, "PIECE_BYTES", 4 * vocabulary * 2)
    inputs, target_BT = batch(model)
    saved: list[tuple[int, ...]] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        token_logprobs(model, inputs, target_BT, MASK, temperature=TEMPERATURE, entropy=True)
        pieces = list(saved)
        saved.clear()
        whole(model, inputs, target_BT)
    assert pieces
    assert not [shape for shape in pieces if shape[-1:] == (vocabulary,)]
    assert [shape for shape in saved if shape[-1:] == (vocabulary,)]
