"""CodeForces problems with tests (open-r1/codeforces, `verifiable`, its test split: late 2024 to
early 2025).

Pass or fail on the tests at hand, not the site's verdict. The rating that can be computed from it
(`gspo_lab.analysis.stats.passk`) is an estimate and not CodeElo, which is judged on the site by
hidden tests.
"""

import functools
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.tasks.base import Grade, Problem, choice, number_option
from gspo_lab.tasks.benchmarks.datasets import (
    CODEFORCES,
    DataFile,
    DatasetRow,
    fetch,
    find_files,
    rows,
)
from gspo_lab.tasks.benchmarks.output_comparison import ComparisonRule
from gspo_lab.tasks.benchmarks.program_grading import (
    Case,
    CheckerFailed,
    ProgramBenchmark,
    cases_digest,
    full_numbers,
    grade_checked,
    grade_program,
    sandbox,
)
from gspo_lab.tasks.sandbox import Limits, Program, SandboxFailed

MIB = 1 << 20
INTERPRETER_BYTES = 64 * MIB
"""What Python itself takes of the memory limit, which was made for compiled programs."""

TESTS = ("all", "official")
COLUMNS = (
    "id",
    "title",
    "description",
    "input_format",
    "output_format",
    "examples",
    "note",
    "rating",
    "contest_start",
    "time_limit",
    "memory_limit",
    "generated_tests",
    "generated_checker",
)
"""What is kept of a row. Its tests are kept once, as `Case`."""
SECTIONS = (("description", ""), ("input_format", "Input"), ("output_format", "Output"))


@dataclass(frozen=True, slots=True)
class JudgedProblem:
    """A problem's row, its official tests, and the file of its generated ones."""

    row: DatasetRow
    official: tuple[Case, ...]
    generated: Path | None
    limits: Limits


class Codeforces(ProgramBenchmark):
    """Right is a program that passes all tests: the official ones and, where these are not
    complete, generated ones.

    Outputs are judged by the problem's checker where it has one, else by the rule `compare`. `tests
    = "official"` asks only problems whose official tests are complete. Time limits are the site's
    times `time_factor`.
    """

    name = "codeforces"
    prompt_version = "codeforces/1"

    def __init__(
        self,
        data: str | None = None,
        tests: str = "all",
        compare: ComparisonRule = "lcb",
        time_factor: float = 1.0,
        unsafe: bool = False,
    ) -> None:
        super().__init__(data, compare, unsafe)
        self.tests = choice(self.name, "tests", tests, TESTS)
        self.time_factor = number_option(self.name, "time_factor", time_factor, 100)
        self.grader = f"codeforces-{tests}-{compare}-x{time_factor:g}/2"
        self._full: dict[str, tuple[float, ...] | str] = {}
        """What its checker gives the correct outputs of a problem, or why the checker is broken."""
        self._checking: dict[str, threading.Lock] = {}

    def read(self) -> tuple[Problem, ...]:
        """The problems of the file."""
        problems = []
        for name, judged in self._judged_problems.items():
            row = judged.row
            reference = {
                "rating": row.get("rating"),
                "tests": len(judged.official) + (row["generated_tests"] if judged.generated else 0),
                "sha256": cases_digest(judged.official)[:16],
                "checker": bool(row["generated_checker"]),
                "contest_start": row.get("contest_start"),
            }
            problems.append(Problem(name, _prompt(row), json.dumps(reference)))
        return tuple(problems)

    def difficulty(self, problem: Problem) -> float | None:
        """Its rating on the site; None where it has none."""
        rating = self._judged_problems[problem.id].row.get("rating")
        return None if rating is None else float(rating)

    def fault(self, problem: Problem) -> str | None:
        """That the problem's checker is broken: it gives a correct output no number."""
        checker = self._judged_problems[problem.id].row["generated_checker"]
        if not checker:
            return None
        with self._checking.setdefault(problem.id, threading.Lock()):
            if problem.id not in self._full:
                try:
                    self._full[problem.id] = full_numbers(
                        sandbox(self.unsafe), checker, self._cases(problem)
                    )
                except CheckerFailed as error:
                    self._full[problem.id] = str(error)
                except SandboxFailed as error:  # which says nothing of the checker
                    return f"the sandbox failed: {error}"
            full = self._full[problem.id]
        return full if isinstance(full, str) else None

    def grade(self, problem: Problem, answer: str) -> Grade:
        """The answer's grade: an error, whatever it says, where the problem's checker is broken."""
        error = self.fault(problem)
        return super().grade(problem, answer) if error is None else Grade(None, None, error=error)

    def grade_stated(self, problem: Problem, extracted: str) -> Grade:
        """Run the answer's program on the problem's tests. An error where it cannot be run."""
        judged = self._judged_problems[problem.id]
        cases = self._cases(problem)
        opened = sandbox(self.unsafe)
        program = Program(extracted)
        full = self._full.get(problem.id)
        if isinstance(full, tuple):
            return grade_checked(
                opened, program, cases, judged.limits, judged.row["generated_checker"], full
            )
        return grade_program(opened, program, cases, judged.limits, self.rule)

    def _cases(self, problem: Problem) -> tuple[Case, ...]:
        judged = self._judged_problems[problem.id]
        if judged.generated is None:
            return judged.official
        return judged.official + _generated(
            judged.generated, problem.id, judged.row["generated_tests"]
        )

    @functools.cached_property
    def _judged_problems(self) -> Mapping[str, JudgedProblem]:
        problems: dict[str, JudgedProblem] = {}
        files = find_files(self.name, [self.name], CODEFORCES, self.data)
        read = 0
        for file in files:
            file.check()
            for place, row in enumerate(rows(file.path), start=1):
                read += 1
                where = f"{file.path}, row {place}"
                if (judged := self._judged(where, row, file)) is not None:
                    if row["id"] in problems:
                        raise LabError(f"{where}: the problem {row['id']} is there twice")
                    problems[row["id"]] = judged
        if all(file.published for file in files) and read != CODEFORCES.rows:
            raise LabError(
                f"{self.name}: {read} problems in the published file, not {CODEFORCES.rows}"
            )
        if not problems:
            raise LabError(
                f"{self.name}: no problem in {files[0].path} that reads stdin and has tests"
            )
        return problems

    def _judged(self, where: str, row: DatasetRow, file: DataFile) -> JudgedProblem | None:
        """The problem of a row; None for one that cannot be judged here.

        LabError where the row is of another kind.
        """
        if not isinstance(row.get("id"), str) or not isinstance(row.get("description"), str):
            raise LabError(f"{where}: no text in id or description; is this open-r1/codeforces?")
        if row.get("input_mode") != "stdio" or row.get("interaction_format"):
            return None
        official = tuple(_case(where, test) for test in row.get("official_tests") or [])
        generated = None
        if not row.get("official_tests_complete"):
            if self.tests == "official":
                return None
            generated = self._generated_file(where, row, file)
        if not official and generated is None:
            raise LabError(f"{where}: {row['id']} has no tests")
        seconds = row.get("time_limit")
        megabytes = row.get("memory_limit")
        if not isinstance(seconds, int | float) or not isinstance(megabytes, int | float):
            raise LabError(f"{where}: time_limit or memory_limit is not a number")
        limits = Limits(
            seconds=seconds * self.time_factor,
            memory_bytes=int(megabytes) * MIB + INTERPRETER_BYTES,
        )
        kept_row = {column: row.get(column) for column in COLUMNS}
        kept_row["generated_checker"] = row.get("generated_checker") or ""
        return JudgedProblem(kept_row, official, generated, limits)

    def _generated_file(self, where: str, row: DatasetRow, file: DataFile) -> Path | None:
        """The contest's file of generated tests; None where the row says that there are none."""
        if not row.get("generated_tests"):
            return None
        try:
            name = f"generated_tests/test_cases_{int(row['contest_id']):04d}.parquet"
        except (KeyError, TypeError, ValueError) as error:
            raise LabError(
                f"{where}: the contest_id {row.get('contest_id')!r:.40} is not a number"
            ) from error
        if file.published:
            return fetch(self.name, CODEFORCES, name)
        path = file.path.parent / name
        if not path.is_file():
            raise LabError(
                f"{where}: its generated tests are missing: no file {path}; or use tests ="
                " 'official'"
            )
        return path


