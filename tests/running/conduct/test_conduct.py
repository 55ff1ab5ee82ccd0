"""Whole studies through real workers: order, resume after every kind of end, failures, locks."""

import hashlib
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error
from counting import Bench, answer_in
from counting_engine import reward
from laboratory import json_of, source
from rich.console import Console
from waiting import alive, ended, until

from gspo_lab.common.paths import CHECKPOINTS, CONDUCTOR_LOCK, RESUME
from gspo_lab.common.states import Exit
from gspo_lab.recording.journal import scan
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.report import render
from gspo_lab.running.conduct import conduct
from gspo_lab.study import Run

RUNS = ("a/s0", "b/s0", "b/s1", "a/s1")


def rewards(bench: Bench) -> dict[tuple[str, int], float]:
    """What the database holds, by run and step."""
    with sqlite3.connect(bench.runs / "lab.db") as connection:
        rows = connection.execute("SELECT run_id, step, reward_mean FROM steps").fetchall()
    connection.close()
    return {(run.removeprefix("count/"), step): value for run, step, value in rows}


def wanted(bench: Bench) -> dict[tuple[str, int], float]:
    """What an uninterrupted study records."""
    runs: list[Run] = bench.study().runs()
    return {
        (f"{run.arm}/s{run.seed}", step): reward(run, step)
        for run in runs
        for step in range(bench.steps)
    }


def test_a_study_runs_to_its_end_and_is_not_run_twice(bench: Bench) -> None:
    bench.steps = 5
    _result, output = bench.finish(jobs=3)
    assert "count: training, 4 to do, " in output, "the phase"
    events = [event for _, event in re.findall(r"(\w/s\d): (started|finished)", output)]
    assert (events[:3], events[3]) == (["started", "started", "started"], "finished"), (
        "no more at once than jobs"
    )
    assert rewards(bench) == wanted(bench)
    answer = answer_in(bench.runs)
    # The end's 5 of 10; the start's score is never part of a final one.
    scores = {name: (arm.finished, arm.by_seed) for name, arm in answer.arms.items()}
    assert scores == {"a": (2, {0: 0.5, 1: 0.5}), "b": (2, {0: 0.6, 1: 0.6})}
    # Eight updates warm up, two a step; step 4 clips .1 on mini-batch 1.
    clipped = [(arm.clipped, arm.clipped_gradient) for arm in answer.arms.values()]
    assert clipped == [(pytest.approx(0.1), None)] * 2
    with source(bench.runs / "lab.db", "count") as studied:
        reported = json.loads(render([studied]).json)["studies"]["count"]["clipping"]["arms"]
    assert {arm: entry["clip_fraction_tokens_later"] for arm, entry in reported.items()} == {
        "a": 0.1,
        "b": 0.1,
    }
    assert "b − a: +0.100" in " ".join(answer.details)
    assert "2 seeds cannot show a difference" in answer.answer.said, "two seeds give no interval"
    (
        bench.home / "a/s0" / CHECKPOINTS / RESUME
    ).touch()  # its worker was killed behind its last word
    _again, output = bench.conduct()
    assert answer_in(bench.runs) == answer
    assert "started" not in output
    assert not list(bench.home.rglob(RESUME))
    assert [bench.states_of(run) for run in RUNS] == [[("started", 0), ("finished", 5)]] * 4
    (start,) = {str(RunFolder(bench.home / run).run().warm_start) for run in RUNS}
    assert (Path(start) / "model.safetensors").is_file()
    assert bench.journal("b/s1")[0]["facts"]["warm_start"] == start
    # Journals name their run and its declaration, and are sealed at the end.
    locked = json_of(bench.home / "study.json")["digest"]
    for run in ("a/s0", "b/s1"):
        path = bench.home / run / "journal.jsonl"
        initial, *_, last = scan(path).items
        assert_fields(initial, run=f"{bench.home.name}/{run}", declaration=locked)
        *lines, _ = path.read_bytes().splitlines(keepends=True)
        assert last["journal"] == hashlib.sha256(b"".join(lines)).hexdigest()
        assert len(last["answers"]) == 3


