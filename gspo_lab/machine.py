"""What this machine lends to the process."""

import os
from contextlib import suppress
from pathlib import Path


def cores() -> int:
    """CPU cores that this process may use: its affinity, and a container's quota where there is one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        allowed = min(allowed, max(1, int(quota) // int(period)))  # no quota reads "max": a ValueError
    return allowed
