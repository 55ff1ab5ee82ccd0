"""What an engine is: it trains one run and tells a sink what happened."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gspo_lab.records import Record
from gspo_lab.study import Run


class Sink(Protocol):
    """Where an engine's records go: the journal of the run's folder. Written records are on the disk."""

    def write(self, records: Sequence[Record]) -> None: ...


class Stop(Protocol):
    """Asked between steps: has somebody asked this run to stop?"""

    def __call__(self) -> bool: ...


class Engine(Protocol):
    def train(self, run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
        """Train from where `folder` stands to the run's last step; True when complete, False when stopped before.

        When it returns True, all that is wanted of the run is on the disk: what it went on from may be deleted.
        """
        ...
