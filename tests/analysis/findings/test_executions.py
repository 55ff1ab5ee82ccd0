"""A study carried out more than once: in the same database, in the archive, on another machine."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error
from laboratory import json_of, rendered, source
from synthetic_lab import TWO_ARMS, make_lab

from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.executions import all_executions
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import OptionalText
from gspo_lab.recording.records import AnswerRecord, Record, StepRecord
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.report.views.replications import lines
from gspo_lab.study import Declaration, Run, digest
from gspo_lab.study.declaration import LOCKED, differences, identity

MARGIN = "\n[verdict]\nmargin = 0.05\nlast = 1\n"
STUDY = TWO_ARMS.replace("[[bench]]", f"{MARGIN}[[bench]]")


def scored(right: Callable[[Run], int]) -> Callable[[Run, Record], Record]:
    """Final answers of which so many of 20 are right."""

    def change(run: Run, record: Record) -> Record:
        if not isinstance(record, AnswerRecord) or not record.step:
            return record
        return replace(record, correct=int(int(record.problem.rpartition("-")[2]) < right(run)))

    return change


def ahead(by: int) -> Callable[[Run, Record], Record]:
    """GSPO has so many more right answers of 20 than GRPO, one more or fewer by seed."""
    return scored(lambda run: 8 + (by + run.seed % 2 if run.arm == "gspo" else 0))


def relabel(home: Path, created: str, of: OptionalText = None) -> None:
    """A study.json as if it had been declared at this time, as a replication `of` one or not."""
    content = json_of(home / "study.json")
    content |= {"created": created}
    if of:
        link = {"study": of, "kind": "replication", "content": identity(declared(home))}
        content |= {"parent": link}
    content["digest"] = digest({key: content[key] for key in LOCKED if key in content})
    (home / "study.json").write_text(json.dumps(content))


def lab(
    folder: Path,
    name: str,
    seeds: str,
    by: int,
    created: str,
    of: OptionalText = None,
    *,
    ended: bool = True,
) -> Path:
    """Record one more execution in the lab of `folder`; return the database.

    It has `ended`, or its runs stopped.
    """
    toml = STUDY.replace("{seeds}", seeds)
    state = "finished" if ended else "stopped"
    database = make_lab(
        folder, toml, name=name, steps=4, every=4, change=ahead(by), end=lambda run: state
    )
    home = database.parent / name
    relabel(home, created, of)
    ingest(database.parent)
    return database


def following(database: Path, study: str) -> str:
    """What the answer says to type next."""
    with Evidence.open(database) as evidence:
        return answer(Source(evidence, study)).command


def declared(home: Path) -> Declaration:
    return Declaration.parse(json_of(home / "study.json"), home)


def test_a_replication_says_which_words_held(tmp_path: Path) -> None:
    lab(tmp_path, "toy", "[0, 1, 2, 3, 4]", 8, "2026-01-01")
    lab(tmp_path, "toy-r1", "[5, 6, 7, 8, 9]", 9, "2026-02-01", of="toy")
    database = lab(tmp_path, "elsewise", "[10, 11, 12, 13, 14]", -8, "2026-03-01")
    with source(database, "toy-r1") as found:
        every = all_executions(found)
        assert (
            declared(tmp_path / "runs" / "toy-r1").digest
            == declared(tmp_path / "runs" / "toy-r1").content_digest
        )
        assert [(one.name, one.relation) for one in every.executions] == [
            ("toy", "original"),
            ("elsewise", "the same by content"),
            ("toy-r1", "replication"),
        ]
        fates = {(one.by, one.later): one.fate for one in every.replications}
        assert fates["toy", "toy-r1"] == "confirmed"
        assert fates["toy", "elsewise"] == "contradicted"
        assert fates["elsewise", "toy-r1"] == "contradicted"
        together = every.combined("gspo")
        assert together.k == 3
        means = [
            (8 * 5 + 2) / 100,
            (9 * 5 + 3) / 100,
            -(8 * 5 - 2) / 100,
        ]  # seeds 1, 3; 5, 7, 9; 11, 13 have one more
        assert min(means) < together.estimate < max(means)
        assert all_executions(found) is every
    report = rendered(database, "toy")
    data = json.loads(report.json)["studies"]["toy"]
    assert data["answer"]["headline"].count(".") > 1
    assert "contradicted by elsewise" in data["answer"]["headline"]
    assert data["answer"]["executions"]["toy-r1"] == "replication"
    assert data["provenance"]["derived"] == {"toy-r1": "replication"}
    assert data["replications"]["together"]["gspo"]["k"] == 3
    assert "Carried out 3 times" in report.html
    assert any("Carried out 3 times" in line for line in report.lines)
    assert report == rendered(database, "toy")
    for text in (report.html, report.markdown):
        assert "another machine are nearly a new draw: same seeds, same verdict is no repro" in text


def test_what_to_type_next_goes_by_what_was_repeated(tmp_path: Path) -> None:
    database = lab(tmp_path, "toy", "[0, 1, 2, 3, 4]", 8, "2026-01-01")
    assert following(database, "toy") == "gspo-lab replicate toy"
    report = rendered(database, "toy")
    assert "replications" not in json.loads(report.json)["studies"]["toy"]
    assert "Carried out" not in report.html
    lab(tmp_path, "toy-r1", "[5, 6, 7, 8, 9]", 9, "2026-02-01", of="toy")
    assert following(database, "toy") == "gspo-lab replicate toy --new"
    assert following(database, "toy-r1") == "gspo-lab replicate toy-r1 --new"
    lab(tmp_path, "toy-r2", "[10, 11, 12, 13, 14]", 8, "2026-03-01", of="toy", ended=False)
    assert following(database, "toy") == "gspo-lab replicate toy", "which goes on with toy-r2"
    lab(tmp_path, "toy-r3", "[15, 16, 17, 18, 19]", 8, "2026-04-01", of="toy")
    assert following(database, "toy") == "gspo-lab certify toy", "three finished ones are enough"


def test_what_fresh_moved_away_is_a_predecessor(tmp_path: Path) -> None:
    database = lab(tmp_path, "toy", "[0, 1, 2, 3, 4]", 5, "2026-01-01")
    runs = database.parent
    (runs / "_archive").mkdir()
    (runs / "toy").rename(runs / "_archive" / "toy-1")
    (runs / "_archive" / "toy-2").mkdir()
    (runs / "_archive" / "toy-2" / "study.json").write_text("{")
    lab(tmp_path, "toy", "[0, 1, 2, 3, 4]", 7, "2026-02-01")
    before = sorted(str(path) for path in (runs / "_archive").rglob("*"))
    with Evidence.open(database) as evidence:
        every = all_executions(Source(evidence, "toy")).executions
    known = {one.name: one for one in every}
    assert list(known) == ["_archive/toy-2", "_archive/toy-1", "toy"]
    assert known["_archive/toy-2"].unread == "archived, not read"
    old = known["_archive/toy-1"].of("gspo")
    assert old.paired.differences == pytest.approx((0.25, 0.3, 0.25, 0.3, 0.25))
    assert sorted(str(path) for path in (runs / "_archive").rglob("*")) == before


def test_another_machine_s_runs_count_whether_its_database_its_runs_or_the_study_is_named(
    tmp_path: Path,
) -> None:
    here = lab(tmp_path / "here", "toy", "[0, 1, 2, 3, 4]", 8, "2026-01-01")
    there = lab(tmp_path / "there", "toy", "[0, 1, 2, 3, 4]", 9, "2026-01-02")

    def times() -> list[tuple[str, int]]:
        return sorted((str(one), one.stat().st_mtime_ns) for one in there.parent.rglob("*"))

    before = times()
    for path in (there, there.parent, there.parent / "toy"):
        with Evidence.open(here) as evidence:
            every = all_executions(Source(evidence, "toy", elsewhere=[path]))
            assert [(one.name, one.counts) for one in every.executions] == [
                ("toy", True),
                (f"toy ({path}), not verified", True),  # no worker sealed them
            ]
            assert [one.fate for one in every.replications] == ["confirmed"]
            together = every.combined("gspo")
            # Each seed counts once, by its mean over both machines: 8 and 9 more of 20 right, 1
            # more on seeds 1 and 3.
            assert_fields(together, k=1, df=4.0, estimate=pytest.approx((8.5 + 0.4) / 20))
            assert not every.can_confirm
            assert every.times("gspo") == 2
    assert times() == before


def test_a_copy_counts_once_and_what_was_never_begun_was_not_carried_out(tmp_path: Path) -> None:
    here = lab(tmp_path / "here", "toy", "[0, 1, 2, 3, 4]", 5, "2026-01-01")
    copy = tmp_path / "copy"
    shutil.copytree(here.parent, copy)
    with Evidence.open(here) as evidence:
        every = all_executions(Source(evidence, "toy", elsewhere=[copy]))
        assert [one.copy_of for one in every.executions] == [None, "toy"]
        assert every.replications == ()
        assert every.combined("gspo") is None
        for journal in copy.rglob("journal.jsonl"):
            journal.unlink()
        found = Source(evidence, "toy", elsewhere=[copy])
        assert [one.unread for one in all_executions(found).executions] == [
            None,
            "no run of it has begun",
        ]
        assert lines(found)[0].startswith("Carried out 1 time: ")


def test_runs_under_other_seeds_are_a_copy(tmp_path: Path) -> None:
    """The runs of one study, declared again as a replication with seeds + 10.

    They are recognised by their rollouts where scores were changed too, and by their differences
    where the texts were.
    """
    toml = STUDY.replace("{seeds}", "[0, 1, 2]")
    again = STUDY.replace("{seeds}", "[10, 11, 12]")

    def copied(by: int, rollout: str) -> Callable[[Run, Record], Record | None]:
        def change(run: Run, record: Record) -> Record | None:
            if isinstance(record, StepRecord) and record.step == 0:
                return replace(record, rollout_digest=rollout.format(seed=run.seed % 10))
            return ahead(by)(run, record)

        return change

    for folder, by, rollout, copy in (
        ("rollouts", 9, "tokens of seed {seed}", "toy"),
        ("differences", 5, "other tokens of seed {seed}", "toy"),
        ("neither", 9, "other tokens of seed {seed}", None),
    ):
        original = copied(5, "tokens of seed {seed}")
        make_lab(tmp_path / folder, toml, name="toy", steps=4, every=4, change=original)
        database = make_lab(
            tmp_path / folder, again, name="again", steps=4, every=4, change=copied(by, rollout)
        )
        home = database.parent / "again"
        relabel(home, "2027-01-01", of="toy")
        ingest(database.parent)
        with Evidence.open(database) as evidence:
            every = all_executions(Source(evidence, "toy"))
            assert [one.copy_of for one in every.executions] == [None, copy], folder
            if copy:
                assert every.replications == ()
                assert "the numbers of toy, counted once" in lines(Source(evidence, "toy"))[0]


def test_an_execution_that_was_asked_other_problems_confirms_nothing(tmp_path: Path) -> None:
    """Problems of the same names, with another prompt; the same verdict."""
    database = lab(tmp_path, "toy", "[0, 1, 2]", 5, "2026-01-01")

    def easier(run: Run, record: Record) -> Record:
        record = ahead(5)(run, record)
        return replace(record, prompt="1+1=") if isinstance(record, AnswerRecord) else record

    again = STUDY.replace("{seeds}", "[7, 8, 9]")
    make_lab(tmp_path, again, name="again", steps=4, every=4, change=easier)
    with source(database) as found:
        every = all_executions(found)
        assert every.executions[1].unread == "it was asked other problems"
        assert every.replications == ()


def test_an_included_database_holds_what_its_journals_hold(tmp_path: Path) -> None:
    """Edited answers turn a headline only where nothing can show them, and that is said."""
    here = lab(tmp_path / "here", "toy", "[0, 1, 2, 3, 4]", 5, "2026-01-01")
    there = lab(tmp_path / "there", "toy", "[10, 11, 12, 13, 14]", 6, "2026-01-02")
    with closing(sqlite3.connect(there)) as connection, connection:
        connection.execute("UPDATE answers SET correct = 0 WHERE run_id LIKE '%gspo%'")
    with Evidence.open(here) as evidence:
        _, other = all_executions(Source(evidence, "toy", elsewhere=[there])).executions
        assert not other.counts
        assert "its journals speak against it" in str(other.unread)
        alone = tmp_path / "alone.db"
        shutil.copy(there, alone)
        _, other = all_executions(Source(evidence, "toy", elsewhere=[alone])).executions
        assert other.name == f"toy ({alone}), not verified"
        found = Source(evidence, "toy", elsewhere=[there.parent])
        assert [one.name for one in all_executions(found).executions] == [
            "toy",
            f"toy ({there.parent}), not verified",
        ]


def test_another_study_elsewhere_is_refused_by_its_keys(tmp_path: Path) -> None:
    here = lab(tmp_path / "here", "toy", "[0, 1, 2]", 5, "2026-01-01")
    there = make_lab(
        tmp_path / "there", STUDY.replace("{seeds}", "3"), name="toy", steps=8, every=4
    ).parent
    with Evidence.open(here) as evidence:
        with lab_error(r"toy there is another study than toy here; they differ in steps$"):
            _ = all_executions(Source(evidence, "toy", elsewhere=[there]))
        with lab_error("no such file or folder"):
            _ = all_executions(Source(evidence, "toy", elsewhere=[tmp_path / "nowhere"]))
        with lab_error(r"neither studies nor lab\.db"):
            _ = all_executions(Source(evidence, "toy", elsewhere=[tmp_path]))
        (tmp_path / "notes.txt").write_text(
            "nothing that SQLite could read, however hard it tries" * 30
        )
        with lab_error(r"notes\.txt is damaged"):
            _ = all_executions(Source(evidence, "toy", elsewhere=[tmp_path / "notes.txt"]))


def test_a_replication_whose_original_is_gone_names_it(tmp_path: Path) -> None:
    database = lab(tmp_path, "toy-r1", "[3, 4, 5]", 5, "2026-02-01", of="toy")
    with Evidence.open(database) as evidence:
        every = all_executions(Source(evidence, "toy-r1"))
        assert [(one.name, one.unread) for one in every.executions] == [
            ("toy", "the original, not in this lab"),
            ("toy-r1", None),
        ]
    make_lab(
        tmp_path, STUDY.replace("0.05", "0.1").replace("{seeds}", "3"), name="toy", steps=4, every=4
    )
    report = rendered(database, "toy-r1")
    assert (
        "toy (named as the original, another study by now), toy-r1 (replication)" in report.markdown
    )


def test_content_is_the_same_whatever_name_seeds_and_date(tmp_path: Path) -> None:
    runs = lab(tmp_path, "toy", "[0, 1, 2, 3, 4]", 5, "2026-01-01").parent
    lab(tmp_path, "again", "[7, 8, 9]", 5, "2026-02-01", of="toy")
    make_lab(
        tmp_path,
        STUDY.replace("0.05", "0.1").replace("{seeds}", "3"),
        name="other",
        steps=4,
        every=4,
    )
    make_lab(tmp_path, STUDY.replace("{seeds}", "3"), name="longer", steps=8, every=4)
    toy = declared(runs / "toy")
    again = declared(runs / "again")
    other = declared(runs / "other")
    longer = declared(runs / "longer")
    assert identity(toy) == identity(again)
    assert again.original is not None
    assert again.digest == again.content_digest
    assert (differences(toy, other), differences(toy, longer)) == (["verdict.margin"], ["steps"])


def test_machines_that_share_seeds_are_one_set_beside_another(tmp_path: Path) -> None:
    """Three executions on two sets of seeds: two sets are together, and three would confirm."""
    here = lab(tmp_path / "here", "toy", "[0, 1, 2, 3, 4]", 8, "2026-01-01")
    machines = [lab(tmp_path / "there", "toy", "[0, 1, 2, 3, 4]", 9, "2026-01-02").parent]
    machines.append(lab(tmp_path / "third", "toy", "[5, 6, 7, 8, 9]", 8, "2026-01-03").parent)
    with Evidence.open(here) as evidence:
        found = Source(evidence, "toy", elsewhere=machines)
        together = all_executions(found).combined("gspo")
        assert (together.k, all_executions(found).times("gspo")) == (2, 3)
        assert not all_executions(found).can_confirm
        assert any("executions combined (3, on 2 sets of seeds)" in line for line in lines(found))
