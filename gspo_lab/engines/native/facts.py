"""What a worker finds out about itself and its start: recorded, so that two runs can be shown to be matched."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from gspo_lab import __version__
from gspo_lab.models.load import chat_template_digest, tokenizer_digest, weights_digest
from gspo_lab.tasks.base import Task

PACKAGES = ("torch", "transformers", "tokenizers", "numpy")
FLAGS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "PYTHONHASHSEED",
    "ATEN_CPU_CAPABILITY",
    "VLLM_BATCH_INVARIANT",
)


def facts(model: Any, tokenizer: Any, task: Task, device: torch.device) -> dict[str, Any]:
    """Versions, device, numerics flags and digests, as a JSON-able dictionary."""
    return {
        "gspo_lab": __version__,
        "code": _code_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
        "threads": torch.get_num_threads(),
        "flags": {name: os.environ[name] for name in FLAGS if name in os.environ},
        "weights": weights_digest(model),
        "tokenizer": tokenizer_digest(tokenizer),
        "chat_template": chat_template_digest(tokenizer),
        "grader": task.grader,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def _code_version() -> str | None:
    """The commit that the package runs from, "+" behind it if files were changed; None outside a git checkout."""
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--", str(folder.parents[1]))
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    return commit + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
