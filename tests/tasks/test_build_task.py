import json
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error

from gspo_lab.tasks import TASKS, Defaults, Task, build_task, grade_answer, task_key

OWN_TASK = """
from gspo_lab.tasks import Grade, Problem

class Parity:
    name, grader, stop, max_tokens = "parity", "parity/1", ("\\n",), 4

    def __init__(self, largest=8, *, odd="odd"):
        self.largest, self.odd = largest, odd

    def problems(self, split):
        start = 0 if split == "train" else 1
        return [Problem(str(n), f"{n}?", self.odd if n % 2 else "even") for n in range(start, self.largest, 2)]

    def grade(self, problem, answer):
        return Grade(float(answer == problem.reference), answer == problem.reference)

def small(largest):
    return Parity(largest)

def nothing():
    return object()

seven = 7
"""  # noqa: E501


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_built_in_task_works_with_its_defaults(name: str) -> None:
    task = build_task(name, {}, None)
    assert task.name == name
    assert task.grader.startswith(f"{name}/")
    for split in ("train", "held-out"):
        problem = task.problems(split)[0]
        last = (problem.demonstrated_turns or [problem.demonstration])[-1]
        assert any(last.endswith(stop) for stop in task.stop)
        assert task.grade(problem, last if task.max_turns == 1 else last.strip()).correct is True
        assert task.grade(problem, "").correct is False


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "addition",
            {"digit": 2},
            r"task 'addition': unknown option 'digit' \(did you mean 'digits'\?\); known: digits",
        ),
        ("guess", {"zzz": 2}, "task 'guess': unknown option 'zzz'; known: digits, width"),
        (
            "adition",
            {},
            (
                r"unknown task 'adition' \(did you mean 'addition'\?\); known: addition, aime24,"
                r" aime25"
            ),
        ),
        *(
            (
                "addition",
                {"digits": digits},
                f"task 'addition': digits = {digits!r} must be a whole number from",
            )
            for digits in (0, 7, "3", True, 3.0)
        ),
        ("addition", {"terms": 1}, "task 'addition': terms = 1 must be a whole number from"),
        ("addition", {"train": 0}, "task 'addition': train = 0 must be a whole number from"),
        *(
            (
                "chain",
                {"length": length},
                f"task 'chain': length = {length} must be a whole number from",
            )
            for length in (15, 4000, 1e3)
        ),
        ("chain", {"digits": 0}, "digits = 0"),
        ("guess", {"width": 200}, "width"),
        ("guess", {"hasty": 2}, "hasty = 2 must be a number from 0, at most 1"),
        ("guess", {"max_turns": 1}, "max_turns"),
        ("guess", {"held_out": 0}, "held_out = 0 must be"),
        ("nowhere.py:grade", {}, "no file .*nowhere.py"),
        ("own.py:Missing", {}, "has no 'Missing'"),
        ("own.py:Parity", {"size": 3}, "unknown option 'size'; known: largest, odd"),
        ("own.py:small", {}, "task 'own.py:small': the option 'largest' is missing"),
        ("own.py:nothing", {"largest": 3}, "unknown option 'largest'; known: none"),
        ("own.py:nothing", {}, "what it makes has no 'name'"),
        ("own.py:seven", {}, "it is int, not a class or a function"),
        ("broken.py:grade", {}, r"importing it failed with SyntaxError: .*broken.py, line 2"),
        ("failing.py:grade", {}, "importing it failed with ZeroDivisionError: division by zero"),
        ("no_such_package.module:grade", {}, "no module named 'no_such_package'"),
    ],
)
def test_mistakes(tmp_path: Path, name: str, options: dict[str, object], message: str) -> None:
    (tmp_path / "own.py").write_text(OWN_TASK)
    (tmp_path / "broken.py").write_text("\ndef grade(:\n")
    (tmp_path / "failing.py").write_text("1 / 0\n")
    with lab_error(message) as caught:
        build_task(name, options, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.fixture
def parity(tmp_path: Path) -> Task:
    (tmp_path / "own.py").write_text(OWN_TASK)
    return build_task("own.py:small", {"largest": 6}, tmp_path)


def test_a_class_or_factory_of_the_users_own(parity: Task, tmp_path: Path) -> None:
    for task in (parity, build_task("own.py:Parity", {"largest": 6}, tmp_path)):
        assert [problem.prompt for problem in task.problems("train")] == ["0?", "2?", "4?"]
        assert task.grade(task.problems("held-out")[0], "odd").reward == 1.0
        assert_fields(
            task,
            prompt_version="bare/1",
            data_digest=None,
            chat=False,
            cut_is_wrong=False,
            defaults=Defaults(samples=1, temperature=1.0, top_p=1.0, max_tokens=None),
        )


def test_key_counts_defaults_and_ignores_order() -> None:
    assert task_key("addition", {}) == task_key("addition", {"digits": 3, "terms": 2})
    assert task_key("addition", {"train": 5, "digits": 2}) == task_key(
        "addition", {"digits": 2, "train": 5}
    )
    keys = {task_key("addition", {"digits": digits}) for digits in (1, 2, 3)} | {
        task_key("chain", {})
    }
    assert len(keys) == 4
    options: dict[str, object] = {
        "digits": 3,
        "terms": 2,
        "train": 20000,
        "held_out": 1000,
        "hasty": 0.0,
    }
    options |= {"words": False, "partial": False, "rewards": []}
    assert json.loads(task_key("addition", {}))["options"] == options


def test_key_follows_the_content_of_a_users_files(tmp_path: Path) -> None:
    (tmp_path / "g.py").write_text("def grade(problem, answer): return 1\n")
    (tmp_path / "p.jsonl").write_text('{"prompt": "a", "reference": "b"}\n')
    options = {"problems": "p.jsonl", "held_out": 0.5}
    first = task_key("g.py:grade", options, tmp_path)
    assert first == task_key("g.py:grade", dict(reversed(options.items())), tmp_path)
    (tmp_path / "p.jsonl").write_text('{"prompt": "a", "reference": "c"}\n')
    second = task_key("g.py:grade", options, tmp_path)
    (tmp_path / "g.py").write_text("def grade(problem, answer): return 0\n")
    third = task_key("g.py:grade", options, tmp_path)
    assert len({first, second, third}) == 3


def test_a_cut_answer_is_wrong_only_where_the_task_says_so(parity: Task) -> None:
    problem = parity.problems("held-out")[0]
    assert grade_answer(parity, problem, "odd", truncated=True).correct is True
    parity.cut_is_wrong = True
    cut = grade_answer(parity, problem, "odd", truncated=True)
    assert_fields(cut, correct=False, reward=0.0, reason="cut at the token limit")
    assert grade_answer(parity, problem, "odd", truncated=False).correct is True
