"""Files for other tools hold what the database holds."""

import csv
import sys
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error
from run_folders import Lab, answers

from gspo_lab.common.errors import MissingExtra
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import GradeRecord, ScoreRecord
from gspo_lab.recording.store import export, ingest
from gspo_lab.recording.store.export import FORMATS, PARTS


@pytest.fixture
def filled(lab: Lab) -> Lab:
    for study in ("adding", "carrying"):
        for run in lab.declare(study, ("grpo", "gspo"), [0]):
            lab.train(run)
    question = lab.subject("big")
    lab.ask(question, "addition-k1", *answers(0, [1, 0]))
    lab.regrade(
        question,
        GradeRecord(bench="addition", step=0, problem="p1", sample=0, correct=1),
        evaluation="addition-k1",
    )
    with Journal(lab.runs / "carrying" / "gspo" / "s0") as journal:
        journal.write([ScoreRecord(step=4, bench="elsewhere", score=0.5)])
    ingest(lab.runs)
    return lab


def test_csv_of_one_study(filled: Lab, tmp_path: Path) -> None:
    paths = export(filled.db, "adding", tmp_path / "out", "csv")
    assert [path.name for path in paths] == [f"{name}.csv" for name in PARTS]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        path.name for path in paths
    )
    with (tmp_path / "out" / "steps.csv").open(newline="") as file:
        steps = list(csv.DictReader(file))
    assert [row["run_id"] for row in steps] == ["adding/grpo/s0"] * 4 + ["adding/gspo/s0"] * 4
    assert [float(row["reward_mean"]) for row in steps[:4]] == [0.0, 0.1, 0.2, 0.3]
    assert {row["entropy"] for row in steps} == {""}
    with (tmp_path / "out" / "scores.csv").open(newline="") as file:
        assert [row["score"] for row in csv.DictReader(file)] == ["0.0", "0.5", "0.0", "0.5"]
    with (tmp_path / "out" / "runs.csv").open(newline="") as file:
        assert {row["study"] for row in csv.DictReader(file)} == {"adding"}


def test_parquet_of_everything(filled: Lab, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for path in export(filled.db, None, tmp_path, "parquet"):
        table = parquet.read_table(path)
        query = (
            f"SELECT {', '.join(table.column_names)} FROM {path.stem} ORDER BY"
            f" {', '.join(PARTS[path.stem][1])}"
        )
        rows = list(zip(*table.to_pydict().values(), strict=True))
        assert rows == filled.query(query)
        assert rows
    types = {
        field.name: str(field.type) for field in parquet.read_schema(tmp_path / "steps.parquet")
    }
    assert_fields(types, step="int64", entropy="double", prompt_digest="string")
    assert str(parquet.read_schema(tmp_path / "scores.parquet").field("score").type) == "double"


def test_mistakes_are_told_before_anything_is_written(
    filled: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lab_error(r"no study 'ading' \(did you mean 'adding'\?\)"):
        export(filled.db, "ading", tmp_path / "out", "csv")
    with lab_error(f"unknown format 'xml'; known: {', '.join(FORMATS)}"):
        export(filled.db, None, tmp_path / "out", "xml")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gspo-lab\[parquet\]'"):
        export(filled.db, None, tmp_path / "out", "parquet")
    assert not (tmp_path / "out").exists()


def test_an_export_that_fails_leaves_the_old_files_whole(filled: Lab, tmp_path: Path) -> None:
    export(filled.db, None, tmp_path, "csv")
    original = (tmp_path / "steps.csv").read_bytes()
    (tmp_path / "updates.csv").unlink()
    (tmp_path / "updates.csv").mkdir()  # cannot be replaced by a file
    with pytest.raises(OSError, match=r"updates\.csv"):
        export(filled.db, None, tmp_path, "csv")
    assert (tmp_path / "steps.csv").read_bytes() == original
    assert not list(tmp_path.glob(".*partial"))
