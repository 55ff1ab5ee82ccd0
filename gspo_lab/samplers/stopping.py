"""When a response is over: an end-of-sequence token, or a stop text, which may begin or end inside a token."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

TAIL = 16
"""Tokens looked back at for a stop text that spans several tokens."""


class Stopping:
    """Knows a tokenizer's end-of-sequence tokens and which tokens hold a stop text whole."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], eos_ids: tuple[int, ...] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self.eos_ids = frozenset(eos_ids) | ({tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else set())
        self.ids = set(self.eos_ids)
        if stop:
            pieces = tokenizer.batch_decode([[index] for index in range(len(tokenizer))])
            self.ids |= {index for index, piece in enumerate(pieces) if any(text in piece for text in stop)}
        self.spanning = tuple(text for text in stop if len(text) > 1)
        """Stop texts that may take several tokens."""

    @staticmethod
    def of(tokenizer: Any, model: Any) -> "Callable[[tuple[str, ...]], Stopping]":
        """From stop texts to the stopping of a model's responses, made once for each."""
        return cache(partial(Stopping, tokenizer, eos_ids=eos_ids(model)))

    def for_vllm(self) -> dict[str, Any]:
        """vLLM's sampling parameters by which it ends responses as this does, and keeps all their tokens."""
        out: dict[str, Any] = {
            "ignore_eos": True,  # it is one of those that stop
            "stop_token_ids": sorted(self.ids),
            "detokenize": bool(self.spanning),
            "skip_special_tokens": False,
        }
        return out | ({"stop": list(self.spanning), "include_stop_str_in_output": True} if self.spanning else {})

    def over(self, ids: list[int], given: int = 0) -> bool:
        """Whether the response `ids`, which was not over one token ago, is over now.

        A stop text that lies among the first `given` tokens ends nothing; one that reaches beyond them does.
        """
        if ids[-1] in self.ids:
            return True
        if not self.spanning:
            return False
        tail = ids[-TAIL:]
        before = self._before(tail, given - (len(ids) - len(tail)))
        text = self._tokenizer.decode(tail)
        return any(_beyond(text, stop, before) >= 0 for stop in self.spanning)

    def end(self, ids: list[int], given: int = 0) -> int | None:
        """After how many of its tokens a response was over, `given` as of `over`; None where it is not."""
        firsts = ((n, max(0, n - TAIL)) for n in range(given + 1, len(ids) + 1))
        return next((n for n, first in firsts if self.over(ids[first:n], given - first)), None)

    def text(self, ids: list[int], given: int = 0) -> str:
        """The response's text: without special tokens, cut before the first stop text, `given` as of `over`."""
        text = str(self._tokenizer.decode(ids, skip_special_tokens=True))
        before = self._before(ids, given, skip_special_tokens=True)
        cuts = [cut for cut in (_beyond(text, stop, before) for stop in self._stop) if cut >= 0]
        return text[: min(cuts)] if cuts else text

    def _before(self, ids: list[int], given: int, **how: bool) -> int:
        """The characters that the first `given` of `ids` make by themselves, one that they only begin left out."""
        return len(self._tokenizer.decode(ids[:given], **how).rstrip("\ufffd")) if given > 0 else 0


def _beyond(text: str, stop: str, before: int) -> int:
    """Where in `text` the first `stop` begins that ends after its first `before` characters; -1 where none does."""
    return text.find(stop, max(0, before - len(stop) + 1))


def eos_ids(model: Any) -> tuple[int, ...]:
    """The end-of-sequence tokens that a transformers model's generation config names."""
    eos = getattr(model.generation_config, "eos_token_id", None)
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list | tuple) else (int(eos),)
