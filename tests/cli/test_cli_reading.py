"""What `check`, `list`, `show`, `report`, `export` and `rebuild` print about studies.

People and scripts read it.
"""

import csv
import json
import re
import shlex
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from calling import gspo_lab
from finished_runs import leave_runs, write_study
from laboratory import json_of, recorded_instead

from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings.curves import grader_errors
from gspo_lab.cli.output import print_table
from gspo_lab.common.atomic_files import exclusive_lock
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import CONDUCTOR_LOCK
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import RunStatus, StepRecord
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.report.terminal import arms_table
from gspo_lab.report.views.answer import answer_view
from gspo_lab.running.conduct.study_lock import declare
from gspo_lab.running.plan import preflight
from gspo_lab.study import load_study


@pytest.fixture
def lab(here: Path) -> Path:
    """Two studies, `older` (finished) and `seen` (one run of four has only begun)."""
    leave_runs(write_study(here, "older", seeds=1), here / "runs", at=1000.0)
    leave_runs(write_study(here, "seen"), here / "runs", at=2000.0, unfinished="gspo/s1")
    return here


def test_check_shows_what_the_arms_resolve_to(here: Path) -> None:
    path = write_study(here)
    said = gspo_lab("plan", path, "--seeds", "5", "--set", "arm.gspo.clip_low=1e-3")
    assert said.code == 0
    assert said.out.splitlines()[:4] == [
        "seen: Is seen only here to be looked at?",
        "2 arms x 5 seeds = 10 runs",
        (
            "  grpo: preset = grpo, importance_sampling_level = token, clip_low = 0.2, clip_high ="
            " 0.27"
        ),
        (
            "  gspo: preset = gspo, importance_sampling_level = sequence, clip_low = 0.001,"
            " clip_high = 0.0004"
        ),
    ]
    later = ("arm.gspo.update.dtype=bfloat16", "arm.gspo.update.float32_head=true")
    out = gspo_lab("plan", path, "--set", later[0], "--set", later[1]).out
    assert "update.float32_head = True" in out, "the first arm leaves it out at its default"
    data = gspo_lab("plan", path, "--json", "--arms", "gspo", "--steps", "9").json
    assert list(data["declaration"]["arms"]) == ["gspo"]
    assert data["declaration"]["arms"]["gspo"]["settings"]["steps"] == 9
    assert data["declaration"]["seeds"] == [0, 1]


def test_a_plan_is_told_and_nothing_is_written(here: Path) -> None:
    path = write_study(here)
    said = gspo_lab("run", path, "--dry-run", "--jobs", "1")
    assert said.code == 0
    assert "seen: 2 arms x 2 seeds: 4 runs, 1 warm start to make; about " in said.out
    assert "updates per rollout batch: 2" in said.out
    data = gspo_lab("run", path, "--dry-run", "--json", "--name", "other", "--seeds", "3,5").json
    assert [run["id"] for run in data["runs"]] == [
        "other/grpo/s3",
        "other/gspo/s3",
        "other/gspo/s5",
        "other/grpo/s5",
    ]
    assert data["responses"] == 4 * 4 * 32 * 8
    assert [path.name for path in here.iterdir()] == ["seen.toml"]


def test_a_plan_says_what_this_machine_lacks(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        preflight, "check_eight_bit", lambda: (_ for _ in ()).throw(LabError("no 8 bits here"))
    )
    path = write_study(here)
    wish = (path, "--set", "update.optimizer=adamw-8bit")
    planned = gspo_lab("plan", *wish)
    dry = gspo_lab("run", *wish, "--dry-run")
    assert (planned.code, dry.code) == (0, 0)
    assert "cannot be run here yet: no 8 bits here" in dry.out.splitlines()
    assert dry.out in planned.out, "a plan says more"
    assert gspo_lab("run", *wish).err == "gspo-lab: no 8 bits here\n"
    assert (
        gspo_lab("plan", path, "--json", "--aa", "grpo", "--jobs", 3, "--name", "n").json[
            "obstacle"
        ]
        is None
    )


def test_the_warnings_of_a_run_name_the_command_that_explains_them(lab: Path) -> None:
    said = gspo_lab(
        "run", "seen.toml", "--seeds", "1", "--set", "question=What now?", "--arms", "grpo,gspo"
    ).out
    (line,) = [line for line in said.splitlines() if line.startswith("warnings: ")]
    named, _, told = line.removeprefix("warnings: ").partition("; ")
    program, *command, explains = shlex.split(told)
    assert (program, explains) == ("gspo-lab", "explains")
    assert command == [
        "plan",
        "seen.toml",
        "--set",
        "question=What now?",
        "--seeds",
        "1",
        "--arms",
        "grpo,gspo",
    ]
    shown = gspo_lab(*command).out
    warned = [line.split(": ")[1] for line in shown.splitlines() if line.startswith("warn: ")]
    assert list(dict.fromkeys(warned)) == named.split(", ")
    assert shown.startswith("seen: What now?\n")


