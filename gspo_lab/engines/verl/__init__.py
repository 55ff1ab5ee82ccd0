"""The engine `verl`: a run on verl's trainer, in an environment of its own (docs/reference/engines.md).

    run ── prompts, configuration ──> verl/attempt-n/ ── verl's command ──> its log, answers, updates ──> records

The lab talks to it through that folder, that command and that log; `inside/` is what verl's own processes import of it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gspo_lab.engines.base import Capabilities, Sink, Stop
from gspo_lab.engines.environments import python_of
from gspo_lab.engines.verl.options import Options, check_here, check_settings
from gspo_lab.engines.verl.records import RECORDS
from gspo_lab.study import Run, Settings
from gspo_lab.study.schema import obeyed

__all__ = ["VerlEngine"]


class VerlEngine:
    """verl 0.9.1: FSDP2 or Megatron, vLLM for sampling, one rollout batch at a time."""

    capabilities = Capabilities(settings=obeyed("verl"), records=RECORDS, turns=False)

    def __init__(
        self,
        *,
        backend: str = "fsdp2",
        processes: int = 1,
        machines: int = 1,
        tensor_parallel: int = 1,
        ray: str = "local",
        set: Mapping[str, Any] | None = None,
    ) -> None:
        self.options = Options(
            backend=backend,
            processes=processes,
            machines=machines,
            tensor_parallel=tensor_parallel,
            ray=ray,
            set=set or {},
        )

    def check(self, settings: Settings) -> None:
        """LabError for what verl would refuse, ignore or change."""
        self.options.check()
        check_settings(settings, self.options)

    def ready(self) -> None:
        """LabError where verl's environment was not made, or nobody listens at the cluster's address."""
        check_here(self.options, on_gpu=False)
        python_of("verl")

    def write(self, run: Run, folder: Path) -> list[str]:
        """Write what verl would be given to train the run from its beginning; its command. Nothing is run.

        With `device = "cuda"` it is what a machine with GPUs would be given, wherever this is called.
        """
        from gspo_lab.engines.verl.prepare import prepare

        on_gpu = run.settings.device == "cuda"
        return prepare(run, self.options, folder.resolve(), on_gpu=on_gpu).command

    def train(self, run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
        """Train the run from where its folder stands."""
        from gspo_lab.engines.verl.training import Training

        return Training(run, self.options, sink, folder.resolve()).train(stop)
