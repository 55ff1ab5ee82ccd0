"""What a report reads in another thread is what it would read itself, once."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_lab import make_lab

from gspo_lab.errors import LabError
from gspo_lab.findings.training_curves import course as course_of
from gspo_lab.findings.training_curves import prefetch
from gspo_lab.readings import Source, read
from gspo_lab.readings.reading import CLIP
from gspo_lab.store import Evidence
from gspo_lab.store.records import read_spans


def test_what_was_read_ahead_is_known_and_read_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = make_lab(tmp_path)
    with Evidence.open(database) as evidence:
        alone = Source(evidence, "toy")
        course, clipped = course_of(alone), read(alone, CLIP)
    with Evidence.open(database) as evidence:
        with prefetch([(evidence, "toy")]):
            pass
        asked: list[str] = []
        rows = evidence.rows

        def noted(query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
            asked.append(query)
            return rows(query, values)

        monkeypatch.setattr(evidence, "rows", noted)
        found = Source(evidence, "toy")
        assert [track.run for track in course_of(found).tracks] == [track.run for track in course.tracks]
        for one, other in zip(course_of(found).tracks, course.tracks, strict=True):
            np.testing.assert_equal(one.columns, other.columns)
        assert read(found, CLIP) == clipped
        assert [query for query in asked if "UPDATES" in query.upper() and "PRAGMA table_info" not in query] == []


def test_what_cannot_be_read_ahead_is_told_to_who_needs_it(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path)) as evidence:
        with prefetch([(evidence, "nothing")]):
            pass
        with pytest.raises(LabError, match="no study 'nothing'"):
            _ = course_of(Source(evidence, "nothing"))


def test_a_value_beyond_all_numbers_stays_what_it_is(tmp_path: Path) -> None:
    database = make_lab(tmp_path, seeds=1)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE updates SET grad_norm = CASE step WHEN 2 THEN 9e999 ELSE -9e999 END WHERE step > 1")
    with Evidence.open(database) as evidence:
        [first, _] = read_spans(evidence, "toy", "updates", ["grad_norm"], buckets=12).values()
    assert np.isfinite(first["grad_norm"][:2]).all()
    assert list(first["grad_norm"][2:4]) == [np.inf, -np.inf]
