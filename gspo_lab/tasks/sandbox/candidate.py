"""What a test's process runs: the candidate's source, as `python solution.py` would, or a call of
its function.

Sent as text into the isolated process beside `supervisor.py`; see there. Everything here lies in
the candidate's own process and could be changed by it: nothing here may be relied on, and nothing
here knows what is expected.
"""

# The streams live as long as the process.
# ruff: noqa: SIM115

from __future__ import annotations

import atexit
import builtins
import gc
import json
import os
import sys
import types
from typing import Any

RESULT = 3

STARS = [
    "string",
    "re",
    "datetime",
    "collections",
    "heapq",
    "bisect",
    "copy",
    "math",
    "random",
    "statistics",
    "itertools",
    "functools",
    "operator",
    "io",
    "sys",
    "json",
]
"""LiveCodeBench's runner imports these ahead of every program with a star, then by name; programs
rely on it.
"""
RECURSION = 50_000
INTEGER_DIGITS = 50_000


def prelude() -> None:
    """Gives every program the names it may rely on: among the builtins, so that its own names start
    empty.
    """
    names: dict[str, Any] = {}
    lines = [f"from {module} import *" for module in [*STARS, "builtins", "typing"]]
    exec("\n".join(lines + [f"import {module}" for module in STARS]), names)
    del names["__builtins__"]
    vars(builtins).update(names)
    sys.setrecursionlimit(RECURSION)
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(INTEGER_DIGITS)


def share_memory_by_files(folder: str, *, imported: bool) -> None:
    """Has memory that processes may share made of files without names in `folder`, where the
    sandbox counts it.

    The system's own, `mmap` without a file and `memfd_create`, is refused there. Where `imported`,
    the module mmap is imported for it: that takes some time.
    """

    def memfd_create(name: str, flags: int = os.MFD_CLOEXEC) -> int:
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        os.set_inheritable(file, not flags & os.MFD_CLOEXEC)
        return file

    os.memfd_create = memfd_create
    if not imported:
        return
    import mmap as system

    class mmap(system.mmap):
        def __new__(
            cls: Any,
            fileno: int,
            length: int,
            flags: int = system.MAP_SHARED,
            *more: Any,
            **named: Any,
        ) -> Any:
            access = named.get("access", more[1] if len(more) > 1 else system.ACCESS_DEFAULT)
            if (
                fileno != -1
                or length <= 0
                or flags & system.MAP_PRIVATE
                or access == system.ACCESS_COPY
            ):
                return super().__new__(cls, fileno, length, flags, *more, **named)
            file = memfd_create("mmap")
            try:
                os.truncate(file, length)
                return super().__new__(
                    cls, file, length, flags & ~system.MAP_ANONYMOUS, *more, **named
                )
            finally:
                os.close(file)

    vars(system)["mmap"] = mmap


def run(source: str, function: str | None) -> int:
    """Runs the program as `python solution.py` would, to the end of its threads and exit functions;
    its exit status.
    """
    streams = {
        "stdin": open(0, encoding="utf-8", errors="surrogateescape", newline="\n", closefd=False),
        "stdout": open(
            1, "w", encoding="utf-8", errors="surrogateescape", newline="\n", closefd=False
        ),
        "stderr": open(
            2, "w", encoding="utf-8", errors="backslashreplace", newline="\n", closefd=False
        ),
    }
    vars(sys).update(
        streams, **{f"__{name}__": stream for name, stream in streams.items()}, argv=["solution.py"]
    )
    vars(builtins).update(streams)  # as `from sys import *` would
    module = types.ModuleType("solution" if function else "__main__")
    sys.modules[module.__name__] = module
    names = vars(module)
    names.update(__builtins__=builtins, __file__="solution.py")
    status = guarded(
        lambda: answer(source, function, names) if function else execute(source, names)
    )
    guarded(lambda: finish(names))
    return status if flushed() else status or 120


def flushed() -> bool:
    """Whether stdout and stderr took all that was written."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except (OSError, ValueError, AttributeError):
        return False
    return True


def execute(source: str, names: dict[str, Any]) -> None:
    """Execute the source with these names as its globals."""
    exec(compile(source, "solution.py", "exec", dont_inherit=True), names)


def answer(source: str, function: str, names: dict[str, Any]) -> None:
    """Calls the function with the input's JSON values and writes what it returns as JSON text.

    All of it happens in the candidate's process, so the candidate can write any text: it could as
    well have returned that value. What it cannot do is know the expected one.
    """
    arguments = [json.loads(line) for line in sys.stdin.read().split("\n") if line.strip()]
    execute(source, names)
    target = getattr(names["Solution"](), function, None) if "Solution" in names else None
    if target is None:
        target = names[function]
    value = target(*arguments)
    value = list(value) if isinstance(value, tuple) else value
    try:
        text = json.dumps(value, default=plain)
        exact = bool(json.loads(text) == value)
    except (TypeError, ValueError, RecursionError) as error:
        sys.stderr.write(f"{function} returned what JSON cannot say: {error}\n")
        return
    with open(RESULT, "w", encoding="ascii") as file:
        file.write(f"{int(exact)}{text}")


def plain(value: Any) -> Any:
    """A number of numpy's as Python's."""
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not plain data")


def finish(names: dict[str, Any]) -> None:
    """What the interpreter does after a program's last line: files that were left open are flushed
    as they go.
    """
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    flushed()
    for name in list(names):
        if name != "__builtins__":
            names[name] = None
    gc.collect()
    sys.stdout = sys.__stdout__


def guarded(body: Any) -> int:
    """The exit status of a body that may raise or exit; a traceback goes to stderr."""
    try:
        body()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 1
    return 0
