"""Tasks of the package reasoning-gym by name: `reasoning_gym:basic_arithmetic`.

Each has a generator, its options and a grader of its own. Held-out problems come from another seed;
a problem that is in both, or comes twice, counts once and is held out.
"""

import functools
import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.common.registry import nearest, one_line_error
from gspo_lab.tasks.base import Grade, Problem, Problems, Task, choice, integer_option
from gspo_lab.tasks.benchmarks.final_answers import NoAnswer, without_thinking
from gspo_lab.tasks.pools import known_split, last_number

PREPARED = ("last number", "last word", "raw")
HELD_OUT_SEED = 10_000_000
"""Added to the seed: problem i of seed s is problem i - 1 of seed s + 1."""
TRIES = 4
"""How many problems are generated for each one that is needed, where they repeat."""


class ReasoningGym(Task):
    """The task `dataset` of reasoning-gym; `options` are its generator's.

    `answer` says what of a response its grader gets: "last number", "last word", "raw"; unset: by
    the reference, a number, one word, or anything else.
    """

    chat = True
    prompt_version = "reasoning-gym/1"
    stop: Strings = ()

    def __init__(
        self,
        dataset: str,
        train: int = 2_000,
        held_out: int = 200,
        seed: int = 0,
        answer: str = "",
        max_tokens: int = 256,
        **options: Any,
    ) -> None:
        require_package("reasoning-gym", "gym", f"the task '{dataset}'", "reasoning_gym")
        from reasoning_gym.factory import DATASETS

        self.name = f"reasoning_gym:{dataset}"
        if dataset not in DATASETS:
            raise LabError(
                f"reasoning-gym has no task '{dataset}'{nearest(dataset, DATASETS)}; see its list"
            )
        self.dataset = dataset
        self.sizes = {
            "train": integer_option(self.name, "train", train, 1, 1_000_000),
            "held-out": integer_option(self.name, "held_out", held_out, 1, 100_000),
        }
        self.seed = integer_option(self.name, "seed", seed, 0, HELD_OUT_SEED // 2)
        self.answer = choice(self.name, "answer", answer, ("", *PREPARED))
        self.max_tokens = integer_option(self.name, "max_tokens", max_tokens, 1, 1_000_000)
        self.options = options
        self.grader = f"{self.name}@{version('reasoning-gym')}/1"
        self._entries: JsonObject = {}
        self._generator("train")  # so that a wrong option is known at once

    def problems(self, split: str) -> Problems:
        """The distinct problems of a split, as many as there are up to its size."""
        return self._train if known_split(self.name, split) == "train" else self._held_out

    @functools.cached_property
    def _held_out(self) -> list[Problem]:
        return list(self._generate("held-out", set()))

    @functools.cached_property
    def _train(self) -> list[Problem]:
        problems = list(self._generate("train", {problem.prompt for problem in self._held_out}))
        if not problems:
            raise LabError(
                f"task '{self.name}': all its problems are held out; use fewer with held_out, or"
                " options that allow more problems"
            )
        return problems

    def _generator(self, split: str) -> Any:
        import reasoning_gym

        seed = self.seed + HELD_OUT_SEED * (split == "held-out")
        size = TRIES * self.sizes[split]
        try:
            return reasoning_gym.create_dataset(self.dataset, size=size, seed=seed, **self.options)
        except Exception as error:  # its configurations check themselves by assertions
            raise LabError(f"task '{self.name}': {one_line_error(error)}") from error

    def _generate(self, split: str, used: set[str]) -> Iterator[Problem]:
        generator = self._generator(split)
        count = 0
        for index in range(TRIES * self.sizes[split]):
            entry = generator[index]
            prompt = entry["question"]
            if prompt in used:
                continue
            used.add(prompt)
            problem = Problem(f"{self.dataset}-{split}-{count}", prompt, str(entry["answer"]))
            self._entries[problem.id] = generator, entry
            yield problem
            count += 1
            if count == self.sizes[split]:
                return

    def grade(self, problem: Problem, answer: str) -> Grade:
        """The score of reasoning-gym for the prepared answer; correct is a score of 1."""
        try:
            prepared = self._graded_part(problem.reference, without_thinking(answer))
        except NoAnswer as error:
            return Grade(0.0, False, None, str(error))
        if prepared is None:
            return Grade(0.0, False, None, "no number found")
        if problem.id not in self._entries:
            self.problems("held-out" if "-held-out-" in problem.id else "train")
        generator, entry = self._entries[problem.id]
        try:
            score = float(generator.score_answer(prepared, entry))
        except Exception as error:  # its graders read text that anything may have written
            return Grade(None, None, prepared[:120], error=one_line_error(error))
        return Grade(score, score >= 1, prepared[:120], f"reasoning-gym scores {score:g}")

    def _graded_part(self, reference: str, answer: str) -> str | None:
        """What the grader gets of an answer; None where it holds no number."""
        answer = answer.strip()
        kind = self.answer
        if not kind:
            kind = "raw" if len(reference.split()) > 1 else "last word"
            kind = "last number" if last_number(reference) == reference else kind
        if kind == "last number":
            return last_number(answer)
        if kind == "raw":
            return answer
        words = re.findall(r"[^\s*`\"'.,;:!?()]+", answer)
        return words[-1] if words else ""
