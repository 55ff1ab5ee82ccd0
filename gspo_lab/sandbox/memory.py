"""What the kernel says of this machine's memory: how much is left for programs, and whether it ran out."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

CGROUPS = {"": ("/sys/fs/cgroup", "memory.max", "memory.current")}
"""Controllers -> where their groups lie, the files of a group's limit and of its use; "" is the second version."""
CGROUPS["memory"] = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")


def oom_kills() -> int | None:
    """How many processes of this machine the kernel has ended because memory ran out; None where it does not say."""
    try:
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counts["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


def memory_available() -> int:
    """The bytes that programs started here could still have: of the machine, and of each cgroup around this process."""
    with contextlib.suppress(OSError):
        available = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
        return max(0, min([int(available[1]) << 10 if available else 0, *_left_in_cgroups()]))
    return 0


def _left_in_cgroups() -> Iterator[int]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers not in CGROUPS:
                continue
            root, limit, use = CGROUPS[controllers]
            group = Path(root + name)
            for folder in (group, *group.parents):
                # In a container the groups above are not shown. A limit of "max" is no number.
                with contextlib.suppress(OSError, ValueError):
                    yield int((folder / limit).read_text()) - int((folder / use).read_text())
