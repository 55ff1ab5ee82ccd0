"""One moment of the database, through several read-only connections."""

import sqlite3
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gspo_lab.machine import cores
from gspo_lab.store.database import explained, reading_together

CONNECTIONS = 3
"""SQLite computes outside of Python's lock, so that sums over many rows run side by side: two beside who asks. More
gain little; on a single processor one is all."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""(SQL, values) -> all rows."""


@dataclass
class _Read:
    """Something read once; who comes while another thread reads it waits for it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    found: tuple[Any, ...] = ()


class Snapshot:
    """Read-only connections that all see the state of the moment in which they were opened."""

    def __init__(
        self, connections: Sequence[sqlite3.Connection], path: Path, read: dict[Hashable, _Read] | None = None
    ) -> None:
        self._connections = tuple(connections)
        self._path = path
        self._read: dict[Hashable, _Read] = {} if read is None else read

    @classmethod
    def open(cls, path: Path) -> "Snapshot":
        """LabError if there is no database, it is damaged, foreign, or of another version."""
        return cls(reading_together(path, CONNECTIONS if cores() > 1 else 1), path)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    @contextmanager
    def beside(self) -> "Iterator[Snapshot | None]":
        """Lends all connections but one to one other thread, None where one is all. What either reads `once`, both
        know."""
        own = self._connections
        self._connections = own[:1]
        try:
            yield Snapshot(own[1:], self._path, self._read) if own[1:] else None
        finally:
            self._connections = own

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._asking(self._connections[0])(query, values)

    def table(self, query: str, values: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The columns' names, and all rows."""
        with explained(self._path):
            cursor = self._connections[0].execute(query, values)
            return [entry[0] for entry in cursor.description], cursor.fetchall()

    def everywhere(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Do something to every connection's temporary tables; nothing else can be written."""
        for connection in self._connections:
            self._asking(connection)(statement, values)

    def once(self, key: Hashable, read: Callable[[], Result]) -> Result:
        """What `read` returns, which is read at most once: the moment does not change. Nobody may change it."""
        entry = self._read.setdefault(key, _Read())
        with entry.lock:
            if not entry.found:
                entry.found = (read(),)
        found: Result = entry.found[0]
        return found

    def each(self, items: Sequence[Item], read: Callable[[Ask, Item], Result]) -> list[Result]:
        """`read` of every item, in their order, several at a time: for queries that sum up much and return little."""
        asking = [self._asking(connection) for connection in self._connections]
        if len(asking) == 1 or len(items) < 2:
            return [read(asking[0], item) for item in items]

        def share(place: int) -> list[Result]:
            return [read(asking[place], item) for item in items[place :: len(asking)]]

        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(asking)) as pool:
            shares = list(pool.map(share, range(len(asking))))
        return [shares[i % len(asking)][i // len(asking)] for i in range(len(items))]

    def _asking(self, connection: sqlite3.Connection) -> Ask:
        def ask(query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
            with explained(self._path):
                return connection.execute(query, values).fetchall()

        return ask
