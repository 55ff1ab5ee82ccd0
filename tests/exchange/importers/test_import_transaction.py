"""How an import reaches its place: alone on the study, whole, and going on where a log had ended
before.
"""

import json
from pathlib import Path

import pytest
from logs import bring, brought, content, csv_of, refused

from gspo_lab.common.errors import LabError
from gspo_lab.exchange.importers.base import Log
from gspo_lab.exchange.importers.build_declaration import StatedStudy, declaration, existing_import
from gspo_lab.exchange.importers.convert import Conversion
from gspo_lab.exchange.importers.import_transaction import ImportTransaction
from gspo_lab.exchange.importers.metric_names import metric_names
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Declaration

ONE = ("--study", "x", "--arm", "a", "--seed", 0)


def of_one_step(path: Path) -> Conversion:
    return Conversion(
        Log("csv", [(1, {"r": 0.5})], (csv_of(path, "step,r", "1,0.5"),)),
        metric_names("csv", {}, {}),
        {},
    )


def declared(folder: Path, converted: Conversion) -> Declaration:
    return declaration(
        existing_import(folder, "x"), StatedStudy("x"), [("a", 0, converted)], "a/s0"
    )


def test_a_refused_import_leaves_the_one_under_way_alone(tmp_path: Path) -> None:
    """The second is refused while the first has written beside; the first then comes to its end."""
    converted = of_one_step(tmp_path / "a.csv")
    with ImportTransaction(tmp_path / "runs", "x").open() as transaction:
        transaction.stage_run("a", 0, converted, "a.csv")
        assert "another import of it is under way" in refused(
            tmp_path, "csv", tmp_path / "a.csv", *ONE
        )
        transaction.commit(declared(tmp_path, converted))
    assert (tmp_path / "runs" / "x" / "a" / "s0" / "journal.jsonl").is_file()
    assert not (tmp_path / "runs" / ".import-x").exists()
    assert "x/a/s0: unchanged" in bring(tmp_path, "csv", tmp_path / "a.csv", *ONE).out


def test_nothing_is_put_where_a_journal_is_gone(tmp_path: Path) -> None:
    converted = of_one_step(tmp_path / "a.csv")
    with ImportTransaction(tmp_path / "runs", "x").open() as transaction:
        transaction.stage_run("a", 0, converted, "a.csv")
        (tmp_path / "runs" / ".import-x" / "a" / "s0" / "journal.jsonl").unlink()
        with pytest.raises(LabError, match="x/a/s0: its journal is gone"):
            transaction.commit(declared(tmp_path, converted))
    assert content(tmp_path) == {"a.csv": b"step,r\n1,0.5\n"}


def grown(folder: Path, program: str, *versions: list[str]) -> dict[str, list[tuple[int, float]]]:
    """Steps with rewards, and scores, that are in force of a log that was imported in each of its
    versions.
    """
    for what, lines in zip(("new", "grown", "unchanged"), (*versions, versions[-1]), strict=True):
        path = csv_of(folder / "log.csv", "step,r,odd,acc", *lines)
        said = bring(
            folder,
            "csv",
            path,
            *ONE,
            "--map",
            "reward=r",
            "--score-metric",
            "acc",
            "--logged-by",
            program,
        )
        assert f"x/a/s0: {what}" in said.out, said
    found = RunFolder(folder / "runs" / "x" / "a" / "s0")
    return {
        kind: [(one["step"], one[value]) for one in found.records(kind)]
        for kind, value in (("step", "reward_mean"), ("score", "score"))
    }


@pytest.mark.parametrize(
    ("program", "first", "asked"), [("slime", 1, 0), ("verl", 0, 0), ("areal", 1, 1)]
)
def test_a_last_row_gets_its_score_later(
    tmp_path: Path, program: str, first: int, asked: int
) -> None:
    """Steps 1 to 3, then the score of 3 and a step 4: four steps. slime's first step is not known;
    areal's is 0.
    """
    before = ["1,.1,,", "2,.2,,.6", "3,.3,,"]
    found = grown(tmp_path, program, before, [*before[:2], "3,.3,,.7", "4,.4,,"])
    assert found["step"] == [(first, 0.1), (first + 1, 0.2), (first + 2, 0.3), (first + 3, 0.4)]
    assert found["score"] == [(2 + asked, 0.6), (3 + asked, 0.7)]


@pytest.mark.parametrize("program", ["slime", "verl", "areal"])
@pytest.mark.parametrize(
    ("before", "after", "rewards"),
    [
        (
            ["1,.1,,", "2,.2,,.6"],
            ["1,.1,,", "2,.2,7,.6", "3,.3,,"],
            [0.1, 0.2, 0.3],
        ),  # a number beside its score
        (
            ["1,.1,,", "2,,,.6"],
            ["1,.1,,", "2,.2,,.6"],
            [0.1, 0.2],
        ),  # the reward of a row of a score alone
    ],
)
def test_a_row_gets_more_numbers_later(
    tmp_path: Path, program: str, before: list[str], after: list[str], rewards: list[float]
) -> None:
    found = grown(tmp_path, program, before, after)
    assert [reward for _, reward in found["step"]] == rewards
    assert [score for _, score in found["score"]] == [0.6]


