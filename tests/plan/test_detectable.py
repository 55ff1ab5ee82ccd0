"""What a study could find, before it runs; the factors are those of tests/stats/test_power.py."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_lab import TWO_ARMS, make_lab

from gspo_lab.plan.detectable import TIMES, detectable
from gspo_lab.records import AnswerRecord, Record
from gspo_lab.study import Run, load_study


def graded(run: Run, record: Record) -> Record:
    """Of 20 problems seed s of gspo gets s + 1 more right than grpo, which has 8, and no problem stays the same one."""
    if not isinstance(record, AnswerRecord):
        return record
    number = (int(record.problem.rpartition("-")[2]) + 3 * run.seed) % 20
    right = 8 + (run.seed + 1 if run.arm == "gspo" and record.step > 0 else 0)
    changed: AnswerRecord = replace(record, correct=int(number < right))
    return changed


def test_an_assumed_sd_names_seeds_for_both_words(tmp_path: Path) -> None:
    make_lab(tmp_path, seeds=5)
    study = load_study(tmp_path / "studies" / "toy.toml")
    found = detectable(study, tmp_path / "nowhere", 0.01)
    # sd .01 is half the margin of .02: factor 1.68 at n = 5, and 2 sd need 5 seeds either way.
    assert found.effect == pytest.approx(0.0168, abs=1e-4)
    assert (found.seeds_for_margin, found.seeds_for_equivalence) == (5, 5)
    assert (found.effect_range, found.answers_sd, found.with_more_answers) == (None, None, None)
    assert "5 seeds would find the margin of 0.02, 5 would show equivalence" in found.line()
    assert found.line().endswith("no stored answers tell what asking alone varies")


def test_where_nothing_is_known_seeds_are_weighed_in_units_of_the_sd(tmp_path: Path) -> None:
    make_lab(tmp_path, seeds=5)
    found = detectable(load_study(tmp_path / "studies" / "toy.toml"), tmp_path / "nowhere")
    assert (found.sd, found.effect) == (None, None)
    assert "give an sd with --sd; in units of that sd it is with 3 seeds 3.26, 5 seeds 1.68, 8 seeds " in found.line()


def test_several_arms_and_looks_cost_seeds(tmp_path: Path) -> None:
    toml = TWO_ARMS + '[arm.other]\nobjective = "grpo"\nupdate.learning_rate = 3e-5\n'
    make_lab(tmp_path, toml, seeds=8)
    path = tmp_path / "studies" / "toy.toml"
    plain = detectable(load_study(path, arms=["grpo", "gspo"]), tmp_path / "nowhere", 0.02)
    three = detectable(load_study(path), tmp_path / "nowhere", 0.02)
    looked = detectable(load_study(path, overrides=["verdict.looks=[5, 8]"]), tmp_path / "nowhere", 0.02)
    assert plain.effect is not None
    assert three.effect is not None
    assert looked.effect is not None
    assert plain.effect < three.effect < looked.effect


def test_answers_that_would_not_help_are_not_the_better_buy(tmp_path: Path) -> None:
    """sd 10 at a margin of .02: more than 100,000 seeds, with eight times the answers too."""
    make_lab(tmp_path, seeds=5)
    found = detectable(load_study(tmp_path / "studies" / "toy.toml"), tmp_path / "nowhere", 10.0)
    assert (found.seeds_for_equivalence, found.with_more_answers) == (None, None)
    line = replace(found, answers_sd=0.01).line()
    assert "over a hundred thousand would show equivalence" in line
    assert "buy more seeds: answers alone vary a pair by 0.010" in line


def test_measured_noise_says_what_to_buy(tmp_path: Path) -> None:
    database = make_lab(tmp_path, seeds=3, change=graded)
    found = detectable(load_study(tmp_path / "studies" / "toy.toml"), database.parent)
    # d = .05, .10, .15: sd .05, and its true value .52 to 6.28 times that.
    assert found.basis.startswith("measured in toy, at scores around 0.4")
    assert found.answers_sd is not None
    assert found.effect_range is not None
    assert found.sd == pytest.approx(max(0.05, found.answers_sd))
    assert found.effect_range[1] == pytest.approx(3.264 * 0.05 * 6.2848, rel=1e-3)
    assert found.with_more_answers is not None
    assert found.seeds_for_equivalence is not None
    assert found.with_more_answers < found.seeds_for_equivalence
    assert f"buy more answers: answers alone vary a pair by {found.answers_sd:.3f}; with {TIMES} times" in found.line()
