"""A limit on the size of files stands for a full disk.

One line names the file, and nothing is lost.
"""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from calling import environment, gspo_lab
from counting import Bench

from gspo_lab.common.errors import MAKE_ROOM, LabError, refused
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import StepRecord
from gspo_lab.recording.runfolder import RunFolder

LIMITED = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def at_most(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
"""


def ran(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", LIMITED + code, *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=500,
        env=environment(),
        check=False,
    )


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Within the block no file of this process grows beyond so many bytes.

    Python ignores the signal that says so, and would keep modules that it has cut off.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = False
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class Weights:
    def state(self) -> JsonObject:
        import torch

        return {"weights": torch.zeros(100_000)}


class NoTokenizer:
    def save_pretrained(self, folder: Path) -> None: ...


def test_a_checkpoint_that_finds_no_room_names_its_file_and_leaves_the_one_before(
    tmp_path: Path,
) -> None:
    from gspo_lab.training.engines.native import checkpoint
    from gspo_lab.training.models.builtin_models import build

    model = build("tiny-qwen3", 0, {"layers": 1, "width": 64})

    def save(path: Path) -> None:
        if path.name == "final":
            checkpoint.save_model(path, model, NoTokenizer())
        else:
            checkpoint.save(path, "s/a/s0", 1, {"policy": Weights()}, {})  # type: ignore[dict-item]

    paths = tmp_path / "resume.pt", tmp_path / "final"
    for path in paths:
        save(path)
    files = paths[0], paths[1] / "model.safetensors"
    original = [file.read_bytes() for file in files]
    for path in paths:
        with files_of_at_most(50_000), pytest.raises(LabError) as refusal:
            save(path)
        assert str(refusal.value).startswith(f"{path} cannot be written (")
        assert str(refusal.value).endswith(
            "make room and start the study again, the run goes on from its last checkpoint"
        )
    assert [file.read_bytes() for file in files] == original
    assert {*tmp_path.iterdir()} == {*paths}


def test_a_journal_that_finds_no_room_is_named(tmp_path: Path) -> None:
    with (
        Journal(tmp_path) as sink,
        files_of_at_most(100),
        pytest.raises(OSError, match="File too large") as refusal,
    ):
        sink.write([StepRecord(step=0, prompts=1, responses=2)] * 3)
    line = f"{tmp_path / 'journal.jsonl'} cannot be used: File too large; {MAKE_ROOM}"
    assert str(refused(refusal.value)) == line


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB; skipped where this process may not mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_study_on_a_full_disk_names_a_file_and_goes_on_with_more_room(
    bench: Bench, small_disk: Path
) -> None:
    """The disk is full before the first file, then amid journals, database and report."""
    bench.steps = 8
    bench.study()
    runs = small_disk / "runs"
    words = ("run", str(bench.toml), "--runs", str(runs), "--output-dir", str(small_disk / "out"))
    filler = small_disk / "filler"
    for room in (0, 8_000, 150_000, 400_000, 700_000):
        filler.unlink(missing_ok=True)
        disk = os.statvfs(small_disk)
        filler.write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - room)))
        call = gspo_lab(*words)
        text = call.out + call.err
        assert call.code == 2 or room > 8_000, text
        assert "Traceback" not in text
        assert call.code == 0 or (f"{small_disk}/" in text and MAKE_ROOM in text), text
    filler.unlink()
    call = gspo_lab(*words)
    assert call.code == 0, call
    for run in ("a/s0", "b/s1"):
        steps = RunFolder(runs / "count" / run).records(StepRecord.kind)
        assert [record["step"] for record in steps] == list(range(8))
    assert (small_disk / "out" / "count.html").is_file()


def test_init_on_a_full_disk_names_the_file_and_leaves_no_part_of_it(tmp_path: Path) -> None:
    with files_of_at_most(100):
        said = gspo_lab("init", tmp_path / "mine", "--model", "tiny-qwen3", "--task", "own")
    assert said.code == 2
    assert f"{tmp_path}/mine/mine.toml cannot be used: File too large; {MAKE_ROOM}" in said.err
    assert not list((tmp_path / "mine").iterdir())


def test_a_log_that_finds_no_room_ends_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    code = """
import os
from gspo_lab.running.worker import guard_output
log = Path(sys.argv[1])
for number in (1, 2):
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), number)
guard_output(log)
at_most(20)
for _ in range(100):
    print("said")
    print("told", file=sys.stderr)
"""
    assert ran(code, log).returncode == 0
    assert log.read_bytes() == b"said\ntold\n" * 2


def test_a_log_is_bounded_and_its_end_kept(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    code = """
import os
from gspo_lab.running import worker
worker.MOST_LOG_BYTES = 10_000
log = Path(sys.argv[1])
os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 1)
worker.guard_output(log)
for number in range(10_000):
    print(number)
"""
    assert ran(code, log).returncode == 0
    output = log.read_text().splitlines()
    assert log.stat().st_size <= 10_000 + len(output[0]) + 1
    assert output[0].startswith("(what was said before")
    assert output[1:] == [str(number) for number in range(int(output[1]), 10_000)]


def test_output_that_is_no_log_is_not_cut(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    code = """
import os
from gspo_lab.running import worker
worker.MOST_LOG_BYTES = 100
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT), 1)
worker.guard_output(Path(sys.argv[1]).with_name("log.txt"))
for number in range(1_000):
    print(number)
"""
    assert ran(code, other).returncode == 0
    assert other.read_text().split() == [str(number) for number in range(1_000)]