def test_a_row_of_scores_alone_gets_another_later(tmp_path: Path) -> None:
    """The step before it stays, and so does the score that was there."""
    for row in ("2,,.5,", "2,,.5,.6"):
        csv_of(tmp_path / "log.csv", "step,r,score/easy,score/hard", "1,.1,,", row)
        brought(tmp_path, "csv", tmp_path / "log.csv", *ONE, "--map", "reward=r")
    found = RunFolder(tmp_path / "runs" / "x" / "a" / "s0").records("step", "score")
    assert [(one["kind"], one["step"], one.get("bench")) for one in found] == [
        ("step", 1, None),
        ("score", 2, "easy"),
        ("score", 2, "hard"),
    ]


def test_a_score_that_stands_cannot_become_another(tmp_path: Path) -> None:
    options = (*ONE, "--map", "reward=r", "--score-metric", "acc")
    bring(tmp_path, "csv", csv_of(tmp_path / "log.csv", "step,r,acc", "1,.1,", "2,.2,.6"), *options)
    csv_of(tmp_path / "log.csv", "step,r,acc", "1,.1,", "2,.2,.5", "3,.3,")
    assert "at step 2 score was 0.6, now 0.5" in refused(
        tmp_path, "csv", tmp_path / "log.csv", *options
    )


def test_answers_that_come_by_themselves_are_of_the_end_of_the_run(tmp_path: Path) -> None:
    """4 steps, then answers without a step: asked after 4; of a run that is not there, after 1."""
    log = csv_of(tmp_path / "log.csv", "step,r", *(f"{step},.5" for step in range(1, 5)))
    bring(tmp_path, "csv", log, *ONE, "--map", "reward=r", "--logged-by", "verl")
    items = csv_of(tmp_path / "items.csv", "problem,correct", "p0,1", "p1,0")
    for seed, end in ((0, 4), (1, 1)):
        for what in ("new" if seed else "grown", "unchanged"):
            said = bring(tmp_path, "items", items, *ONE[:-1], seed, "--bench", "sums")
            assert f"x/a/s{seed}: {what}" in said.out, said
        answers = RunFolder(tmp_path / "runs" / "x" / "a" / f"s{seed}").records("answer")
        assert [(one["problem"], one["step"]) for one in answers] == [("p0", end), ("p1", end)]


def test_a_question_that_nobody_asked_is_of_all_arms(tmp_path: Path) -> None:
    csv_of(tmp_path / "log.csv", "step,r", "1,.5")
    asked = []
    for arm, more in (("a", ()), ("b", ()), ("b", ("--question", "Why?")), ("c", ())):
        seed = int(bool(more))
        brought(
            tmp_path,
            "csv",
            tmp_path / "log.csv",
            "--study",
            "x",
            "--arm",
            arm,
            "--seed",
            seed,
            *more,
        )
        asked.append(json.loads((tmp_path / "runs" / "x" / "study.json").read_text())["question"])
    assert asked == [
        "How does a compare, as logged?",
        "How do a and b compare, as logged?",
        "Why?",
        "Why?",
    ]


def test_a_log_and_its_answers_are_one_new_run(tmp_path: Path) -> None:
    csv_of(tmp_path / "log.csv", "step,r", "1,.5")
    csv_of(tmp_path / "items.csv", "problem,correct", "p0,1")
    run = 'arm = "a"\nseed = 0\n'
    (tmp_path / "x.toml").write_text(
        f'[[runs]]\nsource = "csv"\npath = "log.csv"\n{run}[[items]]\npath = "items.csv"\nbench ='
        f' "sums"\n{run}'
    )
    assert [
        line for line in bring(tmp_path, tmp_path / "x.toml").out.splitlines() if "s0: " in line
    ] == ["x/a/s0: new"]


def test_a_last_row_that_is_completed_later_leaves_answers_in_force(tmp_path: Path) -> None:
    """Rows 1 to 3, the last without its reward, and answers of the end, step 3; then row 3 whole,
    then a row 4.
    """
    options = (*ONE, "--map", "reward=r", "--logged-by", "verl")
    items = csv_of(tmp_path / "items.csv", "problem,correct", "p0,1", "p1,0")
    bring(
        tmp_path,
        "csv",
        csv_of(tmp_path / "log.csv", "step,r,odd", "1,.1,", "2,.2,", "3,,7"),
        *options,
    )
    assert "x/a/s0: grown" in bring(tmp_path, "items", items, *ONE, "--bench", "sums").out
    for lines in (["3,.3,7"], ["3,.3,7", "4,.4,"]):
        csv_of(tmp_path / "log.csv", "step,r,odd", "1,.1,", "2,.2,", *lines)
        assert "x/a/s0: grown" in bring(tmp_path, "csv", tmp_path / "log.csv", *options).out
        found = RunFolder(tmp_path / "runs" / "x" / "a" / "s0")
        answers = [(one["problem"], one["step"], one["correct"]) for one in found.records("answer")]
        assert answers == [("p0", 3, 1), ("p1", 3, 0)]
        assert [one["reward_mean"] for one in found.records("step")] == [0.1, 0.2, 0.3, 0.4][
            : 2 + len(lines)
        ]
    before = content(tmp_path / "runs")
    assert "x/a/s0: unchanged" in bring(tmp_path, "csv", tmp_path / "log.csv", *options).out
    assert content(tmp_path / "runs") == before
