from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from gspo_lab.models.embedded import EOS_ID, PAD_ID, VOCABULARY, byte_tokenizer
from gspo_lab.models.load import tokenizer_digest

TOKENIZER = byte_tokenizer()


@given(st.text())
def test_every_text_is_its_utf8_bytes_and_back(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert ids == list(text.encode())
    assert TOKENIZER.decode(ids) == text


@pytest.mark.parametrize(
    "text",
    ["12+3=15\n", "a\r\nb\tc\0d", "  two  spaces , and 's .", "naïve 😀👩\u200d👧 \u202e\ufeff", "<eos><pad>", "Ġ Ċ ¡"],
)
def test_awkward_texts_come_back_whole(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text), skip_special_tokens=True) == text


def test_special_tokens_are_numbers_that_no_text_can_forge() -> None:
    assert (TOKENIZER.pad_token_id, TOKENIZER.eos_token_id, TOKENIZER.bos_token_id) == (PAD_ID, EOS_ID, None)
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
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.padding_side) == (PAD_ID, EOS_ID, "left")
