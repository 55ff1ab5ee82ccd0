"""The end of a response: an end-of-sequence token, or a stop text, which may begin or end inside a
token.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any

from gspo_lab.common.plain_data import Integers, JsonObject, Strings
from gspo_lab.tasks.base import THINKING_MARKS

_THINKING = " ".join(itertools.chain(*THINKING_MARKS))

TAIL = 16
"""Tokens in which a stop text that spans several tokens is searched."""


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of `ids` with all special tokens."""
    return str(tokenizer.decode(ids))


@lru_cache(maxsize=4)
def _control_ids(tokenizer: Any) -> set[int] | None:
    """The special tokens except the marks around thinking; None where no mark is special."""
    special = {
        index: str(token)
        for index, token in tokenizer.added_tokens_decoder.items()
        if token.special
    }
    marks = {index for index, text in special.items() if text in _THINKING}
    return special.keys() - marks if marks else None


def plain_text(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of `ids` without special tokens, except the marks around thinking.

    A grader must see where thinking ends, also where the tokenizer has its marks as special tokens.
    """
    control_ids = _control_ids(tokenizer)
    if control_ids is None:
        return str(tokenizer.decode(ids, skip_special_tokens=True))
    return _decode(tokenizer, [index for index in ids if index not in control_ids])


class Stopping:
    """A tokenizer's end-of-sequence tokens, and its tokens that contain a stop text."""

    def __init__(self, tokenizer: Any, stop: Strings, eos_ids: Integers = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self.eos_ids = frozenset(eos_ids) | (
            {tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else set()
        )
        self.ids = set(self.eos_ids)
        if stop:
            pieces = tokenizer.batch_decode([[index] for index in range(len(tokenizer))])
            self.ids |= {
                index for index, piece in enumerate(pieces) if any(text in piece for text in stop)
            }
        self.spanning = tuple(text for text in stop if len(text) > 1)
        """Stop texts that may take several tokens."""

    @staticmethod
    def of(tokenizer: Any, model: Any) -> "Callable[[tuple[str, ...]], Stopping]":
        """A cached function: stop texts -> the stopping of a model's responses."""
        return cache(partial(Stopping, tokenizer, eos_ids=eos_ids(model)))

    def for_vllm(self) -> JsonObject:
        """vLLM's sampling parameters that end responses in the same way and keep all their
        tokens.
        """
        out: JsonObject = {
            "ignore_eos": True,  # it is in stop_token_ids
            "stop_token_ids": sorted(self.ids),
            "detokenize": bool(self.spanning),
            "skip_special_tokens": False,
        }
        return out | (
            {"stop": list(self.spanning), "include_stop_str_in_output": True}
            if self.spanning
            else {}
        )

    def has_ended(self, ids: list[int], given_tokens: int = 0) -> bool:
        """Whether the last token ended the response `ids`; a stop text inside the first
        `given_tokens` does not count.
        """
        if ids[-1] in self.ids:
            return True
        if not self.spanning:
            return False
        tail = ids[-TAIL:]
        given_chars = self._complete_characters(tail, given_tokens - (len(ids) - len(tail)))
        text = self._tokenizer.decode(tail)
        return any(_find_stop_after(text, stop, given_chars) >= 0 for stop in self.spanning)

    def end(self, ids: list[int], given_tokens: int = 0) -> int | None:
        """The number of tokens at which a response ended, `given_tokens` as in `over`; None if it
        did not end.
        """
        for count in range(given_tokens + 1, len(ids) + 1):
            start = max(0, count - TAIL)
            if self.has_ended(ids[start:count], given_tokens - start):
                return count
        return None

    def text(self, ids: list[int], given_tokens: int = 0) -> str:
        """The response's text as `plain_text`, cut before the first stop text; `given_tokens` as in
        `over`.
        """
        text = plain_text(self._tokenizer, ids)
        given_chars = self._complete_characters(ids, given_tokens, plain_text)
        cuts = [
            cut
            for cut in (_find_stop_after(text, stop, given_chars) for stop in self._stop)
            if cut >= 0
        ]
        return text[: min(cuts)] if cuts else text

    def _complete_characters(
        self, ids: list[int], given_tokens: int, decode: Callable[[Any, list[int]], str] = _decode
    ) -> int:
        """The number of complete characters in the first `given_tokens` of `ids`."""
        if given_tokens <= 0:
            return 0
        return len(decode(self._tokenizer, ids[:given_tokens]).rstrip("\ufffd"))


def _find_stop_after(text: str, stop: str, given_chars: int) -> int:
    """Index of the first `stop` in `text` that ends after the first `given_chars` characters; -1 if
    none.
    """
    return text.find(stop, max(0, given_chars - len(stop) + 1))


def eos_ids(model: Any) -> Integers:
    """The end-of-sequence tokens in a transformers model's generation config."""
    eos = getattr(model.generation_config, "eos_token_id", None)
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list | tuple) else (int(eos),)
