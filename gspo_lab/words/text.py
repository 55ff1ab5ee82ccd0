"""Numbers and lists as sentences have them."""

from collections.abc import Sequence


def signed(value: float) -> str:
    """Three decimals with their sign, which zero has not."""
    return f"{value:+.3f}" if abs(value) >= 5e-4 else "0.000"


def percent(share: float) -> str:
    """Whole per cent."""
    return f"{100 * share:.0f} %"


def level(alpha: float) -> str:
    """The confidence of an interval at 1 - alpha."""
    return f"{100 * (1 - alpha):.3g} %"


def listed(names: Sequence[str], last: str = "and") -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def counted(count: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{count} {noun}{'s' * (count != 1)}"


def capital(text: str) -> str:
    """The same as the start of a sentence."""
    return text[:1].upper() + text[1:]
