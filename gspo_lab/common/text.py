"""Numbers and lists as sentences have them."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

MINUS = "\u2212"


def decimals(width: float | None) -> int:
    """How many decimals leave two digits of an interval's width; three where there is no interval.

    Below a width of 10 there are two at least, so that a score's estimate is not rounded to 0.
    """
    return (
        3
        if not width
        else min(6, max(2 * (abs(width) < 10), 1 - math.floor(math.log10(abs(width)))))
    )


def signed(value: float, width: float | None = None) -> str:
    """A difference with its sign, and with the decimals that the width of its interval asks for.

    Zero is 0.
    """
    if abs(value) < 1e-12:
        return "0"
    text = f"{value:+.{decimals(width)}f}"
    if float(text) == 0:
        text = "0" if width else f"{value:+.1e}".replace("e-0", "e-")
    return text.replace("-", MINUS)


def between(low: float, high: float, margin: float | None) -> str:
    """An interval of differences: "+0.041 to +0.110".

    No end is rounded to 0 or to the margin unless it is that.
    """
    return " to ".join(_end(value, decimals(high - low), margin or 0.0) for value in (low, high))


def _end(value: float, places: int, margin: float) -> str:
    """An end of an interval, with more decimals where it only rounds to 0 or to the margin."""
    limits = [limit for limit in (0.0, margin, -margin) if abs(value - limit) > 1e-9]
    while places < 6 and any(round(value, places) == round(limit, places) for limit in limits):
        places += 1
    text = f"{value:+.{places}f}"
    return "0" if float(text) == 0 else text.replace("-", MINUS)


def difference(
    estimate: float, ends: tuple[float | None, float | None], alpha: float, margin: float | None
) -> str:
    """A difference with its interval at 1 - alpha: "+0.075 (95 % interval +0.041 to +0.110)"."""
    low, high = ends
    if low is None or high is None:
        return signed(estimate)
    return f"{signed(estimate, high - low)} ({level(alpha)} interval {between(low, high, margin)})"


def percent(share: float) -> str:
    """A share in whole per cent."""
    return f"{100 * share:.0f} %"


def tenth_percent(share: float) -> str:
    """A share in per cent with one decimal, halves up, as pages and docs have all error rates."""
    return f"{math.floor(1000 * share + 0.5) / 10:.1f} %"


def level(alpha: float) -> str:
    """The confidence of an interval at 1 - alpha."""
    return f"{100 * (1 - alpha):.3g} %"


def listed(names: Sequence[str], last: str = "and") -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def counted(count: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{count} {noun}{'s' * (count != 1)}"


def first_few(texts: Iterable[str], most: int | None = 6, separator: str = ", ") -> str:
    """The first `most` texts and how many more there are: "a, b and 3 more"; None: all of them."""
    complete = list(texts)
    first = complete[:most]
    text = separator.join(first)
    hidden = len(complete) - len(first)
    return f"{text} and {hidden} more" if hidden else text


def seed_numbers(seeds: Iterable[int]) -> str:
    """Seeds for people: "0 to 4", or one by one where they do not follow each other."""
    numbers = sorted(seeds)
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds with their noun: "seed 3", "seeds 0 to 4"."""
    noun = "seed" if len(seeds) == 1 else "seeds"
    return f"{noun} {seed_numbers(seeds)}"


def duration(seconds: float) -> str:
    """As people say it: 40 s, 3 min 20 s, 2 h 05 min."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    if rounded < 3600:
        return f"{round(rounded / 60)} min"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def last_evaluations(steps: Sequence[int]) -> str:
    """Which evaluations a score is the mean of, by their steps."""
    if len(steps) < 2:
        return "the last evaluation" if steps else "the mean of the last evaluations"
    return f"the mean of the last {len(steps)} evaluations, steps {steps[0]} to {steps[-1]}"


def setting_name(key: str) -> str:
    """A dotted setting as a sentence names it: "learning rate" of `update.learning_rate`."""
    return key.rpartition(".")[2].replace("_", " ")


def capital(text: str) -> str:
    """The text with a capital, to start a sentence."""
    return text[:1].upper() + text[1:]


UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Controls, direction marks, separators of lines, spaces without width, tags, and halves of
characters.
"""


def visible(value: Any) -> str:
    """Text in which control characters, direction marks and lone surrogates are spelt out, as
    `[U+202E]`.
    """
    return UNSEEN.sub(lambda match: f"[U+{ord(match.group()):04X}]", str(value))
