"""How Slurm's launcher reads what Slurm reports.

The runs themselves are in tests/running/conduct/test_on_slurm.py.
"""

import os
import shutil
from pathlib import Path

import pytest
from case_tables import cases

from gspo_lab.common.errors import LabError
from gspo_lab.common.text import visible
from gspo_lab.running.launch import make_launcher
from gspo_lab.running.launch.slurm import _reason_to_requeue, _seconds, _squeue

SQUEUE = """#!/bin/sh
cat <<'END'
7|PENDING||(waits | for \x1b]0;OWNED\x07 \u2028 an admin)|debug
8|RUNNING|n1|None|debug
END
"""


def test_a_reason_is_free_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars and separators of lines within it end neither a field nor a line."""
    (tmp_path / "squeue").write_text(SQUEUE)
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    waiting, running = _squeue().values()
    assert visible(waiting.place) == (
        "Slurm, partition debug (job 7, (waits | for [U+001B]]0;OWNED[U+0007] [U+2028] an admin))"
    )
    assert running.place == "n1 (job 8)"
    (tmp_path / "squeue").write_text("#!/bin/sh\n")
    assert _squeue() == {}, "nobody has a job"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:01:02", 62.0),
        ("1-00:00:01", 86401.0),
        ("365-00:00:00", 365 * 86400.0),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert _seconds(text) == seconds


@pytest.mark.parametrize(
    ("limit", "gone", "preempted", "why"),
    cases(__file__, "requeues"),
)
def test_only_a_time_limit_that_is_near_and_a_preemption_ask_for_a_requeue(
    limit: str, gone: str, preempted: str, why: str
) -> None:
    facts = {"TimeLimit": limit, "RunTime": gone, "PreemptTime": preempted}
    assert _reason_to_requeue(facts, 120.0) == (why or None)


@pytest.mark.skipif(shutil.which("sinfo") is None, reason="no Slurm here")
def test_a_missing_configuration_is_not_blamed_on_the_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
    monkeypatch.setattr(
        "gspo_lab.running.launch.slurm.ANSWER_SECONDS", 1.0
    )  # it looks for a controller for half a minute
    with pytest.raises(LabError) as refused:
        make_launcher("slurm", 1).slots("cpu")
    assert str(refused.value).startswith("--on slurm: Slurm does not answer here (")
    assert str(refused.value).endswith("set SLURM_CONF to the cluster's slurm.conf")
