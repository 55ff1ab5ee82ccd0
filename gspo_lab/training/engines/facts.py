"""What a worker finds out about itself and its start: recorded, so that two runs can be shown to be
matched.

`gspo-lab certify` compares these facts between arms. Any engine may call `facts` and put what it
knows besides into the same dictionary, under the same names:
`sink.write([RunStatus(state="started", step=0, facts=facts(task=task))])`.
"""

import hashlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gspo_lab
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.tasks.base import Task
from gspo_lab.training.engines.base import Capabilities

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "transformers", "tokenizers", "numpy")
FLAGS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "PYTHONHASHSEED",
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "VLLM_BATCH_INVARIANT",
)


def facts(
    *,
    model: Any = None,
    tokenizer: Any = None,
    task: Task | None = None,
    task_keys: dict[str, str] | None = None,
    device: "torch.device | None" = None,
    capabilities: Capabilities | None = None,
    packages: Sequence[str] = (),
) -> JsonObject:
    """Versions, device, flags and digests, JSON-able; what is not given is left out. `task_keys`
    identify the tasks with their data, `capabilities` tell columns with other definitions,
    `packages` compute beside the lab's own.
    """
    out: JsonObject = {
        "gspo_lab": gspo_lab.__version__,
        "code": _sources_digest(),
        "packages": _versions(model, packages),
        "python": platform.python_version(),
        "device": _device_name(device),
        "flags": {name: os.environ[name] for name in FLAGS if name in os.environ},
    }
    if model is not None:
        import torch

        from gspo_lab.training.models.load import weights_digest

        out["threads"] = torch.get_num_threads()
        if device is None or device.type == "cpu":
            out["instructions"] = (
                torch.backends.cpu.get_cpu_capability()
            )  # of one CPU's name a host may hide some
        out["weights"] = weights_digest(model)
        out["parameters"] = sum(p.numel() for p in model.parameters())
        out["trained_parameters"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if tokenizer is not None:
        from gspo_lab.training.models.load import chat_template_digest, tokenizer_digest

        out["tokenizer"] = tokenizer_digest(tokenizer)
        out["chat_template"] = chat_template_digest(tokenizer)
        out["pad_token"] = tokenizer.pad_token
        out["pad_is_eos"] = tokenizer.pad_token_id == tokenizer.eos_token_id
    if task is not None:
        out["grader"] = task.grader
    if task_keys is not None:
        out["tasks"] = task_keys
    if capabilities is not None and (
        definitions := {k: v for k, v in (capabilities.records or {}).items() if v}
    ):
        out["definitions"] = definitions
    return out


def _versions(model: Any, packages: Sequence[str]) -> dict[str, str]:
    """The versions of the packages that compute, of `packages`, and of peft where the model has
    adapters.
    """
    names = [*PACKAGES, *packages]
    if model is not None:
        from gspo_lab.training.models.lora import is_adapted

        names += ["peft"] if is_adapted(model) else []
    return {name: importlib.metadata.version(name) for name in names if find_spec(name) is not None}


@cache
def _sources_digest() -> str:
    """sha256 over the package's own source files: the code that runs, committed or not."""
    package = Path(gspo_lab.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(
            path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
        )
    return digest.hexdigest()


def _device_name(device: "torch.device | None") -> str:
    if device is not None and device.type != "cpu":
        import torch

        name_of = getattr(torch.get_device_module(device), "get_device_name", str)
        return str(name_of(device))
    with suppress(OSError):
        if match := re.search(
            r"^model name\s*: *(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        ):
            return match[1].strip()
    return platform.processor() or platform.machine()
