"""Every test works in a folder of its own.

No relative path leads from it to other files of this machine.
"""

import sys
from pathlib import Path

import pytest
from calling import python_path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "dont_write_bytecode", False
    )  # as most have it: what is written beside a file is seen
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PYTHONPATH", python_path())
    for name in ("GSPO_LAB_RUNS", "GSPO_LAB_JOBS", "GSPO_LAB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
