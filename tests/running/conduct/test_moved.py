"""The folder of the runs is moved while a study runs, and the database's lock is held."""

import fcntl

import pytest
from calling import gspo_lab
from counting import Bench
from waiting import ended

from gspo_lab.common.paths import database_lock, database_of
from gspo_lab.recording.runfolder import RunFolder


@pytest.mark.parametrize("study", ["", "count"])
def test_a_moved_folder_is_one_line_and_no_run_is_finished_without_its_records(
    bench: Bench, study: str
) -> None:
    """Of all runs, or of the study."""
    bench.hold = {"a/s0": 2, "b/s0": 2}
    conductor = bench.start()
    bench.until_held()
    moved = bench.folder / "elsewhere"
    home = bench.runs / study
    home.rename(moved)
    bench.hold_anew({})
    output = ended(conductor, 2)
    assert "Traceback" not in output, output
    assert "was moved or deleted while" in output.splitlines()[-1], output
    for run in ("a/s0", "b/s0"):
        (folder,) = moved.glob(f"**/{run}")
        assert not RunFolder(folder).status().finished
    if home.exists():
        home.rename(bench.folder / "left")
    moved.rename(home)
    bench.finish()
    assert bench.steps_of("a/s0")[-1] == 3


def test_a_held_lock_is_named_and_readers_read_what_is_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.finish()
    monkeypatch.chdir(bench.folder)
    lock = database_lock(database_of(bench.runs))
    with lock.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write("4711 " + "here")
        file.flush()
        for words in (("show",), ("show", "count"), ("certify", "count"), ("report", "count")):
            said = gspo_lab(*words, "--runs", bench.runs)
            assert said.code in (0, 1), said
            assert "is held by process 4711 on here" in said.err
            assert said.out
