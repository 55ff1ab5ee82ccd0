"""MATH-500: 500 problems of the MATH test set (arXiv 2305.20050), whose answers are expressions.

Numbers are compared as for AIME and GSM8K, everything else by math-verify. What is done here to
what it reads, and after it, is in docs/reference/benchmarks.md.

math-verify runs in a process of its own that can be killed. A comparison is bounded by CPU time, so
that a loaded machine changes no verdict, and by wall time far beyond, so that nothing can hang.
"""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import weakref
from importlib import metadata
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.tasks.base import Defaults, Grade, Problem
from gspo_lab.tasks.benchmarks.datasets import MATH500, find_files
from gspo_lab.tasks.benchmarks.final_answers import plain_characters, read_number
from gspo_lab.tasks.benchmarks.published_benchmark import (
    PROMPT_VERSION,
    Published,
    prompt,
    read_items,
    shortened,
)

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
    """LabError where math-verify is absent or of a version whose verdicts are others."""
    require_package("math-verify", "bench", "grading of mathematical expressions", "math_verify")
    version = metadata.version("math-verify")
    if version != VERSION:
        raise LabError(
            f"math-verify {version} grades otherwise than {VERSION}: pip install"
            f" math-verify=={VERSION}"
        )


class Expressions:
    """Compares expressions; thread-safe, one pair at a time.

    The process ends with this object, or with its parent.
    """

    def __init__(
        self, *, cpu_seconds: int = CPU_SECONDS, wall_seconds: float = WALL_SECONDS
    ) -> None:
        self._cpu_seconds = cpu_seconds
        self._wall_seconds = wall_seconds
        self._lock = threading.Lock()
        self._owner = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection
        self._ender: weakref.finalize[[subprocess.Popen[bytes], Connection], Expressions]

    def equal(self, gold: str, answer: str) -> bool:
        """Whether `answer` equals `gold`, both LaTeX without dollars or box.

        Undecided where that cannot be told of this answer; WorkerFailed where it could be told of
        none.
        """
        with self._lock:
            if self._owner != os.getpid() and self._process is not None:
                self._ender.detach()  # a forked child must not end its parent's process
                self._process = None
            if self._process is None or self._process.poll() is not None:
                self._end()
                self._start()
            reply = self._exchange([gold, answer], self._wall_seconds)
        if reply == "memory":
            raise Undecided("comparing it takes too much memory")
        if reply == "gold":
            raise WorkerFailed(f"math-verify reads nothing in the reference {gold[:80]!r}")
        return reply == "equal"

    def close(self) -> None:
        """End the process, if there is one; it is started again when it is needed."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        check_installed()
        self._connection, worker_end = Pipe()
        command = [sys.executable, "-m", __name__, str(self._cpu_seconds), str(worker_end.fileno())]
        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command,
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            pass_fds=[worker_end.fileno()],
            start_new_session=True,
        )
        worker_end.close()
        self._owner = os.getpid()
        self._ender = weakref.finalize(self, _end_process, self._process, self._connection)
        if self._exchange(None, START_SECONDS) != "ready":
            raise WorkerFailed("the comparing process did not begin as it should")

    def _exchange(self, pair: list[str] | None, seconds: float) -> str:
        """The reply to a pair, or the first message; the process is ended where there is none in
        time.
        """
        try:
            if pair is not None:
                self._connection.send_bytes(json.dumps(pair).encode())
            if not self._connection.poll(seconds):
                raise WorkerFailed(f"no reply within {seconds:g} s; is the machine overloaded?")
            return str(json.loads(self._connection.recv_bytes()))
        except (EOFError, OSError):
            code = self._end(patience=10.0)  # it has closed its end: it is dying of its own
            if pair and code == -signal.SIGXCPU:
                raise Undecided(
                    f"comparing it takes more than {self._cpu_seconds} s of CPU time"
                ) from None
            if pair and code in (-signal.SIGSEGV, -signal.SIGABRT):
                raise Undecided("comparing it breaks math-verify") from None
            raise WorkerFailed(f"the comparing process ended with code {code}") from None
        except (
            BaseException
        ):  # an interrupt between question and reply would shift all later replies by one
            self._end()
            raise

    def _end(self, patience: float = 0.0) -> int | None:
        process = self._process
        self._process = None
        if process is None:
            return None
        self._ender.detach()
        return _end_process(process, self._connection, patience)


def _end_process(
    process: "subprocess.Popen[bytes]", connection: Connection, patience: float = 0.0
) -> int:
    """End the process, at once unless it is given time to end by itself; its exit code."""
    try:
        code = process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    connection.close()
    return code


def compare_pairs(cpu_seconds: int, connection: Connection) -> None:
    """What the process does: says "ready", then takes `["gold", "answer"]` and gives "equal",
    "differs", "gold" (it parses to nothing), "answer" or "memory". The kernel ends it where one
    pair takes more CPU time than allowed.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig

    boxed = [LatexExtractionConfig(boxed_match_priority=0)]

    def read(text: str) -> list[Any]:
        # Its own timeouts are alarms, which a long call in C outlasts: the kernel's limit stands in
        # for them.
        expressions: list[Any] = parse(
            f"\\boxed{{{rewritten(text)}}}",
            extraction_config=boxed,
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
        return expressions

    def compared(gold: str, answer: str) -> str:
        try:
            right = read(gold)
            if not right:
                return "gold"
            answered = read(answer)
            if not answered:
                return "answer"
            if same_set(right[0], answered[0]):
                return "equal"
            if not verify(right, answered, timeout_seconds=None):
                return "differs"
            percent = "%" in gold + answer
            return "equal" if percent or close(right[0], answered[0]) else "differs"
        except MemoryError:
            return "memory"

    reply = "ready"
    while True:
        connection.send_bytes(json.dumps(reply).encode())
        pair = json.loads(connection.recv_bytes())
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + cpu_seconds + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        reply = compared(*pair)


RAISED = {
    "([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)": r"^{\1}",
    "([₀₁₂₃₄₅₆₇₈₉]+)": r"_{\1}",
    "([¼-¾⅐-⅞])": r" \1",
}
"""Raised and lowered digits and fractions, which NFKC would set beside the others: 252 of 25²."""
REWRITTEN = {
    r"(\.[0-9]*?)([0-9])\2+(?:\\[lc]?dots|\.\.\.)": r"\1\2\2\2\2\2\2\2\2\2\2",
    r"\*\*|`|\\!|[\s.,;\\]+$|^['\"]|['\"]$": "",
    r"\\varnothing|\\text\{\s*(?:no (?:real )?solutions?|empty set)\s*\}": r"\\emptyset",
    r"\\mathrm\{\s*([a-zA-Z])\s*\}": r"\1",
    r"\\text(?:bf|it|rm|sf|tt|sc)\b": r"\\text",
    r"^([A-Z])\)$": r"\1",
    r"\\sqrt\(([^()]*)\)|√\s*(?:\(([^()]*)\)|([0-9]+|[a-z]))": r"\\sqrt{\1\2\3}",
    "∞": r"\\infty ",
    "[·⋅]": r"\\cdot ",
    r"^\\text\{[^{}]*(?:\bis|:|=)\s*\}": "",
    "([0-9]+)⁄([0-9]+)": r"\\frac{\1}{\2}",
    "^([0-9]+) ([0-9]+)/([0-9]+)$": r"\1\\frac{\2}{\3}",
    r"^(-?[0-9.]+)[eE]\+?(-?[0-9]+)$": r"\1\\cdot10^{\2}",
    r"\\log_(?:e|\{e\})": r"\\ln",
    r"\\langle(.*)\\rangle": r"(\1)",
    r"([0-9]+)\.([0-9]*)\\(?:overline|bar)\{([0-9]+)\}": r"\1.\2\3\3\3\3\3\3\3\3\3\3",
    r"\\(?:left)?\\?\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\\mid|\||:)(.*?)"
    r"(?:\\right)?\\\}": r"\1",
}
"""What math-verify does not read, and what it reads instead: stars of Markdown, a dot at the end,
signs of Unicode, `3e8`, repeating decimals to ten places, sets given by a condition.
"""
CLOSE = 2e-6
"""Numbers that math-verify calls equal differ by at most this share: it rounds to six places, so
that it takes any two tiny numbers for equal.
"""


def rewritten(text: str) -> str:
    """The LaTeX in forms that math-verify reads."""
    for pattern, replacement in RAISED.items():
        text = re.sub(pattern, replacement, text)
    text = plain_characters(text)
    for pattern, replacement in REWRITTEN.items():
        text = re.sub(pattern, replacement, text)
    return text


def same_set(gold: Any, answer: Any) -> bool:
    """Whether one is a set of numbers and the other the inequalities of one variable that state it.

    math-verify accepts an interval for an inequality, and not the reverse.
    """
    gold_set = _as_set(gold)
    answer_set = _as_set(answer)
    return gold_set is not None and gold_set == answer_set and type(gold) is not type(answer)


def _as_set(expression: Any) -> Any:
    """The numbers that a set or inequalities of one variable name; None for anything else."""
    from sympy import And, FiniteSet, Or, Set
    from sympy.core.relational import Relational

    if isinstance(expression, FiniteSet):
        conditions = list(expression)
        if not all(isinstance(condition, Relational | And) for condition in conditions):
            return None
        expression = Or(*conditions)
    if isinstance(expression, Set):
        return expression
    if not isinstance(expression, Relational | And | Or) or len(expression.free_symbols) != 1:
        return None
    try:
        return expression.as_set()
    except MemoryError:
        raise
    except Exception:  # sympy raises many kinds for what it cannot solve
        return None


def close(gold: Any, answer: Any) -> bool:
    """Whether no number within the two differs by more than a share of `CLOSE`.

    What has no value, or another form, is left to math-verify.
    """
    from sympy import Basic

    if not isinstance(gold, Basic) or not isinstance(answer, Basic):
        return True
    if gold.is_number and answer.is_number:
        return _close_numbers(gold, answer)
    gold_parts = gold.args
    if type(gold) is not type(answer) or len(gold_parts) != len(answer.args) or gold.free_symbols:
        return True
    return all(close(*pair) for pair in zip(gold_parts, answer.args, strict=True))


def _close_numbers(gold: Any, answer: Any) -> bool:
    try:
        difference = abs((gold - answer).evalf(20))
        largest = max(abs(gold.evalf(20)), abs(answer.evalf(20)))
        return bool(difference <= CLOSE * largest)
    except MemoryError:
        raise
    except Exception:  # sympy raises many kinds for what has no value, as an infinity
        return True


_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|sc)?|mbox|math(?:bf|rm))\s*\{\s*(?:an? |the )?([^{}]*)\}\.?"
)
_NO_LETTERS = re.compile(r"\\(?:text|mbox|mathrm|operatorname)\s*\{[^{}]*\}|\\[a-zA-Z]+")


