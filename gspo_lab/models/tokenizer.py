"""The embedded models' tokenizer: one token per byte of UTF-8, so that a token's number is the byte's value."""

from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD_ID = 256
EOS_ID = 257
VOCABULARY = 264
"""Rows of the embedding: 256 bytes, <pad>, <eos>, and unused ones up to a multiple of 8, which decode to nothing."""

MAX_POSITIONS = 4096


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A fast tokenizer without merges; decoding what it encodes gives back every text.

    The text "<eos>" is five bytes, never the end: only a program can put the special tokens, by number. Bytes that are
    no UTF-8 decode to U+FFFD; a text with a lone surrogate has no bytes and cannot be encoded.
    """
    vocabulary = {character: byte for byte, character in _characters().items()}
    backend = Tokenizer(models.BPE(vocab=vocabulary | {"<pad>": PAD_ID, "<eos>": EOS_ID}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
    )


def is_byte_level(tokenizer: Any) -> bool:
    """Whether a loaded tokenizer is the embedded models' own: 256 bytes, <pad> and <eos>."""
    return len(tokenizer) == EOS_ID + 1 and tokenizer.eos_token_id == EOS_ID


def _characters() -> dict[int, str]:
    """The printable character by which byte-level tokenizers write each byte (Radford et al. 2019, GPT-2).

    Printable Latin-1 bytes stand for themselves; the others, in order, for the characters from 256 on.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = sorted(set(range(256)) - set(printable))
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}
