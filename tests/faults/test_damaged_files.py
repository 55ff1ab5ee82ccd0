"""Files of a study damaged as disks and editors do: told by the next command, or nothing that was recorded changed."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from calling import Said, gspo_lab
from rounds import rounds
from synthetic_lab import make_lab
from test_damaged_database import rows

FILES = ("study.json", "grpo/s0/run.json", "grpo/s0/journal.jsonl")
VALUES: tuple[Any, ...] = (None, True, -1, 2**70, 1e308, "", "\ud800", [], [[]], {}, {"a": 1}, "../..", [None])


def bytes_turned(dice: random.Random, data: bytes) -> bytes:
    """Up to three bytes become others, or the end is lost."""
    if dice.random() < 0.3:
        return data[: dice.randrange(len(data))]
    out = bytearray(data)
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
    return file.rpartition("/")[0] in said.out + said.err and (said.code > 0 or "damaged" in said.err)


@pytest.mark.parametrize("damage", [bytes_turned, another_shape], ids=lambda one: one.__name__)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_told_or_changes_nothing(
    file: str, damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = make_lab(tmp_path, seeds=1, steps=2, every=2)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / "toy" / file
    whole, held = path.read_bytes(), rows(database)
    for dice in rounds(f"{file} {damage.__name__}", 3):
        path.write_bytes(damage(dice, whole))
        said = [gspo_lab(*command) for command in (("list",), ("show", "toy"), ("certify", "toy"), ("report", "toy"))]
        assert any(told(one, f"toy/{file}") for one in said) or rows(database) == held, (path.read_bytes(), said)
        path.write_bytes(whole)
        assert gspo_lab("rebuild").code == 0
        assert rows(database) == held
