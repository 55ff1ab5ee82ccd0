"""How an import reaches its place: alone on the study, whole, and going on where a log had ended before."""

from pathlib import Path

import pytest
from logs import bring, content, csv_of, refused

from gspo_lab.errors import LabError
from gspo_lab.importers import Said
from gspo_lab.importers.convert import Conversion
from gspo_lab.importers.declare import declaration
from gspo_lab.importers.log import Log
from gspo_lab.importers.names import names
from gspo_lab.importers.stage import Stage

ONE = ("--study", "x", "--arm", "a", "--seed", 0)


def of_one_step(path: Path) -> Conversion:
    return Conversion(Log("csv", [(1, {"r": 0.5})], (csv_of(path, "step,r", "1,0.5"),)), names("csv", {}, {}), {})


def test_a_refused_import_leaves_the_one_under_way_alone(tmp_path: Path) -> None:
    """The second is refused while the first has written beside; the first then comes to its end."""
    converted = of_one_step(tmp_path / "a.csv")
    with Stage(tmp_path / "runs", "x").open() as stage:
        stage.put("a", 0, converted, "a.csv")
        assert "another import of it is under way" in refused(tmp_path, "csv", tmp_path / "a.csv", *ONE)
        stage.commit(declaration(None, Said("x"), [("a", 0, converted)], "a/s0"))
    assert (tmp_path / "runs" / "x" / "a" / "s0" / "journal.jsonl").is_file()
    assert not (tmp_path / "runs" / ".import-x").exists()
    assert "x/a/s0: unchanged" in bring(tmp_path, "csv", tmp_path / "a.csv", *ONE).out


def test_nothing_is_put_where_a_journal_is_gone(tmp_path: Path) -> None:
    converted = of_one_step(tmp_path / "a.csv")
    with Stage(tmp_path / "runs", "x").open() as stage:
        stage.put("a", 0, converted, "a.csv")
        (tmp_path / "runs" / ".import-x" / "a" / "s0" / "journal.jsonl").unlink()
        with pytest.raises(LabError, match="x/a/s0: what was to be imported is gone"):
            stage.commit(declaration(None, Said("x"), [("a", 0, converted)], "a/s0"))
    assert content(tmp_path) == {"a.csv": b"step,r\n1,0.5\n"}