@pytest.mark.parametrize(
    ("instead", "told", "shown"),
    [
        (
            b'{"kind":"update","st#p"\n',
            "line 7: damaged and left out",
            "Damaged and left out: line 7 of",
        ),
        (
            b"",
            "a line is missing or doubled before line 7; what it recorded",
            "A line is missing or doubled before line 7 of",
        ),
    ],
    ids=["damaged", "deleted"],
)
def test_a_lost_record_is_told_by_whoever_reads_and_in_the_report(
    lab: Path, instead: bytes, told: str, shown: str
) -> None:
    name = "seen/grpo/s1/journal.jsonl"
    lines = (lab / "runs" / name).read_bytes().splitlines(keepends=True)
    torn = b'{"kind":"upd' if instead else b""
    (lab / "runs" / name).write_bytes(b"".join([*lines[:6], instead, *lines[7:], torn]))
    for command in (
        ("show",),
        ("report", "seen"),
        ("records", "rebuild"),
        ("show", "seen"),
    ):
        said = gspo_lab(*command)
        assert said.code == (1 if command[0] == "records" else 0)
        assert [f"{name}" in line and told in line for line in said.err.splitlines()].count(
            True
        ) == 1, said.err
    for page in ("seen.html", "seen.md"):
        assert f"{shown} {name}" in (lab / "reports" / page).read_text()
    report = json_of(lab / "reports" / "seen.json")
    assert json.dumps({name: [7]})[1:-1] in json.dumps(report)


def test_list_names_the_latest_last(lab: Path) -> None:
    said = gspo_lab("show")
    assert said.code == 0
    head, *rows = said.out.splitlines()
    assert head.split()[0] == "study"
    assert [row.split()[0] for row in rows] == ["older", "seen"]
    assert "2/2" in rows[0]
    assert "3/4" in rows[1]
    older, seen = gspo_lab("show", "--json").json
    counts = ("study", "arms", "seeds", "runs", "finished")
    assert [older[key] for key in counts] == ["older", 2, 1, 2, 2]
    assert [seen[key] for key in counts] == ["seen", 2, 2, 4, 3]
    assert seen["question"] == "Is seen only here to be looked at?"


def test_list_of_a_study_without_runs_says_why(here: Path) -> None:
    home = here / "runs/seen"
    declare(load_study(write_study(here)), home)
    assert re.split(" {2,}", gspo_lab("show").out.splitlines()[1])[:3] == [
        "seen",
        "2 x 2",
        "none begun",
    ]
    with exclusive_lock(home / CONDUCTOR_LOCK, "the test conducts"):
        assert "2 x 2         none yet: in its warm start or pilots" in gspo_lab("show").out
    (row,) = gspo_lab("show", "--json").json
    assert [row[key] for key in ("arms", "seeds", "runs", "finished")] == [2, 2, 0, 0]


def test_list_of_nothing_says_how_to_begin(here: Path) -> None:
    (here / "runs").mkdir()
    assert gspo_lab("show").out == "no studies yet: gspo-lab init my_study\n"
    assert gspo_lab("show", "--json").json == []


def test_show_tells_where_the_runs_of_a_study_stand(lab: Path) -> None:
    above, _, table = gspo_lab("show", "seen").out.partition("\n\n")
    question, said, interrupted, again = above.splitlines()
    head, *rows, command = table.splitlines()
    assert question == "Is seen only here to be looked at?"
    assert (said, interrupted) == ("Not answered: 1 run is missing.", "gspo seed 1 interrupted.")
    assert command.startswith("Next: gspo-lab run ")
    assert again == (
        "Carried out 1 time: older (original), seen (the numbers of older, counted once)."
    )
    assert head.split() == ["run", "state", "step", "reward", "sums"]
    assert [row.split() for row in rows] == [
        ["seen/grpo/s0", "finished", "4/4", "0.3", "0.5"],
        ["seen/grpo/s1", "finished", "4/4", "0.3", "0.5"],
        ["seen/gspo/s0", "finished", "4/4", "0.4", "0.75"],
        ["seen/gspo/s1", "interrupted", "1/4", "0.1", "0.25"],
    ]
    assert gspo_lab("show", "older").out.count("older/") == 2


