"""The sandbox leaves nothing behind.

Not when the lab is killed, when a supervisor falls silent, or without isolation.
"""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from calling import lab_error
from isolation import opened
from waiting import until
from walled import TIGHT

from gspo_lab.common.errors import LabError
from gspo_lab.tasks.sandbox import Program, Sandbox, SandboxFailed
from gspo_lab.tasks.sandbox import sandbox as room
from gspo_lab.tasks.sandbox.bubblewrap import Isolation, can_disable_userns, pythons, why_missing
from gspo_lab.tasks.sandbox.isolated_process import IsolatedProcess
from gspo_lab.tasks.sandbox.sandbox import SandboxSlot, SharedOrExclusive

ROOT = Path(__file__).parents[3]


def alive(marker: str) -> list[int]:
    """Processes whose command line or first words hold the marker, other than this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("isolated", [True, False])
def test_a_killed_lab_leaves_no_process(isolated: bool, tmp_path: Path) -> None:
    """SIGKILL to the parent while a program daemonises, ignores signals and spins."""
    if isolated:
        opened(1).close()
    marker = f"marker-{os.getpid()}-{time.monotonic_ns()}"
    hostile = textwrap.dedent("""
        import os, signal, subprocess, sys, time
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        for _ in range(3):
            if not os.fork():
                os.setsid()
                os.execv(sys.executable, [sys.executable, "-c", "import time\\nwhile True: time.sleep(0.01)", "MARKER"])
        while True: pass
        """).replace("MARKER", marker)
    program = (
        "import sys\nfrom gspo_lab.tasks.sandbox import *\nwith"
        f" Sandbox.open(unsafe={not isolated}, slots=1) as sandbox:\n   "
        " sandbox.run(Program(sys.stdin.read()), [b''], Limits(seconds=60))\n"
    )
    environment = dict(os.environ) if isolated else {**os.environ, "PATH": str(tmp_path)}
    lab = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, cwd=ROOT, env=environment
    )
    lab.stdin.write(hostile.encode())
    lab.stdin.close()
    until(lambda: len(alive(marker)) >= 3)
    lab.send_signal(signal.SIGKILL)
    lab.wait()
    until(
        lambda: not alive(marker), seconds=30
    )  # they would be stopped after 60 s of CPU time in any case


def test_a_house_that_is_killed_from_outside_is_tried_again_and_then_told(sandbox: Sandbox) -> None:
    """Its first process dies twice in the middle of a test.

    A machine that had run out of memory would do that.
    """

    killed: set[int] = set()

    def kill_the_first_processes() -> None:
        for _ in range(2):
            pid = until(lambda: at_a_test() - killed).pop()
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_the_first_processes)
        endless = Program("import time\ntime.sleep(300)")
        (outcome,) = sandbox.run(endless, [b""], replace(TIGHT, seconds=300.0))
        killing.result()
    assert len(killed) == 2
    assert outcome.ending == "killed"
    (after,) = sandbox.run(Program("print('well')"), [b""], TIGHT)
    assert after.stdout == b"well\n"


def at_a_test() -> set[int]:
    """The first processes of this process's houses that have forked a test's process."""
    inside = {
        pid
        for pid in alive("gspo_lab.tasks.sandbox.supervisor")
        if b"bwrap" not in command_of(pid)[:200]
    }
    parents = {parent_of(pid) for pid in inside}
    return {
        pid
        for pid in inside & parents
        if parent_of(pid) not in inside and descends(pid, os.getpid())
    }


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = parent_of(pid)
    return False


@pytest.mark.usefixtures("no_bubblewrap")
def test_without_walls_nothing_runs_unless_the_user_says_so() -> None:
    with lab_error(r"bwrap.* not installed \(apt-get install bubblewrap.*--unsafe-no-sandbox"):
        Sandbox.open()
    with Sandbox.open(unsafe=True, slots=1) as bare:
        assert bare.level == "none"
        (outcome,) = bare.run(Program("print(input())"), [b"hello\n"], TIGHT)
        assert outcome.stdout == b"hello\n"
        (endless,) = bare.run(Program("while True: pass"), [b""], replace(TIGHT, seconds=0.3))
        assert endless.ending == "time"


def test_what_keeps_bubblewrap_from_its_work_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where user namespaces are not allowed."""
    for tool in ("bwrap", "choom", "setpriv"):
        (tmp_path / tool).write_text(
            "#!/bin/sh\necho setting up uid map: Permission denied >&2\nexit 1\n"
        )
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    can_disable_userns.cache_clear()
    assert why_missing() is None
    with lab_error("user namespaces must be allowed") as refused:
        Sandbox.open()
    can_disable_userns.cache_clear()
    assert all(
        line.endswith("setting up uid map: Permission denied") for line in refused.value.details
    )
    with Sandbox.open(unsafe=True, slots=1) as bare:
        assert bare.level == "none"


