"""What is said where a disk does not take a model: torch and safetensors name no file."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from gspo_lab.errors import LabError

MOST_WORDS = 120


@contextmanager
def told_by_name(path: Path, then: str) -> Iterator[None]:
    """LabError where what is written to `path` finds no room; `then` is what starting the study again does."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if isinstance(error, RuntimeError) and "inline_container" not in str(error) and "riter" not in str(error):
            raise
        why = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0][:MOST_WORDS]
        free = shutil.disk_usage(path.parent).free / 2**20
        raise LabError(
            f"{path} cannot be written ({why}; {free:,.0f} MiB are free there): make room and start the study again, "
            f"{then}"
        ) from error
