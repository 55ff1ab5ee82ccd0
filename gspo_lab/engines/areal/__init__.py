"""The engine `areal`: a run on AReaL's trainer, in an environment of its own (docs/reference/engines.md).

    run ── prompts, configuration ──> areal/attempt-n/ ── AReaL's command ──> statistics, answers, updates ──> records

The lab talks to it through that folder and that command; `inside/` is what AReaL's own processes import of it.
"""

from pathlib import Path

from gspo_lab.engines.areal.options import Options, check_settings
from gspo_lab.engines.areal.records import RECORDS
from gspo_lab.engines.base import Capabilities, Sink, Stop
from gspo_lab.engines.environments import python_of
from gspo_lab.study import Run, Settings
from gspo_lab.study.schema import obeyed

__all__ = ["ArealEngine"]


class ArealEngine:
    """AReaL 1.0.4: FSDP, vLLM for sampling, its own scheduler for processes."""

    capabilities = Capabilities(settings=obeyed("areal"), records=RECORDS, turns=False)

    def __init__(self, *, scheduler: str = "local", processes: int = 1) -> None:
        self.options = Options(scheduler=scheduler, processes=processes)

    def check(self, settings: Settings) -> None:
        """LabError for what AReaL would refuse, ignore or change."""
        self.options.check()
        check_settings(settings)

    def ready(self) -> None:
        """LabError where AReaL's environment was not made."""
        python_of("areal")

    def write(self, run: Run, folder: Path) -> list[str]:
        """Write what AReaL would be given; its command. Nothing is run."""
        from gspo_lab.engines.areal.prepare import prepare

        on_gpu = run.settings.device == "cuda"
        return prepare(run, self.options, folder.resolve(), on_gpu=on_gpu).command

    def train(self, run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
        """Train the run from where its folder stands."""
        from gspo_lab.engines.areal.training import train

        return train(run, self.options, sink, folder.resolve(), stop)