def test_a_long_table_says_how_to_see_all_of_it(here: Path) -> None:
    """21 seeds of two arms: 42 runs."""
    leave_runs(write_study(here, "seen", seeds=21), here / "runs", at=1000.0)
    lines = gspo_lab("show", "seen").out.splitlines()
    assert sum(line.startswith("seen/") for line in lines) == 40
    assert "... and 2 more: --json shows all" in lines
    assert len(gspo_lab("show", "seen", "--json").json) == 42


def test_show_of_a_run_is_the_whole_of_it(lab: Path) -> None:
    (row,) = gspo_lab("show", "seen/gspo/s0", "--json").json
    assert (row["run_id"], row["state"], row["steps_done"], row["steps_planned"]) == (
        "seen/gspo/s0",
        "finished",
        4,
        4,
    )
    assert row["scores"] == {"sums": 0.75}
    assert row["settings"]["objective"]["clip_low"] == 3e-4
    assert row["facts"] == {"device": "cpu"}
    assert row["message"] is None
    shown = gspo_lab("show", "seen/gspo/s0").out.splitlines()
    assert shown[:5] == [
        "run: seen/gspo/s0",
        "state: finished",
        "step: 4/4",
        "reward: 0.4",
        "sums: 0.75",
    ]
    assert {
        "  objective.clip_low = 0.0003",
        '  model = "tiny-qwen3"',
        "  bench.sums.problems = 4",
    } <= set(shown)
    assert "{" not in "".join(shown), "no dictionary"
    assert not any(line.endswith("null") for line in shown)


