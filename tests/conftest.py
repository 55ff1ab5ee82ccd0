"""What holds for every test."""

import signal

import pytest

# A shell that starts something in the background has it ignore Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def can_isolate() -> None:
    from isolation import opened

    opened(1).close()


@pytest.fixture
def no_bubblewrap(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without it: nothing is on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("no-tools")))
