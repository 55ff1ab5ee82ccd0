"""Number formats of trainer and sampler.

float16 with a scaled loss, and a head in float32 under 16 bits.
"""

from pathlib import Path

import pytest
import torch
from calling import lab_error
from lottery import MakeRun, Trained, gemma, train
from torch import Tensor

from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.study.schema import UpdateTable
from gspo_lab.training.engines.native import trainable_model as trained_module
from gspo_lab.training.engines.native.lm_head import token_logprobs
from gspo_lab.training.engines.native.policy import Policy
from gspo_lab.training.engines.native.trainable_model import FIRST_SCALE, TrainableModel
from gspo_lab.training.models.builtin_models import build, byte_tokenizer
from gspo_lab.training.models.load import check_dtype, computing_in
from gspo_lab.training.samplers.base import Request, Sampling
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler

FLOAT16 = UpdateTable(dtype="float16", learning_rate=1.0, warmup_updates=1)


def gradient(trained: TrainableModel, factor: float) -> Tensor:
    """The gradient of factor x sum(w), through a product in float16.

    It is `factor` everywhere, if the format holds it.
    """
    with computing_in("float16", "cpu"):
        product_1N = torch.ones(1, 4) @ trained.model.weight
        trained.backward(product_1N.float().sum() * factor)
    return trained.model.weight.grad


class Weight(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 3))


def test_a_gradient_below_float16_survives_the_products() -> None:
    trained = TrainableModel(Weight(), FLOAT16)
    gradient(trained, 2.0**-30)
    assert trained.unscale()
    assert trained.model.weight.grad.unique().tolist() == [2.0**-30]
    plain = TrainableModel(Weight(), UpdateTable())
    assert gradient(plain, 2.0**-30).unique().tolist() == [0.0], (
        "float16's smallest number is 2^-24"
    )


def test_a_gradient_that_overflows_halves_the_scale_until_it_fits() -> None:
    trained = TrainableModel(Weight(), FLOAT16)
    tries = 1
    gradient(trained, 64.0)
    while not trained.unscale():
        assert trained.model.weight.grad is None
        gradient(trained, 64.0)
        tries += 1
    # 64 x 2^16 = 2^22, and float16 ends before 2^16.
    assert tries == 8
    assert trained.scale == FIRST_SCALE / 2**7
    assert trained.model.weight.grad.unique().tolist() == [64.0]


def test_the_scale_doubles_after_many_updates_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trained_module, "DOUBLED_AFTER", 3)
    trained = TrainableModel(Weight(), FLOAT16)
    scales = []
    for _ in range(7):
        gradient(trained, 2.0**-20)
        assert trained.unscale()
        assert trained.step(0.0)[1]
        scales.append(trained.scale / FIRST_SCALE)
    assert scales == [1, 1, 2, 2, 2, 4, 4]
    again = TrainableModel(Weight(), FLOAT16)
    again.load(trained.state())
    assert again.state()["scale"] == (4 * FIRST_SCALE, 7)


@pytest.mark.parametrize(
    ("arm", "extra"),
    [
        ("gspo", ()),
        ("gspo", ("model=tiny-qwen3-moe",)),
        ("grpo", ("objective.advantage=gae",)),
        ("gspo", ("update.lora_rank=4",)),
    ],
    ids=["dense", "experts", "critic", "adapters"],
)
def test_runs_in_float16_have_float32s_losses(arm: str, extra: Strings, trained: Trained) -> None:
    exact = trained(arm, *extra).updates
    half = trained(arm, "update.dtype=float16", *extra).updates
    assert len(half) == len(exact) == 8
    # What comes later also differs by what was drawn: the weights have moved apart by roundings.
    assert [update.loss for update in half[:4]] == pytest.approx(
        [update.loss for update in exact[:4]], abs=2e-2
    )
    assert not any(update.nonfinite for update in half)
    assert [update.grad_norm for update in half[:2]] == pytest.approx(
        [update.grad_norm for update in exact[:2]], rel=0.1
    )


