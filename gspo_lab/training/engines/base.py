"""What an engine is: it trains one run and tells a sink what happened."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gspo_lab.recording.records import Record
from gspo_lab.study import Run


class Sink(Protocol):
    """Where an engine's records go: the journal of the run's folder.

    Written records are on the disk.
    """

    def write(self, records: Sequence[Record]) -> None:
        """Take records, in their order; they are on the disk when this returns."""
        ...


Stop = Callable[[], bool]
"""Asked between steps: True from the moment on at which somebody asked this run to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do, said before it does anything. What is left out is everything.

    `settings` are the keys of a study that it obeys, or whole tables of them: `("steps",
    "update.epochs")`. The task it always does; every other key must stand at its default.
    `records` are the columns of steps and updates that it fills, each with its own definition, or
    "" where that is the lab's (docs/reference/metrics.md). `turns`: whether it can train on tasks
    whose responses have several.
    """

    settings: Collection[str] | None = None
    records: Mapping[str, str] | None = None
    turns: bool = True


class Engine(Protocol):
    """Made with the study's `[engine.options]` as keywords. One that says nothing of its
    capabilities has them all.

    Four more methods are asked where an engine has them: `check(settings)`, a LabError where a
    single value is beyond it; `ready()`, a LabError for what this machine lacks, asked before runs
    are made; `translated(settings)`, the settings of its program by their names there, shown by
    `gspo-lab plan`; and `write(run, folder)`, which writes what its program is given and returns
    its command, for `gspo-lab plan --write-config`. An engine may name its loss functions by rule,
    `losses = {"gspo": my_loss}`: `gspo-lab engines check` tests them with `assert_conforms`.
    """

    capabilities: Capabilities

    def train(self, run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
        """Train from where `folder` stands to the last step; False when stopped before. At True all
        that is wanted of the run is on the disk."""
        ...
