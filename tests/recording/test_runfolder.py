"""What a run's folder tells: where the run stands, what is in force, who is at work."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error

from gspo_lab.recording.journal import FIRST_LOOK_BYTES
from gspo_lab.recording.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.runfolder import RunFolder, StartFolder, begun_arms, run_folders
from gspo_lab.recording.store import ingest
from gspo_lab.study import load_study


def step(index: int) -> StepRecord:
    return StepRecord(step=index, prompts=1, responses=2)


STARTED = RunStatus(state="started", step=0)
REFUSED = RunStatus(state="failed", step=0, message="no fingers")


def left(path: Path, *records: Record) -> RunFolder:
    """The folder of a run whose worker has left these records."""
    path.mkdir(parents=True, exist_ok=True)
    with RunFolder(path).append() as journal:
        journal.write(records)
    return RunFolder(path)


@pytest.mark.parametrize(
    ("records", "state", "steps", "begun"),
    [
        ([], "planned", 0, False),
        ([STARTED], "interrupted", 0, True),
        ([STARTED, step(0), step(1)], "interrupted", 2, True),
        ([STARTED, step(0), RunStatus(state="stopped", step=1)], "stopped", 1, True),
        ([STARTED, step(0), step(1), RunStatus(state="started", step=1)], "interrupted", 1, True),
        ([STARTED, step(0), RunStatus(state="finished", step=1)], "finished", 1, True),
        ([REFUSED, REFUSED], "failed", 0, False),
        ([REFUSED, STARTED], "interrupted", 0, True),
    ],
)
def test_the_last_word_counts(
    tmp_path: Path, records: list[Record], state: str, steps: int, begun: bool
) -> None:
    folder = left(tmp_path, *records)
    result = folder.status()
    assert_fields(result, state=state, steps=steps, finished=state == "finished")
    assert folder.has_records() == begun
    with folder.exclusive_lock("nobody else"):
        assert folder.status().state == ("running" if state == "interrupted" else state)


def test_a_status_is_found_behind_any_length_of_answers_and_a_torn_line_is_none(
    tmp_path: Path,
) -> None:
    assert (RunFolder(tmp_path).status().state, RunFolder(tmp_path).records()) == ("planned", [])
    assert left(tmp_path / "refused", REFUSED).status().message == "no fingers"
    long = AnswerRecord(
        step=3, bench="rollout", problem="p", sample=0, text="x" * (FIRST_LOOK_BYTES // 3)
    )
    folder = left(tmp_path / "long", STARTED, step(0), step(1), *[long] * 40)
    with folder.journal.open("a") as file:
        file.write('{"kind":"status","state":"finished","step":1}')
    assert_fields(folder.status(), state="interrupted", steps=2)


def test_the_folder_and_the_database_void_alike(tmp_path: Path) -> None:
    """The rows that `ingest` keeps are the records that the folder calls in force.

    Two rules would be two truths.
    """
    (tmp_path / "s.toml").write_text(
        'question = "?"\ntask = "addition"\n[arm.a]\nobjective = "grpo"\n'
    )
    run = load_study(tmp_path / "s.toml").runs()[0]
    runs = tmp_path / "runs"

    def batch(index: int) -> list[Record]:
        question = {"rollout": index, "sums": index + 1}
        answers = [
            AnswerRecord(step=place, bench=name, problem="p", sample=0)
            for name, place in question.items()
        ]
        return [UpdateRecord(step=index, minibatch=0), step(index), *answers]

    initial = [STARTED, *batch(0), *batch(1), *batch(2)]
    folder = left(run.folder(runs), *initial, RunStatus(state="started", step=1), *batch(1))
    folder.specify(run.to_json())
    ingest(runs)
    with closing(sqlite3.connect(runs / "lab.db")) as database:
        for kind, columns in {
            "step": "step",
            "update": "step, minibatch",
            "answer": "step, bench",
        }.items():
            rows = database.execute(f"SELECT {columns} FROM {kind}s ORDER BY {columns}").fetchall()
            names = columns.split(", ")
            assert rows == sorted(
                tuple(entry[name] for name in names) for entry in folder.records(kind)
            )
            assert len(rows) == (4 if kind == "answer" else 2)


def test_what_is_to_be_run_comes_back(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'question = "?"\ntask = "addition"\n[arm.a]\nobjective = "grpo"\n'
    )
    run = load_study(tmp_path / "s.toml").runs()[0]
    folder = RunFolder(tmp_path / "runs")
    with lab_error(r"run\.json is missing"):
        folder.run()
    assert not folder.is_declared
    folder.specify(run.to_json())
    assert folder.is_declared
    assert folder.run() == run
    assert folder.specification()["base"] == "..", "a record that is shared names nobody's folders"
    for faults in ({"study": "s"}, run.to_json() | {"seed": "0"}, run.to_json() | {"base": None}):
        folder.specify(faults)
        with lab_error(r"run\.json is damaged"):
            folder.run()


def test_a_warm_start_tells_how_far_it_is_and_its_files_name_no_folder_of_this_machine(
    tmp_path: Path,
) -> None:
    folder = StartFolder(tmp_path / "cache/jobs/1")
    model = tmp_path / "cache/model"
    assert (folder.has_request, folder.steps_done(), folder.model_folder()) == (False, 0, None)
    request = {"seed": 0, "base": str(tmp_path), "cache": str(tmp_path / "cache")}
    folder.write_request(request)
    folder.write_progress(3, 9)
    assert (folder.has_request, folder.steps_done()) == (True, 3)
    model.mkdir()
    folder.finish(model)
    files = [path for path in folder.path.iterdir() if str(tmp_path) in path.read_text()]
    assert (files, folder.request(), folder.model_folder()) == ([], request, model)
    moved = tmp_path / "moved"
    (tmp_path / "cache").rename(moved)
    folder = StartFolder(moved / "jobs/1")
    assert (folder.request()["cache"], folder.model_folder()) == (str(moved), moved / "model")
    (moved / "model").rmdir()
    assert folder.model_folder() is None, "it was made, and has gone"


def test_pilots_and_runs_that_could_not_begin_are_no_begun_arms(tmp_path: Path) -> None:
    left(tmp_path / "a/s0", STARTED)
    left(tmp_path / "b/s0", REFUSED)
    left(tmp_path / "_pilot/c/s0", STARTED)
    (tmp_path / "study.json").touch()
    assert {folder.path.parent.name for folder in run_folders(tmp_path)} == {"a", "b"}
    assert begun_arms(tmp_path) == {"a"}


def test_what_a_finished_run_went_on_from_goes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.final.mkdir(parents=True)
    for name in ("resume.pt", ".resume.pt.partial"):
        (folder.checkpoints / name).touch()
    folder.drop_resume()
    folder.drop_resume()
    assert list(folder.checkpoints.iterdir()) == [folder.final]


def test_who_looks_where_runs_stand_imports_no_settings() -> None:
    code = "import sys, gspo_lab.recording.runfolder; print('pydantic' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
