"""When a response is over: an end-of-sequence token, or a stop text, which may begin or end inside a token."""

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

    def over(self, ids: list[int]) -> bool:
        """Whether the response `ids`, which was not over one token ago, is over now."""
        if ids[-1] in self.ids:
            return True
        if not self.spanning:
            return False
        tail = self._tokenizer.decode(ids[-TAIL:])
        return any(text in tail for text in self.spanning)

    def end(self, ids: list[int]) -> int | None:
        """After how many of its tokens a response was over; None where it is not."""
        return next((n for n in range(1, len(ids) + 1) if self.over(ids[max(0, n - TAIL) : n])), None)

    def text(self, ids: list[int]) -> str:
        """The response's text: without special tokens, cut before the first stop text."""
        text = str(self._tokenizer.decode(ids, skip_special_tokens=True))
        cuts = [cut for cut in (text.find(stop) for stop in self._stop) if cut >= 0]
        return text[: min(cuts)] if cuts else text


def eos_ids(model: Any) -> tuple[int, ...]:
    """The end-of-sequence tokens that a transformers model's generation config names."""
    eos = getattr(model.generation_config, "eos_token_id", None)
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list | tuple) else (int(eos),)
