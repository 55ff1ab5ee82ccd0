"""Files that are whole or absent, and locks."""

import errno
import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from calling import lab_error
from waiting import until

from gspo_lab.common import atomic_files
from gspo_lab.common.atomic_files import (
    SILENT_SECONDS,
    atomic_file,
    atomic_folder,
    exclusive_lock,
    lock_holder,
    read_json,
    wait_for_lock,
    write_json,
)
from gspo_lab.common.paths import SUBJECT


def test_json_is_written_whole_and_a_sealed_object_tells_every_change(tmp_path: Path) -> None:
    path = tmp_path / "deep" / SUBJECT
    said = {"seed": 1, "bench": ["sums"]}
    assert read_json(path) is None
    write_json(path, said)
    assert list(path.parent.iterdir()) == [path]
    held = read_json(path)
    assert {key: held[key] for key in said} == said
    for key in held:
        for changed in (
            {**held, key: "else"},
            {name: value for name, value in held.items() if name != key},
        ):
            path.write_text(json.dumps(changed))
            with lab_error(r"subject\.json is damaged"):
                read_json(path)


def test_a_lock_is_held_alone_and_let_go(tmp_path: Path) -> None:
    lock = tmp_path / "deep/lock"
    assert lock_holder(lock) is None
    for hold in (exclusive_lock(lock, "mine"), wait_for_lock(lock)):
        with hold:
            assert lock_holder(lock) is not None
            with (
                lab_error(r"^yours \(process (\d+|unknown)\)$"),
                exclusive_lock(lock, "yours", patience_seconds=0.1),
            ):
                raise AssertionError("two hold it")
        assert lock_holder(lock) is None


def test_another_host_s_lock_is_believed_as_long_as_it_is_touched(tmp_path: Path) -> None:
    """On a shared disk this host may not see that the lock is taken: the file says so."""
    lock = tmp_path / "lock"
    lock.write_text("77 elsewhere")
    assert lock_holder(lock) == "77 on elsewhere"
    with (
        lab_error(r"^mine \(process 77 on elsewhere\)$"),
        exclusive_lock(lock, "mine", patience_seconds=0.1),
    ):
        raise AssertionError("two hold it")
    assert lock.read_text() == "77 elsewhere", "who is refused leaves it as it was"
    silent = time.time() - SILENT_SECONDS - 1
    os.utime(lock, (silent, silent))
    assert lock_holder(lock) is None
    with exclusive_lock(lock, "mine"):
        assert lock.read_text() == f"{os.getpid()} {os.uname().nodename}"
        assert lock_holder(lock) == str(os.getpid())
    assert lock.read_text() == "", "other hosts need not wait for its silence"


@pytest.mark.parametrize("text", ["77", f"77 {os.uname().nodename}"])
def test_a_lock_that_died_on_this_host_is_free_at_once(tmp_path: Path, text: str) -> None:
    """As it was left by the present code, or by that which knew no hosts."""
    (tmp_path / "lock").write_text(text)
    assert lock_holder(tmp_path / "lock") is None
    with exclusive_lock(tmp_path / "lock", "mine", patience_seconds=0.0):
        pass


def test_a_lock_is_touched_while_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_files, "BEAT_SECONDS", 0.01)
    lock = tmp_path / "lock"
    with exclusive_lock(lock, "mine"):
        os.utime(lock, (0, 0))
        until(lambda: lock.stat().st_mtime > 0)


def fail_amid(writing: AbstractContextManager[Path], write: Callable[[Path], object]) -> None:
    with writing as beside:
        write(beside)
        raise OSError(
            errno.EFBIG, os.strerror(errno.EFBIG)
        )  # as a write to an open file does: without its name


def test_a_file_whose_writing_fails_stays_as_it_was_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(OSError, match="File too large") as told:
        fail_amid(atomic_file(path), lambda beside: beside.write_text("ne"))
    assert told.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with atomic_file(path) as one, atomic_file(path, shared=True) as other:
        assert one != other, "two who share a file write beside each other"
        one.write_text("one")
        other.write_text("other")
    assert (list(tmp_path.iterdir()), path.read_text()) == ([path], "one")


def test_a_folder_takes_the_place_of_another_when_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "final"
    for name in ("old", "new"):
        with atomic_folder(folder) as beside:
            beside.mkdir()
            (beside / name).write_text(name)
    with pytest.raises(OSError, match="File too large"):
        fail_amid(atomic_folder(folder), Path.mkdir)
    assert [path.name for path in folder.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    (tmp_path / ".final.partial").mkdir()  # a writer that was killed
    with atomic_folder(folder) as beside:
        beside.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What was synced to the disk, in order, by the name that it had then.

    Also whether `new` was at its place by then.
    """
    seen: list[tuple[str, bool]] = []
    fsync = os.fsync

    def recording(descriptor: int) -> None:
        seen.append(
            (Path(f"/proc/self/fd/{descriptor}").readlink().name, (tmp_path / "new").exists())
        )
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    return seen


def test_what_is_moved_is_on_the_disk_before_and_the_move_after(
    tmp_path: Path, synced: list[tuple[str, bool]]
) -> None:
    with atomic_file(tmp_path / "new") as beside:
        beside.write_text("x")
    assert synced == [(".new.partial", False), (tmp_path.name, True)]
    (tmp_path / "new").unlink()
    synced.clear()
    with atomic_folder(tmp_path / "new") as beside:
        (beside / "deep").mkdir(parents=True)
        (beside / "deep/a").write_text("x")
    *before, last = synced
    assert sorted(before) == [(".new.partial", False), ("a", False), ("deep", False)]
    assert last == (tmp_path.name, True)
