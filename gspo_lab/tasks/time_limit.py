"""A limit by the clock for a user's function, which may hang."""

import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

AGAIN_SECONDS = 1.0
"""How often code is interrupted that goes on all the same."""


class TooLong(BaseException):
    """The limit is over.

    No Exception, so that the code's own `except Exception` does not stop it.
    """


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """The result of `call`. TooLong after `seconds`.

    In the main thread a signal interrupts Python wherever it waits, sleeps or computes, but not a C
    function. Signals reach no other thread. There a helper thread, the same for all calls of a
    thread, makes the call, and is abandoned after `seconds`.
    """
    if threading.current_thread() is threading.main_thread():
        with _alarm(seconds):
            return call()
    if getattr(_helper, "thread", None) is None:
        _helper.calls = SimpleQueue()
        _helper.thread = threading.Thread(target=_make_calls, args=(_helper.calls,), daemon=True)
        _helper.thread.start()
    future: Future[T] = Future()
    _helper.calls.put((call, future))
    wait([future], seconds)
    if future.done():
        return future.result()
    thread = _helper.thread
    _helper.thread = None
    # End at least Python code that computes: it would slow down everything else.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(TooLong)
    )
    raise TooLong


_helper = threading.local()


def _make_calls(calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]]) -> None:
    while True:
        call, future = calls.get()
        try:
            future.set_result(call())
        except TooLong:
            return
        except BaseException as error:
            future.set_exception(error)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    previous = signal.signal(signal.SIGALRM, _raise_too_long)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # once more, for the signal may come in between
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)


def _raise_too_long(_number: int, _frame: FrameType | None) -> None:
    raise TooLong
