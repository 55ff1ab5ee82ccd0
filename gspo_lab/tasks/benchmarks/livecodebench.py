"""LiveCodeBench (arXiv 2403.07974), code generation: programs in Python, judged by hidden tests."""

import functools
import json
import re
from collections.abc import Mapping
from typing import get_args

from gspo_lab.errors import LabError
from gspo_lab.registry import nearest
from gspo_lab.sandbox import Limits, Program
from gspo_lab.tasks.base import Defaults, Grade, Problem
from gspo_lab.tasks.benchmarks import sources
from gspo_lab.tasks.benchmarks.compare import Rule
from gspo_lab.tasks.benchmarks.datasets import DataFile, find
from gspo_lab.tasks.benchmarks.errata import ERRATA
from gspo_lab.tasks.benchmarks.lcb_rows import Entry, Window, read_cases, read_entries
from gspo_lab.tasks.benchmarks.programs import extract_program, grade_program, rule_of_output, rule_of_value, sandbox
from gspo_lab.tasks.benchmarks.published import Published

GIB = 1 << 30
OWN = "file"
_NAME = re.compile(r"livecodebench(?:-(?P<release>v\d|file))?(?:-(?P<window>\d{4}-\d{4}|all))?")


class LiveCodeBench(Published):
    """The problems of a release whose contests lie in a window; the GSPO paper's is v5, 2024-10 to 2025-02: 166.

    `release` is LiveCodeBench's release_vN, files 1 to N, also written vN; `"file"`: the rows of `data`, however many.
    `window` is YYMM-YYMM or "all". `compare` is a rule of `compare.py`. Tests may take `seconds` of CPU time each.
    `unsafe` runs programs without isolation where there is no other way.
    """

    prompt_version = "lcb/1"
    runs_programs = True
    # Samples and window are the GSPO paper's; the sampling Qwen3's when thinking.
    defaults = Defaults(samples=8, temperature=0.6, top_p=0.95, max_tokens=32_768)
    max_tokens = 32_768

    def __init__(
        self,
        release: str = "v5",
        window: str = "",
        data: str | None = None,
        compare: str = "lcb",
        seconds: float = 6.0,
        unsafe: bool = False,
    ) -> None:
        self.release = release.removeprefix("release_")
        if self.release != OWN and f"release_{self.release}" not in sources.LIVECODEBENCH:
            known = [one.removeprefix("release_") for one in sources.LIVECODEBENCH] + [OWN]
            raise LabError(
                f"livecodebench: no release '{release}'{nearest(release, known)}; there are {', '.join(known)}"
            )
        if self.release == OWN and data is None:
            raise LabError(
                "livecodebench: release = 'file' takes the rows of your own file; name it with data = 'FILE'"
            )
        if compare not in get_args(Rule):
            raise LabError(f"livecodebench: compare = {compare!r} must be one of {', '.join(get_args(Rule))}")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 600:
            raise LabError(f"livecodebench: seconds = {seconds!r} must be a number above 0, at most 600")
        window = window or ("all" if self.release == OWN else "2410-2502")
        self.window = None if window == "all" else Window.named(window)
        self.name = f"livecodebench-{self.release}" + ("" if window == "all" else f"-{window}")
        self.rule: Rule = next(one for one in get_args(Rule) if one == compare)
        self.grader = f"livecodebench-{compare}-{seconds:g}s/1"
        super().__init__(data)
        self.limits = Limits(seconds=float(seconds), memory_bytes=4 * GIB)
        self.unsafe = unsafe

    def read(self) -> tuple[Problem, ...]:
        """The problems of the file within the window of dates."""
        return tuple(_problem(entry) for entry in self._entries.values())

    @classmethod
    def options_in(cls, name: str) -> Mapping[str, str]:
        """Release "v5" and window "2408-2502" of `livecodebench-v5-2408-2502`. LabError for another name."""
        found = _NAME.fullmatch(name)
        if found is None:
            raise LabError(f"unknown task '{name}'; a livecodebench is called like livecodebench-v5-2410-2502")
        return {key: value for key, value in found.groupdict().items() if value}

    def stated(self, answer: str) -> str:
        """Its program."""
        return extract_program(answer)

    def judged(self, problem: Problem, stated: str) -> Grade:
        """Right is a program that passes all tests, the public ones first; see `grade_program`."""
        entry = self._entries[problem.id]
        program = Program(stated, entry.function)
        strictest = rule_of_output if entry.function is None else rule_of_value
        return grade_program(sandbox(self.unsafe), program, read_cases(entry), self.limits, self.rule, strictest)

    @functools.cached_property
    def _entries(self) -> Mapping[str, Entry]:
        source = sources.LIVECODEBENCH.get(f"release_{self.release}")
        files = _of_release(find(self.name, ["livecodebench"], source, self.data), source)
        entries = read_entries(files, self.window, None if source is None else source.rows)
        if not entries:
            raise LabError(f"{self.name}: no problem of the release lies in the window")
        return {entry.id: entry for entry in entries}


def _of_release(files: list[DataFile], source: sources.Source | None) -> list[DataFile]:
    """Of a folder with the published files those of the release; other files as they are."""
    if source is None:
        return files
    largest = sources.LIVECODEBENCH["release_v6"].files
    if not all(file.path.name in {one.path for one in largest} for file in files):
        return files
    by_name = {file.path.name: file for file in files}
    missing = [one.path for one in source.files if one.path not in by_name]
    if missing:
        raise LabError(f"{files[0].path.parent}: the release needs {', '.join(missing)} too")
    return [by_name[one.path] for one in source.files]


def _problem(entry: Entry) -> Problem:
    flags = ERRATA.get(entry.id, ERRATA.get(entry.title))
    reference = {
        "tests": entry.tests,
        "sha256": entry.tests_sha256[:16],
        "platform": entry.platform,
        "difficulty": entry.difficulty,
        "date": entry.date,
        **({} if flags is None else {"errata": flags}),
    }
    return Problem(entry.id, _prompt(entry), json.dumps(reference))


def _prompt(entry: Entry) -> str:
    """The official headings and fences, with the instruction at the head of the user's message (see docs)."""
    if entry.starter.strip():
        form = "Complete the starter code below and give the whole program in one block, fenced as it is."
        code = entry.starter
    else:
        form = (
            "Read the input from standard input and write the answer to standard output, without trying it on the "
            "examples. Give the whole program in one block, fenced as below."
        )
        code = "# YOUR CODE HERE"
    return (
        "You are an expert Python programmer. Write a correct Python program for the problem below, one that meets its "
        f"specification and passes all tests.\n\n### Question:\n{entry.statement}\n\n### Format:\n{form}\n"
        f"```python\n{code}\n```\n\n### Answer:\n"
    )
