"""Processes, and waiting for a state, never for a time.

How long it takes depends on the machine.
"""

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def until(true: Callable[[], Any], seconds: float = 240.0) -> Any:
    """What `true` returns once it is true; an AssertionError if it does not become so.

    Far above what it takes.
    """
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


def until_said(process: "subprocess.Popen[str]", *words: str) -> str:
    """Read what a process prints until every one of these has stood there.

    Return all that it has printed so far.
    """
    assert process.stdout is not None
    shown = ""
    too_long = threading.Timer(240.0, process.kill)
    too_long.start()
    while not all(word in shown for word in words):
        line = process.stdout.readline()
        assert line, f"ended without all of {words}: {shown}"
        shown += line
    too_long.cancel()
    return shown


def ended(process: "subprocess.Popen[str]", code: int, shown: str = "") -> str:
    """Wait until a process ends with this exit code; what it has `shown`, and all that follows."""
    for text in process.communicate(timeout=240):
        shown += text or ""
    assert process.returncode == code, shown
    return shown


def alive(process: int) -> bool:
    """Whether the process works on.

    One that nobody has waited for is as dead as one that is gone.
    """
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
