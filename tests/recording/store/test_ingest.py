"""From journals to rows: each test writes real journals and asks the real database."""

import fcntl
import json
import os
import shutil
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error
from laboratory import write_lines
from run_folders import Lab, answers, step_records
from synthetic_lab import make_lab

from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.paths import SEALED_FILES
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.journal import Journal, from_dict
from gspo_lab.recording.records import AnswerRecord, RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.store import Evidence, ingest, rebuild
from gspo_lab.recording.store.schema import RECORD_TABLES

RUN = "adding/grpo/s0"


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """A lab with one run, declared and not begun."""
    lab.declare("adding", ("grpo",), [0])
    return lab


def states(lab: Lab) -> dict[str, str]:
    return dict(lab.query("SELECT run_id, state FROM runs"))


def test_every_field_of_every_record_comes_back(lab: Lab) -> None:
    written = {}
    for record in (StepRecord, UpdateRecord, AnswerRecord, RunStatus):
        values: JsonObject = {}
        for number, entry in enumerate(fields(record)):
            column = RECORD_TABLES[record.table].column(entry.name)
            values[entry.name] = {
                "INTEGER": number,
                "REAL": number + 1 / 3,
                "TEXT": f"text {number}",
            }[column.type]
            if column.json:
                values[entry.name] = {"a": [number, 1 / 3, None]}
        if record is RunStatus:
            values["state"] = "finished"
        written[record.table] = values
        lab.write(RUN, record(**values))
    ingest(lab.runs)
    for table, values in written.items():
        columns = ", ".join(f'"{name}"' for name in values)
        (row,) = lab.query(f"SELECT {columns} FROM {table}")
        expected = tuple(
            json.dumps(v, separators=(",", ":")) if isinstance(v, dict) else v
            for v in values.values()
        )
        assert row == expected


def test_what_is_not_measured_is_null_and_never_zero(lab: Lab) -> None:
    lab.write(
        RUN, StepRecord(step=0, prompts=1, responses=2, reward_mean=float("nan"), entropy=0.0)
    )
    lab.write(
        RUN,
        UpdateRecord(
            step=0, minibatch=0, log_ratio_quantiles_tokens=[0.0, float("inf"), float("nan")]
        ),
    )
    ingest(lab.runs)
    assert lab.query("SELECT reward_mean, reward_std, entropy FROM steps") == [(None, None, 0.0)]
    # SQLite's own JSON functions must be able to read it.
    assert lab.query("SELECT value FROM updates, json_each(log_ratio_quantiles_tokens)") == [
        (0,),
        (None,),
        (None,),
    ]


def test_the_state_of_a_run_follows_its_journal(lab: Lab) -> None:
    ingest(lab.runs)
    assert lab.query("SELECT state, steps_done, steps_planned, started_at FROM runs") == [
        ("planned", 0, 4, None)
    ]
    lab.write(
        RUN, RunStatus(state="started", step=0, at=10.0, facts={"device": "cpu"}), *step_records(0)
    )
    lab.write(RUN, RunStatus(state="stopped", step=1, at=11.0))
    ingest(lab.runs)
    assert lab.query("SELECT state, steps_done, started_at, finished_at FROM runs") == [
        ("stopped", 1, 10.0, 11.0)
    ]
    lab.write(RUN, RunStatus(state="started", step=1, at=12.0), *step_records(1))
    lab.write(RUN, RunStatus(state="failed", step=2, at=13.0, message="ValueError: no"))
    ingest(lab.runs)
    query = "SELECT state, steps_done, started_at, finished_at, message, facts FROM runs"
    assert lab.query(query) == [("failed", 2, 10.0, 13.0, "ValueError: no", '{"device":"cpu"}')]


