"""Numbers that a log tells metric by metric, or on several axes: kept until all are there, then given step by step."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain
from operator import itemgetter
from struct import Struct
from tempfile import SpooledTemporaryFile

from gspo_lab.errors import LabError
from gspo_lab.importers.log import CHUNK, Row, lay

ENTRY = Struct("<Iqd")
"""A number: its metric's place among the names, its step, its value."""
AT_ONCE = ENTRY.size << 16
"""Bytes that are put in order together."""
PIECE = ENTRY.size << 12
"""Bytes of a part that are read together."""
IN_MEMORY = CHUNK


class _File(SpooledTemporaryFile[bytes]):
    """Gone with its last reader."""

    def __del__(self) -> None:
        self.close()


@dataclass
class _Part:
    """Numbers in the order of their steps, somewhere in a file. Of a metric in `ends` those from a step on are void."""

    file: _File
    at: int
    size: int
    names: list[str]
    first: int
    last: int
    ends: dict[str, int] = field(default_factory=dict)

    def rows(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Steps with their numbers; of one step and metric the last that is finite."""
        names, ends = self.names, self.ends
        step, row = self.first, dict[str, float]()
        for at in range(0, self.size, PIECE):
            self.file.seek(self.at + at)
            for place, now, value in ENTRY.iter_unpack(self.file.read(min(PIECE, self.size - at))):
                name = names[place]
                if ends and now >= ends.get(name, now + 1):
                    continue
                if now != step:
                    yield step, row
                    step, row = now, {}
                if name not in row or math.isfinite(value):
                    row[name] = value
        yield step, row


class Spool:
    """One run's numbers in the order in which they came, 20 bytes each, in a temporary file beyond a megabyte.

    A later number of a step and metric replaces the earlier one. A metric whose steps go back is noted, once; one that
    begins again is another run's: LabError.
    """

    def __init__(self, where: str, notes: list[str]) -> None:
        self._where, self._notes = where, notes
        self._places: dict[str, int] = {}
        self._names: list[str] = []
        self._firsts: dict[str, int] = {}
        self._lasts: list[int] = []
        self._values: list[float] = []
        self._data = bytearray()
        self._parts: list[_Part] = []
        self._file = _File(IN_MEMORY)
        self._size = 0
        self._at = -1
        self._rising = True
        self._went_back = self._doubled = False

    @property
    def names(self) -> set[str]:
        """The metrics."""
        return set(self._firsts)

    def add(self, name: str, step: int, value: float) -> None:
        """One number."""
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = len(self._names)
            self._names.append(name)
            self._lasts.append(step)
            self._values.append(value)
            self._firsts.setdefault(name, step)
        elif step < self._lasts[place]:
            self._back(name, self._lasts[place], step)
        elif step == self._lasts[place] and value != self._values[place]:
            self._twice(name, step, self._values[place], value)
        self._values[place] = value
        self._lasts[place] = step
        if step < self._at:
            self._rising = False
        self._at = step
        self._data += ENTRY.pack(place, step, value)
        if len(self._data) >= AT_ONCE:
            self._part()

    def drop(self, step: int) -> None:
        """Void all numbers so far of a step and later ones."""
        self._void(dict.fromkeys(self._firsts, step))
        self._lasts = [min(last, step - 1) for last in self._lasts]

    def take(self, later: "Spool") -> None:
        """What another file of the run logged after this one: it counts from its own first step of each metric on."""
        self._void(later._firsts)
        later._part()
        self._parts += later._parts
        self._firsts = {**later._firsts, **self._firsts}

    def rows(self) -> Iterator[Row]:
        """All numbers, step by step."""
        self._part()
        rising: list[list[_Part]] = []
        for part in self._parts:
            if rising and rising[-1][-1].last <= part.first:
                rising[-1].append(part)
            else:
                rising.append([part])
        found = [chain.from_iterable(part.rows() for part in parts) for parts in rising]
        at: int | None = None
        row: dict[str, float] = {}
        for step, values in merge(*found, key=itemgetter(0)):  # of equal steps those that came later come last
            if step != at:
                if at is not None and row:
                    yield at, row
                at, row = step, values
            else:
                lay(values, row)
        if at is not None and row:
            yield at, row

    def _back(self, name: str, last: int, step: int) -> None:
        if step <= self._firsts[name] < last:
            raise LabError(
                f"{self._where}: {name} begins again at step {step}, after step {last}: two runs in one log; part them"
            )
        if not self._went_back:
            self._notes.append(f"{name} goes back from step {last} to {step}: of one step the later number counts")
        self._went_back = True

    def _twice(self, name: str, step: int, before: float, value: float) -> None:
        if not (math.isfinite(before) and math.isfinite(value)):
            return
        if not self._doubled:
            self._notes.append(
                f"{name} is logged twice at step {step}, {before:g} and {value:g}: the later number counts"
            )
        self._doubled = True

    def _void(self, ends: dict[str, int]) -> None:
        """Void the numbers so far of each of these metrics from a step on."""
        self._part()
        for part in self._parts:
            part.ends |= {name: min(end, part.ends.get(name, end)) for name, end in ends.items() if end <= part.last}

    def _part(self) -> None:
        """Make a part of what has come since the last."""
        if not self._data:
            return
        if not self._rising:
            entries = sorted(ENTRY.iter_unpack(self._data), key=itemgetter(1))  # stable: the later comes last
            self._data = bytearray(b"".join(ENTRY.pack(*one) for one in entries))
        _, first, _ = ENTRY.unpack_from(self._data)
        _, last, _ = ENTRY.unpack_from(self._data, len(self._data) - ENTRY.size)
        self._file.seek(self._size)
        self._file.write(self._data)
        self._parts.append(_Part(self._file, self._size, len(self._data), self._names, first, last))
        self._size += len(self._data)
        self._data.clear()
        self._at, self._rising = -1, True
