"""Answers to MATH problems, graded by hand, and a grader that no answer can hang."""

import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from assertions import assert_fields
from waiting import until

pytest.importorskip("math_verify")

from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.benchmarks.math500 import Expressions, Math500, WorkerFailed

TABLE = r"""
\frac{14}{3} ; \boxed{\frac{14}{3}} ; yes ; the same text
\frac{14}{3} ; \boxed{14/3} ; yes ; a slash
\frac 59 ; \boxed{\frac{5}{9}} ; yes ; TeX without braces
p - q ; \boxed{-q + p} ; yes ; another order
10{,}000 ; \boxed{10000} ; yes ; thousands comma of LaTeX
\$18.90 ; \boxed{18.9} ; yes ; money
\text{Evelyn} ; \boxed{Evelyn} ; yes ; a name
\text{June 20} ; \boxed{June 20} ; yes ; a date
\text{(C)} ; \boxed{C} ; yes ; a choice
6,-5 ; \boxed{-5, 6} ; yes ; several values, any order
1 \pm \sqrt{19} ; \boxed{1+\sqrt{19}, 1-\sqrt{19}} ; yes ; plus or minus, written out
\begin{pmatrix} 1 \\ 2 \end{pmatrix} ; \boxed{\begin{bmatrix}1\\2\end{bmatrix}} ; yes ; brackets
25 ; \boxed{x = 25} ; yes ; named
2516_8 ; \boxed{2516} ; yes ; lenient: math-verify does not see the base
(1,2) ; \boxed{\{1,2\}} ; yes ; lenient: math-verify takes a set for a pair
10 ; \boxed{10\%} ; yes ; lenient: per cent left out
0.1 ; \boxed{10\%} ; yes ; per cent counted
y=2x ; \boxed{2x} ; yes ; lenient: the right side of an equation
10,080 ; \boxed{10080} ; yes ; thousands comma
90^\circ ; \boxed{90} ; yes ; degrees left out
25 ; \boxed{24} wait, \boxed{25} ; yes ; the last box alone is shown to math-verify
1/3 ; \boxed{.3333333333} ; yes ; lenient: rounded to six places or more
\frac{1}{3} ; \boxed{.333333} ; yes ; lenient: rounded to six places
120 ; \boxed{5!} ; yes ; lenient: computed
12 ; \boxed{12\text{ dogs}} ; yes ; lenient: any unit
\frac{1}{3} ; \boxed{.333} ; no ; rounded to three places
4 ; \boxed{4.0000000001} ; no ; a whole number is not rounded to
\frac{14}{3} ; \boxed{4.67} ; no ; rounded
0.25 ; \boxed{25} ; no ; a factor of a hundred
1 ; \boxed{100} ; no ; another factor of a hundred
11\sqrt2 ; \boxed{15.556} ; no ; rounded root
2,5 ; \boxed{25} ; no ; two values are not one number
6,-5 ; \boxed{6} ; no ; one value missing
[-2,7] ; \boxed{[-2,7)} ; no ; an open end
25 ; \boxed{25} no, \boxed{24} ; no ; the last box is wrong
25 ; The answer is 25. ; no ; no box; math-verify alone would take the prose
25 ; <think>\boxed{25} ; no ; thinking that never ends; math-verify alone would take it
25 ; \boxed{25 ; no ; cut off
\frac{1}{2^{99}} ; \boxed{\frac{1}{2^{98}}} ; no ; tiny, and half as large
\frac{1}{2004!} ; \boxed{\frac{1}{2006!}} ; no ; tiny, and smaller still
\frac{2^{2005}+1}{3 \cdot 2^{2006}} ; \boxed{\frac{1}{3 \cdot 2^{2006}}} ; no ; large powers
(0,\frac{1}{2^{99}}) ; \boxed{(0,\frac{1}{2^{98}})} ; no ; a tiny end
[2,5) ; \boxed{2 \le x < 5} ; yes ; an interval as inequalities
(2,5] ; \boxed{2 < x < 5} ; no ; another end
(3,\infty) ; \boxed{x > 3} ; yes ; a ray
(-\infty,-1] ; \boxed{x \leqslant -1} ; yes ; a ray to the left
(-\infty,2)\cup(5,\infty) ; \boxed{x<2 \text{ or } x>5} ; yes ; two rays as inequalities
(2,5) ; \boxed{\{x \mid 2<x<5\}} ; yes ; a set given by a condition
3R^2 ; \boxed{3r^2} ; no ; another letter
V = \pi R^2 h ; \boxed{V = \pi r^2 h} ; no ; another letter in an equation
2R + r ; \boxed{R + R + r} ; yes ; the same two letters
C ; \boxed{c} ; yes ; lenient: a choice in small letters
\emptyset ; \boxed{\varnothing} ; yes ; the other sign of the empty set
\emptyset ; \boxed{\text{no solution}} ; yes ; the empty set in words
1-\frac{1}{e} ; \boxed{1-\frac{1}{\mathrm{e}}} ; yes ; an upright letter
4 ; \boxed{4\sqrt(2)} ; no ; a root with brackets
4\sqrt{2} ; \boxed{4\sqrt(2)} ; yes ; a root with brackets
70 ; \boxed{70 \text{ thousand}} ; no ; a word that multiplies
7000 ; \boxed{7 \text{ thousand}} ; yes ; a word that multiplies
3\frac{1}{2} ; \boxed{3 1/2} ; yes ; a mixed number with a slash
31/2 ; \boxed{3 1/2} ; no ; a blank between digits
12 ; \boxed{1 2} ; no ; a blank between digits
\text{(A)} ; \boxed{A)} ; yes ; a choice with half of its brackets
\text{Evelyn} ; \boxed{\textbf{Evelyn}.} ; yes ; bold, with a full stop
\text{ellipse} ; \boxed{\text{an ellipse}} ; yes ; an article
\text{ellipse} ; \boxed{\text{not an ellipse}} ; no ; another statement
(1,2,3) ; \boxed{\langle 1,2,3 \rangle.} ; yes ; angle brackets
3 \times 10^8 ; \boxed{3e8} ; yes ; a program's way to write it
\ln 2 ; \boxed{\log_e 2} ; yes ; a natural logarithm
\frac{1}{6} ; \boxed{0.1\overline{6}} ; yes ; a repeating decimal
\frac{1}{6} ; \boxed{0.1666\ldots} ; yes ; a repeating decimal
0.\overline{3} ; \boxed{\frac13} ; yes ; a repeating decimal as gold
0.\overline{3} ; \boxed{0.3} ; no ; one place of a repeating decimal
\pi ; \boxed{3.14\ldots} ; no ; nothing repeats
\frac{1}{2} ; \boxed{\text{The answer is } \frac{1}{2}} ; yes ; words before it
-3 ; \boxed{−3} ; yes ; a minus sign of Unicode
3 ; \boxed{三} ; no ; another script
2\sqrt{3} ; \boxed{2√3} ; yes ; a root of Unicode
\sqrt{x+1} ; \boxed{√(x+1)} ; yes ; a root of Unicode with brackets
[0,\infty) ; \boxed{[0, ∞)} ; yes ; an infinity of Unicode
x^{-2} ; \boxed{x⁻²} ; yes ; a raised exponent
x ; \boxed{x²} ; no ; a raised exponent
a_1 ; \boxed{a₁} ; yes ; a lowered index
\frac{7}{2} ; \boxed{3½} ; yes ; a fraction of Unicode
6x ; \boxed{2·3x} ; yes ; a dot that multiplies
"""
"""Gold ; answer ; whether it is right ; why."""
ROWS = [tuple(row.split(" ; ")) for row in TABLE.strip().splitlines()]
ROWS += [
    ("\\frac{7}{3}", "\\boxed{\u200b\\frac{7}{3}}", "yes", "an invisible character"),
    (r"25", r"\boxed{" + "(" * 900 + ")" * 900 + "}", "no", "too long to be looked at"),
]


@pytest.fixture(scope="module")
def task() -> Iterator[Math500]:
    task = Math500()
    yield task
    task.expressions.close()


@pytest.mark.parametrize(("gold", "answer", "verdict", "why"), ROWS)
def test_the_table(task: Math500, gold: str, answer: str, verdict: str, why: str) -> None:
    right = verdict == "yes"
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
    assert_fields(
        grade, correct=False, error=None, reason="comparing it takes more than 1 s of CPU time"
    )
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
    assert_fields(
        grade,
        correct=None,
        reward=None,
        error="math-verify reads nothing in the reference '\\\\quad'",
    )


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
