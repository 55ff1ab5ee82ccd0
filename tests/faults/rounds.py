"""How long the suite of faults runs, and its dice: the same faults in every run of one length."""

import os
import random
from collections.abc import Iterator

LENGTH = int(os.environ.get("GSPO_LAB_FAULTS", "1"))
"""1 within every run of the tests; `nox -s faults` sets more."""


def rounds(name: str, short: int) -> Iterator[random.Random]:
    """Dice for each of `short` rounds, and for as many times that as the length says."""
    return (random.Random(f"{name} {one}") for one in range(short * LENGTH))
