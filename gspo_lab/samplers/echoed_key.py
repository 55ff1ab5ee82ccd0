"""The API key hidden in what a server says: whole, in pieces, with other characters between, in base64 or in hex.

Answers and refusals are stored and shown, and a server may repeat what it was sent. Pieces of fewer than `PIECE`
letters and digits are not recognised.
"""

import base64
import itertools
import json
import re
from typing import Any

SECRET = 12
"""A shorter key is a word that stands for none ("EMPTY"), which an answer may hold."""
PIECE = 8
MASK = "[the key]"

_SEPARATORS = re.compile("[^A-Za-z0-9]+")


class KeyMask:
    """Hides one key. A key shorter than `SECRET` is not hidden."""

    def __init__(self, key: str | None) -> None:
        self._pieces: set[str] = set()
        if key is None or len(key) < SECRET:
            return
        raw = key.encode()
        # Base64 has three forms of a text, by the bytes before it; characters at the ends depend on other text too.
        forms = [
            base64.b64encode(bytes(before) + raw).decode()[-(-8 * before // 6) : 8 * (before + len(raw)) // 6]
            for before in range(3)
        ]
        for form in (key, key[::-1], raw.hex(), *forms):
            plain = _SEPARATORS.sub("", form).lower()
            self._pieces.update(plain[place : place + PIECE] for place in range(len(plain) - PIECE + 1))

    def hide_in_json(self, content: bytes) -> bytes:
        """The same JSON with the key hidden in its texts; nothing, where it is not JSON and so is never shown."""
        if not self._pieces:
            return content
        try:
            return json.dumps(self._hidden(json.loads(content))).encode()
        except (ValueError, RecursionError):
            return b""

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self._hidden(item) for item in value]
        if isinstance(value, dict):
            return {self.hide(name): self._hidden(item) for name, item in value.items()}
        return value

    def hide(self, text: str) -> str:
        """The text with `MASK` in place of each stretch that consists of pieces of the key."""
        plain = _SEPARATORS.sub("", text).lower()
        pieces = [piece for piece in self._pieces if piece in plain]
        if not pieces:
            return text
        spread = "|".join("[^A-Za-z0-9]*".join(piece) for piece in pieces)
        marks = bytearray(len(text))
        for match in re.finditer(f"(?=({spread}))", text, re.IGNORECASE):
            marks[match.start(1) : match.end(1)] = b"\1" * (match.end(1) - match.start(1))
        out, place = [], 0
        for marked, stretch in itertools.groupby(marks):
            length = len(list(stretch))
            out.append(MASK if marked else text[place : place + length])
            place += length
        return "".join(out)
