"""Where a run stands, by the end of its journal."""

from pathlib import Path

import pytest

from gspo_lab.errors import LabError
from gspo_lab.journal import Journal
from gspo_lab.launch.folder import FIRST_LOOK_BYTES, read_whole, standing, write_whole
from gspo_lab.launch.lock import held, holder
from gspo_lab.records import AnswerRecord, Record, RunStatus, StepRecord


def step(index: int) -> StepRecord:
    return StepRecord(step=index, prompts=1, responses=2)


STARTED = RunStatus(state="started", step=0)


@pytest.mark.parametrize(
    ("records", "state", "steps"),
    [
        ([], "new", 0),
        ([STARTED], "started", 0),
        ([STARTED, step(0), step(1)], "interrupted", 2),
        ([STARTED, step(0), RunStatus(state="stopped", step=1)], "stopped", 1),
        ([STARTED, step(0), step(1), RunStatus(state="started", step=1)], "started", 1),
        ([STARTED, step(0), RunStatus(state="finished", step=1)], "finished", 1),
        ([RunStatus(state="failed", step=0, message="no fingers")], "failed", 0),
    ],
)
def test_the_last_word_counts(tmp_path: Path, records: list[Record], state: str, steps: int) -> None:
    with Journal(tmp_path) as journal:
        journal.write(records)
    found = standing(tmp_path)
    assert (found.state, found.steps, found.finished) == (state, steps, state == "finished")


def test_a_folder_without_a_journal_is_new(tmp_path: Path) -> None:
    assert standing(tmp_path).state == "new"


def test_the_last_step_is_found_behind_any_length_of_answers(tmp_path: Path) -> None:
    long = AnswerRecord(step=3, bench="rollout", problem="p", sample=0, text="x" * (FIRST_LOOK_BYTES // 3))
    with Journal(tmp_path) as journal:
        journal.write([STARTED, step(0), step(1), *[long] * 40])
    assert standing(tmp_path).steps == 2


def test_a_torn_last_line_is_no_word(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.write([STARTED, step(0)])
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"kind":"status","state":"fini')
    assert standing(tmp_path) == standing(tmp_path).__class__("interrupted", 1)


def test_json_is_written_whole(tmp_path: Path) -> None:
    assert read_whole(tmp_path / "a.json") is None
    write_whole(tmp_path / "deep/a.json", {"x": [1]})
    assert read_whole(tmp_path / "deep/a.json") == {"x": [1]}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.json"]


def test_a_lock_is_held_alone_and_let_go(tmp_path: Path) -> None:
    lock = tmp_path / "deep/lock"
    assert holder(lock) is None
    with held(lock, "mine"):
        assert holder(lock) is not None
        with pytest.raises(LabError, match=r"^yours \(process \d+\)$"), held(lock, "yours", patience_seconds=0.1):
            raise AssertionError("two hold it")
    assert holder(lock) is None
    with held(lock, "yours"):
        pass
