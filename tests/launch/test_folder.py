"""Where a run stands, by the end of its journal."""

from pathlib import Path

import pytest

from gspo_lab.journal import Journal
from gspo_lab.launch.folder import FIRST_LOOK_BYTES, standing
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
