"""Which study a replication is: its content, seeds and starting model.

Also what is refused.
"""

import json
import shutil
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error
from laboratory import json_of
from synthetic_lab import TWO_ARMS, make_lab

from gspo_lab.running.conduct.replication import replication
from gspo_lab.running.conduct.study_lock import declare
from gspo_lab.running.plan.preparation import start_folder
from gspo_lab.study import Declaration, Study
from gspo_lab.study.declaration import identity


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A lab whose one study, toy, is finished."""
    return make_lab(tmp_path, seeds=3, steps=4).parent


def kept(study: Study, runs: Path) -> Declaration:
    """What study.json says when the study has been declared."""
    declare(study, runs / study.name)
    return Declaration.parse(json_of(runs / study.name / "study.json"), study.name)


def test_the_same_content_on_fresh_seeds_and_a_fresh_start(runs: Path) -> None:
    initial = Declaration.parse(json_of(runs / "toy" / "study.json"), "toy")
    expected = replication("toy", runs)
    assert (expected.study.name, expected.study.seeds, expected.begun) == (
        "toy-r1",
        (3, 4, 5),
        False,
    )
    declared = kept(expected.study, runs)
    assert identity(declared) == identity(initial)
    assert (declared.original, declared.parent.content) == ("toy", identity(initial))
    assert_fields(
        declared, digest=declared.content_digest, verdict=initial.verdict, question=initial.question
    )
    locked = json_of(runs / "toy-r1" / "study.json")
    changed = Declaration.parse(
        locked | {"parent": locked["parent"] | {"study": "another"}}, "toy-r1"
    )
    assert changed.digest != changed.content_digest, "the link is locked"
    entry = expected.study.runs()[0]
    other = replication("toy", runs, another=True).study.runs()[0]
    assert start_folder(entry, runs) != start_folder(other, runs)
    assert "toy again on seeds 3, 4, 5" in expected.lines[0]
    assert "one of its own" in expected.lines[1]


def test_an_unfinished_replication_is_gone_on_with_and_another_counts_on(runs: Path) -> None:
    path = runs / "toy" / "study.json"
    content = json_of(path)  # of a study that grew, which is replicated as if it had always been so
    path.write_text(
        json.dumps(
            content | {"superseded": [content], "edits": [{"at": "", "what": "question, was: ?"}]}
        )
    )
    begun = kept(replication("toy", runs).study, runs)
    assert (begun.superseded, begun.edits) == ((), ())
    again = replication("toy", runs)
    assert (again.begun, again.study.name, again.study.seeds) == (True, "toy-r1", begun.seeds)
    assert (
        kept(again.study, runs).digest == begun.digest
    )  # nothing has begun: only the time is noted anew
    assert (
        replication("toy-r1", runs).study.name == "toy-r1"
    )  # a replication of it is one of the first study
    another = replication("toy", runs, another=True)
    assert_fields(another.study, name="toy-r2", seeds=(6, 7, 8))
    (runs / "_archive").mkdir()
    (runs / "toy-r1").rename(runs / "_archive" / "toy-r1-1")
    assert replication("toy", runs).study.seeds == (6, 7, 8), (
        "seeds of an archived execution are not fresh"
    )
    shutil.copytree(runs / "toy", runs / "copied")
    assert replication("copied", runs).study.name == "copied-r1", "a copy goes by its folder's name"


def test_a_file_is_found_by_its_study_and_held_against_it(tmp_path: Path, runs: Path) -> None:
    file = tmp_path / "studies" / "toy.toml"
    assert replication(str(file), runs).study.path == file
    file.write_text(TWO_ARMS.format(seeds=3, steps=5, every=4) + "[verdict]\nlast = 3\n")
    with lab_error(r"toy\.toml is no longer the study .* differ in steps: gspo-lab replicate toy"):
        replication(str(file), runs)


def test_what_was_never_declared_or_has_not_finished_is_refused(tmp_path: Path, runs: Path) -> None:
    with lab_error(r"nothing to replicate: 'tou' was never declared .*did you mean 'toy'"):
        replication("tou", runs)
    make_lab(
        tmp_path,
        name="halfway",
        seeds=2,
        steps=4,
        end=lambda run: "stopped" if run.seed else "finished",
    )
    with lab_error(r"halfway is not finished \(grpo seed 1 stopped, gspo seed 1 stopped\)"):
        replication("halfway", runs)
    make_lab(tmp_path, name="high", steps=4, toml=TWO_ARMS.replace("{seeds}", f"[0, {2**63 - 2}]"))
    with lab_error(r"high has used seed \d+: no 2 fresh seeds are left"):
        replication("high", runs)
    assert sorted(path.name for path in runs.iterdir() if path.is_dir()) == [
        "halfway",
        "high",
        "toy",
    ]