def test_a_started_run_is_running_only_while_its_lock_is_held(lab: Lab) -> None:
    lab.write(RUN, RunStatus(state="started", step=0, at=10.0))
    with (lab.runs / RUN / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ingest(lab.runs)
        assert states(lab) == {RUN: "running"}
        assert lab.query("SELECT finished_at FROM runs") == [(None,)]
        assert ingest(lab.runs).changed == ()
    assert ingest(lab.runs).changed == (RUN,)
    assert states(lab) == {RUN: "interrupted"}
    assert ingest(lab.runs).changed == ()


def test_only_new_lines_are_read(lab: Lab) -> None:
    runs = lab.declare("adding")
    for run in runs:
        lab.train(run)
    report = ingest(lab.runs)
    assert_fields(report, runs=4, changed=tuple(sorted(runs)), records=4 * (2 + 4 * 3 + 2 + 2))
    again = ingest(lab.runs)
    assert_fields(again, runs=4, changed=(), records=0)
    lab.write(RUN, *step_records(4))
    report = ingest(lab.runs)
    assert_fields(report, changed=(RUN,), records=3)
    assert ingest(lab.runs).records == 0


def test_a_run_without_a_run_json_is_none_yet(lab: Lab) -> None:
    lab.train(RUN)
    lab.train("adding/grpo/s9")
    assert ingest(lab.runs).changed == (RUN,)
    assert lab.query("SELECT DISTINCT run_id FROM steps") == [(RUN,)]
    assert lab.query("SELECT study FROM studies") == [("adding",)]


def test_a_torn_last_line_waits_for_its_end(lab: Lab) -> None:
    lab.write(RUN, *step_records(0))
    lab.write(RUN, StepRecord(step=1, prompts=2, responses=4))
    path = lab.runs / RUN / "journal.jsonl"
    complete = path.read_bytes()
    path.write_bytes(complete[:-60])
    ingest(lab.runs)
    assert lab.query("SELECT step FROM steps") == [(0,)]
    with path.open("ab") as file:
        file.write(complete[-60:])
    ingest(lab.runs)
    assert lab.query("SELECT step, prompts FROM steps") == [(0, 2), (1, 2)]
    with path.open("ab") as file:
        file.write(b'{"kind":"step","step":2,"prom')
    ingest(lab.runs)
    lab.write(
        RUN, RunStatus(state="started", step=2), *step_records(2)
    )  # which closes the torn line
    ingest(lab.runs)
    assert lab.query("SELECT step FROM steps") == [(0,), (1,), (2,)]


def test_a_damaged_line_is_told_until_it_is_mended(lab: Lab) -> None:
    lab.train(RUN)
    path = lab.runs / RUN / "journal.jsonl"
    complete = path.read_bytes()
    lines = complete.splitlines(keepends=True)
    assert ingest(lab.runs).damaged == ()
    place = next(i for i, line in enumerate(lines) if b'"kind":"step","step":2' in line)
    path.write_bytes(b"".join([*lines[:place], lines[place][:9] + b"\n", *lines[place + 1 :]]))
    for again in (ingest, ingest, rebuild):
        (damage,) = again(lab.runs).damaged
        assert damage.startswith(f"{path}, line {place + 1}: damaged and left out; ")
    assert lab.query("SELECT step FROM steps") == [(0,), (1,), (3,)]
    assert lab.query("SELECT path, line, run_id FROM damaged") == [
        (f"{RUN}/journal.jsonl", place + 1, RUN)
    ]
    with path.open("ab") as file:
        file.write(b"\0\0\0\n")
    (damage,) = ingest(lab.runs).damaged
    assert damage.startswith(f"{path}, line {place + 1}, {len(lines) + 1}: ")
    path.write_bytes(
        complete.replace(b'"reward_mean":0.', b'"reward_mean":1.', 1)
    )  # of the same length
    (damage,) = ingest(lab.runs).damaged
    assert ": damaged and left out; " in damage
    path.write_bytes(b"".join([*lines[:4], *lines[5:]]))
    (damage,) = ingest(lab.runs).damaged
    assert damage.startswith(f"{path}: a line is missing or doubled before line 5; ")
    path.write_bytes(complete)
    assert ingest(lab.runs).damaged == ()
    assert lab.query("SELECT step FROM steps") == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize("in_one_go", [True, False])
def test_started_voids_what_came_later(lab: Lab, in_one_go: bool) -> None:
    """A run resumed at step 2 voids its steps and rollouts from 2 on.

    A benchmark's answers are void from 3 on.
    """
    lab.write(RUN, RunStatus(state="started", step=0), *answers(0, [0]))
    for step in range(4):
        lab.write(
            RUN,
            *step_records(step, reward=1.0),
            *answers(step, [1], "rollout"),
            *answers(step + 1, [1]),
        )
    if not in_one_go:
        ingest(lab.runs)
    lab.write(
        RUN, RunStatus(state="started", step=2), *step_records(2, reward=0.5), *answers(3, [0])
    )
    ingest(lab.runs)
    assert lab.query("SELECT step, reward_mean FROM steps") == [(0, 1.0), (1, 1.0), (2, 0.5)]
    assert lab.query("SELECT DISTINCT step FROM updates") == [(0,), (1,), (2,)]
    query = "SELECT step, correct FROM answers WHERE bench = ? ORDER BY step"
    assert lab.query(query, "rollout") == [(0, 1), (1, 1)]
    assert lab.query(query, "addition") == [(0, 0), (1, 1), (2, 1), (3, 0)]
    assert lab.query("SELECT steps_done FROM runs") == [(3,)]
    assert lab.query("SELECT position, state, step FROM statuses") == [
        (0, "started", 0),
        (1, "started", 2),
    ]


def test_a_later_record_replaces_an_earlier_one(lab: Lab) -> None:
    lab.write(RUN, *step_records(0, reward=0.1))
    ingest(lab.runs)
    lab.write(RUN, *step_records(0, reward=0.2))
    ingest(lab.runs)
    assert lab.query("SELECT step, reward_mean FROM steps") == [(0, 0.2)]


def test_a_journal_begun_anew_is_read_anew(lab: Lab) -> None:
    lab.train(RUN, steps=3)
    ingest(lab.runs)
    path = lab.runs / RUN / "journal.jsonl"
    path.unlink()  # shorter than what was read
    lab.write(RUN, *step_records(0, reward=0.7))
    ingest(lab.runs)
    assert lab.query("SELECT step, reward_mean FROM steps") == [(0, 0.7)]
    assert lab.query("SELECT COUNT(*) FROM answers") == [(0,)]
    assert states(lab) == {RUN: "planned"}
    path.unlink()  # longer than what was read, but another file
    lab.train(RUN, steps=5)
    ingest(lab.runs)
    assert lab.query("SELECT COUNT(*), MAX(reward_mean) FROM steps") == [(5, 0.4)]
    path.unlink()
    ingest(lab.runs)
    assert lab.query("SELECT COUNT(*) FROM steps") == [(0,)]
    assert lab.query("SELECT path FROM files WHERE path LIKE '%journal%'") == []


def test_later_evaluations_keep_apart_from_the_runs_own_answers(lab: Lab) -> None:
    lab.write(
        RUN,
        RunStatus(state="started", step=0),
        *answers(4, [0, 0]),
        RunStatus(state="finished", step=4),
    )
    lab.write(RUN, *answers(4, [1, 1]), *step_records(3), evaluation="again")
    ingest(lab.runs)
    lab.write(RUN, RunStatus(state="started", step=2))
    ingest(lab.runs)
    assert lab.query("SELECT evaluation, score FROM scores") == [("again", 1.0)]
    assert lab.query("SELECT COUNT(*) FROM steps") == [(0,)]  # an evaluation trains on nothing
    shutil.rmtree(lab.runs / RUN / "evaluations" / "again")
    ingest(lab.runs)
    assert lab.query("SELECT COUNT(*) FROM answers") == [(0,)]


def test_pilots_and_strangers_are_passed_over(lab: Lab) -> None:
    lab.declare("_pilot", ("grpo",), [0])
    lab.declare("adding/.hidden", ("grpo",), [0])
    lab.plan("adding", "_calibration", 0)
    (lab.runs / "adding" / "grpo" / "notes").mkdir()
    (lab.runs / "notes.txt").write_text("no run")
    ingest(lab.runs)
    assert list(states(lab)) == [RUN]


def test_a_folder_that_is_gone_counts_no_more_and_may_come_back(lab: Lab, tmp_path: Path) -> None:
    runs = lab.declare("adding", ("grpo", "gspo"), [0])
    for run in runs:
        lab.train(run)
    ingest(lab.runs)
    (lab.runs / RUN).rename(tmp_path / "away")
    assert ingest(lab.runs).changed == (RUN,)
    assert states(lab) == {RUN: "missing", "adding/gspo/s0": "finished"}
    assert lab.query("SELECT COUNT(*) FROM steps WHERE run_id = ?", RUN) == [(4,)]
    with Evidence.open(lab.db) as evidence:
        assert list(evidence.runs("adding").run_id) == ["adding/gspo/s0"]
    (tmp_path / "away").rename(lab.runs / RUN)
    ingest(lab.runs)
    assert states(lab)[RUN] == "finished"
    shutil.rmtree(lab.runs / RUN)
    rebuild(lab.runs)
    assert list(states(lab)) == ["adding/gspo/s0"]


def test_a_study_that_is_gone_is_no_study(lab: Lab) -> None:
    lab.declare("adding")
    lab.declare("carrying")
    ingest(lab.runs)
    shutil.rmtree(lab.runs / "adding")
    ingest(lab.runs)
    assert lab.query("SELECT study FROM studies") == [("carrying",)]


def test_one_run_that_cannot_be_read_does_not_keep_the_others_out(lab: Lab) -> None:
    runs = lab.declare("adding")
    for run in runs:
        lab.train(run)
    (lab.runs / RUN / "run.json").write_text("{")
    with lab_error(r"adding/grpo/s0/run\.json cannot be read"):
        ingest(lab.runs)
    assert sorted(states(lab)) == sorted(set(runs) - {RUN})
    (lab.runs / "adding/gspo/s0/run.json").write_text("{}")
    with lab_error("2 files cannot be read") as caught:
        ingest(lab.runs)
    assert "'settings' is missing" in caught.value.details[1]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("study.json", "[" * 100_000),
        ("study.json", '{"question": {"a": 1}}'),
        ("study.json", '{"digest": 1%s}' % ("0" * 40)),
        ("study.json", '{"margin": NaN}'),
        (
            "grpo/s0/run.json",
            '{"seed": {}, "settings": {"steps": 1}, "declared": [], "reference_bands": {}}',
        ),
        ("grpo/s0/journal.jsonl", '{"kind":"step","step":0,"reward_mean":{"a":1}}'),
        ("grpo/s0/evaluations/later/evaluation.json", '{"bench": ["a"]}'),
        ("../_subjects/one/subject.json", '{"kind": {}}'),
    ],
)
def test_what_fits_no_column_is_told_by_its_file_and_keeps_nothing_else_out(
    lab: Lab, name: str, content: str
) -> None:
    for run in lab.declare("adding", ("grpo", "gspo"), [0]):
        lab.train(run)
    path = lab.runs / "adding" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        write_lines(path, [content])
    elif path.name in SEALED_FILES:
        write_json(path, json.loads(content))
    else:
        path.write_text(content)
    with lab_error(path.name.replace(".", r"\.")):
        ingest(lab.runs)
    assert states(lab)["adding/gspo/s0"] == "finished"