def test_what_is_piped_is_never_folded(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert "Is seen only here to be looked at?" in gspo_lab("show").out.splitlines()[2]
    shown = gspo_lab("show", "seen").out.partition("\n\n")[2]
    assert shown.splitlines()[1].split() == ["seen/grpo/s0", "finished", "4/4", "0.3", "0.5"]
    said = gspo_lab("run", "older.toml").out.splitlines()  # all of it has finished before
    # The learning rate still rises at every step, so no share of clipped tokens is shown.
    (row,) = [line for line in said if line.startswith("grpo ")]
    assert row.split()[:2] == ["grpo", "1/1"]
    assert row.endswith("not measured, not recorded")
    assert any("gspo − grpo: +0.25" in line for line in said)


def test_a_cell_with_several_lines_is_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(
        [{"said": "a\nb\n", "n": 1}], empty="", title="one title that is longer than its table"
    )
    assert capsys.readouterr().out.splitlines() == [
        "one title that is longer than its table",
        "said  n",
        "a b   1",
    ]


def test_show_leaves_out_what_was_not_measured(here: Path) -> None:
    path = write_study(here, seeds=1)
    leave_runs(path, here / "runs")
    (here / "runs/seen/grpo/s0/journal.jsonl").unlink()
    first, second = gspo_lab("show", "seen", "--json").json
    assert (first["state"], first["reward"], first["scores"]) == ("planned", None, {})
    assert second["reward"] == pytest.approx(0.4)
    head, *rows = gspo_lab("show", "seen").out.partition("\n\n")[2].splitlines()
    assert head.split() == ["run", "state", "step", "reward", "sums"]
    assert rows[0].split()[1] == "planned"
    assert rows[0].split()[-2:] == ["–", "–"]
    assert rows[1].split()[-2:] == ["0.4", "0.75"], "each number stands in its own column"


def test_report_takes_the_latest_study_or_those_named_and_tells_its_answer(lab: Path) -> None:
    said = gspo_lab("report")
    assert (said.code, said.out) == (0, "reports/seen.html\n")
    first, *_, last = said.err.splitlines()
    assert first == "Not answered: 1 run is missing."
    assert last.startswith("Next: gspo-lab run ")
    assert "No verdict on gspo against grpo: " in said.err
    assert "3 of 4 runs are finished" in said.err
    page = (lab / "reports/seen.html").read_text(encoding="utf-8")
    assert "Is seen only here to be looked at?" in page
    data = gspo_lab("report", "older", "seen", "--output-dir", "both", "--json").json
    assert data == json_of(next((lab / "both").glob("*.json")))
    assert "older" in json.dumps(data)
    assert len(list((lab / "both").glob("*.html"))) == 1


def test_export_writes_a_file_per_table(lab: Path) -> None:
    said = gspo_lab("export", "seen", "--output-dir", "out")
    assert said.code == 0
    assert {line.removesuffix(".csv") for line in said.out.splitlines()} >= {
        "out/runs",
        "out/updates",
        "out/answers",
    }
    with (lab / "out/updates.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == (3 * 4 + 1) * 2, "3 runs of 4 steps, one of 1, two updates each"
    assert {row["run_id"].partition("/")[0] for row in rows} == {"seen"}
    assert {row["clip_fraction_tokens"] for row in rows} == {"0.0", "0.1"}


def test_a_finished_run_whose_model_was_deleted_is_named(lab: Path) -> None:
    """Its record is whole, so it stays finished; `certify` and `plan` say what is gone."""
    end = RunStatus(state="finished", step=4, at=1060.0, model="0f3a")
    with Journal(lab / "runs/seen/gspo/s1") as journal:
        journal.write([end])
    said = (gspo_lab("certify", "seen", "--regrade-sample", "0"), gspo_lab("plan", "seen.toml"))
    for text in (said[0].err, said[1].out):
        assert "without its trained model (checkpoints/final): seen/gspo/s1;" in text
    (lab / "runs/seen/gspo/s1/checkpoints/final").mkdir(parents=True)
    assert "trained model" not in gspo_lab("certify", "seen", "--regrade-sample", "0").err


def test_rebuild_makes_the_database_from_the_journals(lab: Path) -> None:
    assert gspo_lab("show").code == 0
    (lab / "runs/lab.db").write_bytes(b"no database at all" * 100)
    assert gspo_lab("show").code == 2
    said = gspo_lab("records", "rebuild")
    assert said.code == 0
    assert "of 6 runs" in said.out
    assert "the old database was damaged; it is kept as runs/lab.db.1.bak" in said.err
    assert (lab / "runs/lab.db.1.bak").read_bytes() == b"no database at all" * 100
    connection = sqlite3.connect(lab / "runs/lab.db")
    assert connection.execute("SELECT COUNT(*) FROM steps").fetchone() == (2 * 4 + 3 * 4 + 1,)
    connection.close()


def test_a_deleted_study_is_in_the_archive_and_nowhere_else(lab: Path) -> None:
    refused = gspo_lab("records", "delete", "older")
    assert refused.code == 2
    assert "2 runs; add --yes to delete without a question" in refused.err
    said = gspo_lab("records", "delete", "older", "--yes")
    assert (said.code, said.out) == (0, "older: moved to runs/_archive/older-1\n")
    assert [row["study"] for row in gspo_lab("show", "--json").json] == ["seen"]
    (lab / "runs/_archive/older-1").rename(lab / "runs/older")
    assert [row["study"] for row in gspo_lab("show", "--json").json] == ["older", "seen"]


def test_the_runs_folder_may_come_from_the_environment(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab / "runs").rename(lab / "elsewhere")
    monkeypatch.setenv("GSPO_LAB_RUNS", str(lab / "elsewhere"))
    assert [row["study"] for row in gspo_lab("show", "--json").json] == ["older", "seen"]


def test_report_puts_several_databases_on_one_page(lab: Path) -> None:
    shutil.copytree("runs", "elsewhere")
    said = gspo_lab("report", "--runs", "runs", "--runs", "elsewhere")
    assert (said.code, said.out) == (0, "reports/seen-runs+seen-elsewhere.html\n")
    data = json_of(lab / "reports/seen-runs+seen-elsewhere.json")
    assert sorted(data["studies"]) == ["seen (elsewhere)", "seen (runs)"]
    assert "\nseen (runs)\nNot answered: " in said.err
    one = gspo_lab("report", "older", "--runs", "runs", "--runs", "runs")
    assert (one.code, one.out) == (0, "reports/older.html\n")
    wrong = gspo_lab("report", "sen", "--runs", "runs", "--runs", "elsewhere")
    assert wrong.code == 2
    assert "no study 'sen' (did you mean 'seen'?) in runs, elsewhere" in wrong.err


def test_a_run_that_accepts_a_mismatch_says_what_its_report_says(here: Path) -> None:
    path = write_study(here, seeds=3)
    leave_runs(path, here / "runs")
    recorded_instead(
        here / "runs/seen/gspo/s0/journal.jsonl", '"device":"cpu"', '"device":"another"'
    )
    found = {}
    for accept in ((), ("--accept-mismatch", "another host")):
        said = gspo_lab("run", path, "--ignore-memory-check", "--json", *accept)
        assert said.code == 0, said.err
        report = json_of(here / "reports/seen.json")
        sentence = report["studies"]["seen"]["answer"]["comparisons"]["gspo"]["sentence"]
        assert said.json["answer"]["comparisons"]["gspo"]["sentence"] == sentence
        found[bool(accept)] = "undeclared difference" in sentence
    assert found == {False: True, True: False}
    again = gspo_lab(
        "run", path, "--ignore-memory-check", "--json", "--accept-mismatch", "just in case"
    )
    (warning,) = [line for line in again.err.splitlines() if "--accept-mismatch" in line]
    assert (
        warning
        == "warning: --accept-mismatch: seen has no undeclared difference; nothing is accepted"
    )
    assert again.json["report"] == "reports/seen.html"


RUN = "seen/grpo/s1"


def step(index: int, failed: int | None) -> StepRecord:
    return StepRecord(step=index, prompts=32, responses=256, reward_mean=0.1, grader_errors=failed)


@pytest.fixture
def path(here: Path) -> Path:
    """Of four runs only one counted something.

    It counted 16 and 48 of 256 responses in two of its steps, an eighth of 512.
    """
    path = write_study(here)
    leave_runs(path, here / "runs")
    with Journal(here / "runs" / RUN) as journal:
        journal.write([step(1, 16), step(2, 48)])
    return path


def test_dropped_groups_were_graded_too(path: Path, here: Path) -> None:
    group_size = load_study(path).arms["grpo"].settings.rollout.group_size
    record = step(3, 64)
    with Journal(here / "runs" / RUN) as journal:  # 128 of 512 + 256 + 32 groups
        journal.write([replace(record, dropped_groups=32)])
    ingest(here / "runs")
    share = 128 / (768 + 32 * group_size)
    with Evidence.open(here / "runs/lab.db") as evidence:
        assert grader_errors(Source(evidence, "seen")) == {RUN: share}


def test_show_and_report_say_it(path: Path, here: Path) -> None:
    assert "12.5%" in gspo_lab("show", "seen").out
    assert "not graded: 12.5%" in gspo_lab("show", RUN).out
    shares = {
        row["run_id"]: row["grader_errors"] for row in gspo_lab("show", "seen", "--json").json
    }
    assert shares == {RUN: 0.125, "seen/grpo/s0": None, "seen/gspo/s0": None, "seen/gspo/s1": None}
    assert gspo_lab("report", "seen").code == 0
    told = (
        "The grader failed on training responses, which counted as reward 0: grpo seed 1 12.5% of"
        " them."
    )
    for name in ("seen.html", "seen.md"):
        assert told in (here / "reports" / name).read_text(encoding="utf-8")
    report = json_of(here / "reports/seen.json")
    assert report["studies"]["seen"]["answer"]["grader_errors"] == {RUN: 0.125}


def test_the_table_at_the_end_has_a_column_where_any_failed(path: Path, here: Path) -> None:
    ingest(here / "runs")
    with Evidence.open(here / "runs" / "lab.db") as evidence:
        answer = answer_view(Source(evidence, "seen"))
    assert [arm.not_graded for arm in answer.arms.values()] == [0.125, None]
    table = arms_table(answer)
    assert table.columns[-1].header == "not graded"
    assert list(table.columns[-1].cells) == ["12.5 %", "–"]


def test_more_runs_than_declared_are_confirmed(here: Path) -> None:
    path = write_study(here)
    said = gspo_lab("run", path, "--seeds", "3")
    assert said.code == 2
    assert said.err.endswith(f"6 runs, and {path} declares 4: --yes trains them all\n")
    assert f"not among the 2 seeds that {path} declares: 2; this execution declares" in said.err
    assert gspo_lab("run", path, "--seeds", "3", "--dry-run").code == 0
    refused = gspo_lab("plan", path, "--seeds", "3", "--seed", "4")
    assert "--seed and --seeds: name one seed, or several" in refused.err
    assert "x 1 seeds = 2 runs" in gspo_lab("plan", path, "--seed", "65").out
    leave_runs(path, here / "runs")
    assert "2; a verdict on those does not count" in gspo_lab("run", path, "--seeds", "3").err


def test_a_dry_run_of_a_finished_study_says_what_run_would_say(here: Path) -> None:
    path = write_study(here)
    leave_runs(path, here / "runs")
    assert "nothing is left to train" in gspo_lab("run", "seen", "--dry-run").out
    changed = ("--set", "update.learning_rate=3e-4")
    said = gspo_lab("run", path, "--dry-run", *changed)
    assert (said.code, said.err) == (2, gspo_lab("run", path, *changed).err)
    assert "holds runs made with other settings" in said.err
    grown = gspo_lab("run", path, "--dry-run", "--seeds", "3")
    assert grown.out.splitlines()[-1] == (
        "noted in study.json: seeds added: 2; seeds that are added after the first step do not"
        " count in the verdict"
    )
