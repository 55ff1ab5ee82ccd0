"""How an import reaches its place: alone on the study, whole, and in place of an earlier import."""

from pathlib import Path

from calling import lab_error
from laboratory import json_of
from logs import bring, brought, content, csv_of, refused

from gspo_lab.exchange.importers.base import Log, RunSpec
from gspo_lab.exchange.importers.build_declaration import StatedStudy, declaration, existing_import
from gspo_lab.exchange.importers.convert import Conversion
from gspo_lab.exchange.importers.import_transaction import ImportTransaction
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Declaration

ONE = ("--study", "x", "--arm", "a", "--seed", 0)


def one_step(path: Path) -> Conversion:
    log = Log("csv", [(1, {"r": 0.5})], (csv_of(path, "step,r", "1,0.5"),))
    return Conversion(log, RunSpec(source="csv", path=str(path)), {})


def declared(folder: Path, converted: Conversion) -> Declaration:
    return declaration(
        existing_import(folder, "x"), StatedStudy("x"), [("a", 0, converted)], "a/s0"
    )


def journal_of(folder: Path, seed: int = 0) -> RunFolder:
    return RunFolder(folder / "runs" / "x" / "a" / f"s{seed}")


def test_a_refused_import_leaves_the_one_under_way_alone(tmp_path: Path) -> None:
    """The second is refused while the first has written beside; the first then comes to its end."""
    converted = one_step(tmp_path / "a.csv")
    with ImportTransaction(tmp_path / "runs", "x").open() as transaction:
        transaction.stage_run("a", 0, converted, "a.csv")
        assert "another import of it is under way" in refused(
            tmp_path, "csv", tmp_path / "a.csv", *ONE
        )
        transaction.commit(declared(tmp_path, converted))
    assert journal_of(tmp_path).journal.is_file()
    assert not (tmp_path / "runs" / ".import-x").exists()


def test_nothing_is_moved_where_a_journal_is_gone(tmp_path: Path) -> None:
    converted = one_step(tmp_path / "a.csv")
    with ImportTransaction(tmp_path / "runs", "x").open() as transaction:
        transaction.stage_run("a", 0, converted, "a.csv")
        (tmp_path / "runs" / ".import-x" / "a" / "s0" / "journal.jsonl").unlink()
        with lab_error("x/a/s0: its journal is gone"):
            transaction.commit(declared(tmp_path, converted))
    assert content(tmp_path) == {"a.csv": b"step,r\n1,0.5\n"}


def test_rows_and_answers_come_in_two_imports(tmp_path: Path) -> None:
    """Four steps, then answers at their end; the log again, longer; the answers again, changed.

    Answers of a run without a log are of step 1.
    """
    options = (*ONE, "--map", "reward=r", "--logged-by", "verl")
    items = csv_of(tmp_path / "items.csv", "problem,correct", "p0,1", "p1,0")

    def log(length: int) -> Path:
        return csv_of(tmp_path / "log.csv", "step,r", *(f"{s},.5" for s in range(1, length + 1)))

    assert "x/a/s0: new" in bring(tmp_path, "csv", log(4), *options).out
    assert "x/a/s0: extended" in bring(tmp_path, "items", items, *ONE, "--bench", "sums").out
    assert "x/a/s0: extended" in bring(tmp_path, "csv", log(6), *options).out
    answers = [
        (record["problem"], record["step"]) for record in journal_of(tmp_path).records("answer")
    ]
    assert answers == [("p0", 4), ("p1", 4)]
    assert len(journal_of(tmp_path).records("step")) == 6
    csv_of(items, "problem,correct", "p0,0")
    assert "x/a/s0: extended" in bring(tmp_path, "items", items, *ONE, "--bench", "sums").out
    [answer] = journal_of(tmp_path).records("answer")
    assert (answer["correct"], answer["step"]) == (0, 6)
    assert len(journal_of(tmp_path).records("step")) == 6
    before = content(tmp_path / "runs")
    assert "x/a/s0: unchanged" in bring(tmp_path, "csv", log(6), *options).out
    assert content(tmp_path / "runs") == before
    other = (*ONE[:-1], 1)
    assert "x/a/s1: new" in bring(tmp_path, "items", items, *other, "--bench", "sums").out
    assert [record["step"] for record in journal_of(tmp_path, 1).records("answer")] == [1]


def test_an_import_with_other_options_replaces_the_first(tmp_path: Path) -> None:
    """The benchmark of the first import, a metric without the chosen score, is gone."""
    csv_of(tmp_path / "log.csv", "step,r,acc", "1,.1,.5", "2,.2,.6")
    for score in ("r", "acc"):
        brought(tmp_path, "csv", tmp_path / "log.csv", *ONE, "--score-metric", score)
    study = json_of(tmp_path / "runs" / "x" / "study.json")
    assert [bench["name"] for bench in study["arms"]["a"]["settings"]["bench"]] == ["acc"]
    assert [record["bench"] for record in journal_of(tmp_path).records("score")] == ["acc"] * 2


def test_the_usual_question_names_all_arms(tmp_path: Path) -> None:
    csv_of(tmp_path / "log.csv", "step,r", "1,.5")
    questions = []
    for arm, seed, more in (
        ("a", 0, ()),
        ("b", 0, ()),
        ("b", 1, ("--question", "Why?")),
        ("c", 0, ()),
    ):
        run = ("--study", "x", "--arm", arm, "--seed", seed)
        brought(tmp_path, "csv", tmp_path / "log.csv", *run, *more)
        study = json_of(tmp_path / "runs" / "x" / "study.json")
        questions.append(study["question"])
    assert questions == [
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
