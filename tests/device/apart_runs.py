"""Whole runs of the native engine on "apart", a device with memory of its own, and on the CPU.

    python apart_runs.py LIBRARY FOLDER       prints the losses of all updates on both, as JSON

LIBRARY is apart.cpp, compiled. Its kernels are the CPU's, on copies; a tensor that lies elsewhere is refused, as on a
GPU. The runs lie in FOLDER.
"""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.utils.backend_registration
from lottery import GRADER, STUDY, train
from torch.nn.attention import SDPBackend, sdpa_kernel

from gspo_lab.engines.native import setup
from gspo_lab.study import load_study

CASES: dict[str, tuple[str, ...]] = {
    "dense": ("gspo",),
    "experts": ("gspo", "model=tiny-qwen3-moe"),
    "replay": ("grpo", "model=tiny-qwen3-moe", "routing_replay=old-policy"),
    "rollout-replay": ("grpo", "model=tiny-qwen3-moe", "routing_replay=rollout"),
    "adapters": ("gspo", "update.lora_rank=4", "update.lora_alpha=8"),
    "kl": ("gspo", "objective.kl_coef=0.1"),
    "critic": ("grpo", "objective.advantage=gae"),
    "stale": ("gspo", "rollout.staleness=1"),
}
"""The arm, and what is changed of the study."""


def register(library: str) -> None:
    """Make torch know the device by its name."""
    torch.ops.load_library(library)
    torch.utils.backend_registration.rename_privateuse1_backend("apart")
    module: Any = ModuleType("torch.apart")
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = module.set_device = lambda _: None
    torch._register_device_module("apart", module)
    torch.utils.backend_registration.generate_methods_for_privateuse1_backend()


def losses(case: str, device: str, folder: Path) -> list[float]:
    arm, *changes = CASES[case]
    run = next(run for run in load_study(folder / "study.toml", overrides=changes, seeds=[0]).runs() if run.arm == arm)
    vars(setup)["_device"] = lambda _: torch.device(device)  # a study can only say cpu, cuda or auto
    with sdpa_kernel(SDPBackend.MATH):  # the attention of any device
        return [update.loss for update in train(run, folder / f"{case}-{device}").updates]


if __name__ == "__main__":
    register(sys.argv[1])
    folder = Path(sys.argv[2])
    (folder / "lottery.py").write_text(GRADER)
    prompts = [{"prompt": "?" * (1 + i % 5) + chr(97 + i), "reference": ""} for i in range(24)]
    (folder / "problems.jsonl").write_text("\n".join(json.dumps(p) for p in prompts))
    (folder / "study.toml").write_text(STUDY)
    print(json.dumps({case: [losses(case, device, folder) for device in ("cpu", "apart")] for case in CASES}))
