"""A user's files are what their source says, whatever Python's cache holds.

Nothing is written beside them.
"""

import hashlib
import importlib
import json
import os
import sys
from pathlib import Path

import pytest

from gspo_lab.common.registry import look_up
from gspo_lab.common.user_code import FromSource, source_digest

OLD = "def answer():\n    return 'old'\n"
NEW = "def answer():\n    return 'new'\n"


@pytest.fixture(autouse=True)
def caching(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python as most have it, that writes its cache; and the modules of the test are forgotten."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.syspath_prepend(tmp_path)


def written(folder: Path, text: str) -> None:
    """The file keeps its size and time, whatever its content.

    So Python's cache cannot notice the change.
    """
    path = folder / "their_own.py"
    path.write_text(text)
    os.utime(path, (1_000_000_000, 1_000_000_000))


def forget() -> None:
    """As in a new process."""
    for name in [name for name in sys.modules if name.startswith(("their_", "gspo_lab_user_"))]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "name", ["their_own.py:answer", "their_own:answer", "their_face.py:answer"]
)
def test_an_edit_that_no_cache_notices_is_seen(tmp_path: Path, name: str) -> None:
    (tmp_path / "their_face.py").write_text("from their_own import answer\n")
    for text, says in ((OLD, "old"), (NEW, "new")):
        written(tmp_path, text)
        forget()
        found = look_up("task", name, {}, tmp_path)
        assert found() == says
        written(tmp_path, "# the digest is of what was executed, not of what lies there now")
        assert source_digest(found) == hashlib.sha256(text.encode()).hexdigest(), (
            "of the file that defines it"
        )
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize("name", ["their_own.py:answer", "their_own:answer"])
def test_a_cache_that_is_there_is_not_believed(tmp_path: Path, name: str) -> None:
    written(tmp_path, OLD)
    assert importlib.import_module("their_own").answer() == "old"
    assert list(tmp_path.rglob("their_own*.pyc")), "Python has cached it"
    forget()
    written(tmp_path, NEW)
    assert importlib.import_module("their_own").answer() == "old", (
        "the fault that this guards against"
    )
    forget()
    assert look_up("task", name, {}, tmp_path)() == "new"


def test_installed_packages_come_from_the_cache_and_the_search_is_as_before(tmp_path: Path) -> None:
    before = list(sys.meta_path)
    assert look_up("task", "json:dumps", {}) is json.dumps
    found = look_up("task", "quopri:encodestring", {})
    assert not isinstance(sys.modules[found.__module__].__spec__.loader, FromSource)
    assert sys.meta_path == before
    assert source_digest(len) is source_digest(3) is None, "what has no source has no digest"
