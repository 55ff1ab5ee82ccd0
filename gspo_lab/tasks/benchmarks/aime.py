"""AIME 2024 and 2025: parts I and II, 30 problems each, whose answers are whole numbers from 0 to 999."""

from gspo_lab.errors import LabError
from gspo_lab.tasks.base import Defaults, Grade, Problem
from gspo_lab.tasks.benchmarks import sources
from gspo_lab.tasks.benchmarks.boxed import PROMPT_VERSION, prompt
from gspo_lab.tasks.benchmarks.datasets import find
from gspo_lab.tasks.benchmarks.integers import read_integer
from gspo_lab.tasks.benchmarks.published import Published
from gspo_lab.tasks.benchmarks.rows import read_items

SHOWN = 60


class _Aime(Published):
    """The last complete box must state the gold number. `data`: a file or folder of the user's instead of the Hub."""

    grader = "aime-integer/4"
    prompt_version = PROMPT_VERSION
    # Samples are the GSPO paper's (avg@32); temperature, top-p and length Qwen3's for AIME when thinking.
    defaults = Defaults(samples=32, temperature=0.6, top_p=0.95, max_tokens=38_912)
    max_tokens = 38_912
    source: sources.Source

    def read(self) -> tuple[Problem, ...]:
        files = find(self.name, [self.name], self.source, self.data)
        problems = []
        for item in read_items(self.name, files, self.source.rows, self.enough):
            gold = read_integer(item.gold)
            if gold is None:
                raise LabError(f"{item.where}: the gold {item.gold!r:.40} is no whole number from 0 to 999")
            problems.append(Problem(f"{self.name}-{item.id}", prompt(item.problem), str(gold)))
        return tuple(problems)

    def judged(self, problem: Problem, stated: str) -> Grade:
        """Right is the gold number; see `read_integer`."""
        shown = " ".join(stated.split())[:SHOWN]
        number = read_integer(stated)
        if number is None:
            return Grade(0.0, False, shown, f"not a whole number from 0 to 999: {shown!r}")
        if number == int(problem.reference):
            return Grade(1.0, True, shown, "equal to the reference")
        return Grade(0.0, False, shown, f"differs: {number}")


class Aime24(_Aime):
    """The 30 problems of 2024."""

    name = "aime24"
    source = sources.AIME24


class Aime25(_Aime):
    """The 30 problems of 2025."""

    name = "aime25"
    source = sources.AIME25
