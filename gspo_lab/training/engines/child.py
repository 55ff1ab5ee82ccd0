"""Records from a child process: for engines whose training is another program, which prints JSON
lines.

    with Child([sys.executable, "train.py", str(folder / "run.json")]) as child:
        for record in child:                      # {"kind": "step", "step": 0, "prompts": 4, ...}
            sink.write([record])
            if stop():
                return False                      # leaving the context ends the child
    return True

A line that begins with "{" is a record, as `journal.to_dict` writes it, one with "[{" a list of
records that belong together (`Child.batches` gives them so); all others are the child's own words,
passed on to the worker's log. A program that writes a log of its own is followed instead, line by
line:

        for line in child.follow(folder / "log.jsonl", stop):   # ends with the child, or on a stop
"""

import json
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import chain
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from gspo_lab.common.errors import Crashed, LabError
from gspo_lab.common.registry import nearest
from gspo_lab.recording.records import RECORDS, Record
from gspo_lab.training.engines.base import Stop

LAST = 10
"""How many of the child's last lines an error shows."""
WORDS = 200
"""How many characters are told of what is no record."""
PATIENCE = 30.0
"""Seconds that a child has to end when it is asked to."""
POLL = 0.2
"""Seconds between looks at a followed file."""
WRITTEN = "written"
STOP = "stop"
"""What children that listen are told: the last line's records are on the disk; end after this step.
"""

_TYPED: dict[str, TypeAdapter[Record]] = {kind: TypeAdapter(cls) for kind, cls in RECORDS.items()}


class Child:
    """A command that prints records, iterated as they come. Leaving the context ends it; with
    `listens` it reads `send_line`.

    Iterating raises LabError at a line that is no record, with its number and the last lines;
    Crashed at an exit code not 0."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        listens: bool = False,
    ) -> None:
        self._command = list(command)
        self._last: deque[str] = deque(maxlen=LAST)
        self._process = subprocess.Popen(
            self._command,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self.batches())

    def batches(self) -> Iterator[list[Record]]:
        """The records of one line after the other."""
        assert self._process.stdout is not None
        for number, line in enumerate(self._process.stdout, start=1):
            self._last.append(line.rstrip())
            if not line.startswith(("{", "[{")):
                print(line, end="", flush=True)
                continue
            try:
                records = read_records(line)
            except ValueError as error:
                raise self._error(f"printed no record in line {number}: {error}") from error
            yield records
        if code := self._process.wait():
            raise self._crash(code)

    def send_line(self, word: str) -> None:
        """Tell the child a line, if it still listens."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()

    def follow(self, path: Path, stop: Stop) -> Iterator[str]:
        """The whole lines that the child writes into a file, as they come, until it ends or `stop`
        asks. Crashed where it fails; what it prints goes to the log."""
        words = Thread(target=self._pass_on, daemon=True)
        words.start()
        read = 0
        unfinished = b""
        while True:
            ended = (
                self._process.poll() is not None
            )  # asked first: what it wrote before its end is still read
            if path.exists():
                with path.open("rb") as file:
                    file.seek(read)
                    new = file.read()
                read += len(new)
                *lines, unfinished = (unfinished + new).split(b"\n")
                yield from (line.decode() for line in lines)
            if ended or stop():
                break
            time.sleep(POLL)
        if ended and (code := self._process.wait()):
            words.join(PATIENCE)  # its own children may hold the pipe open
            raise self._crash(code)

    def _pass_on(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last.append(line.rstrip())
            print(line, end="", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _crash(self, code: int) -> LabError:
        error = self._error(f"ended with exit code {code}")
        killed = code == -signal.SIGKILL or any(
            "SIGKILL" in line for line in self._last
        )  # as torchrun has it
        if killed:
            return Crashed(
                f"the child process {self._command[0]}: a process was killed by SIGKILL; out of"
                " memory?"
            )
        return Crashed(str(error), details=error.details)

    def _error(self, problem: str) -> LabError:
        return LabError(
            f"the child process {self._command[0]} {problem}",
            details=("its last lines:", *self._last),
        )


def read_records(line: str) -> list[Record]:
    """The records of one line; ValueError where there is none, one has a field that records do not
    know, or one of another type."""
    data = json.loads(line)
    return [_record(entry) for entry in (data if isinstance(data, list) else [data])]


def _record(data: Any) -> Record:
    if not isinstance(data, dict):
        raise ValueError(f"it is no object but {data!r}"[:WORDS])
    kind = data.get("kind")
    if kind not in RECORDS:
        raise ValueError(f"its kind is {kind!r}, not one of {', '.join(RECORDS)}")
    names = {field.name for field in fields(RECORDS[kind])}
    for name in data.keys() - names - {"kind"}:
        raise ValueError(f"a record of the kind {kind} has no '{name}'{nearest(name, names)}")
    try:
        return _TYPED[kind].validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        mistakes = [
            f"{'.'.join(map(str, mistake['loc']))}: {mistake['msg'].lower()}"
            for mistake in error.errors()
        ]
        raise ValueError("; ".join(mistakes)) from error