def test_runs_start_in_the_study_s_order(bench: Bench) -> None:
    bench.steps = 1
    _, output = bench.conduct(jobs=1)
    events = re.findall(r"(\w/s\d): (started|finished)", output)
    assert events == [(run, event) for run in RUNS for event in ("started", "finished")]


def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on(bench: Bench) -> None:
    bench.steps = 12
    bench.hold = {"a/s0": 3, "b/s0": 1}
    conductor = bench.start()
    bench.until_held()
    for fresh in (False, True):
        with lab_error(r"another gspo-lab run is conducting 'count'.*--name"):
            bench.conduct(fresh=fresh)
    worker = [sys.executable, "-m", "gspo_lab.running.worker", str(bench.home / "a/s0")]
    repeated = subprocess.run(worker, capture_output=True, text=True, check=False)
    assert repeated.returncode == Exit.OCCUPIED
    assert repeated.stderr.startswith("another worker is at work in ")
    conductor.send_signal(signal.SIGINT)
    output = ended(conductor, 130)
    assert "the same command resumes" in output
    assert bench.steps_of("a/s0") == [0, 1, 2, 3], "the step that it was amid is finished"
    assert bench.states_of("a/s0") == [("started", 0), ("stopped", 4)]
    assert bench.states_of("b/s0") == [("started", 0), ("stopped", 2)]
    assert not (bench.home / "b/s1/journal.jsonl").exists()
    bench.hold = {}
    bench.finish()
    # A clean stop loses no step and repeats none.
    assert bench.steps_of("a/s0") == list(range(12))
    assert bench.states_of("a/s0")[2:] == [("started", 4), ("finished", 12)]
    assert rewards(bench) == wanted(bench)


def test_a_killed_worker_is_reported_and_goes_on_from_its_checkpoint(bench: Bench) -> None:
    bench.steps = 12
    bench.hold = {"a/s0": 3}
    bench.seeds = [0]
    conductor = bench.start()
    bench.until_held()
    os.kill(bench.worker_of("a/s0"), signal.SIGKILL)
    output = ended(conductor, 1)
    assert "a/s0: failed" in output
    assert "SIGKILL" in output
    assert str(bench.home / "a/s0/log.txt") in output
    assert bench.states_of("b/s0")[-1] == ("finished", 12)
    bench.hold = {}
    bench.finish()
    assert bench.states_of("a/s0")[1] == ("started", 2), "a checkpoint is made every second step"
    assert rewards(bench) == wanted(bench)


def held_at_work(bench: Bench) -> "tuple[subprocess.Popen[str], list[int]]":
    """The conductor and both workers of seed 0."""
    bench.seeds = [0]
    conductor = bench.start()
    bench.until_held()
    return conductor, [bench.worker_of("a/s0"), bench.worker_of("b/s0")]


def test_workers_leave_when_their_conductor_is_killed(bench: Bench) -> None:
    bench.steps = 12
    bench.hold = {"a/s0": 1, "b/s0": 1}
    conductor, workers = held_at_work(bench)
    conductor.kill()
    conductor.communicate()
    # The next one may come at once: it waits for workers that still finish their step.
    bench.hold = {}
    bench.finish()
    until(
        lambda: not any(alive(worker) for worker in workers)
    )  # the lock is let go just before the end
    assert [state for state, _ in bench.states_of("a/s0")] == [
        "started",
        "stopped",
        "started",
        "finished",
    ]
    assert bench.steps_of("a/s0") == list(range(12))
    assert rewards(bench) == wanted(bench)


