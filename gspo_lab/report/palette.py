"""The page's two colour schemes, and how a series looks: a colour and a dash that no other arm of the study has."""

COLOURS = 12
"""Colours of arms, `a0` to `a11` of a scheme."""

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "4px,2px", "1px,5px")
"""As Plotly writes them: from the thirteenth arm on a colour comes again with another dash, ninety-six in all."""

NEUTRAL_DARK, NEUTRAL_LIGHT = -1, -2
"""For what is no arm."""

_ARMS_LIGHT = "0072b2 d55e00 009e73 cc79a7 e69f00 56b4e9 8c6bb1 882255 7f8c00 8b5a2b 2b2d9e e0218a"
_ARMS_DARK = "4aa8e0 f0803c 2fc79a e19cc4 f0b63e b5e2fa b79be0 c2527f c3d04a b98a5e 7f86ff ff5fb4"


def _scheme(paper: str, ink: str, soft: str, line: str, neutral: tuple[str, str], arms: str) -> dict[str, str]:
    named = {"paper": paper, "ink": ink, "soft": soft, "line": line, "n1": neutral[0], "n2": neutral[1]}
    return {**named, **{f"a{i}": f"#{one}" for i, one in enumerate(arms.split())}}


LIGHT = _scheme("#ffffff", "#1b1f24", "#59636e", "#d8dee4", ("#5f6b76", "#b4bec8"), _ARMS_LIGHT)
DARK = _scheme("#14171a", "#e7eaed", "#9ba6b1", "#353d46", ("#a3aeb9", "#56616c"), _ARMS_DARK)


def colour_name(colour: int) -> str:
    """A scheme's name of a series' colour, without its dashes: a3, or n1 for what is no arm."""
    return f"n{-colour}" if colour < 0 else f"a{colour % COLOURS}"


def dash(colour: int) -> int:
    """Which dash goes with a series' colour: of arms that share a colour each has its own."""
    return 0 if colour == NEUTRAL_DARK else 2 if colour < 0 else (colour + colour // COLOURS) % len(DASHES)


def look(colour: int) -> str:
    """The CSS classes of a series' colour and dash."""
    return f"{colour_name(colour)} d{dash(colour)}"


def variables() -> str:
    """Both schemes as variables of the page's style."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in one.items()) for one in (LIGHT, DARK))
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
