"""What a large model's worker frees is free for others."""

import platform
import subprocess
import sys

import pytest

FREED = """
from pathlib import Path
from gspo_lab.engines.native.trained import give_back_what_is_freed

def resident():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024

if {given}:
    give_back_what_is_freed()
largest = bytearray(b"x") * (24 << 20)
del largest  # glibc's threshold is 24 MiB now, if it is its own
before = resident()
pieces, pins = [], []
for _ in range(32):  # 2 MiB that go, and behind each a little that stays
    pieces.append(bytearray(b"x") * (2 << 20))
    pins.append(bytearray(b"x") * 50_000)
pieces.clear()
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the threshold is glibc's")
def test_pieces_of_a_mebibyte_go_back_to_the_system_between_others_that_stay() -> None:
    kept = {}
    for given in (False, True):
        done = subprocess.run([sys.executable, "-c", FREED.format(given=given)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        kept[given] = int(done.stdout)
    assert kept[True] < 8 << 20 < 48 << 20 < kept[False], kept
