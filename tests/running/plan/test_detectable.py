"""What a study could find, before it runs.

The factors are those of tests/analysis/stats/test_power.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from assertions import assert_fields
from synthetic_lab import FOUR_ARMS, TWO_ARMS, Change, make_lab

from gspo_lab.analysis.stats.moderated import VarianceRule
from gspo_lab.analysis.stats.power import detection_chance
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records import AnswerRecord, Record
from gspo_lab.running.plan.detectable_effect import TIMES, Detectable, detectable
from gspo_lab.study import Run, Study, load_study


def graded(run: Run, record: Record) -> Record:
    """Of 20 problems seed s of gspo gets s + 1 more correct than grpo, which has 8.

    No problem stays the same one.
    """
    if not isinstance(record, AnswerRecord):
        return record
    number = (int(record.problem.rpartition("-")[2]) + 3 * run.seed) % 20
    right = 8 + (run.seed + 1 if run.arm == "gspo" and record.step > 0 else 0)
    changed: AnswerRecord = replace(record, correct=int(number < right))
    return changed


def declared(
    folder: Path, toml: str = TWO_ARMS, *, seeds: int = 5, steps: int = 12, **how: Any
) -> Study:
    path = folder / "toy.toml"
    path.write_text(toml.format(seeds=seeds, steps=steps, every=4))
    return load_study(path, **how)


@pytest.fixture
def toy(tmp_path: Path) -> Study:
    """Two arms on five seeds, of which none has run."""
    return declared(tmp_path)


def test_an_assumed_sd_names_seeds_for_both_words(toy: Study, tmp_path: Path) -> None:
    result = detectable(toy, tmp_path, 0.01)
    # sd .01 is half the margin of .02: factor 1.68 at n = 5, and 2 sd need 5 seeds either way.
    assert_fields(
        result,
        effect=pytest.approx(0.0168, abs=1e-4),
        seeds_for_margin=5,
        seeds_for_equivalence=5,
        effect_range=None,
        answers_sd=None,
        with_more_answers=None,
    )
    assert "5 seeds would find the margin of 0.02, 5 would show equivalence" in result.line()
    assert result.line().endswith("no stored answers tell what asking alone varies")
    # sd 10 at a margin of .02: more than 100,000 seeds, with eight times the answers too: they do
    # not help.
    result = detectable(toy, tmp_path, 10.0)
    assert_fields(result, seeds_for_equivalence=None, with_more_answers=None)
    line = replace(result, answers_sd=0.01).line()
    assert "over a hundred thousand would show equivalence" in line
    assert "buy more seeds: answers alone vary a pair by 0.010" in line


def test_the_chance_to_find_a_difference_grows_with_it_and_with_seeds(
    toy: Study, tmp_path: Path
) -> None:
    result = detectable(toy, tmp_path, 0.02)
    # A difference of one sd is found with three seeds in 18 % and with ten in 80 %: the noncentral
    # t's.
    assert result.power[3] == pytest.approx({0.02: 0.1793, 0.04: 0.4707, 0.08: 0.9085}, abs=1e-3)
    assert result.power[10][0.02] == pytest.approx(0.8031, abs=1e-3)
    lines = result.line().splitlines()
    table = lines[
        lines.index("chance in % to find a true difference of 0.02 / 0.04 / 0.08:") + 1 :
    ][:3]
    assert table[0].split() == ["3", "seeds", "5", "seeds", "7", "seeds", "10", "seeds"]
    assert " ".join(table[1].split()).startswith("a pair 18 / 47 / 91 ")
    assert not table[2].startswith("  "), "without a contrast there is one row"


def test_where_nothing_is_known_seeds_are_weighed_in_units_of_the_sd(
    toy: Study, tmp_path: Path
) -> None:
    result = detectable(toy, tmp_path)
    assert_fields(result, sd=None, effect=None)
    assert (
        "not known, no study has been run here: give the sd of a pair's difference, e.g. --sd 0.05"
        in result.line()
    )
    assert "in units of that sd it is with 3 seeds 3.26, 5 seeds 1.68, 8 seeds " in result.line()


def test_the_power_of_a_declared_contrast_stands_beside_a_pair_s(tmp_path: Path) -> None:
    """Arms are independent, so a pair has sqrt(2) times the contrast's sd.

    It shares alpha with the two other arms.
    """
    weights = "gspo = 0.5\ngspo-replay = 0.5\ngrpo = -0.5\ngrpo-replay = -0.5\n"
    result = detectable(
        declared(tmp_path, FOUR_ARMS + f"[verdict.contrast]\n{weights}"), tmp_path, 0.02
    )
    assert result.power[10][0.02] == pytest.approx(0.8617, abs=1e-3), (
        "one sd, ten seeds, the whole alpha, 27 degrees of freedom"
    )
    assert result.pair_power[10][0.02] == pytest.approx(
        detection_chance(10, 0.5**0.5, 0.05 / 3, VarianceRule(4))
    )
    rows = [line.split()[:2] for line in result.line().splitlines() if line.startswith("  ")]
    assert rows == [["3", "seeds"], ["a", "pair"], ["the", "contrast"]]


def test_several_arms_and_looks_cost_seeds(tmp_path: Path) -> None:
    toml = TWO_ARMS + '[arm.other]\nobjective = "grpo"\nupdate.learning_rate = 3e-5\n'
    hows: list[JsonObject] = [
        {"arms": ["grpo", "gspo"]},
        {},
        {"overrides": ["verdict.looks=[5, 8]"]},
    ]
    plain, three, looked = (
        detectable(declared(tmp_path, toml, seeds=8, **options), tmp_path, 0.02) for options in hows
    )
    assert plain.effect < three.effect < looked.effect


def test_each_at_its_own_best_value_has_two_more_degrees_of_freedom(tmp_path: Path) -> None:
    own_best = detectable(load_study(Path("studies/moe_stability.toml")), tmp_path, 0.02)
    assert own_best.effect == pytest.approx(1.7465 * 0.02, abs=1e-4)  # four pairs, five degrees


def test_measured_noise_says_what_to_buy(tmp_path: Path) -> None:
    database = make_lab(tmp_path, seeds=3, change=graded)
    result = detectable(load_study(tmp_path / "studies" / "toy.toml"), database.parent)
    # d = .05, .10, .15: sd .05, and its true value .52 to 6.28 times that.
    assert result.basis.startswith("measured in toy, at scores around 0.4")
    assert result.answers_sd is not None
    assert result.sd == pytest.approx(max(0.05, result.answers_sd))
    assert result.effect_range[1] == pytest.approx(3.264 * 0.05 * 6.2848, rel=1e-3)
    assert result.with_more_answers < result.seeds_for_equivalence
    assert (
        "buy more answers: answers alone vary a pair by"
        f" {result.answers_sd:.3f}; with {TIMES} times" in result.line()
    )


def scored(grpo: int, *gspo: int) -> Change:
    """So many of the 20 problems are answered correctly.

    By grpo on every seed, by gspo seed by seed.
    """

    def change(run: Run, record: Record) -> Record:
        if not isinstance(record, AnswerRecord):
            return record
        expected = gspo[run.seed] if run.arm == "gspo" else grpo
        right: Record = replace(
            record, correct=int(int(record.problem.rpartition("-")[2]) < expected)
        )
        return right

    return change


def planned(folder: Path, runs: Path, toml: str = TWO_ARMS, steps: int = 12) -> Detectable:
    judged = f"{toml}[verdict]\nlast = 3\n"  # as the laboratory's studies are
    return detectable(declared(folder, judged, seeds=3, steps=steps), runs)


def test_the_sd_is_that_of_runs_of_the_same_steps_start_and_benchmark(tmp_path: Path) -> None:
    runs = make_lab(tmp_path, change=scored(8, 8, 10, 12)).parent  # differences 0, 0.1, 0.2
    result = planned(tmp_path, runs)
    assert_fields(result, sd=pytest.approx(0.1), basis="measured in toy, at scores around 0.45")
    different = {
        "steps": planned(tmp_path, runs, steps=24),
        "start": planned(
            tmp_path, runs, TWO_ARMS.replace("[[bench]]", "[warm_start]\nsteps = 7\n[[bench]]")
        ),
        "problems": planned(tmp_path, runs, TWO_ARMS.replace("problems = 20", "problems = 10")),
    }
    assert {name: entry.sd for name, entry in different.items()} == {
        "steps": None,
        "start": None,
        "problems": None,
    }


def test_another_mixture_of_one_dense_model_is_another_start(tmp_path: Path) -> None:
    mixture = TWO_ARMS.replace("tiny-qwen3", "upcycled:tiny-qwen3")
    mixture = mixture.replace("[[bench]]", "[upcycle]\nexperts = 4\n[[bench]]")
    runs = make_lab(tmp_path, mixture, change=scored(8, 8, 10, 12)).parent
    assert planned(tmp_path, runs, mixture).sd == pytest.approx(0.1)
    assert planned(tmp_path, runs, mixture.replace("experts = 4", "experts = 8")).sd is None


def test_scores_of_another_level_tell_nothing_of_the_noise_here(tmp_path: Path) -> None:
    make_lab(tmp_path, change=scored(8, 8, 10, 12))
    other = TWO_ARMS.replace("steps = {steps}", "steps = {steps}\nupdate.learning_rate = 1e-2")

    runs = make_lab(tmp_path, other, name="saturated", change=scored(20, 20, 18, 16)).parent
    result = planned(tmp_path, runs)
    assert_fields(result, sd=pytest.approx(0.1), basis="measured in toy, at scores around 0.45")
