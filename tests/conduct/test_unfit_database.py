"""A database that cannot take the records in is told before the first step."""

from pathlib import Path

import pytest
from counting import Bench

from gspo_lab.errors import LabError


def test_another_program_s_database_refuses_the_study_at_once(bench: Bench) -> None:
    bench.runs.mkdir(parents=True, exist_ok=True)
    (bench.runs / "lab.db").write_text("not a database of this lab " * 100)
    with pytest.raises(LabError, match=r"lab\.db"):
        bench.conduct()
    assert not bench.home.exists(), "no step was made, and nothing is left behind"


def test_a_file_where_the_folder_of_databases_should_be(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").touch()
    monkeypatch.setenv("GSPO_LAB_DATABASES", str(tmp_path / "taken"))
    with pytest.raises(LabError, match="taken"):
        bench.conduct()
    assert not bench.home.exists()
