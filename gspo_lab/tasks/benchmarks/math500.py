"""MATH-500: 500 problems of the MATH test set (arXiv 2305.20050), whose answers are expressions."""

import re

from gspo_lab.errors import LabError
from gspo_lab.tasks.base import Defaults, Grade, Problem
from gspo_lab.tasks.benchmarks import sources
from gspo_lab.tasks.benchmarks.boxed import PROMPT_VERSION, prompt
from gspo_lab.tasks.benchmarks.datasets import find
from gspo_lab.tasks.benchmarks.expressions import VERSION, Expressions, Undecided, WorkerFailed, check_installed
from gspo_lab.tasks.benchmarks.published import Published
from gspo_lab.tasks.benchmarks.rows import read_items

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
        files = find(self.name, [self.name], sources.MATH500, self.data)
        items = read_items(self.name, files, sources.MATH500.rows, self.enough)
        for item in items:
            if len(item.gold) > LONGEST or item.gold.count("{") != item.gold.count("}"):
                raise LabError(f"{item.where}: the gold {item.gold!r:.60} is no expression")
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
