"""`Reason`: why something holds, or why it does not, as a code and as a sentence."""

from collections.abc import Iterable
from dataclasses import dataclass

from gspo_lab.common.text import capital


@dataclass(frozen=True)
class Reason:
    """A code for programs and tests, and its text for people, without a capital and a full stop.

    The text is written where the reason is found.
    """

    code: str
    text: str

    @property
    def sentence(self) -> str:
        """The text as a sentence."""
        return f"{capital(self.text)}."


Reasons = tuple[Reason, ...]


def joined(reasons: Iterable[Reason]) -> str:
    """The texts of several reasons, in one line."""
    return "; ".join(reason.text for reason in reasons)


def sentences(reasons: Iterable[Reason]) -> list[str]:
    """Each reason as a sentence."""
    return [reason.sentence for reason in reasons]
