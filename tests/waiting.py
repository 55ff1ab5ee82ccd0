"""Waiting for a state, never for a time: how long it takes is the machine's affair."""

import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], seconds: float = 240.0) -> Any:
    """What `true` returns once it is true; an AssertionError if it does not become so. Far above what it takes."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found
