"""Commands that write files, killed at any operation on any of them.

The same command then ends as if nothing had happened.
"""

import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from acts import ACTS, Act
from calling import gspo_lab
from children import LENGTH, Ended, rounds, run
from disk import KILL, TORN, Fault

from gspo_lab.common.plain_data import JsonObject

ERRORS = ("ENOSPC", "EIO", "EMFILE")
Calm = tuple[Any, Ended]
Strike = Callable[[random.Random, Ended], JsonObject]


SLOW = ("train", "run")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in ACTS],
)
def act(request: pytest.FixtureRequest) -> Act:
    return ACTS[request.param]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where everything is done: some records name the folder."""
    return tmp_path_factory.mktemp("struck") / "lab"


def prepared(act: Act, place: Path) -> Path:
    """An empty folder with what it needs."""
    os.chdir(place.parent)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    act.prepare(place)
    return place


@pytest.fixture(scope="module")
def calm(act: Act, place: Path) -> Calm:
    """What it leaves when nothing happens, and how it ended."""
    folder = prepared(act, place)
    ended = run(folder, act.command)
    assert ended.code == 0, ended.said
    return act.left(folder), ended


def somewhere(dice: random.Random, calm: Ended, *kinds: str) -> int:
    """One of the operations that it came to; each kind on each file is as likely as any other."""
    expected = sorted({entry for entry in calm.met if not kinds or entry.split()[0] in kinds})
    if not expected:
        pytest.skip("SQLite alone writes here, which the limits on sizes reach")
    chosen = dice.choice(expected)
    return dice.choice([place for place, entry in enumerate(calm.met) if entry == chosen])


def killed(dice: random.Random, calm: Ended) -> JsonObject:
    """Just before an operation."""
    return {"fault": Fault(KILL, somewhere(dice, calm))}


def torn(dice: random.Random, calm: Ended) -> JsonObject:
    """Half of a write is there."""
    return {"fault": Fault(TORN, somewhere(dice, calm, "write"))}


def cut(dice: random.Random, calm: Ended) -> JsonObject:
    """Where any file, whoever writes it, comes to some size."""
    return {"fault": Fault(KILL, largest=int(10 ** dice.uniform(2, 6.6)))}


def anytime(dice: random.Random, calm: Ended) -> JsonObject:
    """At some moment."""
    return {"kill_after": dice.uniform(0, calm.seconds)}


def refused(dice: random.Random, calm: Ended) -> JsonObject:
    """An operation, and perhaps all later ones of its kind, fails."""
    place = somewhere(dice, calm, "open", "write", "fsync", "rename", "unlink", "mkdir")
    return {"fault": Fault(dice.choice(ERRORS), place, lasting=dice.random() < 0.5)}


def full(dice: random.Random, calm: Ended) -> JsonObject:
    """No file grows beyond some size."""
    return {"fault": Fault("EFBIG", largest=int(10 ** dice.uniform(2, 6.6)))}


def end_workers(folder: Path) -> None:
    """SIGKILL to whoever holds a lock below: the workers of a conductor that was killed."""
    for lock in folder.rglob("lock"):
        with suppress(IndexError, ValueError, OSError):
            process = int(lock.read_text().split()[0])
            if b"gspo_lab" in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize(
    "strike", [killed, torn, cut, anytime, refused, full], ids=lambda entry: entry.__name__
)
def test_what_was_struck_ends_as_if_nothing_had_been(
    strike: Strike,
    act: Act,
    calm: Calm,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected, undisturbed = calm
    codes = []
    for dice in rounds(f"{act.command} {strike.__name__}", 1):
        monkeypatch.chdir(place.parent)
        folder = prepared(act, place)
        options = strike(dice, undisturbed)
        struck = run(folder, act.command, **options)
        codes.append(struck.code)
        if strike is anytime and dice.random() < 0.5:
            end_workers(folder)
        context = f"{options}, {struck.met[-1:]}: {struck.said}"
        assert struck.code in (
            (-9, -25, 0) if strike in (killed, torn, cut, anytime) else (0, 2)
        ), context
        assert "Traceback" not in struck.said, context
        assert struck.code != 2 or "/" in struck.said, context  # it names the file
        monkeypatch.chdir(folder)
        if (folder / "runs").is_dir():
            assert gspo_lab("show").code == 0, context
        again = run(folder, act.command)
        assert again.code == 0, f"{context}\n{again.said}"
        assert act.left(folder) == expected, context
    if LENGTH > 1:
        with capsys.disabled():
            print(
                f"\n{' '.join(act.command[:2])}, {strike.__name__}: {len(codes)}, struck"
                f" {sum(map(bool, codes))}"
            )
