"""What holds for every test."""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# One thread, as a worker has: several wait for each other wherever the cores have other work, such
# as a second test.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A hundred processes import the package; without compiled modules each would compile all of it
# again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Nothing that a test writes need outlive the machine's power: ten thousand lines wait for no disk.
os.fsync = lambda descriptor: None

with contextlib.suppress(ModuleNotFoundError):  # the session for vLLM does without it
    from hypothesis import HealthCheck, settings

    # Examples may take as long as they do: a busy machine is no finding.
    settings.register_profile(
        "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("patient")

# A shell that starts something in the background has it ignore Ctrl-C, and so would all that tests
# start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# What imports and collecting make stays to the end: the collector need not walk through it again
# and again.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one folder run together, in whatever order files are given.

    One worker makes what they share.
    """
    folders = {
        folder: place
        for place, folder in enumerate(dict.fromkeys(item.path.parent for item in items))
    }
    items.sort(key=lambda item: folders[item.path.parent])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each worker gets whole files and takes over from the other at the end.

    Few fixtures are made twice.
    """
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="session")
def can_isolate() -> None:
    from isolation import opened

    opened(1).close()


@pytest.fixture
def add_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """A function that installs a package with these entry points.

    Its modules are files of `tmp_path`.
    """
    from gspo_lab.common.registry import installed

    def add(points: str) -> None:
        about = tmp_path / "theirs-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(tmp_path)
        installed.cache_clear()

    yield add
    monkeypatch.undo()
    installed.cache_clear()


@pytest.fixture
def no_bubblewrap(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine without it: nothing is on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("no-tools")))
