"""The cost of grading an AIME answer, by the length of the answer: `python
benchmarks/grading_aime.py`.

Beside it math-verify reads and compares the same answer, which users of TRL and verl would call.
The bound is a ratio, measured side by side: a twentieth of math-verify's time at every length.
"""

import time
from collections.abc import Callable

from math_verify import parse, verify

from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.benchmarks.aime import Aime24

GOLD = Problem("aime24-x", "?", "25")
STEP = "So $\\frac{a}{b} = {x}_1 + 24$, and we get $\\sqrt{25}$ from it. "
ROUNDS = 7
ANSWERS = 200


def milliseconds(grade: Callable[[str], object], answer: str, count: int) -> float:
    """Best of some rounds, per answer, in processor time."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(count):
            grade(answer)
        best = min(best, (time.process_time() - start) / count)
    return best * 1e3


def main() -> None:
    task = Aime24()
    print(f"{'characters':>10}  {'ms/answer':>9}  {'math-verify':>11}  {'share':>6}")
    for steps in (0, 100, 500, 1_000, 2_000):
        answer = (
            f"<think>{STEP * steps}\\boxed{{24}}</think>{STEP * (steps // 10)}\\boxed{{m+n ="
            " \\text{025 cm}}"
        )
        own = milliseconds(lambda text: task.grade(GOLD, text), answer, ANSWERS)
        other = milliseconds(lambda text: verify(parse("25"), parse(text)), answer, 5)
        print(f"{len(answer):>10,}  {own:>9.4f}  {other:>11.3f}  {own / other:>6.3f}")


if __name__ == "__main__":
    main()
