"""From the rows that copies of a data set have to one form: an id, the problem's text, its gold answer.

Copies differ in names (`problem`, `Problem`, `question`), in where the gold is (a column, or a box in the solution), in
wrapping (verl's) and in repetition. Whatever fits none of the known shapes is an error, never a skipped row.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gspo_lab.errors import LabError
from gspo_lab.tasks.benchmarks.boxed import NoAnswer, last_box
from gspo_lab.tasks.benchmarks.datasets import DataFile, Row, rows

IDS = ("unique_id", "question_id", "problem_idx", "id")


@dataclass(frozen=True, slots=True)
class Item:
    """One problem as a copy has it. `where` is its file and place, for messages."""

    id: str
    problem: str
    gold: str
    where: str


def read_items(name: str, files: Sequence[DataFile], count: int, enough: int | None = None) -> list[Item]:
    """The items of a data set that must hold `count` problems, each once; LabError where they are others. The user's
    own files may hold fewer, but at least `enough`.

    Where every row is repeated equally often (DAPO's copy of AIME has each 32 times) each is taken once. Ids are the
    copy's own where they tell the problems apart, else the places in the files, from 1.
    """
    items = list(_read(files))
    times = Counter(_key(item) for item in items)
    if len(set(times.values())) > 1:
        often, most = times.most_common(1)[0]
        again = [item.where for item in items if _key(item) == often]
        raise LabError(f"{name}: the same problem {most} times, others not: {again[0]} and {again[1]}; repair the file")
    kept: dict[str, Item] = {}
    for item in items:
        other = kept.setdefault(_key(item), item)
        if other.gold != item.gold:
            both = f"{other.gold} ({other.where}) and {item.gold} ({item.where})"
            raise LabError(f"{name}: one problem has two answers, {both}; repair the file")
    part = enough is not None and enough <= len(kept) < count and not any(file.published for file in files)
    if len(kept) != count and not part:
        places = ", ".join(str(file.path) for file in files)
        limit = f", or evaluate some with --limit {len(kept)}" if 0 < len(kept) < count else ""
        raise LabError(f"{name}: {len(kept)} different problems in {places}, not {count}; name a whole copy{limit}")
    ids = Counter(item.id for item in kept.values())
    own = "" not in ids and max(ids.values()) == 1
    return [
        item if own else Item(str(place), item.problem, item.gold, item.where)
        for place, item in enumerate(kept.values(), start=1)
    ]


def _read(files: Sequence[DataFile]) -> Iterator[Item]:
    for file in files:
        file.check()
        for place, row in enumerate(rows(file.path), start=1):
            yield _item(f"{file.path}, row {place}", row)


def _key(item: Item) -> str:
    return " ".join(item.problem.split())


def _item(where: str, row: Row) -> Item:
    columns = {name.lower(): value for name, value in row.items()}
    if "reward_model" in columns:
        columns = _unwrapped(where, columns)
    problem = columns.get("problem", columns.get("question"))
    if not isinstance(problem, str) or not problem.strip():
        raise LabError(f"{where}: no text in a column 'problem' or 'question'; it has {', '.join(row)}")
    answer = columns.get("answer")
    if answer is None:
        answer = _boxed_gold(where, columns.get("solution"))
    if isinstance(answer, bool) or not isinstance(answer, str | int) or not str(answer).strip():
        raise LabError(f"{where}: the answer {answer!r:.40} is neither text nor a whole number")
    found = next((columns[name] for name in IDS if columns.get(name) not in (None, "")), "")
    return Item(str(found), problem.strip(), str(answer).strip(), where)


def _unwrapped(where: str, columns: Row) -> Row:
    """verl's shape: the bare problem and its gold. Its `prompt` holds instructions of another benchmark's."""
    extra, model = columns.get("extra_info"), columns["reward_model"]
    if not isinstance(extra, dict) or not isinstance(model, dict) or "raw_problem" not in extra:
        raise LabError(f"{where}: verl's columns without extra_info.raw_problem; its prompt is no bare problem")
    return {"problem": extra["raw_problem"], "answer": model.get("ground_truth"), "id": None}


def _boxed_gold(where: str, solution: object) -> str:
    if not isinstance(solution, str):
        raise LabError(f"{where}: neither a column 'answer' nor a solution with a box")
    try:
        return last_box(solution)
    except NoAnswer as error:
        raise LabError(f"{where}: no column 'answer', and in the solution: {error}") from error
