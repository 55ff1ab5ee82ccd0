"""The noise that a plan counts with is that of runs like the planned ones, and of no others."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_lab import TWO_ARMS, Change, make_lab

from gspo_lab.plan.detectable import Detectable, detectable
from gspo_lab.records import AnswerRecord, Record
from gspo_lab.study import Run, load_study


def scored(grpo: int, *gspo: int) -> Change:
    """So many of the 20 problems are answered rightly: by grpo on every seed, by gspo seed by seed."""

    def change(run: Run, record: Record) -> Record:
        if not isinstance(record, AnswerRecord):
            return record
        wanted = gspo[run.seed] if run.arm == "gspo" else grpo
        right: Record = replace(record, correct=int(int(record.problem.rpartition("-")[2]) < wanted))
        return right

    return change


def planned(folder: Path, runs: Path, toml: str = TWO_ARMS, steps: int = 12) -> Detectable:
    path = folder / "planned.toml"
    path.write_text(toml.format(seeds=3, steps=steps, every=4))
    return detectable(load_study(path), runs)


def test_the_sd_is_that_of_runs_of_the_same_steps_start_and_benchmark(tmp_path: Path) -> None:
    runs = make_lab(tmp_path, change=scored(8, 8, 10, 12)).parent  # differences 0, 0.1, 0.2
    found = planned(tmp_path, runs)
    assert found.sd == pytest.approx(0.1)
    assert found.basis == "measured in toy, at scores around 0.45"
    others = {
        "steps": planned(tmp_path, runs, steps=24),
        "start": planned(tmp_path, runs, TWO_ARMS.replace("[[bench]]", "[warm_start]\nsteps = 7\n[[bench]]")),
        "problems": planned(tmp_path, runs, TWO_ARMS.replace("problems = 20", "problems = 10")),
    }
    assert {name: one.sd for name, one in others.items()} == {"steps": None, "start": None, "problems": None}


def test_scores_of_another_level_tell_nothing_of_the_noise_here(tmp_path: Path) -> None:
    make_lab(tmp_path, change=scored(8, 8, 10, 12))
    other = TWO_ARMS.replace("steps = {steps}", "steps = {steps}\nupdate.learning_rate = 1e-2")

    runs = make_lab(tmp_path, other, name="saturated", change=scored(20, 20, 18, 16)).parent
    found = planned(tmp_path, runs)
    assert (found.sd, found.basis) == (pytest.approx(0.1), "measured in toy, at scores around 0.45")
