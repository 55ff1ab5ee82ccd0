"""How a series looks: a colour and a dash that no other arm of the study has. `page.css` holds the colours."""

COLOURS = 12
"""Colours of arms, `--a0` to `--a11` of the page's style."""
DASHES = 8
"""Dashes, `.d0` to `.d7`: from the thirteenth arm on a colour comes again with another dash, ninety-six in all."""

NEUTRAL_DARK, NEUTRAL_LIGHT = -1, -2
"""For what is no arm."""


def colour_name(colour: int) -> str:
    """The style's name of a series' colour, without its dashes: a3, or n1 for what is no arm."""
    return f"n{-colour}" if colour < 0 else f"a{colour % COLOURS}"


def dash(colour: int) -> int:
    """Which dash goes with a series' colour: of arms that share a colour each has its own."""
    return 0 if colour == NEUTRAL_DARK else 2 if colour < 0 else (colour + colour // COLOURS) % DASHES


def look(colour: int) -> str:
    """The CSS classes of a series' colour and dash."""
    return f"{colour_name(colour)} d{dash(colour)}"
