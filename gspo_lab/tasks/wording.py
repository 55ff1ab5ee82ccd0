"""What the built-in tasks share when they ask a chat model in words."""

import re

WORDED = "words/1"
"""The `prompt_version` of a question that is a sentence."""


def last_number(text: str) -> str | None:
    """The last number of a text as digits, without separators of thousands and leading zeros; None: there is none.

    `last_number("7 plus 9 is 16.") == "16"`, `last_number("1,234") == "1234"`, `last_number("-07") == "-7"`,
    `last_number("2.5") == "2.5"`.
    """
    numbers = re.findall(r"(?<![0-9.,])-?[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|-?[0-9]+(?:\.[0-9]+)?", text)
    if not numbers:
        return None
    sign, digits = ("-", numbers[-1][1:]) if numbers[-1].startswith("-") else ("", numbers[-1])
    whole, point, after = digits.replace(",", "").partition(".")
    return f"{sign}{whole.lstrip('0') or '0'}{point}{after}"
