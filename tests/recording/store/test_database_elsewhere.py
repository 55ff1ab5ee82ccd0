"""A database that does not lie beside its runs."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gspo_lab.common.paths import database_lock, database_of
from gspo_lab.recording.records import RunStatus, StepRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.recording.store import Evidence, ingest, rebuild
from gspo_lab.study import load_study


def one_run(folder: Path, steps: int) -> Path:
    """A folder of runs that holds one, with so many steps."""
    folder.mkdir()
    (folder / "s.toml").write_text(
        'question = "?"\ntask = "addition"\n[arm.a]\nobjective = "grpo"\n'
    )
    run = load_study(folder / "s.toml").runs()[0]
    place = RunFolder(run.folder(folder / "runs"))
    place.specify(run.to_json())
    with place.append() as journal:
        journal.write([RunStatus(state="started", step=0)])
        journal.write([StepRecord(step=step, prompts=1, responses=2) for step in range(steps)])
    return folder / "runs"


def test_beside_the_runs_where_nothing_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GSPO_LAB_DATABASES", raising=False)
    assert database_of(tmp_path) == tmp_path / "lab.db"
    assert database_lock(tmp_path / "lab.db") == tmp_path / ".lab.lock"


def test_in_a_folder_of_databases_each_folder_of_runs_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GSPO_LAB_DATABASES", str(tmp_path / "local"))
    entry = one_run(tmp_path / "one", 1)
    two = one_run(tmp_path / "two", 2)
    for runs in (entry, two):
        ingest(runs)
        assert [path.name for path in runs.iterdir()] == ["s"], (
            "nothing is written to the shared disk"
        )
        rebuild(runs)
    assert len(list((tmp_path / "local").glob("runs-*.db"))) == 2
    for runs, steps in ((entry, 1), (two, 2)):
        with closing(sqlite3.connect(database_of(runs))) as database:
            assert database.execute("SELECT COUNT(*) FROM steps").fetchone() == (steps,)
    monkeypatch.chdir(tmp_path / "one")
    assert database_of(Path("runs")) == database_of(entry), "however the folder is named"
    with Evidence.open(database_of(entry), entry) as evidence:
        assert evidence.runs_folder == entry