def test_a_second_ctrl_c_kills(bench: Bench) -> None:
    bench.hold = {"a/s0": 0, "b/s0": 0}
    bench.deaf = True
    conductor, workers = held_at_work(bench)
    conductor.send_signal(signal.SIGINT)
    assert any("stopping" in line for line in conductor.stdout)  # reads on until it says so
    conductor.send_signal(signal.SIGINT)
    ended(conductor, 130)
    assert not any(alive(worker) for worker in workers)


def test_a_failed_run_is_reported_and_the_others_go_on(bench: Bench) -> None:
    """A mistake of the user, a crash, and processes that something else ends.

    None leaves a child.
    """
    bench.seeds = [0, 1, 2]
    bench.fail = {"a/s0": "lab", "b/s0": "crash", "a/s1": "exit 0", "b/s1": "exit 7"}
    result, output = bench.conduct()
    ended = "its process was ended with exit code {}, not by the worker"
    messages = {
        "a/s0": "buy gloves",
        "b/s0": "ZeroDivisionError",
        "a/s1": ended.format(0),
        "b/s1": ended.format(7),
    }
    failures = {line.partition(":")[0]: line for line in result.failures}
    assert failures.keys() == messages.keys()
    for run, message in messages.items():
        assert message in failures[run]
        assert str(bench.home / run / "log.txt") in failures[run]
        assert failures[run] in output
    for run in ("a/s0", "b/s0"):
        assert bench.states_of(run)[-1][0] == "failed"
        assert messages[run] in (bench.home / run / "log.txt").read_text()
    children = [int((bench.home / run / "child").read_text()) for run in ("a/s1", "b/s1")]
    until(lambda: not any(map(alive, children)))
    assert result.exit_code == 1, "not all failed by a mistake that the user can correct"
    arms = answer_in(bench.runs).arms
    assert [arm.finished for arm in arms.values()] == [1, 1]
    assert arms["a"].by_seed[0] is None
    bench.fail = {}
    bench.finish()
    assert rewards(bench) == wanted(bench)


def test_a_conductor_on_another_host_that_shares_the_folder_is_believed(bench: Bench) -> None:
    """That host's lock is not seen from here: its file names it."""
    bench.seeds = [0]
    lock = bench.home / CONDUCTOR_LOCK
    bench.home.mkdir(parents=True)
    lock.write_text("77 elsewhere")
    for fresh in (False, True):
        with lab_error(
            r"another gspo-lab run is conducting 'count'.*\(process 77 on elsewhere\)",
        ):
            bench.conduct(fresh=fresh)
    assert [path.name for path in bench.home.iterdir()] == [CONDUCTOR_LOCK], "nothing half-written"
    assert lock.read_text() == "77 elsewhere"


def plain(shown: str) -> str:
    """What a terminal shows, without its colours."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def test_the_live_view_shows_a_row_per_arm_and_a_cell_per_seed(bench: Bench) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120)
    bench.steps = 3  # the view may have missed any step but the last, whose row stays: step 2, even
    conduct(bench.study(), bench.runs, on="slow_queue:SlowQueue", jobs=2, console=console)
    output = file.getvalue()
    assert "queued" in output
    assert "lost" in output
    assert all(
        re.search(rf"^{arm} .*finished 3/3.*finished 3/3", plain(output), re.M) for arm in "ab"
    )
    assert "5.00%" in output, "the step's clip fraction: mean of 0 and .1"
    assert "4 of 4 finished" in output


def test_a_database_that_cannot_be_written_refuses_the_study_at_once(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.runs.mkdir(parents=True, exist_ok=True)
    (bench.runs / "lab.db").write_text("not a database of this lab " * 100)
    with lab_error(r"lab\.db"):
        bench.conduct()
    (tmp_path / "taken").touch()
    monkeypatch.setenv("GSPO_LAB_DATABASES", str(tmp_path / "taken"))
    with lab_error("taken"):
        bench.conduct()
    assert not bench.home.exists(), "no step was made, and nothing is left behind"
