"""What holds for every test."""

import contextlib
import os
import signal
from typing import Any

import pytest

# One thread, as a worker has: several wait for each other wherever the cores have other work, such as a second test.
os.environ.setdefault("OMP_NUM_THREADS", "1")

with contextlib.suppress(ModuleNotFoundError):  # the session for vLLM does without it
    from hypothesis import HealthCheck, settings

    # Examples may take as long as they do: a busy machine is no finding.
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")

# A shell that starts something in the background has it ignore Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each worker gets whole files and takes over from the other at the end: few fixtures are made twice."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="session")
def can_isolate() -> None:
    from isolation import opened

    opened(1).close()


@pytest.fixture
def no_bubblewrap(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without it: nothing is on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("no-tools")))
