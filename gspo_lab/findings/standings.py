"""Contests' standings as the site's interface gives them, kept in a folder; and the rating that they give a model.

FOLDER/CONTEST.standings.json        what /api/contest.standings?contestId=CONTEST answers
FOLDER/CONTEST.ratingChanges.json    what /api/contest.ratingChanges?contestId=CONTEST answers
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.readings import average
from gspo_lab.stats.contests import Contest, Contestant, contest_rating

NOTE = "CodeElo's formula on the tests at hand, not CodeElo"


@dataclass(frozen=True, slots=True)
class StandingsRating:
    """The mean over `contests` of a model's rating in each; None where there was none to rate it by.

    `unasked` of their problems were not among those that were asked, and count as unsolved.
    """

    rating: float | None
    contests: int
    problems: int
    unasked: int
    note: str = NOTE


def standings_rating(folder: Path, solved_at: Mapping[str, int | None]) -> StandingsRating:
    """The rating by each problem's ("1987/A") first right attempt, from 0 and below 8, None where there was none.

    Contests without standings in the folder are left out. LabError where the folder has none of them, or files that
    are not what the site answers.
    """
    by_contest: dict[str, dict[str, int | None]] = {}
    for problem, attempt in solved_at.items():
        contest, _, index = problem.partition("/")
        by_contest.setdefault(contest, {})[index] = attempt
    kept = {name: read_contest(folder, name) for name in by_contest if (folder / f"{name}.standings.json").is_file()}
    if not kept:
        raise LabError(
            f"--standings {folder}: no CONTEST.standings.json of the {len(by_contest)} contests asked, such as "
            f"{next(iter(sorted(by_contest)), '1987')}.standings.json; docs/benchmarks.md says what they are"
        )
    ratings, problems, unasked = [], 0, 0
    for name, found in kept.items():
        asked = {index: attempt for index, attempt in by_contest[name].items() if index in found.points}
        solved = {index: attempt for index, attempt in asked.items() if attempt is not None}
        if (rating := contest_rating(found, solved)) is not None:
            ratings.append(rating)
            problems += len(asked)
            unasked += len(found.points) - len(asked)
    return StandingsRating(average(ratings), len(ratings), problems, unasked)


def read_contest(folder: Path, name: str) -> Contest:
    """A contest from its two files; of the people those that the site rated. LabError where they are something else."""
    standings, changes = (_answer(folder / f"{name}.{what}.json") for what in ("standings", "ratingChanges"))
    try:
        old = {change["handle"]: float(change["oldRating"]) for change in changes}
        points = {problem["index"]: problem.get("points") for problem in standings["problems"]}
        rows = [
            Contestant(float(row["points"]), float(row["penalty"]), old[row["party"]["members"][0]["handle"]])
            for row in standings["rows"]
            if row["party"]["members"][0]["handle"] in old
        ]
        return Contest({str(index): None if worth is None else float(worth) for index, worth in points.items()}, rows)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise LabError(
            f"{folder}: the files of contest {name} are not what the site's contest.standings and "
            f"contest.ratingChanges answer ({type(error).__name__}: {error})"
        ) from error


def _answer(path: Path) -> Any:
    try:
        answer = json.loads(path.read_text())
        return answer["result"]
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}; docs/benchmarks.md says what --standings reads") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise LabError(f"{path} is no answer of the site: JSON with an entry 'result'") from error
