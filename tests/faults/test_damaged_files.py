"""Files of the lab, damaged as disks and editors do.

The next command reports the damage, or nothing that was recorded has changed.
"""

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from acts import ACTS, RUN_HOME, START_HOME, rows, tickets
from calling import Said, gspo_lab
from children import rounds, run
from disk import KILL, Fault
from synthetic_lab import make_lab

from gspo_lab.analysis.matching.certificate import Acceptance, write_accepted
from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import MADE, PROGRESS, RESUME, WARM_START
from gspo_lab.recording.records import AnswerRecord, GradeRecord
from gspo_lab.recording.runfolder import EvaluationFolder, RunFolder, StartFolder, SubjectFolder
from gspo_lab.recording.store import ingest

RUN = "toy/grpo/s0"
SUBJECT = "_subjects/asked"
TASK = {"name": "addition", "options": {}, "base": "."}
FILES = ("toy/study.json", f"{RUN}/run.json", f"{RUN}/journal.jsonl")
MORE = (
    "toy/accepted.json",
    f"{RUN}/grades/journal.jsonl",
    f"{RUN}/evaluations/k/evaluation.json",
    f"{RUN}/evaluations/k/journal.jsonl",
    f"{RUN}/launches/ray-1.json",
    f"{SUBJECT}/subject.json",
    f"{SUBJECT}/evaluations/k/evaluation.json",
    f"{SUBJECT}/evaluations/k/journal.jsonl",
    f"{RUN}/lock",
    "toy/.conductor",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**70,
    1e308,
    "",
    "\ud800",
    [],
    [[]],
    {},
    {"a": 1},
    "../..",
    [None],
)
LOOKS = (("show",), ("show", "toy"), ("certify", "toy"), ("report", "toy"))


def bytes_turned(dice: random.Random, data: bytes) -> bytes:
    """Up to three bytes become others, or the end is lost."""
    if dice.random() < 0.3 and data:
        return data[: dice.randrange(len(data))]
    out = bytearray(data or b"4711 elsewhere")
    for _ in range(dice.choice((1, 3))):
        out[dice.randrange(len(out))] = dice.randrange(256)
    return bytes(out)


def another_shape(dice: random.Random, data: bytes) -> bytes:
    """Of a JSON object, or of one line of a journal, some entry becomes something else or goes."""
    lines = data.split(b"\n") if data.count(b'"chain"') else [data]
    place = dice.randrange(max(1, len(lines) - 1))
    content = json.loads(lines[place])
    inner = content
    while True:
        key = dice.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        if not isinstance(inner[key], dict | list) or not inner[key] or dice.random() < 0.3:
            break
        inner = inner[key]
    if dice.random() < 0.2:
        del inner[key]
    else:
        inner[key] = dice.choice(VALUES)
    lines[place] = json.dumps(content).encode()
    return b"\n".join(lines)


def told(said: Said, file: str) -> bool:
    """One line, or a list of faults, that names the file or its folder."""
    assert said.code in (0, 1, 2), said
    return file.rpartition("/")[0] in said.out + said.err and (
        said.code > 0 or "damaged" in said.err
    )


def everything(folder: Path) -> Path:
    """A laboratory with every kind of file under its runs; the database."""
    database = make_lab(folder, seeds=1, steps=2, every=2)
    runs = folder / "runs"
    answer = AnswerRecord(
        step=2, bench="k", problem="p", sample=0, text="1", tokens=1, correct=1, reward=1.0
    )
    SubjectFolder(runs / SUBJECT).describe({"kind": "model", "name": "some/model"})
    for place in (RUN, SUBJECT):
        question = EvaluationFolder(runs / place / "evaluations" / "k")
        question.declare({"evaluation": "k", "bench": "k", "seed": 1, "task": TASK})
        with question.append() as journal:
            journal.write([answer])
    again = RunFolder(runs / RUN).grades
    again.path.mkdir()
    with again.append() as journal:
        journal.write(
            [
                GradeRecord(
                    bench="addition",
                    step=2,
                    problem="addition-0",
                    sample=0,
                    correct=1,
                    reward=1.0,
                    grader="addition/1",
                )
            ]
        )
    write_accepted(
        runs / "toy",
        [Acceptance("another host", "2026-01-01T00:00:00+00:00", ("study: code: toy",))],
    )
    write_json(
        runs / RUN / "launches" / "ray-1.json",
        {"state": "queued", "place": "node", "at": 1.0, "stop": False},
    )
    for lock in (f"{RUN}/lock", "toy/.conductor"):
        (runs / lock).write_text("")
    ingest(runs)
    return database


