from pathlib import Path

import pytest
import torch
from assertions import assert_fields
from calling import lab_error
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from gspo_lab.training.models.builtin_models import (
    EOS_ID,
    PAD_ID,
    VOCABULARY,
    build,
    byte_tokenizer,
    param_counts,
)
from gspo_lab.training.models.check import EMBEDDED, is_moe
from gspo_lab.training.models.load import tokenizer_digest, weights_digest

SMALL = {"layers": 2, "width": 32, "experts": 4}


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_seed_draws_the_same_weights_and_leaves_the_global_random_state_alone(name: str) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    earlier = build(name, 1, SMALL)
    assert torch.equal(torch.rand(3), expected)
    assert weights_digest(build(name, 1, SMALL)) == weights_digest(earlier)
    assert weights_digest(build(name, 2, SMALL)) != weights_digest(earlier)


def test_parameters_are_those_counted_by_hand() -> None:
    embedding = 264 * 128
    final_norm = 128
    attention = 2 * 128 * 128 + 2 * 128 * 64
    norms = 2 * 128
    head_norms = 2 * 32
    dense = embedding + final_norm + 4 * (attention + norms + head_norms + 3 * 128 * 256)
    assert param_counts(build("tiny-qwen3", 0)) == (dense, dense) == (625_024, 625_024)

    router = 16 * 128
    expert = 3 * 128 * 64
    moe = [
        embedding + final_norm + 4 * (attention + norms + head_norms + router + n * expert)
        for n in (16, 2)
    ]
    assert param_counts(build("tiny-qwen3-moe", 0)) == tuple(moe) == (1_812_864, 436_608)

    whole_norms = 128 + 64  # OLMoE normalises all heads of q and of k together
    olmoe = [
        embedding + final_norm + 4 * (attention + norms + whole_norms + router + n * expert)
        for n in (16, 2)
    ]
    assert param_counts(build("tiny-olmoe", 0)) == tuple(olmoe)


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_table_tells_the_truth(name: str) -> None:
    model = build(name, 0, SMALL)
    assert model.config.model_type == EMBEDDED[name].family
    routers = [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
    assert len(routers) == (SMALL["layers"] if is_moe(name) else 0)
    assert model.config.max_position_embeddings >= 4096
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert model.generation_config.eos_token_id == model.config.eos_token_id == 257


@pytest.mark.parametrize("name", [name for name in EMBEDDED if is_moe(name)])
def test_the_expert_kernel_is_exact_repeats_itself_and_keeps_its_modules(name: str) -> None:
    """The experts' output equals that of the plain loop over experts.

    Routing capture needs routers and experts to be called as modules.
    """
    model = build(name, 0, SMALL)
    assert model.config._experts_implementation == "grouped_mm"
    ids_BS = torch.randint(0, 256, (4, 9), generator=torch.Generator().manual_seed(0))
    called: list[str] = []
    for module in model.modules():
        if type(module).__name__.endswith(("TopKRouter", "Experts")):
            module.register_forward_hook(lambda module, *_: called.append(type(module).__name__))

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        model(input_ids=ids_BS, labels=ids_BS).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    earlier = gradients()
    later = gradients()
    assert len(called) == 2 * 2 * SMALL["layers"]
    assert all(torch.equal(a, b) for a, b in zip(earlier, later, strict=True))
    model.set_experts_implementation("eager")
    torch.testing.assert_close(earlier, gradients(), rtol=1e-4, atol=1e-7)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with lab_error("did you mean 'tiny-qwen3-moe'"):
        build("tiny-qwen-moe", 0)


TOKENIZER = byte_tokenizer()


@given(st.text())
@example("  naïve 😀👩\u200d👧 , \u202e\ufeff and 's .\r\n\tc\0d<eos><pad>")
def test_every_text_is_its_utf8_bytes_and_back(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert ids == list(text.encode())
    assert TOKENIZER.decode(ids) == TOKENIZER.decode(ids, skip_special_tokens=True) == text


def test_special_tokens_are_numbers_that_no_text_can_forge() -> None:
    assert_fields(TOKENIZER, pad_token_id=PAD_ID, eos_token_id=EOS_ID, bos_token_id=None)
    assert len(TOKENIZER) == 258 <= VOCABULARY
    assert EOS_ID not in TOKENIZER.encode("stop<eos>")
    assert TOKENIZER.decode([72, 105, EOS_ID, PAD_ID, PAD_ID], skip_special_tokens=True) == "Hi"
    assert TOKENIZER.decode([72, EOS_ID]) == "H<eos>"


def test_bytes_that_are_no_utf8_and_unused_ids_do_not_break_decoding() -> None:
    assert TOKENIZER.decode([0xFF, 65]) == "\ufffdA"
    assert TOKENIZER.decode([0xE2, 0x82, 65]) == "\ufffdA"
    assert TOKENIZER.decode([65, 260, 263, 66], skip_special_tokens=True) == "AB"


def test_the_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer_digest(loaded) == tokenizer_digest(TOKENIZER)
    text = "é <eos> , 's\0"
    assert loaded.encode(text) == list(text.encode())
    assert loaded.decode(loaded.encode(text)) == text
    assert_fields(loaded, pad_token_id=PAD_ID, eos_token_id=EOS_ID, padding_side="left")


@pytest.mark.parametrize("name", EMBEDDED)
def test_cached_decoding_agrees_with_one_forward_pass(name: str) -> None:
    model = build(name, 0, SMALL)
    ids_BS = torch.randint(0, 256, (3, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        complete = model(input_ids=ids_BS).logits
        part = model(input_ids=ids_BS[:, :5], use_cache=True)
        remainder = model(
            input_ids=ids_BS[:, 5:], past_key_values=part.past_key_values, use_cache=True
        )
    assert complete.shape == (3, 9, 264)
    torch.testing.assert_close(
        torch.cat([part.logits, remainder.logits], dim=1), complete, rtol=0, atol=1e-5
    )
