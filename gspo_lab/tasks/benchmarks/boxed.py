r"""What a mathematical answer says at last: the content of the last complete `\boxed{...}` behind the thinking."""

import itertools
import re
from collections.abc import Iterator

PROMPT_VERSION = "boxed/1"

OPENING = ("\\boxed", "\\fbox")
DEEPEST = 8
"""Boxes around a box that are looked at."""

_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_SPACE = re.compile(r"\s*")


class NoAnswer(ValueError):
    """A response that holds no answer to compare; the message says why, as the grade's reason."""


class Unclosed(NoAnswer):
    """The last box is opened and never closed: whatever came before it was not the last word."""

    def __init__(self) -> None:
        super().__init__("the last box is not closed")


def prompt(problem: str) -> str:
    r"""The problem and one sentence that asks for steps and a boxed answer, as the cards of Qwen's models ask."""
    return f"{problem}\nPlease reason step by step, and put your final answer within \\boxed{{}}."


def spoken(response: str) -> str:
    """The response behind its thinking; NoAnswer where the thinking does not end."""
    _thought, closed, after = response.rpartition("</think>")
    if "<think>" in after:
        raise NoAnswer("the thinking does not end")
    return after if closed else response


def last_box(text: str) -> str:
    r"""The content of the last complete box, the outermost where boxes are nested.

    An empty `\boxed{}` repeats the instruction and is passed over. NoAnswer without a box, Unclosed where the last one
    is not closed.
    """
    openings = _openings(text)
    for inside in openings:
        stop = closing_brace(text, inside)
        if stop is None:
            raise Unclosed
        if text[inside:stop].strip():
            break
    else:
        raise NoAnswer("no complete box")
    for outer in itertools.islice(openings, DEEPEST):
        outer_stop = closing_brace(text, outer)
        if outer_stop is None or outer_stop <= stop:
            break
        inside, stop = outer, outer_stop
    return text[inside:stop]


def _openings(text: str) -> Iterator[int]:
    """Where the content of each box begins, from the last one to the first; Unclosed where the text ends before it.

    Searched from the end, because there the answer is; a word without a brace is prose.
    """
    places = {word: text.rfind(word) for word in OPENING}
    while max(places.values()) >= 0:
        word = max(places, key=lambda one: places[one])
        start, places[word] = places[word], text.rfind(word, 0, places[word])
        found = _SPACE.match(text, start + len(word))
        assert found is not None
        if found.end() == len(text):
            raise Unclosed
        if text[found.end()] == "{":
            yield found.end() + 1


def closing_brace(text: str, inside: int) -> int | None:
    """Where the brace stands that closes the one before `inside`, braces behind a backslash left out; None: nowhere."""
    depth = 1
    for found in _BRACES.finditer(text, inside):
        if found.group() == "{":
            depth += 1
        elif found.group() == "}":
            depth -= 1
            if depth == 0:
                return found.start()
    return None