@pytest.mark.parametrize("damage", [bytes_turned, another_shape], ids=lambda entry: entry.__name__)
@pytest.mark.parametrize(
    "file", [*FILES, *(pytest.param(file, marks=pytest.mark.slow) for file in MORE)]
)
def test_a_damaged_file_is_told_or_changes_nothing(
    file: str, damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = (
        make_lab(tmp_path, seeds=1, steps=2, every=2) if file in FILES else everything(tmp_path)
    )
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / file
    complete = path.read_bytes()
    stored = rows(database)
    if not complete and damage is another_shape:
        pytest.skip("a lock holds no JSON")
    for dice in rounds(f"{file} {damage.__name__}", 3 if file in FILES else 1):
        path.write_bytes(damage(dice, complete))
        output = [gspo_lab(*command) for command in LOOKS]
        assert any(told(entry, file) for entry in output) or rows(database) == stored, (
            path.read_bytes(),
            output,
        )
        path.write_bytes(complete)
        assert gspo_lab("records", "rebuild").code == 0
        assert rows(database) == stored


def flipped(dice: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


@pytest.mark.slow
def test_a_flipped_bit_of_a_checkpoint_is_told_by_the_worker_that_would_go_on_from_it(
    tmp_path: Path,
) -> None:
    train = ACTS["train"]
    calm = tmp_path / "calm"
    calm.mkdir()
    train.prepare(calm)
    met = run(calm, train.command).met
    second_move = [
        place for place, entry in enumerate(met) if entry == f"rename .{RESUME}.partial"
    ][1]
    for number, dice in enumerate(rounds("checkpoint", 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        train.prepare(folder)
        assert run(folder, train.command, Fault(KILL, second_move)).code == -9
        resume = RunFolder(folder / RUN_HOME).resume
        flipped(dice, resume)
        outcome = run(folder, train.command)
        assert (
            outcome.code,
            f"{resume} is damaged" in outcome.said,
            "Traceback" in outcome.said,
        ) == (
            2,
            True,
            False,
        ), outcome
        resume.unlink()
        assert run(folder, train.command).code == 0
        assert train.left(folder) == train.left(calm)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "warm start"])
def test_a_flipped_bit_of_a_model_that_the_lab_made_is_told_by_who_asks_it(
    name: str, tmp_path: Path
) -> None:
    act = ACTS[name]
    act.prepare(tmp_path)
    tickets(tmp_path)
    assert run(tmp_path, act.command).code == 0
    model = (
        RunFolder(tmp_path / RUN_HOME).final
        if name == "train"
        else StartFolder(tmp_path / START_HOME).model_folder()
    )
    files = sorted(entry for entry in model.iterdir() if entry.stat().st_size)
    command = (
        "eval",
        "--bench",
        "lottery.py:grade",
        "--data",
        "problems.jsonl",
        "--model",
        str(model),
        "--limit",
        "1",
    )
    assert run(tmp_path, command).code == 0
    for number, dice in enumerate(rounds(f"model of {name}", 2)):
        file = dice.choice(files)
        complete = file.read_bytes()
        flipped(dice, file)
        outcome = run(
            tmp_path, (*command, "--max-tokens", str(number + 2))
        )  # not asked yet: it is read
        assert (outcome.code, "Traceback" in outcome.said) == (2, False), (file, outcome)
        assert str(model) in outcome.said
        file.write_bytes(complete)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [bytes_turned, another_shape], ids=lambda entry: entry.__name__)
def test_what_a_warm_start_is_asked_by_and_answers_with_is_whole_or_told(
    damage: Any, tmp_path: Path
) -> None:
    act = ACTS["warm start"]
    act.prepare(tmp_path)
    home = StartFolder(tmp_path / START_HOME)
    assert run(tmp_path, act.command).code == 0
    files = [home.path / name for name in (WARM_START, PROGRESS, MADE)]
    for dice in rounds(f"asked {damage.__name__}", 2):
        file = dice.choice(files)
        complete = file.read_bytes()
        file.write_bytes(damage(dice, complete))
        ended = run(tmp_path, act.command)
        assert ended.code in (0, 2), ended
        assert "Traceback" not in ended.said
        for look in (home.model_folder, home.steps_done):
            with suppress(LabError):
                look()
        file.write_bytes(complete)
