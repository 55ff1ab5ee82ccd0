"""Answers to MATH problems, graded by hand, and a grader that no answer can hang."""

import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import until

pytest.importorskip("math_verify")

from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.benchmarks.math500 import Expressions, Math500, WorkerFailed

TABLE = [
    # gold, answer, whether right, why
    (r"\frac{14}{3}", r"\boxed{\frac{14}{3}}", True, "the same text"),
    (r"\frac{14}{3}", r"\boxed{14/3}", True, "a slash"),
    (r"\frac 59", r"\boxed{\frac{5}{9}}", True, "TeX without braces"),
    (r"p - q", r"\boxed{-q + p}", True, "another order"),
    (r"10{,}000", r"\boxed{10000}", True, "thousands comma of LaTeX"),
    (r"\$18.90", r"\boxed{18.9}", True, "money"),
    (r"\text{Evelyn}", r"\boxed{Evelyn}", True, "a name"),
    (r"\text{June 20}", r"\boxed{June 20}", True, "a date"),
    (r"\text{(C)}", r"\boxed{C}", True, "a choice"),
    (r"6,-5", r"\boxed{-5, 6}", True, "several values, any order"),
    (r"1 \pm \sqrt{19}", r"\boxed{1+\sqrt{19}, 1-\sqrt{19}}", True, "plus or minus, written out"),
    (
        r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
        r"\boxed{\begin{bmatrix}1\\2\end{bmatrix}}",
        True,
        "other brackets",
    ),
    (r"25", r"\boxed{x = 25}", True, "named"),
    (r"2516_8", r"\boxed{2516}", True, "lenient: math-verify does not see the base"),
    (r"(1,2)", r"\boxed{\{1,2\}}", True, "lenient: math-verify takes a set for a pair"),
    (r"10", r"\boxed{10\%}", True, "lenient: per cent left out"),
    (r"0.1", r"\boxed{10\%}", True, "per cent counted"),
    (r"y=2x", r"\boxed{2x}", True, "lenient: the right side of an equation"),
    (r"10,080", r"\boxed{10080}", True, "thousands comma"),
    (r"90^\circ", r"\boxed{90}", True, "degrees left out"),
    (r"25", r"\boxed{24} wait, \boxed{25}", True, "the last box alone is shown to math-verify"),
    (r"1/3", r"\boxed{.3333333333}", True, "lenient: rounded to six places or more"),
    (r"\frac{1}{3}", r"\boxed{.333333}", True, "lenient: rounded to six places"),
    (r"120", r"\boxed{5!}", True, "lenient: computed"),
    (r"12", r"\boxed{12\text{ dogs}}", True, "lenient: any unit"),
    (r"-3", "\\boxed{−3}", True, "a minus sign of Unicode"),
    (r"\frac{1}{3}", r"\boxed{.333}", False, "rounded to three places"),
    (r"4", r"\boxed{4.0000000001}", False, "a whole number is not rounded to"),
    (r"\frac{14}{3}", r"\boxed{4.67}", False, "rounded"),
    (r"0.25", r"\boxed{25}", False, "a factor of a hundred"),
    (r"1", r"\boxed{100}", False, "another factor of a hundred"),
    (r"11\sqrt2", r"\boxed{15.556}", False, "rounded root"),
    (r"2,5", r"\boxed{25}", False, "two values are not one number"),
    (r"6,-5", r"\boxed{6}", False, "one value missing"),
    (r"[-2,7]", r"\boxed{[-2,7)}", False, "an open end"),
    (r"25", r"\boxed{25} no, \boxed{24}", False, "the last box is wrong"),
    (r"25", r"The answer is 25.", False, "no box; math-verify alone would take the prose"),
    (
        r"25",
        r"<think>\boxed{25}",
        False,
        "thinking that never ends; math-verify alone would take it",
    ),
    (r"25", r"\boxed{25", False, "cut off"),
    (r"3", "\\boxed{三}", False, "another script"),
    (r"\frac{1}{2^{99}}", r"\boxed{\frac{1}{2^{98}}}", False, "tiny, and half as large"),
    (r"\frac{1}{2004!}", r"\boxed{\frac{1}{2006!}}", False, "tiny, and smaller still"),
    (
        r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}",
        r"\boxed{\frac{1}{3 \cdot 2^{2006}}}",
        False,
        "large powers that do not cancel",
    ),
    (r"(0,\frac{1}{2^{99}})", r"\boxed{(0,\frac{1}{2^{98}})}", False, "a tiny end"),
    (r"[2,5)", r"\boxed{2 \le x < 5}", True, "an interval as inequalities"),
    (r"(2,5]", r"\boxed{2 < x < 5}", False, "another end"),
    (r"(3,\infty)", r"\boxed{x > 3}", True, "a ray"),
    (r"(-\infty,-1]", r"\boxed{x \leqslant -1}", True, "a ray to the left"),
    (
        r"(-\infty,2)\cup(5,\infty)",
        r"\boxed{x<2 \text{ or } x>5}",
        True,
        "two rays as inequalities",
    ),
    (r"(2,5)", r"\boxed{\{x \mid 2<x<5\}}", True, "a set given by a condition"),
    (r"3R^2", r"\boxed{3r^2}", False, "another letter"),
    (r"V = \pi R^2 h", r"\boxed{V = \pi r^2 h}", False, "another letter in an equation"),
    (r"2R + r", r"\boxed{R + R + r}", True, "the same two letters"),
    (r"C", r"\boxed{c}", True, "lenient: a choice in small letters"),
    (r"\emptyset", r"\boxed{\varnothing}", True, "the other sign of the empty set"),
    (r"\emptyset", r"\boxed{\text{no solution}}", True, "the empty set in words"),
    (r"1-\frac{1}{e}", r"\boxed{1-\frac{1}{\mathrm{e}}}", True, "an upright letter"),
    (r"4", r"\boxed{4\sqrt(2)}", False, "a root with brackets"),
    (r"4\sqrt{2}", r"\boxed{4\sqrt(2)}", True, "a root with brackets"),
    (r"\frac{7}{3}", "\\boxed{\u200b\\frac{7}{3}}", True, "an invisible character"),
    (r"70", r"\boxed{70 \text{ thousand}}", False, "a word that multiplies"),
    (r"7000", r"\boxed{7 \text{ thousand}}", True, "a word that multiplies"),
    (r"25", r"\boxed{" + "(" * 900 + ")" * 900 + "}", False, "too long to be looked at"),
]