def other_case(gold: str, answer: str) -> bool:
    """Whether a letter is capital in one expression and small in the other: `3R^2` and `3r^2`.

    A word alone has no case: `(C)` and `c` are one choice.
    """
    gold_letters = set(re.findall("[a-zA-Z]", _NO_LETTERS.sub(" ", gold)))
    answer_letters = set(re.findall("[a-zA-Z]", _NO_LETTERS.sub(" ", answer)))
    if re.fullmatch(r"\W*[a-zA-Z]+\W*", gold):
        return False
    differing = gold_letters ^ answer_letters
    return not {letter.swapcase() for letter in differing}.isdisjoint(gold_letters | answer_letters)


MAX_CHARACTERS = 1_000
"""A longer box is wrong unseen: the longest gold of the 500 has 53."""


class Math500(Published):
    """The last complete box must equal the gold expression, by the same text or by math-verify.

    math-verify is shown the box alone: it would also take numbers from prose, and join boxes that
    stand together.
    """

    name = "math500"
    grader = f"math-verify-{VERSION}+last-box/4"
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
            if len(item.gold) > MAX_CHARACTERS or item.gold.count("{") != item.gold.count("}"):
                raise LabError(f"{item.where}: the gold {item.gold!r:.60} is not an expression")
        return tuple(
            Problem(f"{self.name}-{item.id}", prompt(item.problem), item.gold) for item in items
        )

    def grade_stated(self, problem: Problem, extracted: str) -> Grade:
        """An answer that cannot be compared within the bounds of `Expressions` is wrong; a failure
        of the grader's own (the gold cannot be read, the process cannot be started) is an error."""
        recorded = shortened(extracted)
        if _bare(extracted) == _bare(problem.reference):
            return Grade(1.0, True, recorded, "the same text as the reference")
        if len(extracted) > MAX_CHARACTERS:
            return Grade(0.0, False, recorded, f"{len(extracted)} characters in the box")
        equal = _equal_numbers(problem.reference, extracted)
        try:
            if equal is None:
                equal = not other_case(problem.reference, extracted) and self.expressions.equal(
                    problem.reference, extracted
                )
        except Undecided as error:
            return Grade(0.0, False, recorded, str(error))
        except WorkerFailed as error:
            return Grade(None, None, recorded, error=str(error))
        reason = "equal to the reference" if equal else "differs"
        return Grade(float(equal), equal, recorded, reason)


def _equal_numbers(gold: str, answer: str) -> bool | None:
    """Whether two plain numbers are equal; None where math-verify compares them.

    It compares unequal ones, because it allows for rounding and for per cent, but not those with a
    word that multiplies, which it leaves out.
    """
    gold_number = read_number(gold)
    number = read_number(answer)
    if gold_number is None or number is None:
        return None
    if gold_number.value == number.value:
        return True
    return False if number.scaled or gold_number.scaled else None


def _bare(text: str) -> str:
    r"""Without blanks but those between digits, dollars, and a `\text{}` around all of it."""
    text = text.strip().strip("$")
    worded = _TEXT.fullmatch(text)
    return re.sub(r"\s+(?![0-9])|(?<![0-9])\s+", "", worded[1] if worded else text)


if __name__ == "__main__":
    with contextlib.suppress(EOFError):
        compare_pairs(int(sys.argv[1]), Connection(int(sys.argv[2])))
