"""A source of one's own: a file's object with `runs` and `read`, named on the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from logs import bring, brought, opened

from gspo_lab.recording.store.records import read_steps

READER = """
from gspo_lab.exchange.importers.base import Log

class Reader:
    @staticmethod
    def read(path, run, spec):
        rows = [(step, {"r": float(text)}) for step, text in enumerate(path.read_text().split())]
        return Log("mine", rows, (path,))
"""


def test_a_file_s_reader_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_file.py").write_text(READER)
    Path("log.txt").write_text("0.25 0.5")
    options = ("--study", "x", "--arm", "a", "--seed", 0, "--map", "reward=r")
    brought(tmp_path, "my_file.py:Reader", "log.txt", *options)
    with opened(tmp_path) as evidence:
        assert read_steps(evidence, "x", ["reward_mean"])[
            ["step", "reward_mean"]
        ].to_numpy().tolist() == [
            [0, 0.25],
            [1, 0.5],
        ]


def test_a_reader_in_a_table_of_runs_lies_beside_its_file(tmp_path: Path) -> None:
    (tmp_path / "my_reader.py").write_text(READER)
    (tmp_path / "log.txt").write_text("0.25 0.5")
    table = '[[runs]]\nsource = "my_reader.py:Reader"\npath = "log.txt"\narm = "a"\nseed = 0\n'
    (tmp_path / "x.toml").write_text(table)
    brought(tmp_path, tmp_path / "x.toml")


def test_an_installed_package_s_reader_is_a_source(
    tmp_path: Path, add_entry_points: Callable[[str], None]
) -> None:
    (tmp_path / "readers_of_mine.py").write_text(READER)
    add_entry_points("[gspo_lab.sources]\nmine = readers_of_mine:Reader\n")
    (tmp_path / "log.txt").write_text("0.25 0.5")
    brought(tmp_path, "mine", tmp_path / "log.txt", "--study", "x", "--arm", "a", "--seed", 0)


def test_a_reader_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_file.py").write_text(READER)
    said = bring(
        tmp_path, "my_file.py:Raeder", "my_file.py", "--study", "x", "--arm", "a", "--seed", 0
    )
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "'my_file.py' has no 'Raeder'" in said.err
