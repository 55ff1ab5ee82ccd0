"""Headings as findings, with numbers that a pencil can check."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_lab import make_lab
from test_report_page import exact_clips

from gspo_lab.claims.library import LIBRARY
from gspo_lab.readings import Source
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.published import CLIPPED, EXPERT_CHANGE
from gspo_lab.report.sections.clipping import clipping
from gspo_lab.report.titles import (
    at_the_end,
    each_best,
    each_from_first_to_last,
    first_above_zero,
    from_first_to_last,
    largest,
    one_over_other,
    over_length,
    over_training,
)
from gspo_lab.store import Evidence

X = (0.0, 1.0)


def arms(**seeds: tuple[float, ...]) -> Chart:
    """One line per seed, at its value throughout."""
    lines = (Series(arm, i, X, (y, y), seed=s) for i, (arm, ys) in enumerate(seeds.items()) for s, y in enumerate(ys))
    return Chart("m", "Entropy", "step", "nats", tuple(lines))


@pytest.mark.parametrize(
    ("gspo", "times", "told"),
    [
        ((4.0, 9.0), True, "Entropy: gspo 3.0 times grpo (by seed 2.0 to 4.5)"),  # ratios 2 and 4.5: sqrt(9) = 3
        ((4.0, 9.0), False, "Entropy: gspo 4.500 above grpo (by seed +2.000 to +7.000)"),
        ((1.0, 3.0), True, "Entropy: gspo is above grpo in 1 of 2 seeds"),
        ((2.0, 2.0), True, "Entropy: the arms are alike"),
    ],
)
def test_the_title_of_a_curve_compares_runs_of_one_seed(gspo: tuple[float, ...], times: bool, told: str) -> None:
    assert over_training(arms(grpo=(2.0, 2.0), gspo=gspo), "grpo", times=times) == told


def test_what_cannot_be_compared_has_no_finding() -> None:
    assert over_training(arms(gspo=(1.0,)), "grpo", times=True) == ""
    assert over_training(arms(grpo=(0.0,), gspo=(1.0,)), "grpo", times=True) == "", "a ratio to nothing"


def test_a_curve_is_compared_over_the_steps_that_both_runs_have() -> None:
    """grpo is at 1 and then at 9; gspo, at 2, has not come further than the first step: twice, not a fifth."""
    first = Series("grpo", 0, (0.0, 1.0, 2.0), (1.0, 9.0, 9.0))
    chart = Chart("m", "Entropy", "step", "nats", (first, Series("gspo", 1, (0.0, 1.0), (2.0, None))))
    told = "Entropy, over the steps that both have: gspo 2.00 times grpo"
    assert over_training(chart, "grpo", times=True) == told.replace("2.00", "2.0")
    apart = Chart("m", "Entropy", "step", "nats", (first, Series("gspo", 1, (5.0, 6.0), (2.0, 2.0))))
    assert over_training(apart, "grpo", times=True) == "", "no step in common"
    # Of two pairs each is compared over its own steps: 2 / 1 over one step, 6 / 3 over two.
    both = (
        *(Series("grpo", 0, X, ys, seed=s) for s, ys in enumerate([(1.0, 9.0), (2.0, 4.0)])),
        *(Series("gspo", 1, X, ys, seed=s) for s, ys in enumerate([(2.0, None), (4.0, 8.0)])),
    )
    told = "Entropy, over the steps that both have: gspo 2.0 times grpo (by seed 2.0)"
    assert over_training(Chart("m", "Entropy", "step", "nats", both), "grpo", times=True) == told


def test_the_title_of_a_difference_is_of_the_last_step_of_its_pairs() -> None:
    pairs = [Series("gspo", 1, (0.0, 4.0, 8.0), (0.0, 0.5, d), seed=s) for s, d in enumerate((0.1, 0.2, 0.3))]
    near = Series("other", 2, (0.0, 8.0), (0.9, 0.05))
    chart = Chart("m", "Reward: arm - grpo", "step", "difference", (*pairs, near))
    assert at_the_end(chart, "Reward", "grpo") == "Reward at step 8: gspo 0.200 above grpo (by seed +0.100 to +0.300)"
    assert (
        at_the_end(Chart("m", "R", "step", "difference", (near,)), "R", "grpo") == "R at step 8: other 0.050 above grpo"
    )
    assert at_the_end(Chart("m", "R", "step", "difference", ()), "R", "grpo") == ""


def bars(*series: Series, unit: str = "share of tokens") -> Chart:
    return Chart("m", "Clips", "mini-batch", unit, series, kind="bars")


def test_titles_of_categories() -> None:
    means = (Series("a", 0, ("0", "1", "2"), (0.0, 0.1, 0.3)), Series("b", 1, ("0", "1", "2"), (0.0, 0.2, 0.2)))
    assert from_first_to_last(bars(*means)) == "Clips: a from 10.0 % on 1 to 30.0 % on 2"
    both = (Series("t", 0, ("a", "b"), (0.1, 0.2)), Series("s", 1, ("a", "b"), (0.4, 0.6)))
    assert one_over_other(bars(*both)) == "Clips: s 3.0 to 4.0 times t"
    partly = Series("r", 2, ("a", "b"), (None, 0.1))
    assert one_over_other(bars(*both, partly)) == "Clips: s 3.0 to 4.0, r 0.50 times t"
    assert one_over_other(bars(both[0], Series("z", 1, ("a", "b"), (0.0, 0.4)))) == "", "no ratio of nothing"


def test_titles_of_doses() -> None:
    doses = ("1", "2", "4")
    fell = (Series("grpo", 0, doses, (0.0, 0.5, 1.0)), Series("gspo", 1, doses, (0.0, None, 0.0)))
    assert first_above_zero(bars(*fell)) == "Clips: grpo first at 2, gspo nowhere"
    score = (Series("grpo", 0, doses, (0.5, 0.75, 0.1)), Series("gspo", 1, doses, (None, 0.25, 0.125)))
    assert each_best(bars(*score, unit="score")) == "Clips: grpo best at 2 (0.750), gspo best at 2 (0.250)"
    unknown = Series("grpo", 0, doses, (None, None, None))
    assert first_above_zero(bars(unknown)) == each_best(bars(unknown)) == ""
    many = [Series(f"arm{i}", i, doses, (0.0, 0.5, 1.0)) for i in range(5)]
    assert first_above_zero(bars(*many)) == "", "too many to be named"


def test_the_title_of_the_spread_by_length_knows_what_independent_errors_would_do() -> None:
    # From 4 to 16 tokens the root of the length doubles: half of the spread is left of independent errors.
    one, other = Series("a", 0, (4.0, 9.0, 16.0), (0.4, 0.3, 0.2)), Series("b", 1, (4.0, 16.0), (0.4, 0.3))
    chart = Chart("m", "Spread", "tokens", "nats", (one, other))
    assert over_length(chart) == "Spread: 0.50 to 0.75 times from the shortest to the longest (1/√length: 0.50)"
    assert over_length(Chart("m", "Spread", "tokens", "nats", (Series("a", 0, (4.0,), (0.4,)),))) == ""
    limits = Chart("m", "Spread", "tokens", "nats", (Series("a", 0, ("256", "1,024"), (0.4, 0.2)),), kind="bars")
    assert over_length(limits) == "Spread: 0.50 times from the shortest to the longest (1/√length: 0.50)"


def test_the_title_of_clips_by_length_has_each_rule_s_ends() -> None:
    lengths = ("16", "64", "1,024")
    one, other = (
        Series("GRPO's range", 0, lengths, (0.001, 0.002, 0.004)),
        Series("GSPO's range", 1, lengths, (0.2, None, 0.1)),
    )
    chart = Chart("m", "Clipped", "tokens", "share of tokens", (one, other), kind="bars")
    told = "GRPO's range 0.10 % to 0.40 %, GSPO's range 20 % to 10 % from 16 to 1,024 tokens"
    assert each_from_first_to_last(chart) == f"Clipped: {told}"
    shorter = replace(other, y=(0.2, 0.1, None))
    assert each_from_first_to_last(replace(chart, series=(one, shorter))) == "", "not over the same lengths"


def test_the_title_of_the_noise_names_its_largest_part() -> None:
    rows = ("a − g", "b − g")

    def noise(seeds: tuple[float, ...], problems: tuple[float, ...]) -> Chart:
        parts = (Series("training seed", 0, rows, seeds), Series("problems", 1, rows, problems))
        return Chart("m", "Noise", "difference", "share of the difference's variance", parts, kind="stack")

    assert largest(noise((0.6, 0.75), (0.4, 0.25))) == "Noise: most by training seed 60 % to 75 %"
    assert largest(noise((0.6, 0.25), (0.4, 0.75))) == "Noise: most by training seed 60 %, or problems 75 %"


def test_the_clip_gap_names_its_ceiling(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path, change=exact_clips)) as evidence:
        section = clipping(Source(evidence, "toy"))
    assert section is not None
    chart = next(part for part in section.body if isinstance(part, Chart) and part.id == "m-clip")
    # 0.4 against 0.001 on the same mini-batches: 400 times up to the weights; half of the active tokens are clipped
    assert chart.finding.startswith("gspo clips 4")
    assert chart.finding.endswith("its ceiling is reached)")
    assert chart.references == CLIPPED


def test_published_values_are_those_of_the_claims() -> None:
    assert ".15 against .0013" in LIBRARY["C04-clip-gap"].value
    assert [one.value for one in CLIPPED] == [0.15, 0.0013]
    assert "about 10 %" in LIBRARY["C09-expert-change"].value
    assert [one.value for one in EXPERT_CHANGE] == [0.1]
