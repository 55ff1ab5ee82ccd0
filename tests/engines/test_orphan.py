"""A program that an engine starts ends with its worker, even one that was gone before it had read its imports."""

import os
import subprocess
import sys

import pytest

from gspo_lab.engines.orphan import WORKER

ENDS = "from gspo_lab.engines.orphan import end_with_parent; end_with_parent(); print('at work')"


@pytest.mark.parametrize(("worker", "said"), [(os.getpid(), "at work"), (2**22 + 1, "the worker is gone")])
def test_who_started_it_must_still_be_there(worker: int, said: str) -> None:
    """No process has a number beyond the largest, 2^22."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS],
        env={**os.environ, WORKER: str(worker)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said in done.stdout + done.stderr
    assert done.returncode == (0 if said == "at work" else 1)
