"""W&B: one offline run per run in `<arm>/s<seed>/wandb/`, for `wandb sync`; nothing is sent.

No data about the machine are recorded as far as wandb allows: no code, git, statistics or console.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gspo_lab.exchange.exporters import RunRows
from gspo_lab.exchange.importers.base import LoggedRow

NEEDS = ("wandb", "wandb", "writing for W&B")


@contextmanager
def writer(study: str, folder: Path) -> Iterator["Runs"]:
    """A project with the study's name; its groups are the arms."""
    import wandb

    runs = Runs(study, folder)
    try:
        yield runs
    finally:
        runs.finish()
        wandb.teardown()


class Runs:
    """The open runs; all are closed at the end."""

    def __init__(self, study: str, folder: Path) -> None:
        self._study = study
        self._folder = folder
        self._open: dict[Path, Any] = {}

    def begin(self, run: RunRows, rows: Sequence[LoggedRow]) -> int:
        """Begin a new offline run: another process cannot continue its file."""
        import wandb

        place = self._place(run)
        if (previous := self._open.pop(place, None)) is not None:
            previous.finish()
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        self._open[place] = wandb.init(
            mode="offline",
            dir=str(place),
            project=self._study,
            group=run.arm,
            name=f"{run.arm}-s{run.seed}",
            config=dict(run.settings),
            reinit="create_new",
            settings=wandb.Settings(
                console="off",
                silent=True,
                disable_git=True,
                disable_code=True,
                disable_job_creation=True,
                x_disable_meta=True,
                x_disable_stats=True,
            ),
        )
        return 0

    def add(self, run: RunRows, rows: Iterable[LoggedRow]) -> None:
        """Log one row of history per step."""
        for step, row in rows:
            self._open[self._place(run)].log(dict(row), step=step)

    def finish(self) -> None:
        """Close all runs."""
        for logger in self._open.values():
            logger.finish()

    def _place(self, run: RunRows) -> Path:
        return self._folder / run.arm / f"s{run.seed}"
