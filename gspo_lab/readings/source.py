"""What a reading is read from: one study in one database, and what was already read of it."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from gspo_lab.paths import STUDY
from gspo_lab.study import Declaration

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

P = ParamSpec("P")
S = TypeVar("S", bound="Source")
T = TypeVar("T")


@dataclass(eq=False)
class Source:
    """One study in the database of `evidence`, which does not change while it is open.

    `label` is the study's name beside others. In `elsewhere` further executions of it lie: folders of runs,
    databases."""

    evidence: "Evidence"
    study: str
    label: str = ""
    elsewhere: Sequence[Path] = ()
    base: "Source | None" = None
    """The study as it was declared, of one that is read with another baseline."""
    known: dict[tuple[Hashable, ...], Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.label = self.label or self.study

    @property
    def arms(self) -> list[str]:
        """The arms in their declared order, which is also the order of their colours."""
        return list(self.declaration.arms)

    @cached_property
    def declaration(self) -> Declaration:
        """What the study declares. LabError for a study that the database lacks."""
        declared = Declaration.parse(self.evidence.study(self.study), f"{self.study}/{STUDY}")
        return replace(declared, name=self.study)  # a study that was copied is its own


def once(read: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A function of a source that keeps its results: each is computed once. Do not change a result."""

    def read_once(of: S, /, *args: P.args, **options: P.kwargs) -> T:
        key = (read.__module__, read.__qualname__, args, *sorted(options.items()))
        if key not in of.known:
            of.known[key] = read(of, *args, **options)
        answer: T = of.known[key]
        return answer

    update_wrapper(read_once, read)
    return read_once
