"""What all published benchmarks have in common: problems read once, when they are first asked for.

Copies of a data set differ in names (`problem`, `question`), in where the gold is (a column, or a
box in the solution), in wrapping (verl's) and in repetition. Whatever fits none of the known shapes
is an error, never a skipped row.
"""

import functools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalInt, Strings
from gspo_lab.tasks.base import Grade, Problem, Problems, Task
from gspo_lab.tasks.benchmarks.datasets import DataFile, DatasetRow, digest, rows
from gspo_lab.tasks.benchmarks.final_answers import (
    NoAnswer,
    Number,
    last_box,
    without_thinking,
)
from gspo_lab.tasks.pools import known_split

SHOWN_CHARACTERS = 120
"""The most characters that a grade shows of what an answer states."""


def shortened(text: str) -> str:
    """The beginning of what an answer states, in one line."""
    return " ".join(text.split())[:SHOWN_CHARACTERS]


def compared(text: str, number: Number | None, gold: Fraction | int, kind: str) -> Grade:
    """The grade of the `number` that was read in `text`; None: it holds none of this `kind`."""
    extracted = shortened(text)
    if number is None:
        return Grade(0.0, False, extracted, f"not a {kind}: {extracted!r}")
    if number.value == gold:
        return Grade(1.0, True, extracted, "equal to the reference")
    return Grade(0.0, False, extracted, f"differs: {number}")


class Published(Task, ABC):
    """A benchmark whose problems come from files. `read` gives them; the rest is here.

    An answer that was cut at the token limit is wrong: what it would have gone on to say is not
    known.
    """

    stop: Strings = ()
    chat = True
    cut_is_wrong = True
    trains = False
    """Whether it has problems to train on, too."""
    runs_programs = False
    """Whether grading runs what a model wrote, in the sandbox; such a benchmark has the option
    `unsafe`.
    """
    enough: OptionalInt = None
    """How many problems the user's own copy must hold; None: all that were published.

    `build_task` sets it.
    """

    def __init__(self, data: str | None = None) -> None:
        self.data = data

    @classmethod
    def options_in(cls, name: str) -> Mapping[str, str]:
        """The options in a longer name of the benchmark, as in `livecodebench-v5-2408-2502`.

        LabError without any.
        """
        raise LabError(f"unknown task '{name}'; the benchmark is called {cls.name}")

    @abstractmethod
    def read(self) -> tuple[Problem, ...]:
        """All held-out problems, in the order of their file; LabError for whatever is wrong with
        the data.
        """

    def problems(self, split: str) -> Problems:
        """The benchmark's problems; it has none to train on."""
        if known_split(self.name, split) == "train":
            raise LabError(
                f"task '{self.name}' is a benchmark and has no problems to train on; train on"
                " gsm8k, say"
            )
        return self._held_out

    def extract(self, answer: str) -> str:
        """What of an answer is graded: the last complete box behind the thinking.

        NoAnswer where there is none.
        """
        return last_box(without_thinking(answer))

    @abstractmethod
    def grade_stated(self, problem: Problem, extracted: str) -> Grade:
        """The grade of what an answer states."""

    def grade(self, problem: Problem, answer: str) -> Grade:
        """The grade of what the answer states; an answer that states nothing is incorrect."""
        try:
            extracted = self.extract(answer)
        except NoAnswer as error:
            return Grade(0.0, False, None, str(error))
        return self.grade_stated(problem, extracted)

    @property
    def data_digest(self) -> str | None:
        """sha256 of ids, prompts and references, in order."""
        return digest(
            [[problem.id, problem.prompt, problem.reference] for problem in self._held_out]
        )

    @functools.cached_property
    def _held_out(self) -> tuple[Problem, ...]:
        return self.read()


PROMPT_VERSION = "boxed/1"


def prompt(problem: str) -> str:
    r"""The problem and one sentence that asks for steps and a boxed answer, as the cards of Qwen's
    models ask.
    """
    return f"{problem}\nPlease reason step by step, and put your final answer within \\boxed{{}}."


IDS = ("unique_id", "question_id", "problem_idx", "id")