@pytest.fixture(scope="module")
def task() -> Iterator[Math500]:
    task = Math500()
    yield task
    task.expressions.close()


@pytest.mark.parametrize(("gold", "answer", "right", "why"), TABLE)
def test_the_table(task: Math500, gold: str, answer: str, right: bool, why: str) -> None:
    grade = task.grade(Problem("x", "?", gold), answer)
    assert (grade.correct, grade.reward, grade.error) == (right, float(right), None), (
        f"{why}: {grade.reason}"
    )


def cpu_seconds(pid: int) -> float:
    """What a living process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def one_process() -> Iterator[Expressions]:
    made = Expressions(cpu_seconds=1)
    yield made
    made.close()


@pytest.fixture
def expressions(one_process: Expressions) -> Iterator[Expressions]:
    assert one_process.equal("1", "1")
    yield one_process
    assert one_process.equal("2", "1+1"), "the next one is graded"


@pytest.mark.parametrize("hostile", ["9^{9^{9^9}}", "100000000!"])
def test_hostile_answers_are_wrong_in_bounded_time(hostile: str, expressions: Expressions) -> None:
    task = Math500()
    task.expressions = expressions
    before = cpu_seconds(expressions._process.pid)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    grade = task.grade(Problem("x", "?", "25"), rf"\boxed{{{hostile}}}")
    assert (grade.correct, grade.error) == (False, None)
    assert grade.reason == "comparing it takes more than 1 s of CPU time"
    now = resource.getrusage(resource.RUSAGE_CHILDREN)  # has the ended process's time in it
    assert now.ru_utime + now.ru_stime - ended.ru_utime - ended.ru_stime - before < 3


def test_no_reply_at_all_is_the_graders_failure_and_not_a_wrong_answer(
    expressions: Expressions,
) -> None:
    usual = expressions._cpu_seconds, expressions._wall_seconds
    expressions._cpu_seconds = 600
    expressions._wall_seconds = 1.0
    with pytest.raises(WorkerFailed, match="no reply within 1 s"):
        expressions.equal("25", "9^{9^{9^9}}")
    expressions._cpu_seconds, expressions._wall_seconds = (
        usual  # a busy machine may need long for what is easy
    )


def test_a_reference_that_reads_as_nothing_is_an_error(task: Math500) -> None:
    grade = task.grade(Problem("x", "?", "\\quad"), r"\boxed{25}")
    assert (grade.correct, grade.reward) == (None, None)
    assert grade.error == "math-verify reads nothing in the reference '\\\\quad'"


def test_a_killed_process_is_an_error_of_that_answer_alone(expressions: Expressions) -> None:
    process = expressions._process
    before = cpu_seconds(process.pid)

    def kill() -> None:
        until(lambda: cpu_seconds(process.pid) > before + 0.3)  # it is at work
        process.kill()

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        with pytest.raises(WorkerFailed, match="ended with code -9"):
            expressions.equal("25", "9^{9^{9^9}}")
        killing.result()


def test_threads_get_their_own_verdicts(task: Math500) -> None:
    def right(number: int) -> bool:
        return all(
            task.expressions.equal(f"{number}", f"{other}+0") is (number == other)
            for other in range(8)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, range(8)))


def test_the_process_ends_with_its_owner() -> None:
    expressions = Expressions()
    assert expressions.equal("1", "1")
    process = expressions._process
    del expressions
    assert process.poll() is not None
    assert not Path(f"/proc/{process.pid}").exists()
