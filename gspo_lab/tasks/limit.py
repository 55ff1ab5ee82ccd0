"""A time limit on a user's own code, in the process that it runs in."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_SECONDS = 1.0
"""How often code is interrupted that goes on all the same."""


class TooLong(BaseException):
    """The limit is over. No Exception, so that the code's own `except Exception` does not stop it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TooLong in the block after `seconds` by the clock. Python is interrupted wherever it waits, sleeps or computes; C
    that never comes back is not, nor is another thread than the first, which alone hears signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGALRM, _over)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # once more, for the signal may come in between
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)


def _over(_number: int, _frame: FrameType | None) -> None:
    raise TooLong
