"""What goes into the sandbox and what comes out: a program, its limits, how one test of it
ended.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Ending = Literal["finished", "error", "time", "memory", "output", "killed"]

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What one test of a program may use. Whatever it takes beyond that ends it, with all its
    processes.

    `seconds` bounds CPU time (of all processes together) and wall time; time for which the program
    was ready to run and the machine gave it no core is not counted. `memory_bytes` bounds what each
    process adds to the interpreter's address space, and the resident memory of all together.
    `output_bytes` bounds stdout and stderr, each. `processes` counts threads too. `file_bytes`
    bounds every file, and all files together.
    """

    seconds: float = 6.0
    memory_bytes: int = 1024 * MIB
    output_bytes: int = 16 * MIB
    processes: int = 32
    file_bytes: int = 16 * MIB


@dataclass(frozen=True, slots=True)
class Program:
    """Python source, and how it is run.

    Without `function` it is a script: `__main__`, input on stdin, output on stdout. With it, the
    source defines that method of a class `Solution` (or that function); it is called with the JSON
    values of the input, one per line.
    """

    source: str
    function: str | None = None


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """How one test ended. Everything here was taken by the parent after the program and all its
    children were dead.

    | ending | |
    |---|---|
    | finished | it exited by itself with status 0 |
    | error | it exited with another status, or a signal of its own making ended it (`exit_code` is
    then -signal) |
    | time | beyond `seconds` |
    | memory | beyond `memory_bytes`, or beyond the files it may make |
    | output | beyond `output_bytes` on stdout or stderr; what was read until then is kept, of
    stderr the end |
    | killed | ended from outside for none of these reasons (the machine ran out of memory, say),
    twice |

    SIGKILL counts as the program's own making where the kernel ended no process for want of memory
    meanwhile.

    `result` is what the function returned as JSON text in Python's dialect (`NaN`, `Infinity`),
    None without a function or where it returned nothing that JSON can say. `exact` tells whether
    reading `result` gives a value that Python holds equal to the one returned, a tuple at the top
    being taken for a list: False for tuples further in or keys that are no strings.
    """

    ending: Ending
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    seconds_cpu: float
    seconds_wall: float
    result: bytes | None = None
    exact: bool | None = None


GoOn = Callable[[int, ExecutionResult], bool]
"""Asked in the parent after each test with its index and outcome: shall the next one run?"""


class SandboxFailed(RuntimeError):
    """The sandbox itself failed, not the program: such a test is an error row, neither right nor
    wrong.
    """