def test_an_end_that_was_read_and_is_gone_is_told_until_it_is_back_or_made_again(lab: Lab) -> None:
    lab.train(RUN)
    path = lab.runs / RUN / "journal.jsonl"
    ingest(lab.runs)
    complete = path.read_bytes()
    lines = complete.splitlines(keepends=True)
    for remaining, line in (
        (b"".join(lines[:5]), 6),
        (complete[:-20], len(lines)),
        (lines[0], 2),
        (complete[:9], 1),
    ):
        path.write_bytes(remaining)
        for _ in range(2):  # again, with nothing new
            (damage,) = ingest(lab.runs).damaged
            assert damage.startswith(f"{path}: its end is gone or damaged, from line {line} on; ")
        path.write_bytes(complete)
        assert ingest(lab.runs).damaged == ()
        assert lab.query("SELECT COUNT(*) FROM steps") == [(4,)]
    path.write_bytes(b"".join(lines[:5]))
    assert len(ingest(lab.runs).damaged) == 1
    lab.train(RUN)  # a worker that begins again makes what is gone
    assert ingest(lab.runs).damaged == ()


def test_text_that_is_no_unicode_is_kept_as_far_as_it_goes(lab: Lab) -> None:
    lab.write(
        RUN,
        AnswerRecord(
            step=0, bench="addition", problem="p", sample=0, text="7\ud8009\x00é", correct=1
        ),
    )
    ingest(lab.runs)
    assert lab.query("SELECT text FROM answers") == [("7?9\x00é",)]


