"""vLLM where rounding and a stale push must not pass for each other.

In bfloat16 a stale push must not pass for rounding. Far from the start rounding must not pass for a
stale push. Also from a model with adapters.
"""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch
from calling import lab_error
from followed import TOKENIZER, gaps, make_room, move, requests
from transformers import GptOssConfig, GptOssForCausalLM

from gspo_lab.training.models.builtin_models import build
from gspo_lab.training.samplers import Sampling
from gspo_lab.training.samplers.vllm_sampler import VllmSampler
from gspo_lab.training.samplers.vllm_weight_sync import check_sync, compare

if find_spec("vllm") is None:
    pytest.skip("vLLM is not installed; nox -s vllm installs it", allow_module_level=True)

# The warnings are those of vLLM's packages.
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    yield
    make_room()


@pytest.mark.parametrize(
    ("name", "way"), [("tiny-qwen3", "reload"), ("tiny-qwen3-moe", "reload, experts packed anew")]
)
@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_rounding_is_told_from_a_stale_push(name: str, way: str, factor: float) -> None:
    """Fresh weights are the hard case.

    Their experts matter little, and leaving them behind looks like rounding.
    """
    model = build(name, seed=1)
    move(model, factor)
    sampler = VllmSampler(model, TOKENIZER, "bfloat16")
    assert sampler.facts()["push"] == way
    gap = gaps(model, sampler.sample(requests(), Sampling(max_tokens=12)), 1.0)
    assert 1e-4 < gap.mean() < 0.03
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.float32"}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.flip(0))
    stale = check_sync(sampler._engine, model, "bfloat16")
    assert not stale.holds
    assert "at most; tolerated is a median of 0.0" in str(stale)
    sampler.refresh()
    assert sampler.check.holds


def test_a_right_push_that_one_sample_fails_is_proven_by_another() -> None:
    """Far from its start a model often chooses experts by a narrow lead.

    Rounding changes some of these choices.
    """
    model = build("tiny-qwen3-moe", seed=1)
    move(model, 10.0)
    sampler = VllmSampler(model, TOKENIZER)
    engine = sampler._running()
    samples = [compare(engine, model, "float32", seed) for seed in range(80)]
    tipped = [seed for seed, item in enumerate(samples) if not item.holds]
    assert 0 < len(tipped) < 30
    # Some sequences are far off; of all tokens the greater part is as near as anywhere.
    assert all(samples[seed].median < 1e-4 < samples[seed].largest for seed in tipped)
    assert all(check_sync(engine, model, "float32", seed).holds for seed in tipped)


def test_a_family_to_which_no_way_brings_its_weights_is_refused() -> None:
    """vLLM's CPU build runs the experts of gpt-oss, but by no way with weights that come later."""
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 32}
    heads = {
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    }
    model = GptOssForCausalLM(
        GptOssConfig(vocab_size=len(TOKENIZER), max_position_embeddings=256, **sizes, **heads)
    )
    sampler = VllmSampler(model.eval(), TOKENIZER)
    with lab_error("does not sample from the weights that it was given") as refusal:
        sampler.facts()
    assert sampler._engine is None
    native, packed = refusal.value.details
    assert native.startswith("reload: log-probs of 128 sampled tokens are off by ")
    assert packed == "reload, experts packed anew: AssertionError: AssertionError"


def test_adapters_are_pushed_merged() -> None:
    pytest.importorskip("peft", reason="peft is not installed; nox -s vllm installs it")
    from gspo_lab.training.models.lora import add_adapters

    model = build("tiny-qwen3-moe", seed=1)
    add_adapters(model, rank=4, alpha=8)
    sampler = VllmSampler(model, TOKENIZER)
    initial = sampler.sample(requests(), Sampling(max_tokens=12))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(0))
    sampler.refresh()
    final = sampler.sample(requests(), Sampling(max_tokens=12))
    assert [r.response_ids for r in final] != [r.response_ids for r in initial]
    assert gaps(model, final, 1.0).max() <= 1e-5
