"""For a program that an engine's worker starts: it ends with that worker, however the worker ends."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # prctl(2)


WORKER = "GSPO_LAB_WORKER"
"""The environment variable that names the worker: it may be gone before this program has read its own imports."""


def end_with_parent() -> None:
    """Have this process told to end when its parent does; whatever it has started must follow it by itself."""
    parent = int(os.environ.get(WORKER, os.getppid()))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the worker is gone")
