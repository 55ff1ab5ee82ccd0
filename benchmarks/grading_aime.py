"""The cost of grading an AIME answer, by the length of the answer: `python
benchmarks/grading_aime.py`.

The bound is 0.1 ms per answer. Then 30 problems x 32 answers are graded in a tenth of a second.
"""

import time

from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.benchmarks.aime import Aime24

GOLD = Problem("aime24-x", "?", "25")
STEP = "So $\\frac{a}{b} = {x}_1 + 24$, and we get $\\sqrt{25}$ from it. "
ROUNDS = 7
ANSWERS = 200


def milliseconds(answer: str) -> float:
    """Best of some rounds, per answer."""
    task = Aime24()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(ANSWERS):
            task.grade(GOLD, answer)
        best = min(best, (time.perf_counter() - start) / ANSWERS)
    return best * 1e3


def main() -> None:
    print(f"{'characters':>10}  {'ms/answer':>9}")
    for steps in (0, 100, 500, 1_000, 2_000):
        answer = (
            f"<think>{STEP * steps}\\boxed{{24}}</think>{STEP * (steps // 10)}\\boxed{{m+n ="
            " \\text{025 cm}}"
        )
        print(f"{len(answer):>10,}  {milliseconds(answer):>9.4f}")


if __name__ == "__main__":
    main()
