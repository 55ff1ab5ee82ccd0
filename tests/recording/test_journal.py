"""The append-only file: what is written is on the disk, what is torn is left out."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from assertions import assert_fields
from case_tables import cases
from laboratory import write_lines

from gspo_lab.common.paths import JOURNAL
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.journal import (
    FIRST_LOOK_BYTES,
    Journal,
    digest_of_answers,
    from_dict,
    from_end,
    in_force,
    line_number,
    scan,
    seal,
    to_dict,
)
from gspo_lab.recording.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord


def steps(first: int, last: int) -> list[StepRecord]:
    return [
        StepRecord(step=step, prompts=1, responses=2, reward_mean=step / 3)
        for step in range(first, last)
    ]


def test_what_is_written_comes_back_in_order_as_plain_json_lines(tmp_path: Path) -> None:
    text = 'a\nb\r\u2028\x85\x00\ud800"\\é'
    written: list[Record] = [
        RunStatus(state="failed", step=0, message=text, facts={"device": "cpu"}),
        *steps(0, 3),
    ]
    path = tmp_path / JOURNAL
    assert scan(path, 0) == ([], 0, [])
    with Journal(tmp_path) as sink:
        sink.write(written[:2])
        sink.write([])
        initial, end, _ = scan(path)
        assert [from_dict(item) for item in initial] == written[:2]
        assert scan(path, end) == ([], end, [])
        sink.write(written[2:])
    items, complete, _ = scan(path)
    assert [from_dict(item) for item in items] == written
    assert complete == path.stat().st_size
    assert [item["step"] for item in scan(path, end).items] == [
        1,
        2,
    ], "a reader goes on where it stopped"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    chain = [line.pop("chain") for line in lines]
    assert chain[0].startswith("00000000"), "the first line follows no other"
    assert lines == [to_dict(record) for record in written]


def test_every_cut_of_the_file_gives_its_whole_lines(tmp_path: Path) -> None:
    """A writer is killed at any byte.

    The lines before the cut are read, the torn one is not, and the next reader goes on there.
    """
    with Journal(tmp_path) as sink:
        sink.write(steps(0, 3))
    complete = (tmp_path / JOURNAL).read_bytes()
    for cut in range(len(complete) + 1):
        (tmp_path / JOURNAL).write_bytes(complete[:cut])
        items, end, _ = scan(tmp_path / JOURNAL)
        assert len(items) == complete[:cut].count(b"\n")
        assert end == complete[:cut].rfind(b"\n") + 1
        (tmp_path / JOURNAL).write_bytes(complete)
        assert len(items) + len(scan(tmp_path / JOURNAL, end).items) == 3


@pytest.mark.parametrize("length", [1, FIRST_LOOK_BYTES // 3, 3 * FIRST_LOOK_BYTES])
def test_from_its_end_a_journal_is_read_in_pieces(tmp_path: Path, length: int) -> None:
    """Lines shorter and longer than the first look, with a damaged and a torn one.

    `scan` finds them backwards.
    """
    texts = [f"{i}" * length for i in range(9)]
    with Journal(tmp_path) as sink:
        sink.write(
            [RunStatus(state="failed", step=i, message=text) for i, text in enumerate(texts)]
        )
    path = tmp_path / JOURNAL
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        b"".join([*lines[:4], b"{}#\n", *lines[4:], lines[0][:-1]])
    )  # the torn one lacks its newline
    assert list(from_end(path)) == scan(path).items[::-1]
    assert [item["step"] for item in from_end(path)] == [*range(8, -1, -1)]
    assert list(from_end(tmp_path / "absent")) == []


def test_a_later_start_voids_what_it_will_record_again() -> None:
    """At step 2: the batch of index 2 and its training answers.

    The benchmark was asked after 2 steps, before it.
    """

    def answer(step: int, bench: str) -> AnswerRecord:
        return AnswerRecord(step=step, bench=bench, problem="p", sample=0)

    one_step: list[Record] = [
        UpdateRecord(step=2, minibatch=0),
        StepRecord(step=2, prompts=1, responses=2),
        answer(2, "rollout"),
    ]
    original: list[Record] = [
        RunStatus(state="started", step=0),
        *steps(0, 2),
        answer(1, "rollout"),
        answer(2, "sums"),
    ]
    again: list[Record] = [RunStatus(state="started", step=2), *one_step, answer(3, "sums")]
    written: list[Record] = [*original, *one_step, answer(3, "sums"), *again]
    assert in_force([to_dict(entry) for entry in written]) == [
        to_dict(entry) for entry in [*original, *again]
    ]


def test_a_damaged_line_is_told_by_its_place(tmp_path: Path) -> None:
    with Journal(tmp_path) as sink:
        sink.write(steps(0, 4))
    path = tmp_path / JOURNAL
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"step":1', b'"step"#1')
    lines[2] = b'[]\n"text"\n\xff\xfe\n\n'
    path.write_bytes(b"".join(lines) + b'{"kind":"st')  # the last one is being written
    result = scan(path)
    assert [item["step"] for item in result.items] == [0, 3]
    assert told(path) == [(line, False) for line in (2, 3, 4, 5)]
    later = scan(path, len(lines[0]))
    assert_fields(later, damaged=result.damaged, end=result.end)
    assert result.end == sum(map(len, lines))


def test_a_write_that_found_no_room_leaves_a_closed_line(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk.

    The write is cut at it, and the next one goes on.
    """
    code = (
        "import resource, signal, sys; from pathlib import Path\nfrom gspo_lab.recording.journal"
        " import Journal; from gspo_lab.recording.records import RunStatus,"
        " StepRecord\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nwith"
        " Journal(Path(sys.argv[1])) as sink:\n    sink.write([StepRecord(step=0, prompts=1,"
        " responses=2)])\n    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)\n   "
        " resource.setrlimit(resource.RLIMIT_FSIZE, (sink.path.stat().st_size + 20, most))\n   "
        " try: sink.write([StepRecord(step=1, prompts=1, responses=2)])\n    except OSError as"
        " error: print(error.strerror)\n    resource.setrlimit(resource.RLIMIT_FSIZE, (most,"
        " most))\n    sink.write([RunStatus(state='failed', step=1)])\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert completed.stdout == "File too large\n"
    result = scan(tmp_path / JOURNAL)
    assert [item["kind"] for item in result.items] == ["step", "status"]
    assert result.damaged == []


def chained(folder: Path) -> tuple[Path, list[bytes]]:
    """A journal of five steps, and its lines."""
    with Journal(folder) as sink:
        for step in range(5):
            sink.write(steps(step, step + 1))
    return folder / JOURNAL, (folder / JOURNAL).read_bytes().splitlines(keepends=True)


def told(path: Path) -> list[tuple[int, bool]]:
    """Line and kind of all that is wrong with a journal."""
    return [(line_number(path, entry.at), entry.gap) for entry in scan(path).damaged]


def test_a_lines_digest_is_over_the_digest_before_it_and_its_object(tmp_path: Path) -> None:
    _, lines = chained(tmp_path)
    last = b"00000000"
    for line in lines:
        body, _, seal = line.partition(b',"chain":"')
        own_digest = hashlib.blake2b(last + body + b"}", digest_size=4).hexdigest().encode()
        assert seal == last + own_digest + b'"}\n'
        last = own_digest


def test_no_flipped_bit_changes_a_record_untold(tmp_path: Path) -> None:
    """Every bit of the middle line is flipped.

    The other lines are read as before, and the damage is reported.
    """
    path, lines = chained(tmp_path)
    complete = b"".join(lines)
    begins = len(lines[0] + lines[1])
    untouched = scan(path).items
    for bit in range(begins * 8, (begins + len(lines[2])) * 8):
        flipped = bytearray(complete)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert scan(path).damaged, bit
        assert all(item in untouched for item in scan(path).items), bit
        # From its end the line alone is known: its key `chain` may read otherwise, a record's own
        # never.
        assert all(
            any(entry.items() <= item.items() for entry in untouched) for item in from_end(path)
        ), bit


@pytest.mark.parametrize(
    ("order", "wrong"),
    cases(__file__, "a_line_deleted_moved_or_doubled_is_told"),
)
def test_a_line_deleted_moved_or_doubled_is_told(
    tmp_path: Path, order: list[int], wrong: list[int]
) -> None:
    path, lines = chained(tmp_path)
    path.write_bytes(b"".join(lines[place] for place in order))
    assert [item["step"] for item in scan(path).items] == order
    assert told(path) == [(line, True) for line in wrong]
    if order[0] == 0:  # a reader that goes on knows what a line must follow
        assert scan(path, len(lines[0])).damaged == scan(path).damaged


def test_a_line_put_in_without_a_digest_is_left_out(tmp_path: Path) -> None:
    path, lines = chained(tmp_path)
    path.write_bytes(b"".join([*lines[:2], b'{"kind":"step","step":7}\n', *lines[2:]]))
    assert [item["step"] for item in scan(path).items] == [0, 1, 2, 3, 4]
    assert told(path) == [(3, False)]
    assert scan(path, len(lines[0] + lines[1])).damaged == scan(path).damaged


def test_the_chain_goes_on_from_the_last_whole_line(tmp_path: Path) -> None:
    """A write of two lines is cut in its second one, again and again.

    Each time the first one counts.

    The next writer closes the torn line. Nothing of it is missed: it is recorded again.
    """
    path, _ = chained(tmp_path)
    for step in (5, 6):
        with Journal(tmp_path) as sink:
            sink.write(steps(step, step + 2))
        path.write_bytes(path.read_bytes()[:-9])
    with Journal(tmp_path) as sink:
        sink.write(steps(7, 8))
    items, end, damaged = scan(path)
    assert ([item["step"] for item in items], damaged, end) == (
        [*range(8)],
        [],
        path.stat().st_size,
    )
    assert path.read_bytes().splitlines()[6].endswith(b" <torn>")


def test_a_record_of_no_moment_and_a_status_whose_parts_have_no_names_are_damaged(
    tmp_path: Path,
) -> None:
    """Readers go by a record's step and by what a status says.

    Kinds of later versions pass.
    """
    path = tmp_path / JOURNAL
    started = {"kind": "status", "state": "started", "step": 1}
    finished = {"kind": "status", "state": "finished", "step": 1}
    no_names: list[Any] = [3, "x", "", [], False]
    faults: list[JsonObject] = [
        {"kind": ["step"]},
        {"kind": "step"},
        {"kind": "step", "step": "1"},
        {"kind": "status", "step": 1},
        {"kind": "status", "state": None, "step": 1},
        {"kind": "answer", "step": 1, "bench": {}},
        {"kind": "status", "state": "started", "step": None},
        *(finished | {name: value} for name in ("facts", "answers") for value in no_names),
    ]
    right = [finished | {"facts": None}, finished | {"answers": {}}, {"kind": "later"}]
    write_lines(path, map(json.dumps, [started, *faults, *right]))
    assert in_force(scan(path).items) == [started, *right]
    assert told(path) == [(line, False) for line in range(2, 2 + len(faults))]
    assert [item["kind"] for item in from_end(path)] == ["later", "status", "status", "status"]


def exam(step: int, text: str = "8") -> AnswerRecord:
    return AnswerRecord(
        step=step, bench="sums", problem="p0", sample=0, text=text, correct=1, reward=1.0
    )


def test_a_seal_is_of_all_lines_and_of_each_evaluation_s_answers(tmp_path: Path) -> None:
    with Journal(tmp_path) as sink:
        sink.write([RunStatus(state="started", step=0), exam(0), *steps(0, 2), exam(2, "9")])
    path = tmp_path / JOURNAL
    result = seal(path)
    assert result["journal"] == hashlib.sha256(path.read_bytes()).hexdigest()
    row = ["p0", 0, None, None, None, "8", None, 1, None, 1.0]
    assert result["answers"]["sums@0"] == hashlib.sha256(json.dumps([row]).encode()).hexdigest()
    assert result["answers"].keys() == {"sums@0", "sums@2"}
    assert result["answers"]["sums@0"] != result["answers"]["sums@2"]


def test_a_seal_passes_over_torn_lines_and_answers_that_were_voided(tmp_path: Path) -> None:
    with Journal(tmp_path) as sink:
        sink.write(
            [
                RunStatus(state="started", step=0),
                exam(0),
                *steps(0, 1),
                exam(2, "by the worker before"),
            ]
        )
    path = tmp_path / JOURNAL
    original = path.read_bytes()
    path.write_bytes(original + b'{"kind":"st')
    assert seal(path)["journal"] == hashlib.sha256(original).hexdigest()
    with Journal(tmp_path) as sink:
        sink.write([RunStatus(state="started", step=1), exam(2, "9")])
    assert hashlib.sha256(original).hexdigest() != seal(path)["journal"]
    (again := tmp_path / "again").mkdir()
    with Journal(again) as sink:
        sink.write([exam(0), exam(2, "9")])
    assert seal(path)["answers"] == seal(again / JOURNAL)["answers"]


def test_a_digest_of_answers_knows_no_order_and_reads_what_the_database_gives_back() -> None:
    entry = ["p0", 0, *[None] * 6, "\ud800", 1]
    other = ["p0", 1, *[None] * 7, 0.5]
    back = [["p0", 1, *[None] * 7, 0.5], ["p0", 0, *[None] * 6, "?", 1.0]]
    assert digest_of_answers([entry, other]) == digest_of_answers(back)
    assert digest_of_answers([entry]) != digest_of_answers([["p0", 0, *[None] * 6, "?", 0.0]])