def test_an_overflow_costs_no_update(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("gspo", "update.dtype=float16")
    plain = train(run, tmp_path / "plain").updates
    monkeypatch.setattr(trained_module, "FIRST_SCALE", 2.0**40)
    scaled = train(run, tmp_path / "scaled").updates
    assert not any(update.nonfinite for update in scaled)
    assert [update.loss for update in scaled] == pytest.approx(
        [update.loss for update in plain], abs=2e-3
    )


def test_sampling_in_float16_is_nearer_to_float32_than_in_bfloat16(trained: Trained) -> None:
    """arXiv 2510.26788: ten bits of fraction against seven."""
    mismatch = {
        dtype: trained("gspo", f"rollout.dtype={dtype}").steps[0].mismatch_k3
        for dtype in ("float16", "bfloat16")
    }
    assert 0 < mismatch["float16"] < mismatch["bfloat16"] / 4


def test_a_device_that_cannot_is_refused_in_one_line(make_run: MakeRun) -> None:
    check_dtype("update.dtype", "float16", torch.device("cpu"))
    with lab_error(
        r"^update\.dtype = 'float16': the device 'meta' cannot compute in it \(.*float32'$",
    ):
        check_dtype("update.dtype", "float16", torch.device("meta"))


def test_the_trainers_head_in_float32() -> None:
    model = build("tiny-qwen3", 0)
    ids = torch.arange(20, 29)[None]
    inputs = {"input_ids": ids[:, :-1]}
    target_BT = ids[:, -4:]
    mask_BT = torch.ones(1, 4, dtype=torch.bool)
    with computing_in("bfloat16", "cpu"):
        states_BSH = model.base_model(**inputs, use_cache=False).last_hidden_state
        logp_BT, _, _ = token_logprobs(
            model, inputs, target_BT, mask_BT, temperature=0.7, entropy=False, float32_head=True
        )
        coarse_BT, _, _ = token_logprobs(
            model, inputs, target_BT, mask_BT, temperature=0.7, entropy=False
        )
    logits_BTV = states_BSH[:, -4:].float() @ model.get_output_embeddings().weight.T / 0.7
    expected_BT = logits_BTV.log_softmax(-1).gather(2, target_BT[..., None])[..., 0]
    assert torch.allclose(logp_BT, expected_BT, atol=1e-6)
    assert (coarse_BT - expected_BT).abs().max() > 1e-4


def test_the_samplers_head_in_float32_follows_the_weights() -> None:
    model = build("tiny-qwen3", 0)
    tokenizer = byte_tokenizer()
    sampler = TransformersSampler(model, tokenizer, "bfloat16", float32_head=True)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(3)
    sampler.refresh()
    prompt = tuple(tokenizer.encode("1+1="))
    (rollout,) = sampler.sample([Request("p", prompt, 0, 7)], Sampling(max_tokens=1))
    body = build("tiny-qwen3", 0)
    with torch.no_grad():
        body.get_output_embeddings().weight.mul_(3)
        state_H = (
            body.to(torch.bfloat16).base_model(torch.tensor([prompt])).last_hidden_state[0, -1]
        )
        logits_V = state_H.float() @ model.get_output_embeddings().weight.T
    assert rollout.logprobs[0] == pytest.approx(
        float(logits_V.log_softmax(-1)[rollout.response_ids[0]]), abs=1e-5
    )


def test_heads_in_float32_on_both_sides_lower_the_mismatch(trained: Trained) -> None:
    """ScaleRL, arXiv 2510.13786: with the body in bfloat16 on both sides."""
    settings = ("update.dtype=bfloat16", "rollout.dtype=bfloat16")
    heads = ("update.float32_head=true", "rollout.float32_head=true")
    plain = trained("gspo", *settings).steps[0].mismatch_k3
    exact = trained("gspo", *settings, *heads).steps[0].mismatch_k3
    assert 0 < exact < plain


def test_a_head_that_is_rewritten_is_refused() -> None:
    policy: JsonObject = {"temperature": 1.0, "dtype": "bfloat16", "microbatch_tokens": 8}
    with lab_error(r"update\.float32_head: a gemma2 changes its logits behind its head"):
        Policy(gemma(), **policy, float32_head=True)
    with lab_error(r"rollout\.float32_head: a gemma2"):
        TransformersSampler(gemma(), byte_tokenizer(), "bfloat16", float32_head=True)
