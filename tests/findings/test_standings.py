"""Standings as the site answers them, made up: read, and what of them is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from gspo_lab.errors import LabError
from gspo_lab.findings.standings import standings_rating

PEOPLE = 202


def answers(folder: Path, contest: str = "7", *, points: float | None = 500.0, rated: int = PEOPLE) -> None:
    """A contest of two problems, where everybody of 1500 has 450 points; the last one is not rated, and has 9,000."""
    names = [f"p{place}" for place in range(PEOPLE + 1)]
    problem = {} if points is None else {"points": points}
    standings = {
        "problems": [{"index": index, **problem} for index in "AB"],
        "rows": [
            {"party": {"members": [{"handle": name}]}, "points": 9000 if name == names[-1] else 450, "penalty": 0}
            for name in names
        ],
    }
    changes = [{"handle": name, "oldRating": 1500} for name in names[:rated]]
    for what, result in (("standings", standings), ("ratingChanges", changes)):
        (folder / f"{contest}.{what}.json").write_text(json.dumps({"status": "OK", "result": result}))


def test_the_first_right_attempt_scores_and_what_was_not_asked_is_counted(tmp_path: Path) -> None:
    answers(tmp_path)
    found = standings_rating(tmp_path, {"7/A": 1, "8/A": 0})
    # 450 points, level with all who are rated: place 1. Contest 8 has no standings.
    assert (found.rating, found.contests, found.problems, found.unasked) == (1600, 1, 1, 1)
    assert standings_rating(tmp_path, {"7/A": 2, "7/B": None}).rating == 0  # 400: behind all of them
    answers(tmp_path, "8", points=None)
    both = standings_rating(tmp_path, {"7/A": 1, "8/A": 0})
    assert (both.rating, both.contests) == ((1600 + 0) / 2, 2)  # one problem solved is less than 450


def test_a_contest_of_few_rates_nobody(tmp_path: Path) -> None:
    answers(tmp_path, rated=200)
    found = standings_rating(tmp_path, {"7/A": 0})
    assert (found.rating, found.contests) == (None, 0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "7.standings.json").unlink(), "no CONTEST.standings.json of the 1 contests asked"),
        (lambda f: (f / "7.ratingChanges.json").unlink(), "7.ratingChanges.json: No such file"),
        (lambda f: (f / "7.standings.json").write_text("<html>"), "is no answer of the site"),
        (lambda f: (f / "7.standings.json").write_text('{"result": {"rows": 3}}'), "are not what the site's"),
    ],
)
def test_other_files_are_told(tmp_path: Path, spoil: Any, message: str) -> None:
    answers(tmp_path)
    spoil(tmp_path)
    with pytest.raises(LabError, match=message):
        standings_rating(tmp_path, {"7/A": 0})
