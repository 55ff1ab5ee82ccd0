"""What must hold in spite of kills, damage, readers and writers at once; and its speed."""

import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from calling import lab_error
from run_folders import Lab, answers, step_records

from gspo_lab.recording.records import GradeRecord, RunStatus
from gspo_lab.recording.store import Evidence, ingest, rebuild
from gspo_lab.recording.store.records import read_steps, read_updates

RUN = "adding/grpo/s0"
AMID = """
import sys
from pathlib import Path
from gspo_lab.recording.store import ingest

module = sys.modules[ingest.__module__]
settle = module.write_run_state

def told(connection, run_id, alive):
    print(run_id, flush=True)
    sys.stdin.readline()
    settle(connection, run_id, alive)
    print(run_id, flush=True)

module.write_run_state = told
ingest(Path(sys.argv[1]))
"""
"""A program that stops between the rows of a run and their commit.

It says that a run's rows are written, all but the run's state. It waits for a line, then says that
it commits now.
"""
INGEST = (
    "import sys; from pathlib import Path; from gspo_lab.recording.store import ingest;"
    " ingest(Path(sys.argv[1]))"
)


def test_rebuild_equals_what_grew_bit_by_bit(lab: Lab) -> None:
    runs = lab.declare("adding")
    order = random.Random(0)
    for turn in range(5):
        for run in order.sample(runs, len(runs)):
            if turn == 3:
                lab.write(run, RunStatus(state="started", step=1))
            lab.write(run, *step_records(turn % 3), *answers(turn, [turn % 2, None, 1], samples=3))
            ingest(lab.runs)
    question = lab.subject("big")
    lab.ask(question, "later", *answers(0, [1, 0]), seed=7)
    lab.ask(runs[0], "later", *answers(2, [1]))
    ingest(lab.runs)
    lab.regrade(
        question,
        GradeRecord(bench="addition", step=0, problem="p0", sample=0, correct=0),
        evaluation="later",
    )
    ingest(lab.runs)
    assert lab.query("SELECT DISTINCT score FROM scores WHERE run_id = ?", question) == [(0.0,)]
    grown = lab.dump()
    assert lab.query("SELECT COUNT(*) FROM answers") > [(20,)]
    report = rebuild(lab.runs)
    assert report.changed == (question, *sorted(runs))
    assert lab.dump() == grown
    lab.db.unlink()
    ingest(lab.runs)
    assert lab.dump() == grown


EDITS = (
    "UPDATE steps SET reward_mean = 9 WHERE run_id = ? AND step = 0 RETURNING step",
    "DELETE FROM answers WHERE run_id = ? RETURNING step",
)


@pytest.mark.parametrize("edit", EDITS)
def test_rebuild_names_the_runs_whose_records_were_changed_in_the_database(
    lab: Lab, edit: str
) -> None:
    """What a journal has grown by since is no change of that kind."""
    runs = lab.declare("adding")
    for run in runs:
        lab.write(run, *step_records(0), *answers(0, [1, 0]))
    ingest(lab.runs)
    assert rebuild(lab.runs).edited == ()
    assert lab.query(edit, runs[0]), "it changed rows"
    lab.write(runs[1], *step_records(1))
    assert rebuild(lab.runs).edited == (runs[0],)
    assert rebuild(lab.runs).edited == ()
    lab.query("ALTER TABLE steps DROP COLUMN reward_mean")
    assert rebuild(lab.runs).edited == (), "of another version"
    lab.write(runs[0], *step_records(1))
    lab.query("DROP TABLE answers")
    assert rebuild(lab.runs).edited == (), "a database with other tables, and a run that grew"


def test_rebuild_mends_a_damaged_database(lab: Lab) -> None:
    for run in lab.declare("adding"):
        lab.train(run)
    ingest(lab.runs)
    complete = lab.dump()
    assert rebuild(lab.runs).replaced is None, "nothing is kept of a whole one"
    for place, damage in enumerate(
        (b"this is no database" * 300, lab.db.read_bytes()[:8192] + b"\xff" * 40960), 1
    ):
        lab.db.write_bytes(damage)
        with lab_error(r"damaged.*gspo-lab records rebuild"):
            ingest(lab.runs)
        backup = rebuild(lab.runs).replaced
        assert backup == lab.runs / f"lab.db.{place}.bak"
        assert backup.read_bytes() == damage
        assert lab.dump() == complete
    assert not list(lab.runs.glob("*.new*"))


