"""One moment of the database, through as many read-only connections as there are processors to use."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gspo_lab.machine import cores
from gspo_lab.store.database import explained, reading_together

CONNECTIONS = 2
"""SQLite computes outside of Python's lock, so that sums over many rows run side by side; more gain little."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""(SQL, values) -> all rows."""


class Snapshot:
    """Read-only connections that all see the state of the moment in which they were opened."""

    def __init__(self, connections: Sequence[sqlite3.Connection], path: Path) -> None:
        self._connections = tuple(connections)
        self._path = path

    @classmethod
    def open(cls, path: Path) -> "Snapshot":
        """LabError if there is no database, it is damaged, foreign, or of another version."""
        return cls(reading_together(path, min(CONNECTIONS, cores())), path)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._asking(self._connections[0])(query, values)

    def table(self, query: str, values: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The columns' names, and all rows."""
        with explained(self._path):
            cursor = self._connections[0].execute(query, values)
            return [entry[0] for entry in cursor.description], cursor.fetchall()

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
