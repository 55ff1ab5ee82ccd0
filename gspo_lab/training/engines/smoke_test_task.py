"""A task that any text can win, so that an untrained model has advantages to train on.

`gspo-lab engines install --check` runs three steps of it, and tests do.
"""

from gspo_lab.common.plain_data import Strings
from gspo_lab.tasks.base import Grade, Problem, Problems, Task


class SmokeTestTask(Task):
    """One letter asked; right is every third answer, by the sum of its bytes."""

    name = "lottery"
    grader = "lottery/1"
    stop: Strings = ("a", "e", "i", "o", "u")
    max_tokens = 12

    def problems(self, split: str) -> Problems:
        """A letter each, behind question marks: prompts of several lengths."""
        letters = "bcdfghjklmnpqrst" if split == "train" else "vwxyz"
        return [
            Problem(f"{split}-{letter}", "?" * (1 + place % 4) + letter, "")
            for place, letter in enumerate(letters)
        ]

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Right where the sum of the answer's bytes is a multiple of three."""
        won = sum(answer.encode()) % 3 == 0
        return Grade(float(won), won, answer)
