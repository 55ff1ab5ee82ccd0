"""The page's two colour schemes, and how an arm looks: a colour and a dash that no other arm of the page has."""

from collections.abc import Mapping, Sequence

from gspo_lab.findings.clip_fractions import arms_by_level
from gspo_lab.readings import Source

COLOURS = 12
"""Colours of arms, `a0` to `a11` of a scheme. Each passes 4.5 : 1 on the page, because names of lines have it too."""

DASHES = ("solid", "9px,4px", "2px,4px", "9px,3px,2px,3px", "15px,5px", "15px,4px,6px,4px", "5px,2px", "1px,6px")
"""As Plotly and SVG write them. From the thirteenth arm on colours come again with other dashes, ninety-six in all."""

LEVELS = ("token", "sequence")
"""The levels of the ratio in GRPO and GSPO, in the order of their colours."""

RULES = ("grpo", "gspo")
"""Their names."""

NEUTRAL_DARK, NEUTRAL_LIGHT = -1, -2
"""For series that show no arm, and for arms that a figure is not about."""

_ARMS_LIGHT = "0072b2 c24e00 007a59 a8487f 946200 5566d6 7d5aa8 882255 6f7a00 8b5a2b 2b2d9e d01a7d"
_ARMS_DARK = "4aa8e0 f0803c 2fc79a e19cc4 f0b63e b5e2fa b79be0 d9719b c3d04a b98a5e 7f86ff ff5fb4"


def _scheme(paper: str, ink: str, soft: str, line: str, neutral: tuple[str, str], arms: str) -> dict[str, str]:
    named = {"paper": paper, "ink": ink, "soft": soft, "line": line, "n1": neutral[0], "n2": neutral[1]}
    return {**named, **{f"a{i}": f"#{colour}" for i, colour in enumerate(arms.split())}}


LIGHT = _scheme("#ffffff", "#1b1f24", "#59636e", "#d8dee4", ("#5f6b76", "#6b7682"), _ARMS_LIGHT)
DARK = _scheme("#14171a", "#e7eaed", "#9ba6b1", "#353d46", ("#a3aeb9", "#8a95a1"), _ARMS_DARK)


def arm_colours(studies: Sequence[Source]) -> dict[str, int]:
    """Arm -> colour over all studies of a page. GRPO's arm has the first colour and GSPO's the second, in every study.
    An arm of two studies looks the same in both."""
    colours: dict[str, int] = {}
    for study in studies:
        levels = arms_by_level(study)
        if study.declaration.recorded is not None:  # where no level was recorded a name has to do
            levels = {level: name for level, name in zip(LEVELS, RULES, strict=True) if name in study.arms} | levels
        for colour, level in enumerate(LEVELS):
            taken = any(colours.get(arm) == colour for arm in study.arms)
            if level in levels and not taken:
                colours.setdefault(levels[level], colour)
    names = dict.fromkeys(arm for study in studies for arm in study.arms)
    neither = [arm for arm in names if arm not in colours]
    colours |= {arm: len(LEVELS) + place for place, arm in enumerate(neither)}
    return {arm: colours[arm] for arm in names}


def colour_name(colour: int) -> str:
    """A scheme's name of a series' colour, without its dashes: a3, or n1 for what is no arm."""
    return f"n{-colour}" if colour < 0 else f"a{colour % COLOURS}"


def dash(colour: int) -> str:
    """The dash of a series' line: of arms that share a colour each has its own."""
    if colour < 0:
        return DASHES[0 if colour == NEUTRAL_DARK else 2]
    return DASHES[(colour + colour // COLOURS) % len(DASHES)]


def variables(arms: Mapping[str, int]) -> str:
    """Both schemes as variables of the page's style, and each arm's colour for the elements that carry its name."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in scheme.items()) for scheme in (LIGHT, DARK))
    named = "".join(f'[data-arm="{_escaped(arm)}"]{{--c:var(--{colour_name(colour)})}}' for arm, colour in arms.items())
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}\n{named}\n"


def _escaped(name: str) -> str:
    """Text as a string of CSS: nothing in it ends the string or the style."""
    return "".join(letter if letter.isalnum() and letter.isascii() else f"\\{ord(letter):x} " for letter in name)
