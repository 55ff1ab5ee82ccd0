"""The engine `areal`: AReaL's configuration and entry for a run (docs/engines.md). It writes them and trains nothing.

run ── prompts, configuration ──> areal/ ── AReaL's command, typed by a person ──> its own logs, updates.jsonl
"""

from pathlib import Path
from typing import NoReturn

from gspo_lab.engines.areal.options import SETTINGS, Options, check_settings
from gspo_lab.engines.base import Capabilities, Sink, Stop
from gspo_lab.errors import LabError
from gspo_lab.study import Run, Settings

__all__ = ["ArealEngine"]


class ArealEngine:
    """AReaL 1.0.4: FSDP, vLLM for sampling, its own scheduler for processes."""

    capabilities = Capabilities(settings=SETTINGS, records={})

    def __init__(self, *, scheduler: str = "local", processes: int = 1) -> None:
        self.options = Options(scheduler=scheduler, processes=processes)

    def check(self, settings: Settings) -> None:
        """LabError for what AReaL would refuse, ignore or change."""
        self.options.check()
        check_settings(settings)

    def write(self, run: Run, folder: Path) -> list[str]:
        """Write what AReaL would be given; its command. Nothing is run."""
        from gspo_lab.engines.areal.prepare import prepare

        return prepare(run, self.options, folder.resolve())

    def train(self, run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
        """LabError: it does not."""
        self.ready()

    def ready(self) -> NoReturn:
        """The same, before anything is launched."""
        raise LabError(
            "the engine 'areal' only writes what AReaL is given, for no whole study was ever run by it: "
            "gspo-lab check STUDY --engine areal --write DIR"
        )
