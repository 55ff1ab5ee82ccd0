"""A full disk, for which a limit on the size of files stands: one line that names the file, and nothing lost."""

import os
import subprocess
import sys
from pathlib import Path

LIMITED = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def at_most(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
"""


def ran(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-c", LIMITED + code, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=500, env={**os.environ, "PYTHONPATH": path}, check=False
    )


def test_a_checkpoint_that_finds_no_room_names_its_file_and_leaves_the_one_before(tmp_path: Path) -> None:
    code = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from gspo_lab.engines.native import checkpoint
from gspo_lab.errors import LabError
class Held:
    def state(self): return {"weights": torch.zeros(100_000)}
class Words:
    def save_pretrained(self, folder): pass
def save(path):
    if path.name == "final":
        size = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=300)
        checkpoint.save_model(path, LlamaForCausalLM(LlamaConfig(**size)), Words())
    else:
        checkpoint.save(path, "s/a/s0", 1, {"policy": Held()}, {})
folder = Path(sys.argv[1])
paths = folder / "resume.pt", folder / "final"
for path in paths: save(path)
files = paths[0], paths[1] / "model.safetensors"
before = [file.read_bytes() for file in files]
at_most(50_000)
for path in paths:
    try: save(path)
    except LabError as error: print(error)
assert [file.read_bytes() for file in files] == before
assert {*folder.iterdir()} == {*paths}
"""
    done = ran(code, tmp_path)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert len(told) == 2
    for name, line in zip(("resume.pt", "final"), told, strict=True):
        assert line.startswith(f"{tmp_path / name} cannot be written (")
        assert line.endswith("make room and start the study again, the run goes on from its last checkpoint")


def test_a_journal_that_finds_no_room_is_named(tmp_path: Path) -> None:
    code = """
from gspo_lab.errors import refused
from gspo_lab.journal import Journal
from gspo_lab.records import StepRecord
at_most(100)
with Journal(Path(sys.argv[1])) as sink:
    try: sink.write([StepRecord(step=0, prompts=1, responses=2)] * 3)
    except OSError as error: print(refused(error))
"""
    assert ran(code, tmp_path).stdout == f"{tmp_path / 'journal.jsonl'} cannot be used: File too large\n"


def test_a_log_that_finds_no_room_ends_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    code = """
import os
from gspo_lab.worker import speak_into
log = Path(sys.argv[1])
for number in (1, 2):
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), number)
speak_into(log)
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
from gspo_lab import worker
worker.MOST_LOG_BYTES = 10_000
log = Path(sys.argv[1])
os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 1)
worker.speak_into(log)
for number in range(10_000):
    print(number)
"""
    assert ran(code, log).returncode == 0
    said = log.read_text().splitlines()
    assert log.stat().st_size <= 10_000 + len(said[0]) + 1
    assert said[0].startswith("(what was said before")
    assert said[1:] == [str(number) for number in range(int(said[1]), 10_000)]


def test_output_that_is_no_log_is_not_cut(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    code = """
import os
from gspo_lab import worker
worker.MOST_LOG_BYTES = 100
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT), 1)
worker.speak_into(Path(sys.argv[1]).with_name("log.txt"))
for number in range(1_000):
    print(number)
"""
    assert ran(code, other).returncode == 0
    assert other.read_text().split() == [str(number) for number in range(1_000)]