@functools.lru_cache(maxsize=2)
def _generated(file: Path, name: str, count: int) -> tuple[Case, ...]:
    """The generated tests of a problem, in order; LabError where they are not `count`, as its row
    says.
    """
    tests = [row for row in rows(file) if row.get("problem_id") == name]
    if len(tests) != count:
        raise LabError(f"{file}: {len(tests)} tests of {name}, not {count}")
    tests.sort(key=lambda row: int(row["test_i"]))
    return tuple(_case(f"{file}, {name}", row) for row in tests)


def _case(where: str, test: Any) -> Case:
    input_text, expected = (
        (test.get("input"), test.get("output")) if isinstance(test, dict) else (None, None)
    )
    if not isinstance(input_text, str) or not isinstance(expected, str):
        raise LabError(f"{where}: a test without the texts input and output")
    return Case(input_text.encode(), expected.encode())


def _prompt(row: DatasetRow) -> str:
    """The statement under its usual headings, and what the program must be."""
    paragraphs = [
        (
            "You are an expert in programming contests. Solve the problem below with a program in"
            " Python 3 that reads standard input, writes standard output and keeps within the"
            " limits. Give the whole program in one block, fenced by ```python and ```."
        ),
        f"# {row.get('title') or row['id']}",
        f"Time limit: {row['time_limit']:g} s. Memory limit: {row['memory_limit']:g} MB.",
    ]
    paragraphs += [
        f"## {head}\n{row[key]}" if head else row[key] for key, head in SECTIONS if row.get(key)
    ]
    for example in row.get("examples") or []:
        paragraphs.append(
            f"## Example\nInput:\n```\n{example['input']}\n```\nOutput:\n```\n{example['output']}\n```"  # noqa: E501
        )
    if row.get("note"):
        paragraphs.append(f"## Note\n{row['note']}")
    return "\n\n".join(paragraphs) + "\n"
