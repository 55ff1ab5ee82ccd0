"""A study written for another program and imported again has the same numbers, digit by digit."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from calling import gspo_lab
from case_tables import cases
from synthetic_lab import make_lab

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.exchange.exporters import RunRows, read_run_rows
from gspo_lab.recording.records import Record, UpdateRecord
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.recording.store.answers import read_scores
from gspo_lab.recording.store.records import read_updates
from gspo_lab.study import Run

Numbers = dict[tuple[str, int, int, str], float]
SOURCE = cases(__file__, "source")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_lab(tmp_path_factory.mktemp("lab"), seeds=3, steps=5, every=2, change=uneven)


def uneven(run: Run, record: Record) -> Record:
    """Updates of other sizes, whose counts have no whole mean, and one that is not finite."""
    if not isinstance(record, UpdateRecord):
        return record
    broken = (run.arm, run.seed, record.step, record.minibatch) == ("gspo", 2, 4, 1)
    tokens = 401 + 7 * record.step + record.minibatch % 3
    sized = replace(
        record, response_tokens=tokens, active_tokens=tokens - 40, clipped_tokens=record.minibatch
    )
    return replace(sized, loss=record.minibatch / 7, nonfinite=int(broken))


def numbers(database: Path, study: str) -> Numbers:
    with Evidence.open(database) as evidence:
        return {
            (run.arm, run.seed, step, name): value
            for run in read_run_rows(evidence, study)
            for step, row in run.rows()
            for name, value in row.items()
        }


def decided(database: Path, study: str) -> JsonObject:
    with Evidence.open(database) as evidence:
        verdicts = decision(Source(evidence, study)).verdicts
        return {arm: (one.paired.estimate, one.paired.differences) for arm, one in verdicts.items()}


@pytest.mark.parametrize("format", SOURCE)
def test_what_is_exported_and_imported_again_is_the_same(
    lab: Path, tmp_path: Path, format: str
) -> None:
    package, source, log, more = SOURCE[format]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    said = gspo_lab(
        "export", "toy", "--format", format, "--output-dir", tmp_path, "--runs", lab.parent
    )
    assert said.code == 0, said.err
    names = ("--logged-by", "gspo-lab", "--study", "toy", "--set", "verdict.last=3", *more)
    said = gspo_lab("import", source, tmp_path / log, *names, "--runs", tmp_path / "runs")
    assert said.code == 0, said.err
    assert "not understood" not in said.out
    ingest(tmp_path / "runs")
    expected = numbers(lab, "toy")
    found = numbers(tmp_path / "runs" / "lab.db", "toy")
    assert len(expected) > 6 * 5 * 20, "6 runs of 5 steps, with tens of numbers each"
    assert found == expected
    assert decided(tmp_path / "runs" / "lab.db", "toy") == decided(lab, "toy")


def test_a_row_is_the_mean_over_the_step_s_updates_and_scores_stand_where_they_were_asked(
    lab: Path,
) -> None:
    with Evidence.open(lab) as evidence:
        [run] = [
            one for one in read_run_rows(evidence, "toy") if (one.arm, one.seed) == ("gspo", 1)
        ]
        rows = dict(run.rows())
        losses = read_updates(evidence, "toy", ["loss"], run="toy/gspo/s1").query("step == 3")[
            "loss"
        ]
        score = (
            read_scores(evidence, "toy")
            .query("run_id == 'toy/gspo/s1' and step == 4")["score"]
            .item()
        )
    assert losses.tolist() == [0, 1 / 7, 2 / 7, 3 / 7]
    assert rows[3]["loss"] == pytest.approx(1.5 / 7, rel=1e-12)
    assert rows[4]["score/addition"] == score
    assert (rows[3]["clipped_tokens"], rows[3]["nonfinite"]) == (0 + 1 + 2 + 3, 0)
    assert "entropy" not in rows[3] or rows[3]["entropy"] == rows[3]["entropy"]
    assert [step for step, row in rows.items() if "score/addition" in row] == [0, 2, 4, 5]


def test_a_package_that_is_absent_is_one_line(lab: Path, tmp_path: Path) -> None:
    package = "tensorboard"
    code = (
        f"import sys, importlib.util\nsys.modules[{package!r}] = None\nreal ="
        " importlib.util.find_spec\nimportlib.util.find_spec = lambda name, *more: None if name =="
        f" {package!r} else real(name, *more)\nfrom gspo_lab.cli import main\nsys.argv ="
        f" ['gspo-lab', 'export', 'toy', '--format', 'tensorboard', '--runs', {str(lab.parent)!r},"
        f" '--output-dir', {str(tmp_path / 'out')!r}]\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert f"needs the package {package}: pip install 'gspo-lab[" in line
    assert not (tmp_path / "out").exists()


def test_an_export_for_a_program_is_of_one_study(lab: Path, tmp_path: Path) -> None:
    said = gspo_lab(
        "export", "--format", "tensorboard", "--output-dir", tmp_path / "out", "--runs", lab.parent
    )
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "of which study? It has toy" in said.err
    assert not (tmp_path / "out").exists()


def test_an_installed_package_writes_for_another_program(
    lab: Path, tmp_path: Path, add_entry_points: Callable[[str], None]
) -> None:
    (tmp_path / "writer_of_theirs.py").write_text(WRITER)
    add_entry_points("[gspo_lab.writers]\ntheirs = writer_of_theirs\n")
    command = ("export", "toy", "--output-dir", tmp_path / "out", "--runs", lab.parent)
    done = gspo_lab(*command, "--format", "theirs")
    assert done.code == 0, done.err
    steps = (tmp_path / "out/toy-theirs/grpo-s0.txt").read_text().split()
    assert steps == [str(step) for step, _ in first_run(lab).rows()] != []
    unknown = gspo_lab(*command, "--format", "thiers")
    assert unknown.code == 2
    assert "no program 'thiers' to write for (did you mean 'theirs'?); known: " in unknown.err


WRITER = """
from contextlib import contextmanager

NEEDS = ("json", "json", "nothing")

@contextmanager
def writer(study, folder):
    yield Steps(folder)

class Steps:
    def __init__(self, folder):
        self.folder = folder

    def begin(self, run, rows):
        return 0

    def add(self, run, rows):
        (self.folder / f"{run.arm}-s{run.seed}.txt").write_text(" ".join(str(step) for step, _ in rows))
"""  # noqa: E501


def first_run(lab: Path) -> RunRows:
    with Evidence.open(lab) as evidence:
        return next(
            run for run in read_run_rows(evidence, "toy") if (run.arm, run.seed) == ("grpo", 0)
        )
