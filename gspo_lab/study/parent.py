"""`Parent`: the study that another one was derived from, and what for.

A sweep, an archived execution and a look derive none: a sweep's doses are arms of one study, the
archive keeps whole studies, and a look judges the study itself after fewer seeds.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a derived study is for, as study.json has it."""

    TRIAL = "trial"
    """Its arms' candidates under `[tune]`."""
    PILOT = "pilot"
    """The clip range of `clip = 'calibrated'`."""
    ADVICE = "advice"
    """The pilots of `gspo-lab plan --advise`."""
    AA = "aa"
    """One arm against itself."""
    REPLICATION = "replication"
    """The same study on new seeds."""

    @property
    def has_verdict(self) -> bool:
        """Whether it has a verdict, and so can be an execution; the others prepare their parent."""
        return self in (Kind.AA, Kind.REPLICATION)

    def study_name(self, study: str, detail: object = "") -> str:
        """The name, and the folder under `runs/`, of what is derived from `study`."""
        return f"{study}{SUFFIXES[self]}{detail}"


SUFFIXES = {
    Kind.TRIAL: "-trials",
    Kind.PILOT: "/_pilot",
    Kind.ADVICE: "/_advice",
    Kind.AA: "-aa-",
    Kind.REPLICATION: "-r",
}
"""The end of the name of a derived study, by kind.

Below a study lies what is no run of it.
"""


@dataclass(frozen=True)
class Parent:
    """The study that another one was derived from; `content` is its identity at that time."""

    study: str
    kind: Kind
    content: str
