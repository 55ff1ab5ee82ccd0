"""Sandboxes, a host with things worth stealing, and a look for what was left behind."""

import os
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from isolation import opened
from walled import OPEN, TIGHT, Host

from gspo_lab.tasks.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    yield from kept(2)


@pytest.fixture(scope="session")
def crowded() -> Iterator[Sandbox]:
    """Eight candidates at once, whatever the number of cores."""
    yield from kept(8)


def kept(slots: int) -> Iterator[Sandbox]:
    with opened(slots) as made:
        OPEN.append(made)
        yield made
        OPEN.remove(made)


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Readable by everybody, where everybody may look: only the sandbox stands between."""
    name = secrets.token_hex(6)
    folder = Path("/var/tmp") / f"gspo-lab-host-{name}"
    folder.mkdir()
    folder.chmod(0o777)
    secret = f"hf_{secrets.token_hex(12)}"
    (folder / "token").write_text(secret)
    (folder / "token").chmod(0o666)
    shared = Path("/dev/shm") / f"gspo-lab-{name}"
    shared.write_text(secret)
    shared.chmod(0o666)
    database = sqlite3.connect(folder / "lab.db")
    database.execute("CREATE TABLE answers (expected TEXT)")
    database.execute("INSERT INTO answers VALUES (?)", (secret,))
    database.commit()
    database.close()
    (folder / "lab.db").chmod(0o666)
    reached: list[str] = []
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    path = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    path.bind(str(folder / "socket"))
    (folder / "socket").chmod(0o777)
    abstract = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    abstract.bind(f"\0gspo-lab-test-{name}")
    listeners = {"tcp": tcp, "udp": udp, "path": path, "abstract": abstract}
    over = threading.Event()

    def listen() -> None:
        for one in listeners.values():
            one.setblocking(False)
        while not over.wait(0.02):
            for door, one in listeners.items():
                try:
                    if door == "tcp":
                        one.accept()[0].close()
                    else:
                        one.recv(100)
                except BlockingIOError:
                    continue
                reached.append(door)

    thread = threading.Thread(target=listen)
    thread.start()
    os.environ["HF_TOKEN"] = secret
    yield Host(
        folder,
        {
            "folder": str(folder),
            "secret": secret[::-1],  # turned round, so that finding it means finding it elsewhere
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "abstract": name,
            "shared": str(shared),
            "memory": TIGHT.memory_bytes,
            "pid": os.getpid(),
            "repository": str(Path(__file__).parents[3]),
            "home": str(Path.home()),
        },
        reached,
    )
    over.set()
    thread.join()
    for one in listeners.values():
        one.close()
    del os.environ["HF_TOKEN"]
    shared.unlink()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def left_behind() -> list[str]:
    """Processes under the uids of this process's sandboxes.

    Also supervisors that descend from it, and its zombies.
    """
    found = []
    uids = {uid for sandbox in OPEN for uid in sandbox.uids}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = dict(
                    line.split(":\t", 1)
                    for line in (entry / "status").read_text().splitlines()
                    if ":\t" in line
                )
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            child = int(status["PPid"]) == os.getpid()
            house = child and b"gspo_lab.tasks.sandbox.supervisor" in command
            if (
                house
                or int(status["Uid"].split()[0]) in uids
                or (child and status["State"].startswith("Z"))
            ):
                found.append(f"{entry.name} {status['Name']} {status['State']}")
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After every test of this folder: no process, no zombie."""
    yield
    deadline = (
        time.monotonic() + 9
    )  # below the 10 s after which a house would end such a test by itself
    while (found := left_behind()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not found
