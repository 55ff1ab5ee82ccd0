"""`gspo-lab report --watch` beside a study that runs: a real process, a real lock, real journals."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from finished_runs import leave_runs, write_study

from gspo_lab.files import held


def wait_until(holds: Callable[[], bool], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.1)


@pytest.mark.slow
def test_the_page_follows_the_study_and_stands_still_at_its_end(here: Path) -> None:
    study = write_study(here, "seen")
    leave_runs(study, here / "runs", at=1000.0, unfinished="gspo/s1")
    page = here / "reports" / "seen.html"

    def said(text: str) -> bool:
        return page.exists() and text in page.read_text(encoding="utf-8")

    with held(here / "runs" / "seen" / ".conductor", "the test conducts"):
        watching = subprocess.Popen(
            [sys.executable, "-m", "gspo_lab", "report", "--watch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        wait_until(lambda: said('data-watch="5"') and said("3 of 4 runs are finished"))
        journal = here / "runs" / "seen" / "gspo" / "s1" / "journal.jsonl"
        other = here / "runs" / "seen" / "gspo" / "s0" / "journal.jsonl"
        journal.write_bytes(other.read_bytes())
        wait_until(lambda: said('data-watch="5"') and said("All 4 runs are finished"))
        assert watching.poll() is None
    out, err = watching.communicate(timeout=600)
    assert watching.returncode == 0, err
    assert out == b"reports/seen.html\n"
    assert b"follows the study" in err
    assert not said("data-watch=")
    assert said("All 4 runs are finished")
