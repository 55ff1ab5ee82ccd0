"""Calling `gspo-lab` as a shell does."""

import contextlib
import io
import json
import os
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from gspo_lab.cli import main
from gspo_lab.common.errors import LabError


@dataclass(frozen=True)
class Said:
    """What a call wrote and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal(io.StringIO):
    """Takes itself for a terminal."""

    def isatty(self) -> bool:
        return True


def gspo_lab(*arguments: object, columns: int | None = None) -> Said:
    """Run `gspo-lab ARGUMENTS` in this process, without colours.

    It writes into a pipe, or on a terminal of so many columns.
    """
    out, err = (io.StringIO(), io.StringIO()) if columns is None else (Terminal(), Terminal())
    with (
        patch.object(sys, "argv", ["gspo-lab", *map(str, arguments)]),
        patch.dict(
            os.environ,
            {} if columns is None else {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"},
        ),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return Said(code, out.getvalue(), err.getvalue())


def lab_error(message: str) -> pytest.RaisesExc[LabError]:
    """A mistake that the user can correct, told in words that match `message`."""
    return pytest.raises(LabError, match=message)


def rows(runs: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query of a folder's database gives."""
    with contextlib.closing(sqlite3.connect(runs / "lab.db")) as connection:
        return connection.execute(query).fetchall()


def python_path() -> str:
    """PYTHONPATH by which a child process imports what this one can."""
    return os.pathsep.join(entry for entry in sys.path if entry)


def environment() -> dict[str, str]:
    """The environment of such a child process."""
    return {**os.environ, "PYTHONPATH": python_path()}