def test_kinds_and_fields_of_a_later_version_are_passed_over(lab: Lab) -> None:
    write_lines(
        lab.runs / RUN / "journal.jsonl",
        [
            '{"kind":"dream","step":0}',
            "[1]",
            '{"kind":"step","step":0,"prompts":1,"responses":2,"mood":3}',
        ],
    )
    ingest(lab.runs)
    assert lab.query("SELECT step, prompts, responses FROM steps") == [(0, 1, 2)]


def test_without_runs_there_is_nothing_to_take_in(tmp_path: Path) -> None:
    with lab_error(r"no folder .*runs"):
        ingest(tmp_path / "runs")


def forged(path: Path, old: bytes, new: bytes) -> None:
    """Change bytes of a journal and every digest behind them.

    Its size and time of modification are put back.
    """
    original = path.stat()
    items = [json.loads(line) for line in path.read_bytes().replace(old, new).splitlines()]
    path.unlink()
    with Journal(path.parent) as sink:
        sink.write([from_dict(item) for item in items])
    os.utime(path, ns=(original.st_atime_ns, original.st_mtime_ns))
    assert_fields(path.stat(), st_size=original.st_size, st_mtime_ns=original.st_mtime_ns)


def test_an_edit_that_keeps_size_and_time_is_read_also_before_growth(lab: Lab) -> None:
    lab.train(RUN, finish=False)
    ingest(lab.runs)
    path = lab.runs / RUN / "journal.jsonl"
    original = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"loss":3.1', b'"loss":9.1'))
    os.utime(path, ns=(original.st_atime_ns, original.st_mtime_ns))
    assert ingest(lab.runs).damaged, "its own digest tells of the line"
    query = "SELECT loss FROM updates WHERE step = 3 AND minibatch = 1"
    forged(path, b'"loss":9.1', b'"loss":8.1')
    ingest(lab.runs)
    assert lab.query(query) == [(8.1,)]
    forged(path, b'"loss":8.1', b'"loss":7.1')
    lab.write(RUN, RunStatus(state="finished", step=4, at=200.0))
    ingest(lab.runs)
    assert lab.query(query) == [(7.1,)]


def test_a_look_with_nothing_new_costs_each_run_the_same_however_many_there_are(
    tmp_path: Path,
) -> None:
    """Counted in calls of functions, which no busy machine changes."""

    def calls(seeds: int) -> int:
        runs = make_lab(tmp_path, name=f"of{seeds}", seeds=seeds, steps=1, every=1).parent
        count = 0

        def counted(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(counted)
        try:
            assert not ingest(runs).changed
        finally:
            sys.setprofile(None)
        return count

    few = calls(10)
    additions = calls(30)  # beside the first, eighty runs where there were twenty
    assert additions < 4.2 * few
