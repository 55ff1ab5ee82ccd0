"""The head, block by block, against the whole logits.

Values, entropies, gradients, and what is made in memory.
"""

from typing import Any

import pytest
import torch
from lottery import gemma
from torch.utils._python_dispatch import TorchDispatchMode

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.engines.native import lm_head
from gspo_lab.training.engines.native.lm_head import token_logprobs
from gspo_lab.training.engines.native.trainable_model import accumulate_tied_gradient
from gspo_lab.training.models.builtin_models import build
from gspo_lab.training.models.load import plain_head

TEMPERATURE = 0.7
WEIGHTS = torch.arange(1, 13).view(3, 4)
"""What the loss makes of each log-prob."""
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)


def small(name: str) -> Any:
    return gemma() if name == "gemma2" else build(name, 1, {"layers": 1, "width": 32})


def batch(model: Any) -> tuple[JsonObject, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(0, model.config.vocab_size, (3, 9), generator=generator)
    return {"input_ids": ids[:, :-1]}, ids[:, -4:]


def whole(
    model: Any, inputs: JsonObject, target_BT: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The plain way: all logits at once."""
    logp_BTV = (model(**inputs).logits[:, -4:].float() / TEMPERATURE).log_softmax(-1)
    entropy_BT = -(logp_BTV.exp() * logp_BTV).sum(-1)
    return logp_BTV.gather(2, target_BT[..., None])[..., 0] * MASK, entropy_BT.detach() * MASK


def logit_gradient(model: Any, inputs: JsonObject, target_BT: torch.Tensor) -> torch.Tensor:
    """The norm of each target's gradient by its scaled logits, as autograd has it."""
    logits_BTV = (model(**inputs).logits[:, -4:].float() / TEMPERATURE).detach().requires_grad_()
    logp_BTV = logits_BTV.log_softmax(-1)
    logp_BTV.gather(2, target_BT[..., None]).sum().backward()
    return logits_BTV.grad.norm(dim=-1) * MASK


def gradient(model: Any, logp_BT: torch.Tensor, weight_BT: torch.Tensor = WEIGHTS) -> torch.Tensor:
    model.zero_grad()
    (logp_BT * weight_BT).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def in_blocks(monkeypatch: pytest.MonkeyPatch, block: int, *, retained: bool) -> None:
    """Even the smallest vocabulary's logits in blocks of so many."""
    monkeypatch.setattr(lm_head, "AT_ONCE", 0)
    monkeypatch.setattr(lm_head, "KEPT", 2**40 if retained else 0)
    monkeypatch.setitem(lm_head.BLOCK, "cpu", block)


@pytest.mark.parametrize("retained", [True, False], ids=["retained", "computed again"])
@pytest.mark.parametrize("block", [1, 500, 2**20], ids=lambda n: f"blocks of {n}")
@pytest.mark.parametrize("name", ["tiny-qwen3", "tiny-qwen3-moe", "tiny-olmoe", "gemma2"])
def test_blocks_give_the_log_probs_entropies_and_gradients_of_the_whole(
    name: str, block: int, retained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small(name)
    in_blocks(monkeypatch, block, retained=retained)
    inputs, target_BT = batch(model)
    logp_BT, entropy_BT, size_BT = token_logprobs(
        model,
        inputs,
        target_BT,
        MASK,
        temperature=TEMPERATURE,
        entropy=True,
        logit_gradient=True,
    )
    want_logp_BT, want_entropy_BT = whole(model, inputs, target_BT)
    torch.testing.assert_close(size_BT, logit_gradient(model, inputs, target_BT))
    torch.testing.assert_close(logp_BT, want_logp_BT, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(entropy_BT, want_entropy_BT, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(
        gradient(model, logp_BT), gradient(model, want_logp_BT), atol=1e-5, rtol=1e-4
    )
    assert plain_head(model) == (name != "gemma2")


@pytest.mark.parametrize("retained", [True, False], ids=["retained", "computed again"])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "in blocks"])
@pytest.mark.parametrize("name", ["tiny-qwen3", "gemma2"])
def test_entropies_have_a_gradient(
    name: str, at_once: bool, retained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of log-probs and entropies together equals that of the whole logits.

    Some tokens have a gradient by entropy alone.
    """
    model = small(name)
    if not at_once:
        in_blocks(monkeypatch, 500, retained=retained)
    inputs, target_BT = batch(model)
    logp_BT, entropy_BT, _ = token_logprobs(
        model, inputs, target_BT, MASK, temperature=TEMPERATURE, entropy=True
    )
    assert entropy_BT is not None
    logp_BTV = (model(**inputs).logits[:, -4:].float() / TEMPERATURE).log_softmax(-1)
    whole_BT = -(logp_BTV.exp() * logp_BTV).sum(-1) * MASK
    some_BT = WEIGHTS * (WEIGHTS % 3 != 0)
    mine = gradient(model, logp_BT * some_BT + entropy_BT * WEIGHTS, torch.ones_like(WEIGHTS))
    want_logp_BT, _ = whole(model, inputs, target_BT)
    want = gradient(model, want_logp_BT * some_BT + whole_BT * WEIGHTS, torch.ones_like(WEIGHTS))
    torch.testing.assert_close(mine, want, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(
        mine,
        gradient(model, whole(model, inputs, target_BT)[0] * some_BT, torch.ones_like(WEIGHTS)),
    )


@pytest.mark.parametrize("retained", [True, False], ids=["retained", "computed again"])
def test_tokens_without_a_gradient_are_left_out_of_the_backward_pass(
    retained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens without a gradient, as clipping leaves them, do not change the others' gradient.

    Products are made over the others alone. If there are none, the gradient is zero.
    """
    model = small("tiny-qwen3")
    in_blocks(monkeypatch, 500, retained=retained)
    inputs, target_BT = batch(model)
    for weight_BT in (WEIGHTS * (WEIGHTS % 3 != 0), WEIGHTS * 0):
        logp_BT, _, _ = token_logprobs(
            model, inputs, target_BT, MASK, temperature=TEMPERATURE, entropy=False
        )
        actual = gradient(model, logp_BT, weight_BT)
        want = gradient(model, whole(model, inputs, target_BT)[0], weight_BT)
        torch.testing.assert_close(actual, want, atol=1e-5, rtol=1e-4)
        assert bool(actual.any()) == bool(weight_BT.any())


def test_a_head_with_a_bias_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under autocast the products are bfloat16's, and every gradient float32's."""
    model = small("tiny-qwen3")
    model.lm_head.bias = torch.nn.Parameter(torch.linspace(-1, 1, model.config.vocab_size))
    in_blocks(monkeypatch, 500, retained=True)
    inputs, target_BT = batch(model)
    with torch.autocast("cpu", torch.bfloat16):
        logp_BT, _, _ = token_logprobs(
            model, inputs, target_BT, MASK, temperature=TEMPERATURE, entropy=False
        )
        want_BT, _ = whole(model, inputs, target_BT)
    torch.testing.assert_close(logp_BT, want_BT, atol=1e-6, rtol=1e-5)
    actual = gradient(model, logp_BT)
    want = gradient(model, want_BT)
    assert model.lm_head.bias.grad.dtype == torch.float32
    assert float((actual - want).norm() / want.norm()) < 0.01


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor holds, of all that operations make.

    Also where those like a weight lie.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = weight
        self.numel = 0
        self.like: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        outputs = [
            item
            for item in (out if isinstance(out, tuple | list) else [out])
            if isinstance(item, torch.Tensor)
        ]
        self.like.update(item.data_ptr() for item in outputs if item.shape == self.weight.shape)
        self.numel = max(
            [
                self.numel,
                *(item.untyped_storage().nbytes() // item.element_size() for item in outputs),
            ]
        )
        return out


def test_no_piece_is_as_large_as_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pass makes anything of N x V numbers, nor a second gradient of the head."""
    model = build("tiny-qwen3", seed=1, overrides={"width": 16, "layers": 1})
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    ids = torch.randint(
        0, model.config.vocab_size, (6, 60), generator=torch.Generator().manual_seed(2)
    )
    mask_BT = torch.ones(6, 50, dtype=torch.bool)
    model.lm_head.weight.requires_grad_(True)
    model.get_input_embeddings().requires_grad_(True)
    vocabulary = model.config.vocab_size
    tokens = mask_BT.sum()

    def seen_of() -> Largest:
        with Largest(model.lm_head.weight) as recorded:
            logp_BT, _, _ = token_logprobs(
                model,
                {"input_ids": ids[:, :-1]},
                ids[:, -50:],
                mask_BT,
                temperature=1.0,
                entropy=True,
            )
            logp_BT.sum().backward()
        assert recorded.like >= {model.lm_head.weight.grad.data_ptr()}
        model.zero_grad()
        return recorded

    assert seen_of().numel >= tokens * vocabulary
    in_blocks(monkeypatch, 5000, retained=False)
    assert seen_of().numel < tokens * vocabulary / 4
    accumulate_tied_gradient(model)
    assert len(seen_of().like) == 1


def test_all_logits_at_once_tell_the_same_size_of_a_gradient() -> None:
    model = small("tiny-qwen3")
    inputs, target_BT = batch(model)
    plain_BT, _, none = token_logprobs(
        model, inputs, target_BT, MASK, temperature=TEMPERATURE, entropy=False
    )
    logp_BT, _, size_BT = token_logprobs(
        model,
        inputs,
        target_BT,
        MASK,
        temperature=TEMPERATURE,
        entropy=False,
        logit_gradient=True,
    )
    assert none is None
    assert torch.equal(plain_BT, logp_BT)
    assert not size_BT.requires_grad
    torch.testing.assert_close(size_BT, logit_gradient(model, inputs, target_BT))
