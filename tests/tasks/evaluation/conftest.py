import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import write_task
from public_data import public
from tiny_server import MODEL, TinyServer, serving


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own.

    No relative path leads from it to other files of this machine.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "dont_write_bytecode", False
    )  # as most have it: a cache that misleads is there
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("GSPO_LAB_RUNS", "GSPO_LAB_DATA", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def problems(here: Path) -> Path:
    return write_task(here, 60)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are tried again after a tenth of the usual pauses."""
    monkeypatch.setattr("gspo_lab.training.samplers.server_sampler.FIRST_PAUSE_SECONDS", 0.05)


@pytest.fixture(scope="session")
def started() -> Iterator[TinyServer]:
    with serving() as server:
        yield server


@pytest.fixture
def server(started: TinyServer) -> TinyServer:
    """A server with nothing asked yet and nothing in store."""
    for past in (started.faults, started.asked, started.times):
        past.clear()
    started.go_on.clear()
    started.most_waiting = 0
    started.always = None
    started.refuse = None
    started.context = 4096
    started.answers_as = MODEL
    return started


@pytest.fixture
def aime24() -> Path:
    return public("aime24.jsonl")
