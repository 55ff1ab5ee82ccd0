"""Files that are no log, or only part of one, source by source.

Each gives one line and exit code 2, and nothing is half imported.
"""

import os
import sqlite3
import tomllib
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from logs import bring, brought, csv_of, events, offline_run, project, refused

from gspo_lab.recording.runfolder import RunFolder

GSPO = ("--study", "x", "--arm", "gspo", "--seed", 0)
REWARD = (*GSPO, "--map", "reward=r")
BACK = (1, 2, 3, 1)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def foreign(path: Path, table: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE {table}")
    return path


def folder_of(path: Path, rows: list[tuple[int, dict[str, float]]]) -> Path:
    return events(path, rows).parent


TWO_RUNS = "r begins again at step 1, after step 3: two runs in one log"
NO_NUMBER = "it has no number to import"
WANDB = "run-a.wandb"
EVENTS = "events.out.tfevents.1"
STATE = "trainer_state.json"
TEXTS = tomllib.loads(r"""
logs = [
    [
        "wandb: another's",
        'run-a.wandb',
        "SQLite format 3\u0000SQLite format 3\u0000",
        'not a file of an offline wandb run',
    ],
    ['wandb: empty', 'run-a.wandb', '', 'the file is empty'],
    ["page: another's", 'a.csv', "time,r\n1,0.5\n2,0.5\n", 'line 3: it has no step'],
    ['page: no row', 'a.csv', "Step,gspo/s0 - r\n", 'it holds no row of a run'],
    ['page: texts', 'a.csv', "Step,gspo/s0 - r\n1,high\n2\n", 'it has no number to import'],
    [
        'page: too much',
        'a.csv',
        "Step,gspo/s0 - r\n1,0.5,7\n",
        'line 2: it has more fields than the header',
    ],
    [
        'page: two runs',
        'a.csv',
        "Step,gspo/s0 - r\n1,1\n2,1\n3,1\n1,1\n",
        'begins again at step 1, after step 3: two runs in one log',
    ],
    ['verl: empty', 'a.jsonl', '', 'the file is empty'],
    [
        "verl: another's JSON",
        'a.jsonl',
        "{\"step\": 1, \"r\": 0.5}\n",
        "not a line of verl's file logger",
    ],
    ["verl: another's text", 'a.log', "Training begins\n", "no line is of verl's form"],
    [
        'verl: texts',
        'a.jsonl',
        "{\"step\": 1, \"data\": {\"r\": \"high\"}}\n",
        'it has no number to import',
    ],
    [
        'verl: two runs',
        'a.jsonl',
        '''
{"step": 1, "data": {"r": 1}}
{"step": 2, "data": {"r": 1}}
{"step": 3, "data": {"r": 1}}
{"step": 1, "data": {"r": 1}}
''',
        'begins again at step 1, after step 3: two runs in one log',
    ],
    ['tensorboard: empty', 'events.out.tfevents.1', '', 'it has no number to import'],
    [
        "tensorboard: another's",
        'events.out.tfevents.1',
        "{\"step\": 1, \"r\": 0.5}\n",
        'no event file of TensorBoard',
    ],
    [
        'jsonl: two runs',
        'a.jsonl',
        '''
{"step": 1, "metric": "r", "value": 1}
{"step": 2, "metric": "r", "value": 1}
{"step": 3, "metric": "r", "value": 1}
{"step": 1, "metric": "r", "value": 1}
''',
        'r begins again at step 1, after step 3: two runs in one log',
    ],
    ['csv: empty', 'a.csv', '', 'the file is empty'],
    ['csv: no row', 'a.csv', "step,reward\n", 'it holds no row'],
    ['csv: texts', 'a.csv', "step,reward\n1,high\n2,low\n", 'it has no number to import'],
    [
        'csv: two runs',
        'a.csv',
        "step,reward\n2,0\n3,0\n2,0\n",
        'reward begins again at step 2, after step 3',
    ],
    ['csv: half steps', 'a.csv', "step,reward\n1.5,0\n", "its step is '1.5', not a whole number"],
    ['csv: a name twice', 'a.csv', "step,r,r\n1,0,0\n", 'two of its columns have one name'],
    ['csv: too much', 'a.csv', "step,r\n1,0,0\n", 'line 2: it has more fields than the header'],
    ['jsonl: a list', 'a.jsonl', "[1, 2]\n", 'line 1: int, no JSON object'],
    ['jsonl: pretty', 'a.jsonl', "{\n \"step\": 1\n}\n", 'line 1: no JSON object'],
    [
        'jsonl: no step',
        'a.jsonl',
        "{\"step\": 1, \"r\": 1}\n{\"r\": 1, \"step\": null}\n",
        'line 2: it has no step',
    ],
    ['trl: empty', 'trainer_state.json', '', 'the file is empty'],
    ['trl: no JSON', 'trainer_state.json', '{', 'not JSON'],
    ["trl: another's", 'trainer_state.json', '{"metrics": []}', "it has no 'log_history'"],
    ['trl: no step', 'trainer_state.json', '{"log_history": [{"loss": 1}]}', 'its step is None'],
    ['trl: begun', 'trainer_state.json', '{"log_history": []}', 'it has no number to import'],
    [
        'trl: two runs',
        'trainer_state.json',
        '{"log_history": [{"step": 2, "loss": 1}, {"step": 1, "loss": 1}]}',
        'loss begins again at step 1, after step 2',
    ],
    [
        'csv: a mean of counts',
        'a.csv',
        "step,r\n1,2\n2,2.5\n",
        'clipped_tokens is 2.5 at step 2, but this column is a count',
    ],
]
""")["logs"]
"""What is no log: source and what it is, the file's name, its text, and what is said."""
LOGS: dict[str, tuple[Callable[[Path, Any], Path] | None, str, Any, str]] = {
    # source and what it is: who writes it, the file's name and content, what is said
    **{name: (written, file, text.encode(), said) for name, file, text, said in TEXTS},
    "trackio: no database": (
        written,
        "a.db",
        b"step,r\n" * 100,
        "not a database of trackio (file is not a database)",
    ),
    "trackio: another's": (
        foreign,
        "a.db",
        "metrics (name TEXT)",
        "not a database of trackio (no such column",
    ),
    "trackio: empty": (project, "a.db", [], "trackio logged nothing into it"),
    "trackio: texts": (
        project,
        "a.db",
        [("gspo/s0", 1, '{"r": "high"}'), ("gspo/s0", 2, '{"r"')],
        NO_NUMBER,
    ),
    "trackio: no step": (
        project,
        "a.db",
        [("gspo/s0", None, '{"r": 1}')],
        "its step is None, not a whole number",
    ),
    "trackio: two runs": (
        project,
        "a.db",
        [("gspo/s0", step, '{"r": 1}') for step in BACK],
        TWO_RUNS,
    ),
    "wandb: begun": (offline_run, WANDB, [], NO_NUMBER),
    "wandb: texts": (offline_run, WANDB, [{"_step": 1, "r": "high"}], NO_NUMBER),
    "wandb: no step": (offline_run, WANDB, [{"r": 0.5}], "a row of its history has no step"),
    "wandb: two runs": (offline_run, WANDB, [{"_step": step, "r": 0.5} for step in BACK], TWO_RUNS),
    "wandb: nothing there": (None, "", None, "it holds 0 files run-*.wandb"),
    "tensorboard: nothing there": (None, "", None, "no event file (*tfevents*) in it"),
    "tensorboard: begun": (folder_of, "tb", [], NO_NUMBER),
    "tensorboard: two runs": (folder_of, "tb", [(step, {"r": 0.5}) for step in BACK], TWO_RUNS),
    "csv: one line of 17 MB": (
        written,
        "a.csv",
        b"step,r\n" + b"1," * (17 << 19),
        "16 million characters and more",
    ),
    "csv: no UTF-8": (written, "a.csv", b"step,r\n1,\xe9\n", "not UTF-8 text"),
}
OPTIONS = {"csv: a mean of counts": (*GSPO, "--map", "clipped_tokens=r")}


@pytest.mark.parametrize("name", LOGS)
def test_what_is_no_log_is_one_line(tmp_path: Path, name: str) -> None:
    """Beside a run that was imported before, which stays as it is."""
    write, file, data, what = LOGS[name]
    source = name.partition(":")[0].replace("page", "wandb")
    if name.startswith(("tensorboard", "wandb")):
        pytest.importorskip(source)
    before = csv_of(tmp_path / "before.csv", "step,r", "1,0.5")
    assert bring(tmp_path, "csv", before, "--study", "x", "--arm", "a", "--seed", 1).code == 0
    folder = tmp_path / "log"
    folder.mkdir()
    log = folder if write is None else write(folder / file, data)
    assert what in refused(tmp_path, source, log, *OPTIONS.get(name, REWARD))


def rewards(folder: Path) -> list[tuple[int, float]]:
    found = RunFolder(folder / "runs" / "x" / "gspo" / "s0").records("step")
    return [(one["step"], one["reward_mean"]) for one in found]


def test_event_files_of_another_run_in_the_folder_are_refused(tmp_path: Path) -> None:
    """The second begins again where the first began, later: two seeds logged into one folder."""
    events(tmp_path / "tb", ((step, {"r": 0.25}) for step in range(1, 6)))
    events(tmp_path / "tb", ((step, {"r": 0.5}) for step in range(1, 6)), began=2e9)
    assert "r begins again at step 1, after step 5: two runs in one log" in refused(
        tmp_path, "tensorboard", tmp_path / "tb", *REWARD
    )


def cut(path: Path, whole: bytes) -> Iterator[int]:
    """A file, shorter by some bytes each time: its length."""
    for left in range(len(whole) - 1, len(whole) - 60, -7):
        path.write_bytes(whole[:left])
        yield left


@pytest.mark.parametrize("source", ["wandb", "tensorboard"])
def test_of_a_file_that_is_cut_off_the_whole_records_are_read(tmp_path: Path, source: str) -> None:
    """Three steps; the third is torn, wherever it is cut: steps 1 and 2 and a note."""
    rows = [(step, {"r": step / 4}) for step in (1, 2, 3)]
    if source == "wandb":
        file = offline_run(tmp_path / "run-a.wandb", ({"_step": step, **row} for step, row in rows))
        size = len(
            offline_run(
                tmp_path / "two.wandb", ({"_step": step, **row} for step, row in rows[:2])
            ).read_bytes()
        )
    else:
        file = events(tmp_path / "tb", rows)
        size = len(events(tmp_path / "two", rows[:2]).read_bytes())
    whole = file.read_bytes()
    lengths = [length for length in cut(file, whole) if length > size]
    assert len(lengths) >= 4
    for length in lengths:
        file.write_bytes(whole[:length])
        folder = tmp_path / str(length)
        said = brought(folder, source, file, *REWARD)
        assert f"note: {file.name}: cut off or damaged behind record" in said.out
        assert rewards(folder) == [(1, 0.25), (2, 0.5)]
    file.write_bytes(whole)
    assert "x/gspo/s0: replaced" in bring(tmp_path / str(lengths[0]), source, file, *REWARD).out
    assert rewards(tmp_path / str(lengths[0])) == [(1, 0.25), (2, 0.5), (3, 0.75)]


def test_a_record_that_begins_with_an_empty_piece_is_whole(tmp_path: Path) -> None:
    """The first record leaves 7 bytes of a block of 32768.

    That is room for a piece's head and none of its bytes.
    """
    rows = [{"_step": step, "r": step / 4, "text": "a" * (2 - step) * 32701} for step in (1, 2)]
    assert offline_run(tmp_path / "one.wandb", rows[:1]).stat().st_size == 32768 - 7
    assert bring(tmp_path, "wandb", offline_run(tmp_path / "run-a.wandb", rows), *REWARD).code == 0
    assert rewards(tmp_path) == [(1, 0.25), (2, 0.5)]


def test_what_stands_behind_a_message_that_is_none_of_wandb_s_is_left_out(tmp_path: Path) -> None:
    """Its checksum is right."""
    file = offline_run(
        tmp_path / "run-a.wandb", [{"_step": step, "r": step / 4} for step in (1, 2)]
    )
    kind = b"\1"
    message = b"\xff" * 4
    head = zlib.crc32(kind + message).to_bytes(4, "little") + len(message).to_bytes(2, "little")
    file.write_bytes(file.read_bytes() + head + kind + message)
    assert (
        "note: run-a.wandb: cut off or damaged behind record 2; what"
        in brought(tmp_path, "wandb", file, *REWARD).out
    )
    assert rewards(tmp_path) == [(1, 0.25), (2, 0.5)]


def three_scalars(folder: Path) -> tuple[Path, bytearray, int]:
    """An event file, its bytes, and where the record of the second of three scalars begins."""
    file = events(folder / "tb", [(step, {"r": step / 4}) for step in (1, 2, 3)])
    data = bytearray(file.read_bytes())
    at = 0
    for _ in range(2):  # what the file says of itself, and step 1
        at += 16 + int.from_bytes(data[at : at + 8], "little")
    return file, data, at


def second_is_damaged(folder: Path, file: Path) -> None:
    said = brought(folder, "tensorboard", file, *REWARD)
    assert (
        f"note: {file.name}: cut off or damaged behind record 2; what stood there is left out"
        in said.out
    )
    assert rewards(folder) == [(1, 0.25)]


def test_a_flipped_bit_in_an_event_file_is_told(tmp_path: Path) -> None:
    """As TensorBoard has it: nothing behind it is read."""
    file, data, at = three_scalars(tmp_path)
    place = data.index(b"\x00\x00\x00\x3f", at)  # 0.5 as a float32
    data[place + 2] ^= 1
    file.write_bytes(data)
    second_is_damaged(tmp_path, file)


def test_a_damaged_length_in_an_event_file_is_not_believed(tmp_path: Path) -> None:
    """It says 48 MB, and the file has them: none is read."""
    file, data, at = three_scalars(tmp_path)
    data[at : at + 8] = (48 << 20).to_bytes(8, "little")
    file.write_bytes(data)
    os.truncate(file, 64 << 20)
    second_is_damaged(tmp_path, file)
