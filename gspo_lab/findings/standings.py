"""Contests' standings as the site's interface gives them, kept in a folder; and the rating that they give a model.

FOLDER/CONTEST.standings.json        what /api/contest.standings?contestId=CONTEST answers
FOLDER/CONTEST.ratingChanges.json    what /api/contest.ratingChanges?contestId=CONTEST answers
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_lab.errors import LabError
from gspo_lab.readings import average
from gspo_lab.stats.contests import ATTEMPTS, Contest, Contestant, contest_rating
from gspo_lab.store.answers import first_right

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store import Evidence

NOTE = "CodeElo's formula on the tests at hand, not CodeElo"
NAMES = {"rating": "rating of one attempt", "rating_of_eight": "rating of up to 8 attempts"}
"""Two estimates from the site's ratings of its problems; neither is CodeElo, which ranks among a contest's people."""


class ContestRatings:
    """The columns that ratings add to a benchmark's table of scores: by the problems' own ratings on the site, and with
    a folder of standings by these. `references` are the problems' by their names."""

    def __init__(self, references: Mapping[str, str], standings: Path | None) -> None:
        ratings = {problem: json.loads(reference)["rating"] for problem, reference in references.items()}
        self.difficulty = {problem: float(rating) for problem, rating in ratings.items() if rating is not None}
        self.standings = standings

    def of(self, row: Mapping[str, Any], graded: "DataFrame", evidence: "Evidence") -> dict[str, Any]:
        """The ratings of one row of scores, whose problems with their counts of answers are `graded`."""
        out: dict[str, Any] = {}
        if self.difficulty:
            known = graded[graded["problem"].isin(list(self.difficulty))]
            out = {name: self.rating(known, attempts) for name, attempts in zip(NAMES, (1, ATTEMPTS), strict=True)}
        if self.standings is not None:
            out["rating_by_standings"] = self._by_standings(row, evidence, self.standings)
        return out

    def rating(self, graded: "DataFrame", attempts: int) -> dict[str, Any] | None:
        """The estimate from the chances that problems of known difficulty are solved in so many attempts; None without
        any problem, or where one of them has fewer answers."""
        from gspo_lab.stats.passk import pass_at_k
        from gspo_lab.stats.rating import estimate_rating

        if graded.empty or graded["graded"].min() < attempts:
            return None
        solved = pass_at_k(graded["correct"], graded["graded"], attempts)
        found = estimate_rating(graded["problem"].map(self.difficulty), solved)
        return {**vars(found), "note": "estimate, not CodeElo"}

    def _by_standings(self, row: Mapping[str, Any], evidence: "Evidence", folder: Path) -> dict[str, Any] | None:
        """None where one of the answers that count is not graded, or there are fewer of them than attempts."""
        frame = first_right(evidence, [row["run_id"]], row["evaluation"], ATTEMPTS)
        frame = frame[frame["step"] == row["step"]]
        if row["samples"] < ATTEMPTS or frame["ungraded"].any():
            return None
        tried = zip(frame["problem"], frame["attempt"].astype(float), strict=True)
        first = {problem: None if attempt != attempt else int(attempt) for problem, attempt in tried}
        return asdict(standings_rating(folder, first))

    def shown(self, row: Mapping[str, Any]) -> dict[str, str | None]:
        """The columns as a person reads them."""
        out: dict[str, str | None] = {name: _rating_words(row[key]) for key, name in NAMES.items() if row.get(key)}
        if self.standings is not None:
            out["rating by standings"] = _standings_words(row["rating_by_standings"])
        return out


def _rating_words(rating: Mapping[str, Any]) -> str:
    low, high = (None if rating[end] is None else round(rating[end]) for end in ("low", "high"))
    if rating["rating"] is None:
        return f"below {high}" if low is None else f"above {low}"
    return f"{rating['rating']:.0f} (no interval)" if low is None else f"{rating['rating']:.0f} ({low} to {high})"


def _standings_words(found: Mapping[str, Any] | None) -> str | None:
    if found is None or found["rating"] is None:
        return None
    unasked = f", {found['unasked']} problems not asked" if found["unasked"] else ""
    return f"{found['rating']:.0f} ({found['contests']} contest{'s'[: found['contests'] != 1]}{unasked})"


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
            f"{next(iter(sorted(by_contest)), '1987')}.standings.json; docs/reference/benchmarks.md says what they are"
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
        raise LabError(f"{path}: {error.strerror}; docs/reference/benchmarks.md says what --standings reads") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise LabError(f"{path} is no answer of the site: JSON with an entry 'result'") from error