def test_a_sandbox_that_does_not_start_fails_the_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(1).close()
    (tmp_path / "bwrap").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(pytest.fail.Exception, match="does not isolate programs"):
        opened(1)


def test_walls_that_do_not_stand_are_the_sandbox_s_failure(tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\necho no room at the inn >&2\n")
    mute.chmod(0o755)
    for python, words in (
        (tmp_path / "absent", "absent: No such file"),
        (mute, "did not start: no room at the inn"),
    ):
        with (
            IsolatedProcess(
                Program("print(1)"), TIGHT, Isolation(python, None, isolated=False), None
            ) as house,
            pytest.raises(SandboxFailed, match=words),
        ):
            house.test(b"")


def test_a_probe_sees_that_a_wall_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its filter no level may be claimed."""
    opened(1).close()
    monkeypatch.setattr("gspo_lab.tasks.sandbox.isolated_process.assemble", lambda: b"")
    with pytest.raises(LabError) as refused:
        Sandbox.open(slots=1)
    assert any("could open a socket" in line for line in refused.value.details)


def test_an_interpreter_beside_the_home_folder_would_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    python = home / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(sys, "_base_executable", str(python))
    assert python not in pythons()
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    assert pythons()[0] == python
    assert Isolation(python, None).prefix == home
    assert Isolation(Path("/usr/bin/python3"), None).prefix is None


def test_the_page_s_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    opened(1).close()
    page = (ROOT / "docs/explanation/sandbox.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(block, "sandbox.md", "exec"), {})
    level, outcomes = capsys.readouterr().out.splitlines()
    assert "seccomp" in level
    assert outcomes == "[('finished', b'2\\n'), ('finished', b'42\\n')]"


@pytest.mark.usefixtures("no_bubblewrap")
def test_every_slot_has_a_uid_of_its_own_across_sandboxes() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give uids")
    with Sandbox.open(unsafe=True, slots=3) as one, Sandbox.open(unsafe=True, slots=3) as two:
        assert len({*one.uids, *two.uids}) == 6
        (who,) = one.run(
            Program("import os\nprint(os.getuid(), os.geteuid(), os.getgroups())"), [b""], TIGHT
        )
        assert who.stdout.decode().split()[0] in map(str, one.uids)
        assert who.stdout.split()[2] == b"[]"
    slot = SandboxSlot.claim_one()
    assert slot.uid in room.UIDS
    slot.release()


class Counted(threading.Condition):
    """Knows how often somebody has looked and found that there is something to wait for."""

    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1  # whoever waits holds the lock
        return super().wait(timeout)


def test_who_wants_to_be_alone_is_alone() -> None:
    crowd = SharedOrExclusive()
    log = []
    crowd.changed = counted = Counted()
    inside = threading.Event()
    leave = threading.Event()

    def among() -> None:
        with crowd.turn(alone=False):
            inside.set()
            assert leave.wait(120)
            log.append("among")

    def alone() -> None:
        with crowd.turn(alone=True):
            log.append("alone begins")
            until(lambda: counted.waits == 3)  # the later one was woken, looked, and waits on
            log.append("alone ends")

    with ThreadPoolExecutor(3) as pool:
        works = [pool.submit(among)]
        assert inside.wait(120)
        works.append(pool.submit(alone))
        until(lambda: counted.waits == 1)
        works.append(pool.submit(among))
        until(lambda: counted.waits == 2)
        assert (crowd.waiting, crowd.running, log) == (1, 1, [])
        leave.set()
        for work in works:
            work.result()
    assert log == ["among", "alone begins", "alone ends", "among"]


def test_others_wait_for_a_tenth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("gspo_lab.tasks.sandbox.sandbox.time.monotonic", lambda: now[0])
    crowd = SharedOrExclusive()
    alone = []
    for seconds_later in (0.0, 1.0, 52.9, 0.1, 1.0):  # at 100 s, 107, 159.9, 160 and 167
        now[0] += seconds_later
        with crowd.turn(alone=True):
            alone.append(crowd.waiting == 1)
            now[0] += 6.0 if alone[-1] else 0.0
    assert alone == [
        True,
        False,
        False,
        True,
        False,
    ], "for 6 s alone come 54 s in which nobody waits"


def test_nobody_waits_longer_than_the_exclusive_test_asks_for() -> None:
    crowd = SharedOrExclusive()
    log = []
    leave = threading.Event()

    def sleep() -> None:
        with crowd.turn(alone=False):
            assert leave.wait(120)
            log.append("sleeper")

    def alone() -> None:
        with crowd.turn(alone=True, seconds=0.05):
            assert leave.wait(120)

    def among() -> None:
        with crowd.turn(alone=False):
            log.append("neighbour")

    with ThreadPoolExecutor(3) as pool:
        works = [pool.submit(sleep), pool.submit(alone)]
        until(lambda: crowd.waiting == 1)
        pool.submit(among).result()
        leave.set()
        for work in works:
            work.result()
    assert log == ["neighbour", "sleeper"]
