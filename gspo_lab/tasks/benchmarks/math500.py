"""MATH-500: 500 problems of the MATH test set (arXiv 2305.20050), whose answers are expressions.

math-verify compares them in a process of pebble's, which can be killed. A comparison is bounded by CPU time, so that a
loaded machine changes no verdict, and by wall time far beyond, so that nothing can hang.
"""

import os
import re
import resource
import signal
import threading
import weakref
from importlib import metadata
from multiprocessing import get_context
from typing import Any

from gspo_lab.errors import LabError, require_package
from gspo_lab.registry import one_line_error
from gspo_lab.tasks.base import Defaults, Grade, Problem
from gspo_lab.tasks.benchmarks.datasets import MATH500, find_files
from gspo_lab.tasks.benchmarks.published_benchmark import PROMPT_VERSION, Published, prompt, read_items

VERSION = "0.9.0"
"""The one version whose verdicts are known; verdicts differ between versions."""

CPU_SECONDS = 5
WALL_SECONDS = 60.0
START_SECONDS = 120.0
MEMORY_BYTES = 4 << 30


class Undecided(Exception):
    """The pair cannot be compared within the bounds; the message says which."""


class WorkerFailed(Exception):
    """The comparing process failed for a reason that is not the answer's."""


def check_installed() -> None:
    """LabError where math-verify is absent or of a version whose verdicts are others, or pebble is absent."""
    for package in ("math-verify", "pebble"):
        require_package(package, "bench", "grading of mathematical expressions", package.replace("-", "_"))
    version = metadata.version("math-verify")
    if version != VERSION:
        raise LabError(f"math-verify {version} grades otherwise than {VERSION}: pip install math-verify=={VERSION}")


class Expressions:
    """Compares expressions, one pair at a time; thread-safe. Its process begins with the first pair, again after its
    death, and ends with this object."""

    def __init__(self, *, cpu_seconds: int = CPU_SECONDS, wall_seconds: float = WALL_SECONDS) -> None:
        self._cpu_seconds = cpu_seconds
        self._wall_seconds = wall_seconds
        self._lock = threading.Lock()
        self._pool: Any = None
        self._end: weakref.finalize[..., Expressions] | None = None

    def equal(self, gold: str, answer: str) -> bool:
        """Whether `answer` equals `gold`, both LaTeX without dollars or box.

        Undecided where that cannot be told of this answer; WorkerFailed where it could be told of none.
        """
        with self._lock:
            reply = self._reply(gold, answer)
        if reply == "memory":
            raise Undecided("comparing it takes too much memory")
        if reply == "gold":
            raise WorkerFailed(f"math-verify reads nothing in the reference {gold[:80]!r}")
        return reply == "equal"

    def _reply(self, gold: str, answer: str) -> str:
        from pebble import ProcessExpired, ProcessPool

        if self._pool is None or not self._pool.active:
            check_installed()
            if self._end is not None:
                self._end()
            self._pool = ProcessPool(1, initializer=_prepare, context=get_context("spawn"))
            self._end = weakref.finalize(self, _end, self._pool, os.getpid())
        try:
            asked = self._pool.schedule(compare, (gold, answer, self._cpu_seconds), timeout=self._wall_seconds)
            reply: str = asked.result(self._wall_seconds + START_SECONDS)
            return reply
        except TimeoutError:
            raise WorkerFailed(f"no reply within {self._wall_seconds:g} s; is the machine overloaded?") from None
        except ProcessExpired as error:
            if error.exitcode == -signal.SIGXCPU:
                raise Undecided(f"comparing it takes more than {self._cpu_seconds} s of CPU time") from None
            if error.exitcode in (-signal.SIGSEGV, -signal.SIGABRT):
                raise Undecided("comparing it breaks math-verify") from None
            raise WorkerFailed(f"the comparing process ended with code {error.exitcode}") from None
        except Exception as error:  # math-verify's own, or the process does not begin
            raise WorkerFailed(f"the comparing process failed: {one_line_error(error)}") from error


def _end(pool: Any, owner: int) -> None:
    if os.getpid() == owner:  # a fork must not end its parent's process
        pool.stop()
        pool.join()


def _prepare() -> None:
    """In the process: limit its memory, and drop what math-verify logs."""
    os.setsid()
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    import math_verify  # noqa: F401 - here, so that no pair's time counts it


def compare(gold: str, answer: str, cpu_seconds: int) -> str:
    """In the process: "equal", "differs", "gold" (it parses to nothing), "answer" or "memory".

    The kernel ends the process if this takes more CPU time than allowed.
    """
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig

    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + cpu_seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    boxed = [LatexExtractionConfig(boxed_match_priority=0)]
    try:
        # Its own timeouts are alarms, which a long call in C outlasts: the kernel's limit stands in for them.
        right, stated = (
            parse(f"\\boxed{{{text}}}", extraction_config=boxed, fallback_mode="no_fallback", parsing_timeout=None)
            for text in (gold, answer)
        )
        if not right or not stated:
            return "answer" if right else "gold"
        return "equal" if verify(right, stated, timeout_seconds=None) else "differs"
    except MemoryError:
        return "memory"


SHOWN = 120
LONGEST = 1_000
"""Characters of a box beyond which it is wrong unseen: the longest gold of the 500 has 53."""


_TEXT = re.compile(r"\\(?:text|mbox|mathrm)\s*\{([^{}]*)\}")


class Math500(Published):
    """The last complete box must equal the gold expression, by the same text or by math-verify.

    math-verify is shown the box alone: it would also take numbers from prose, and join boxes that stand together.
    """

    name = "math500"
    grader = f"math-verify-{VERSION}+last-box/1"
    prompt_version = PROMPT_VERSION
    # No paper on GSPO asks it; sampling is Qwen3's when thinking.
    defaults = Defaults(samples=4, temperature=0.6, top_p=0.95, max_tokens=32_768)
    max_tokens = 32_768

    def __init__(self, data: str | None = None) -> None:
        super().__init__(data)
        self.expressions = Expressions()

    def read(self) -> tuple[Problem, ...]:
        """The problems of the file. LabError where packages are missing, or the file is another."""
        check_installed()
        files = find_files(self.name, [self.name], MATH500, self.data)
        items = read_items(self.name, files, MATH500.rows, self.enough)
        for item in items:
            if len(item.gold) > LONGEST or item.gold.count("{") != item.gold.count("}"):
                raise LabError(f"{item.where}: the gold {item.gold!r:.60} is not an expression")
        return tuple(Problem(f"{self.name}-{item.id}", prompt(item.problem), item.gold) for item in items)

    def judged(self, problem: Problem, stated: str) -> Grade:
        """An answer that cannot be compared within the bounds of `Expressions` is wrong; a failure of the grader's own
        (the gold cannot be read, the process cannot be started) is an error."""
        shown = " ".join(stated.split())[:SHOWN]
        if _bare(stated) == _bare(problem.reference):
            return Grade(1.0, True, shown, "the same text as the reference")
        if len(stated) > LONGEST:
            return Grade(0.0, False, shown, f"{len(stated)} characters in the box")
        try:
            equal = self.expressions.equal(problem.reference, stated)
        except Undecided as error:
            return Grade(0.0, False, shown, str(error))
        except WorkerFailed as error:
            return Grade(None, None, shown, error=str(error))
        return Grade(float(equal), equal, shown, "equal to the reference" if equal else "differs")


def _bare(text: str) -> str:
    r"""Without blanks, dollars and a `\text{}` around all of it."""
    text = text.strip().strip("$")
    worded = _TEXT.fullmatch(text)
    return "".join((worded[1] if worded else text).split())
