"""Answers to MATH problems, graded by hand, and a grader that no answer can hang."""

import os
import resource
import threading
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
    (r"\frac{14}{3}", r"\boxed{\dfrac{14}{3}}", True, "display style"),
    (r"\frac{14}{3}", r"\boxed{14/3}", True, "a slash"),
    (r"\frac 59", r"\boxed{\frac{5}{9}}", True, "TeX without braces"),
    (r"\frac{\sqrt3}{2}", r"\boxed{\sqrt{\frac{3}{4}}}", True, "equal as numbers"),
    (r"p - q", r"\boxed{-q + p}", True, "another order"),
    (r"x^2 + 1", r"\boxed{1 + x^{2}}", True, "another order of terms"),
    (r"10{,}000", r"\boxed{10000}", True, "thousands comma of LaTeX"),
    (r"10,080", r"\boxed{10080}", True, "thousands comma"),
    (r"\$18.90", r"\boxed{18.9}", True, "money"),
    (r"90^\circ", r"\boxed{90}", True, "degrees left out"),
    (r"\text{Evelyn}", r"\boxed{Evelyn}", True, "a name"),
    (r"\text{June 20}", r"\boxed{June 20}", True, "a date"),
    (r"\text{(C)}", r"\boxed{C}", True, "a choice"),
    (r"6,-5", r"\boxed{-5, 6}", True, "several values, any order"),
    (r"1 \pm \sqrt{19}", r"\boxed{1+\sqrt{19}, 1-\sqrt{19}}", True, "plus or minus, written out"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\boxed{\begin{bmatrix}1\\2\end{bmatrix}}", True, "other brackets"),
    (r"25", r"\boxed{x = 25}", True, "named"),
    (r"25", r"\boxed{24} wait, \boxed{25}", True, "the last box alone is shown to math-verify"),
    (r"2516_8", r"\boxed{2516}", True, "lenient: math-verify does not see the base"),
    (r"(1,2)", r"\boxed{\{1,2\}}", True, "lenient: math-verify takes a set for a pair"),
    (r"1/3", r"\boxed{.3333333333}", True, "lenient: rounded to six places or more"),
    (r"\frac{1}{3}", r"\boxed{.333333}", True, "lenient: rounded to six places"),
    (r"10", r"\boxed{10\%}", True, "lenient: per cent left out"),
    (r"0.1", r"\boxed{10\%}", True, "per cent counted"),
    (r"120", r"\boxed{5!}", True, "lenient: computed"),
    (r"12", r"\boxed{12\text{ dogs}}", True, "lenient: any unit"),
    (r"y=2x", r"\boxed{2x}", True, "lenient: the right side of an equation"),
    (r"-3", "\\boxed{−3}", True, "a minus sign of Unicode"),
    (r"\frac{1}{3}", r"\boxed{.333}", False, "rounded to three places"),
    (r"4", r"\boxed{4.0000000001}", False, "a whole number is not rounded to"),
    (r"\frac{14}{3}", r"\boxed{4.67}", False, "rounded"),
    (r"0.25", r"\boxed{25}", False, "a factor of a hundred"),
    (r"1", r"\boxed{100}", False, "another factor of a hundred"),
    (r"2,5", r"\boxed{25}", False, "two values are not one number"),
    (r"6,-5", r"\boxed{6}", False, "one value missing"),
    (r"[-2,7]", r"\boxed{[-2,7)}", False, "an open end"),
    (r"11\sqrt2", r"\boxed{15.556}", False, "rounded root"),
    (r"25", r"\boxed{25} no, \boxed{24}", False, "the last box is wrong"),
    (r"25", r"The answer is 25.", False, "no box; math-verify alone would take the prose"),
    (r"25", r"**25**", False, "no box"),
    (r"25", r"<think>\boxed{25}", False, "thinking that never ends; math-verify alone would take it"),
    (r"25", r"\boxed{25", False, "cut off"),
    (r"3", "\\boxed{三}", False, "another script"),
    (r"25", r"\boxed{" + "(" * 900 + ")" * 900 + "}", False, "too long to be looked at"),
]


@pytest.fixture(scope="module")
def task() -> Iterator[Math500]:
    task = Math500()
    yield task
    task.expressions.close()


@pytest.mark.parametrize(
    ("gold", "answer", "right", "why"), TABLE, ids=[f"{n}-{row[3]}" for n, row in enumerate(TABLE)]
)
def test_the_table(task: Math500, gold: str, answer: str, right: bool, why: str) -> None:
    grade = task.grade(Problem("x", "?", gold), answer)
    assert (grade.correct, grade.reward, grade.error) == (right, float(right), None), grade.reason


def test_the_grader_names_its_version(task: Math500) -> None:
    assert task.grader == "math-verify-0.9.0+last-box/1"


def cpu_seconds(pid: int) -> float:
    """What a living process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("hostile", ["9^{9^{9^9}}", "100000000!"])
def test_hostile_answers_are_wrong_in_bounded_time_and_the_next_one_is_graded(hostile: str) -> None:
    task = Math500()
    expressions = task.expressions = Expressions(cpu_seconds=1)
    try:
        assert expressions.equal("1", "1")
        before = cpu_seconds(expressions._process.pid)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        grade = task.grade(Problem("x", "?", "25"), rf"\boxed{{{hostile}}}")
        assert (grade.correct, grade.error) == (False, None)
        assert grade.reason == "comparing it takes more than 1 s of CPU time"
        now = resource.getrusage(resource.RUSAGE_CHILDREN)  # has the ended process's time in it
        assert now.ru_utime + now.ru_stime - ended.ru_utime - ended.ru_stime - before < 3
        assert expressions.equal("2", "1+1")
    finally:
        expressions.close()


def test_no_reply_at_all_is_the_graders_failure_and_not_a_wrong_answer() -> None:
    expressions = Expressions(cpu_seconds=600)
    try:
        assert expressions.equal("1", "1")
        expressions._wall_seconds, patient = 1.0, expressions._wall_seconds
        with pytest.raises(WorkerFailed, match="no reply within 1 s"):
            expressions.equal("25", "9^{9^{9^9}}")
        expressions._wall_seconds = patient  # a busy machine may need long for what is easy
        assert expressions.equal("2", "1+1")
    finally:
        expressions.close()


def test_a_reference_that_reads_as_nothing_is_an_error(task: Math500) -> None:
    grade = task.grade(Problem("x", "?", "\\quad"), r"\boxed{25}")
    assert (grade.correct, grade.reward) == (None, None)
    assert grade.error == "math-verify reads nothing in the reference '\\\\quad'"


def test_a_killed_process_is_an_error_of_that_answer_alone() -> None:
    expressions = Expressions(cpu_seconds=60)
    try:
        assert expressions.equal("1", "1")
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
        assert expressions.equal("2", "1+1")
    finally:
        expressions.close()


def test_threads_get_their_own_verdicts(task: Math500) -> None:
    wrong: list[int] = []

    def ask(number: int) -> None:
        for other in range(10):
            if task.expressions.equal(f"{number}", f"{other}+0") is not (number == other):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_process_ends_with_its_owner() -> None:
    expressions = Expressions()
    assert expressions.equal("1", "1")
    process = expressions._process
    del expressions
    assert process.poll() is not None
    assert not Path(f"/proc/{process.pid}").exists()