@dataclass(frozen=True, slots=True)
class DatasetProblem:
    """One problem as a copy has it. `where` is its file and place, for messages."""

    id: str
    problem: str
    gold: str
    where: str


def read_items(
    name: str, files: Sequence[DataFile], count: int, enough: OptionalInt = None
) -> list[DatasetProblem]:
    """The items of a data set that must hold `count` problems, each once; LabError where they are
    others. The user's own files may hold fewer, but at least `enough`.

    Where every row is repeated equally often (DAPO's copy of AIME has each 32 times) each is taken
    once. Ids are the copy's own where they tell the problems apart, else the places in the files,
    from 1.
    """
    items = list(_read_files(files))
    times = Counter(_key(item) for item in items)
    if len(set(times.values())) > 1:
        often, most = times.most_common(1)[0]
        again = [item.where for item in items if _key(item) == often]
        raise LabError(
            f"{name}: the same problem {most} times, others not: {again[0]} and {again[1]}; repair"
            " the file"
        )
    problems: dict[str, DatasetProblem] = {}
    for item in items:
        earlier = problems.setdefault(_key(item), item)
        if earlier.gold != item.gold:
            golds = f"{earlier.gold} ({earlier.where}) and {item.gold} ({item.where})"
            raise LabError(f"{name}: one problem has two answers, {golds}; repair the file")
    part = (
        enough is not None
        and enough <= len(problems) < count
        and not any(file.published for file in files)
    )
    if len(problems) != count and not part:
        places = ", ".join(str(file.path) for file in files)
        limit = (
            f", or evaluate some with --limit {len(problems)}" if 0 < len(problems) < count else ""
        )
        raise LabError(
            f"{name}: {len(problems)} different problems in {places}, not {count}; name a whole"
            f" copy{limit}"
        )
    ids = Counter(item.id for item in problems.values())
    have_ids = "" not in ids and max(ids.values()) == 1
    return [
        item if have_ids else DatasetProblem(str(place), item.problem, item.gold, item.where)
        for place, item in enumerate(problems.values(), start=1)
    ]


def _read_files(files: Sequence[DataFile]) -> Iterator[DatasetProblem]:
    for file in files:
        file.check()
        for place, row in enumerate(rows(file.path), start=1):
            yield _item(f"{file.path}, row {place}", row)


def _key(item: DatasetProblem) -> str:
    return " ".join(item.problem.split())


def _item(where: str, row: DatasetRow) -> DatasetProblem:
    columns = {name.lower(): value for name, value in row.items()}
    if "reward_model" in columns:
        columns = _unwrap(where, columns)
    problem = columns.get("problem", columns.get("question"))
    if not isinstance(problem, str) or not problem.strip():
        raise LabError(
            f"{where}: no text in a column 'problem' or 'question'; it has {', '.join(row)}"
        )
    answer = columns.get("answer")
    if answer is None:
        answer = _boxed_gold(where, columns.get("solution"))
    if isinstance(answer, bool) or not isinstance(answer, str | int) or not str(answer).strip():
        raise LabError(f"{where}: the answer {answer!r:.40} is neither text nor a whole number")
    name_in_copy = next((columns[name] for name in IDS if columns.get(name) not in (None, "")), "")
    return DatasetProblem(str(name_in_copy), problem.strip(), str(answer).strip(), where)


def _unwrap(where: str, columns: DatasetRow) -> DatasetRow:
    """verl's shape: the bare problem and its gold.

    Its `prompt` holds instructions of another benchmark's.
    """
    extra = columns.get("extra_info")
    model = columns["reward_model"]
    if not isinstance(extra, dict) or not isinstance(model, dict) or "raw_problem" not in extra:
        raise LabError(
            f"{where}: verl's columns without extra_info.raw_problem; its prompt is not the bare"
            " problem"
        )
    return {"problem": extra["raw_problem"], "answer": model.get("ground_truth"), "id": None}


def _boxed_gold(where: str, solution: object) -> str:
    if not isinstance(solution, str):
        raise LabError(f"{where}: neither a column 'answer' nor a solution with a box")
    try:
        return last_box(solution)
    except NoAnswer as error:
        raise LabError(f"{where}: no column 'answer', and in the solution: {error}") from error
