"""What a worker finds out about itself and its start: recorded, so that two runs can be shown to be matched."""

import hashlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import torch

import gspo_lab
from gspo_lab.models.load import chat_template_digest, tokenizer_digest, weights_digest
from gspo_lab.models.lora import is_adapted
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


def facts(model: Any, tokenizer: Any, task: Task, keys: dict[str, str], device: torch.device) -> dict[str, Any]:
    """Versions, device, numerics flags and digests, JSON-able. `keys` identify the tasks, their data included."""
    packages = (*PACKAGES, "peft") if is_adapted(model) else PACKAGES
    return {
        "gspo_lab": gspo_lab.__version__,
        "code": _sources_digest(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
        "threads": torch.get_num_threads(),
        "flags": {name: os.environ[name] for name in FLAGS if name in os.environ},
        "weights": weights_digest(model),
        "tokenizer": tokenizer_digest(tokenizer),
        "chat_template": chat_template_digest(tokenizer),
        "grader": task.grader,
        "tasks": keys,
        "pad_token": tokenizer.pad_token,
        "pad_is_eos": tokenizer.pad_token_id == tokenizer.eos_token_id,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }


def _sources_digest() -> str:
    """sha256 over the package's own source files: the code that runs, committed or not."""
    package = Path(gspo_lab.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
