"""A platform of verl's without any accelerator, and three repairs that a CPU needs. verl 0.9 speaks
to a device's module; here that is one device without a memory of its own. Ray counts one "GPU" per
training process.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import shared_memory
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _no_bytes(*_: Any) -> int:
    return 0


device = ModuleType("gspo_lab_cpu_device")
vars(device).update(
    is_available=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: torch.device("cpu"),
    get_device_name=lambda *_: "cpu",
    is_bf16_supported=lambda *_: True,
    mem_get_info=lambda *_: (8 << 30, 16 << 30),
    manual_seed=torch.manual_seed,
    manual_seed_all=torch.manual_seed,
    get_rng_state=lambda *_: torch.get_rng_state(),
    set_rng_state=lambda state, *_: torch.set_rng_state(state),
    Stream=torch.cpu.Stream,
    current_stream=lambda *_: torch.cpu.current_stream(),
    amp=torch.amp,
    **dict.fromkeys(
        ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"),
        _nothing,
    ),
    **dict.fromkeys(
        ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"),
        _no_bytes,
    ),
)


@PlatformRegistry.register(platform="cpu")
class _Cpu(PlatformBase):  # type: ignore[misc]
    """One device, of which a process needs no allocator, no streams and no profiler."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = device

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:  # which is CUDA's
        return None, None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed
    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "GSPO_LAB_VISIBLE_CPUS"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def ray_resource_name(self) -> str:
        """The resource by which Ray counts training processes."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def ray_resource_options(self, num_gpus: float) -> dict[str, Any]:
        return {"num_gpus": num_gpus}

    def is_ipc_supported(self) -> bool:
        return False


def _gloo_once() -> None:
    """verl asks for one backend on the CPU and one on the device: where these are the same, torch
    wants it once.
    """
    begin = torch.distributed.init_process_group

    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return begin("cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group


def _close_shared_memory_late() -> None:
    """Weights are handed over in shared memory. Moved to a CPU they are still views of it, and
    closing it raises; it is freed with its process."""
    close = shared_memory.SharedMemory.close

    def close_unless_seen(memory: shared_memory.SharedMemory) -> None:
        try:
            close(memory)
        except BufferError:
            return

    shared_memory.SharedMemory.close = close_unless_seen  # type: ignore[method-assign, assignment]


def _keep_vllms_weights() -> None:
    """vLLM repacks the weights of linear layers for oneDNN and drops the originals, into which no
    later push could be loaded: its own processes import verl after vLLM."""
    if "vllm" in sys.modules:
        import vllm._custom_ops as operations

        operations._supports_onednn = False


_gloo_once()
_close_shared_memory_late()
_keep_vllms_weights()
