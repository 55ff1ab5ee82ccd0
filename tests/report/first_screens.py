"""Studies whose first screen must say something else, made of records as workers leave them."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from calling import gspo_lab
from laboratory import rendered
from synthetic_lab import FOUR_ARMS, TWO_ARMS, make_lab, right

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records import Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.store import ingest
from gspo_lab.report import Report, write
from gspo_lab.study import Run

STABILITY = '[verdict]\nquestion = "stability"\nbaseline = "grpo-replay"\n'
CONTRAST = """[verdict]
contrast = {{gspo = 0.5, gspo-replay = 0.5, grpo = -0.5, grpo-replay = -0.5}}
names = ["GSPO averaged over replay", "GRPO averaged over replay"]
"""
SWEEP = TWO_ARMS.replace(
    "[[bench]]", "[sweep]\nupdate.learning_rate = [1e-4, 1e-3, 1e-2]\n[[bench]]"
)
NO_BENCH = (
    TWO_ARMS[: TWO_ARMS.index("[[bench]]")] + TWO_ARMS[TWO_ARMS.index("[arm") :] + "# {every}"
)
ONE_ARM = TWO_ARMS.replace('[arm.gspo]\nobjective = "gspo"\n', "")
SCORES = ((0.50, 0.62), (0.48, 0.63), (0.52, 0.60), (0.49, 0.66), (0.51, 0.64))
"""Of grpo and gspo, seed by seed, in a table that another program wrote."""
TWELVE = TWO_ARMS + "".join(
    f'[arm.gspo-{width}]\nobjective = "gspo"\nclip_low = {width}e-4\nclip_high = {width}e-4\n'
    for width in range(5, 15)
)


class Case(NamedTuple):
    """A study, how its runs went, and what its page must show.

    The page shows the verdict, the colour and a part of the sentences.
    """

    toml: str
    how: JsonObject
    word: str
    colour: str
    sentence: str = ""


def scored(
    score: Callable[[Run, int], float], dying: Callable[[Run], bool] = lambda run: False
) -> Any:
    """Runs with such scores, of 20 problems.

    The updates of those that die are not finite from step 6 on.
    """

    def change(run: Run, record: Record) -> Record:
        if isinstance(record, UpdateRecord) and dying(run) and record.step >= 6:
            return replace(record, nonfinite=1)
        if isinstance(record, StepRecord):
            level = 0.0 if dying(run) and record.step >= 6 else 0.3 + 0.02 * record.step
            return replace(record, reward_mean=level, peak_memory_bytes=2**30)
        return answers(run, record)

    answers = right(
        lambda run, step: 0.0 if dying(run) and step > 6 else score(run, step),
        lambda run, step: (run.seed + sum(run.arm.encode())) % 4 if step else 0,
    )
    return change


def rising(run: Run, step: int) -> float:
    return 0.3 + 0.02 * step + 0.05 * (run.seed % 2)


def ahead(run: Run, step: int) -> float:
    return rising(run, step) + (0.25 if run.arm == "gspo" and step else 0.0)


def noisy(run: Run, step: int) -> float:
    return rising(run, step) + (0.1 * ((run.seed * 7 + len(run.arm)) % 4 - 1.5) if step else 0.0)


def peaked(run: Run, step: int) -> float:
    """Highest at the middle learning rate; gspo keeps more at the highest."""
    height = {"0.0001": 0.2, "0.001": 0.3, "0.01": 0.1}[run.arm.partition("@")[2]]
    ahead = 0.1 if run.arm == "gspo@0.01" else 0.0
    return 0.3 + (height + ahead + 0.05 * (run.seed % 2) if step else 0.0)


def one_failed(run: Run) -> str:
    return "failed" if (run.arm, run.seed) == ("gspo", 1) else "finished"


def other_torch(run: Run, record: Record) -> Record:
    if isinstance(record, RunStatus) and record.state == "started" and run.arm == "gspo":
        return replace(record, facts={**(record.facts or {}), "packages": {"torch": "2.12.0"}})
    return record


BETTER = "gspo is better than grpo by more than the margin on this one starting model."
OTHER_TORCH = "undeclared difference in packages: torch (seeds 0 to 4)"
CASES = {
    "better": Case(TWO_ARMS, {"seeds": 5, "change": scored(ahead)}, "gspo better", "green", BETTER),
    "equivalent": Case(
        TWO_ARMS + "[verdict]\nmargin = 0.3\n",
        {"seeds": 5, "change": scored(rising)},
        "equivalent within the margin",
        "green",
    ),
    "not-resolved": Case(FOUR_ARMS, {"seeds": 5, "change": scored(noisy)}, "inconclusive", "grey"),
    "regime-not-reached": Case(
        FOUR_ARMS + STABILITY, {"seeds": 5, "change": scored(rising)}, "no unstable runs", "grey"
    ),
    "all-collapsed": Case(
        FOUR_ARMS,
        {"seeds": 3, "steps": 12, "change": scored(rising, lambda run: True)},
        "all collapsed",
        "red",
    ),
    "not-matched": Case(
        TWO_ARMS, {"seeds": 5, "change": other_torch}, "no verdict", "red", OTHER_TORCH
    ),
    "one-failed": Case(
        TWO_ARMS,
        {"end": one_failed},
        "no verdict",
        "red",
        "runs are missing, 2 of 3 pairs are complete",
    ),
    "one-arm": Case(
        ONE_ARM,
        {},
        "no verdict",
        "grey",
        "No verdict: grpo is the only arm, so there is nothing to",
    ),
    "no-benchmark": Case(
        NO_BENCH, {}, "no verdict", "grey", "No verdict: the study declares no benchmark"
    ),
    "running": Case(
        TWO_ARMS,
        {
            "seeds": 5,
            "steps": 12,
            "change": scored(rising),
            "until": lambda run: 12 if run.seed < 3 else 5,
            "end": lambda run: "finished" if run.seed < 3 else None,
        },
        "running",
        "grey",
        "3 of 5 pairs are complete",
    ),
    "contrast": Case(
        FOUR_ARMS + CONTRAST, {"seeds": 5, "change": scored(noisy)}, "inconclusive", "grey"
    ),
    "sweep": Case(
        SWEEP,
        {"seeds": 3, "steps": 20, "change": scored(rising, lambda run: "@0.01" in run.arm)},
        "inconclusive",
        "grey",
        "50 % collapse point at",
    ),
    "over": Case(
        SWEEP + '[verdict]\nover = "update.learning_rate"\n',
        {"seeds": 3, "steps": 20, "change": scored(peaked)},
        "no verdict",
        "grey",
    ),
    "import": Case("", {}, "gspo better", "green"),
    "one-seed": Case(
        TWO_ARMS,
        {"seeds": 1, "change": scored(rising)},
        "one seed",
        "grey",
        "1 pair of runs; an interval",
    ),
    "twelve-arms": Case(TWELVE, {"seeds": 5, "change": scored(ahead)}, "resolved in part", "blue"),
}


def page_of(name: str, folder: Path) -> tuple[Path, Report]:
    """The page of one case, written under `folder`, and its report."""
    case = CASES[name]
    if name == "import":
        database = imported(folder / name)
    else:
        database = make_lab(folder / name, case.toml, name=name, **{"steps": 8, **case.how})
    if name == "running":
        alive(database, [f"{name}/{arm}/s{seed}" for arm in ("grpo", "gspo") for seed in (3, 4)])
    report = rendered(database, name)
    return write(report, folder)[0], report


def imported(folder: Path) -> Path:
    """The database of final scores that `gspo-lab import` has read from a table."""
    folder.mkdir()
    rows = (
        f"{arm},{seed},{both[i]}"
        for seed, both in enumerate(SCORES)
        for i, arm in enumerate(("grpo", "gspo"))
    )
    (folder / "scores.csv").write_text(
        "\n".join(("arm,seed,score", *rows)) + "\n", encoding="utf-8"
    )
    done = gspo_lab(
        "import", "csv", folder / "scores.csv", "--study", "import", "--runs", folder / "runs"
    )
    assert done.code == 0, done
    ingest(folder / "runs")
    return folder / "runs" / "lab.db"


def alive(database: Path, runs: list[str]) -> None:
    """As if a worker held these runs' locks when their journals came into the database."""
    import sqlite3

    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany(
            "UPDATE runs SET state = 'running' WHERE run_id = ?", [(run,) for run in runs]
        )
