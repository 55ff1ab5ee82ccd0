"""A program that an engine starts ends with its worker, even one that was gone before it had read its imports."""

import os
import subprocess
import sys

import pytest

from gspo_lab.engines.external.attempt import WORKER

ENDS = "from gspo_lab.engines.external.attempt import end_with_parent; end_with_parent(); print('at work')"


@pytest.mark.parametrize("alive", [True, False])
def test_who_started_it_must_still_be_there(alive: bool) -> None:
    worker = os.getpid() if alive else 2**22 + 1  # beyond the largest number of a process
    done = subprocess.run(
        [sys.executable, "-c", ENDS],
        env={**os.environ, WORKER: str(worker)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ("at work" if alive else "the worker is gone") in done.stdout + done.stderr
    assert done.returncode == (0 if alive else 1)
