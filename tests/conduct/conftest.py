"""Every test gets a study folder of its own; the warm start is made once for all."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from counting import Bench
from trained import recorded


@pytest.fixture(scope="session")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of warm starts, which pytest's own workers share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "starts"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def bench(tmp_path: Path, starts: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("GSPO_LAB_CACHE", str(starts))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.delenv("GSPO_LAB_JOBS", raising=False)
    bench = Bench(tmp_path)
    yield bench
    bench.end()


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory, starts: Path) -> dict[str, list[dict[str, Any]]]:
    """What the smallest study that trains has recorded by local workers, undisturbed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GSPO_LAB_CACHE", str(starts))
        found = recorded(tmp_path_factory.mktemp("here"), "local")
    assert [record["kind"] for record in found["gspo"]].count("update") == 6
    return found
