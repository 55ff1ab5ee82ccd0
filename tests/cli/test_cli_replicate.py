"""`gspo-lab replicate`, and where its link is told."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from calling import Said, gspo_lab
from finished_runs import leave_runs, tree, write_study
from laboratory import json_of

REAL = """\
question = "Does a tiny study replicate?"
model = "tiny-qwen3"
task = "addition"
steps = 1
seeds = [0]

[rollout]
prompts_per_step = 4
group_size = 2

[update]
minibatches = 2
warmup_updates = 0

[[bench]]
name = "addition"
problems = 4
every = 1

[arm.grpo]
objective = "grpo"

[arm.gspo]
objective = "gspo"
"""


def refused(said: Said) -> str:
    """The one line of a refusal."""
    assert said.code == 2, said
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line


def test_what_was_never_declared_is_one_line(here: Path) -> None:
    study = write_study(here)
    before = tree(here)
    told = (
        "gspo-lab: nothing to replicate: 'seen' was never declared in runs; it holds no study yet"
    )
    assert refused(gspo_lab("replicate", "seen")) == told
    assert refused(gspo_lab("replicate", str(study))) == told
    assert tree(here) == before


def test_a_study_under_way_is_one_line(here: Path) -> None:
    leave_runs(write_study(here), here / "runs", unfinished="gspo/s1")
    told = refused(gspo_lab("replicate", "seen", "--dry-run"))
    assert told.startswith(
        "gspo-lab: seen is not finished (gspo seed 1 interrupted): go on with it first"
    )


def test_a_dry_run_says_what_it_would_do_and_does_nothing(here: Path) -> None:
    leave_runs(write_study(here), here / "runs")
    gspo_lab("show")
    before = tree(here)
    said = gspo_lab("replicate", "seen", "--dry-run")
    assert said.code == 0, said.err
    assert said.out.startswith("seen-r1 begins: seen again on seeds 2, 3")
    assert "seen-r1: 2 arms x 2 seeds: 4 runs, " in said.out
    data = gspo_lab("replicate", "seen", "--dry-run", "--json").json
    assert (data["study"], data["replicates"]) == ("seen-r1", "seen")
    assert tree(here) == before


def test_another_machine_s_runs_stand_in_the_report(here: Path) -> None:
    path = write_study(here, seeds=5)
    leave_runs(path, here / "runs")
    leave_runs(path, here / "there", at=5000.0)
    said = gspo_lab("report", "seen", "--include", "there")
    assert said.code == 0, said.err
    assert "seen (there), not verified (the numbers of seen, counted once)" in said.err
    data = json_of(here / "reports" / "seen.json")["studies"]["seen"]
    assert [one["copy_of"] for one in data["replications"]["executions"]] == [None, "seen"]
    assert sorted(path.name for path in (here / "there").iterdir()) == ["seen"]
    write_study(here, name="seen", seeds=5).write_text(
        path.read_text().replace("steps = 4", "steps = 8")
    )
    leave_runs(path, here / "changed")
    told = refused(gspo_lab("report", "seen", "--include", "changed"))
    assert (
        told
        == "gspo-lab: changed: seen there is another study than seen here; they differ in steps"
    )
    assert "--include: goes with one study" in refused(
        gspo_lab("report", "seen", "seen", "--include", "there")
    )


@pytest.mark.slow
def test_a_real_study_is_replicated(here: Path) -> None:
    """Two arms, one seed, one step, then the same once more.

    It takes about 20 s, a minute on a busy machine.
    """
    (here / "tiny.toml").write_text(REAL)
    assert gspo_lab("run", "tiny.toml", "--jobs", 1).code == 0
    said = gspo_lab("replicate", "tiny", "--jobs", 1)
    assert said.code == 0, said.err
    assert "tiny-r1 begins: tiny again on seeds 1" in said.out
    assert "Carried out 2 times: tiny (original), tiny-r1 (replication)." in said.out
    again = gspo_lab("replicate", "tiny.toml", "--jobs", 1)
    assert again.code == 0, again.err
    assert "tiny-r1: 2 arms x 1 seed: 2 runs, 2 finished; nothing is left" in again.out
    assert [row["replicates"] for row in gspo_lab("show", "--json").json] == [None, "tiny"]
    assert "Carried out 2 times" in gspo_lab("show", "tiny").out
    assert "replicates" in gspo_lab("show").out
    with closing(sqlite3.connect(here / "runs" / "lab.db")) as connection:
        query = "SELECT DISTINCT json_extract(facts, '$.weights') FROM runs WHERE study = ?"
        starts = [set(connection.execute(query, (study,))) for study in ("tiny", "tiny-r1")]
    assert [len(one) for one in starts] == [1, 1]
    assert starts[0].isdisjoint(starts[1])
    assert gspo_lab("certify", "tiny-r1").code == 0