def test_rebuild_never_replays_a_log_left_by_the_old_database(lab: Lab) -> None:
    """A program killed while it had the old database open leaves a log.

    That log must not be read into the new database.
    """
    run = lab.declare("adding", ("grpo",), [0])[0]
    lab.train(run)
    ingest(lab.runs)
    complete = lab.dump()
    code = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1])\n"
        "db.execute('UPDATE steps SET reward_mean = 99'); db.commit()\n"
        "os.kill(os.getpid(), 9)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code, str(lab.db)], check=False).returncode
        == -signal.SIGKILL
    )
    assert (lab.runs / "lab.db-wal").stat().st_size > 0
    rebuild(lab.runs)
    assert lab.dump() == complete


def test_killed_at_any_moment_nothing_is_lost_or_repeated(lab: Lab) -> None:
    """Processes that ingest six long journals, each killed during the next one.

    Some are killed just where it is committed.
    """
    ingest(
        lab.runs
    )  # an empty database: what follows is killed while it reads, not while it starts
    runs = lab.declare("adding", ("grpo", "gspo"), range(3))
    for run in runs:
        lab.write(run, RunStatus(state="started", step=0))
        lab.write(run, *chain(*map(step_records, range(300))))
    query = "SELECT COUNT(*) FROM files WHERE path LIKE '%journal.jsonl'"
    pause = random.Random(0)
    for place, run in enumerate(sorted(runs)):
        command = [sys.executable, "-c", AMID, str(lab.runs)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            while (
                amid := process.stdout.readline().strip()
            ) < run:  # those that no earlier process has committed
                assert amid
                print(file=process.stdin, flush=True)
                assert process.stdout.readline().strip() == amid
            certain = bool(place % 2)  # before the commit; else at some moment around it
            if not certain:
                print(file=process.stdin, flush=True)
                process.stdout.readline()
                time.sleep(pause.uniform(0, 0.02))
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert lab.query("PRAGMA integrity_check") == [("ok",)]
        # Rows and offsets agree: a run is there whole or not at all.
        counts = dict(lab.query("SELECT run_id, COUNT(*) FROM updates GROUP BY run_id"))
        assert set(counts.values()) <= {600}
        assert lab.query(query) == [(len(counts),)]
        assert len(counts) == place or (not certain and len(counts) == place + 1)
    ingest(lab.runs)
    grown = lab.dump()
    assert lab.query("SELECT COUNT(*) FROM updates") == [(6 * 600,)]
    rebuild(lab.runs)
    assert lab.dump() == grown


def test_readers_see_whole_states_while_the_writer_works(lab: Lab) -> None:
    """Two readers read without a pause.

    The writer goes on writing until they have seen ten states.
    """
    lab.declare("adding", ("grpo",), [0])
    ingest(lab.runs)
    completed = threading.Event()
    observed: set[int] = set()

    def read() -> None:
        while not completed.is_set():
            with Evidence.open(lab.db) as evidence:
                updates = len(read_updates(evidence, "adding", ["loss"]))
                steps = len(read_steps(evidence, "adding", ["reward_mean"]))
            assert updates == 2 * steps
            observed.add(steps)

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        deadline = time.monotonic() + 240
        step = 0
        while (
            (step < 60 or len(observed) < 10)
            and time.monotonic() < deadline
            and not any(entry.done() for entry in readers)
        ):
            lab.write(RUN, *step_records(step))
            ingest(lab.runs)
            step += 1
        completed.set()
        for reader in readers:
            reader.result()
    assert len(observed) >= 10


def test_two_writers_take_turns(lab: Lab) -> None:
    runs = lab.declare("adding", ("grpo", "gspo"), range(3))
    for run in runs:
        lab.train(run, steps=20)
    code = INGEST.replace("ingest(Path(sys.argv[1]))", "print(ingest(Path(sys.argv[1])).records)")
    pair = [
        subprocess.Popen([sys.executable, "-c", code, str(lab.runs)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    read = sorted(int(process.communicate()[0]) for process in pair)
    assert read == [0, 6 * (1 + 2 + 60 + 2 + 1)]
