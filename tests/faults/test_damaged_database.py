"""lab.db damaged in every way that disks know.

Whatever reads it reports the damage, and `rebuild` mends it, row by row.
"""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from acts import rows
from calling import Said, gspo_lab
from children import rounds
from synthetic_lab import make_lab

PAGE = 4096
Damage = Callable[[random.Random, bytes], bytes]


def flipped(dice: random.Random, data: bytes) -> bytes:
    """One to fifty bits turned, anywhere."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 5, 50))):
        out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
    return bytes(out)


def page(dice: random.Random, data: bytes) -> bytes:
    """A page of zeros, of noise, or another's."""
    step = PAGE * dice.randrange(len(data) // PAGE)
    other = PAGE * dice.randrange(len(data) // PAGE)
    instead = dice.choice((bytes(PAGE), dice.randbytes(PAGE), data[other : other + PAGE]))
    return data[:step] + instead + data[step + PAGE :]


def text(dice: random.Random, data: bytes) -> bytes:
    """Bytes of a JSON text turned to others: its shape, or no UTF-8."""
    offset = data.index(dice.choice((b'{"model"', b'"question"')))
    out = bytearray(data)
    for _ in range(3):
        out[offset + dice.randrange(200)] = dice.randrange(256)
    return bytes(out)


def cut(dice: random.Random, data: bytes) -> bytes:
    """Cut off anywhere."""
    return data[: dice.randrange(1, len(data))]


def header(dice: random.Random, data: bytes) -> bytes:
    """Some of SQLite's own first hundred bytes."""
    offset = dice.randrange(100)
    return data[:offset] + bytes([dice.randrange(256)]) + data[offset + 1 :]


def lacking(dice: random.Random, data: bytes) -> bytes:
    """Without one of its tables, columns, indexes or views."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(
            data[:18] + b"\1\1" + data[20:]
        )  # in memory there is no write-ahead log
        while True:
            kind, name = dice.choice(
                connection.execute("SELECT type, name FROM sqlite_schema ORDER BY 1, 2").fetchall()
            )
            columns = connection.execute(f"SELECT name FROM pragma_table_info('{name}')").fetchall()
            complete = kind != "table" or dice.random() < 0.3
            with suppress(sqlite3.OperationalError):  # a key, or made by SQLite itself
                if complete:
                    connection.execute(f'DROP {kind} "{name}"')
                else:
                    connection.execute(
                        f'ALTER TABLE "{name}" DROP COLUMN "{dice.choice(columns)[0]}"'
                    )
                break
        out = connection.serialize()
    return out[:18] + b"\2\2" + out[20:]


def told(said: Said) -> bool:
    """One line, or a list of faults, that names the way out."""
    assert said.code in (0, 1, 2), said.err
    return said.code == 2 and "rebuild" in said.err


@pytest.mark.parametrize(
    "damage",
    [flipped, page, text, cut, header, pytest.param(lacking, marks=pytest.mark.slow)],
    ids=lambda entry: entry.__name__,
)
def test_a_damaged_database_is_told_and_rebuilt(
    damage: Damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = make_lab(tmp_path, seeds=1, steps=2, every=2)
    monkeypatch.chdir(tmp_path)
    complete = database.read_bytes()
    stored = rows(database)
    for dice in rounds(damage.__name__, 6):
        for path in database.parent.glob("lab.db*"):
            path.unlink()
        database.write_bytes(damage(dice, complete))
        output = [
            gspo_lab(*command) for command in (("show",), ("show", "toy"), ("certify", "toy"))
        ]
        if not any(map(told, output)):
            assert output[-1].code == 1 or rows(database) == stored, "a change that nobody told"
        rebuilt = gspo_lab("records", "rebuild")
        if (
            rebuilt.code
        ):  # it looks like another program's or a newer version's, which is never replaced
            assert "newer gspo-lab" in rebuilt.err or "not gspo-lab's" in rebuilt.err, rebuilt.err
        else:
            assert rows(database) == stored
