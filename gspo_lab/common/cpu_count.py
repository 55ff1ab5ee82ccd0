"""The number of CPU cores that this process may use."""

import os
from contextlib import suppress
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores(quota_file: Path = QUOTA) -> int:
    """CPU cores that this process may use: its affinity, and a container's quota where there is
    one.

    The quota is cgroup v2's, "MICROSECONDS PERIOD" in `quota_file`, rounded down to whole cores, at
    least one.
    """
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with suppress(OSError, ValueError):
        quota, period = quota_file.read_text().split()
        allowed = min(
            allowed, max(1, int(quota) // int(period))
        )  # no quota reads "max": a ValueError
    return allowed
