"""The engine `verl`: a run on verl's trainer. `plugin/` is what verl's own processes import."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gspo_lab.engines.base import Capabilities
from gspo_lab.engines.external.attempt import PreparedAttempt
from gspo_lab.engines.external.engine import ExternalEngine
from gspo_lab.engines.external.records import DIGESTS, FROM_ANSWERS, MEASURED
from gspo_lab.engines.verl.config import CHECKPOINTS, STEP, VerlOptions, configure
from gspo_lab.study import Run
from gspo_lab.study.schema import obeyed

RECORDS = {
    **FROM_ANSWERS,
    **MEASURED,
    **dict.fromkeys(("loss", "seconds_old_logprobs", "seconds_update", "seconds_step"), ""),
    **DIGESTS,
    "entropy": "verl's actor/entropy: aggregated as objective.aggregation says, not over all tokens alike",
    "mismatch_k1": "",
    "mismatch_k3": "",
    "seconds_rollout": "sampling and grading, which go on side by side",
    "evaluated_responses": "all responses: verl evaluates those with A = 0 too",
}


class VerlEngine(VerlOptions, ExternalEngine):
    """verl 0.9.1: FSDP2 or Megatron, vLLM for sampling, one rollout batch at a time."""

    name, program, starts = "verl", "verl", "Ray, model, vLLM"
    packages = ("verl", "vllm", "torch", "transformers", "tokenizers", "numpy", "ray")
    capabilities = Capabilities(settings=obeyed("verl"), records=RECORDS, turns=False)

    def ready(self) -> None:
        """LabError where verl's environment was not made, or nobody listens at the cluster's address."""
        self.check_here(on_gpu=False)
        super().ready()

    def configure(self, prepared: PreparedAttempt) -> tuple[list[str], dict[str, str]]:
        """Prompts as verl reads them, and its configuration as words of its command line."""
        return configure(prepared, self)

    def saved_steps(self, home: Path, run: Run, recorded: int) -> int:
        """verl saves a step's checkpoint before it tells of the step: the last one may be of a step too many."""
        saved = {int(path.name.removeprefix(STEP)): path for path in (home / CHECKPOINTS).glob(f"{STEP}*")}
        whole = [step for step, path in saved.items() if step <= recorded and (path / "data.pt").exists()]
        last = max(whole, default=0)
        for step, path in saved.items():
            if step != last:
                shutil.rmtree(path)
        return last

    def model_after(self, home: Path, run: Run, step: int) -> Path:
        """The Hugging Face folder beside verl's checkpoint."""
        return home / CHECKPOINTS / f"{STEP}{step}" / "actor" / "huggingface"

    def step_of(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """`data` is that of verl's file logger. The time of a checkpoint is no part of the step's."""
        return {
            "seconds_step": float(data["timing_s/step"]) - float(data.get("timing_s/save_checkpoint", 0.0)),
            "seconds_rollout": data.get("timing_s/gen"),
            "seconds_old_logprobs": data.get("timing_s/old_log_prob"),
            "seconds_update": data.get("timing_s/update_actor"),
            "entropy": data.get("actor/entropy"),
            "mismatch_k1": data.get("rollout_corr/kl"),
            "mismatch_k3": data.get("rollout_corr/k3_kl"),
        }
