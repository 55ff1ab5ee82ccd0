"""Headings as findings, with numbers that a pencil can check."""

from pathlib import Path

import pytest
from synthetic_lab import make_lab
from test_report_page import exact_clips

from gspo_lab.claims.library import LIBRARY
from gspo_lab.findings import Findings
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.published import CLIPPED, EXPERT_CHANGE
from gspo_lab.report.sections.clipping import clipping
from gspo_lab.report.titles import ahead, from_first_to_last, highest, one_over_other, over_training
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


def test_titles_of_categories() -> None:
    means = (Series("a", 0, ("0", "1", "2"), (0.0, 0.1, 0.3)), Series("b", 1, ("0", "1", "2"), (0.0, 0.2, 0.2)))
    chart = Chart("m", "Clips", "mini-batch", "share of tokens", means, kind="bars")
    assert from_first_to_last(chart) == "Clips: a from 10.0 % on 1 to 30.0 % on 2"
    assert one_over_other(Chart("m", "Both", "arm", "share", (Series("t", 0, ("a", "b"), (0.1, 0.2)),
                                                             Series("s", 1, ("a", "b"), (0.4, 0.6))))) == (
        "Both: s 3.0 to 4.0 times t")  # fmt: skip
    ends = (Series("a", 0, ("a",), (0.5,)), Series("b", 1, ("b",), (0.25,)))
    assert highest(Chart("m", "Final", "arm", "score", ends)) == "Final: a highest at 0.500, b lowest at 0.250"
    pairs = (Series("b", 1, ("a", "b"), (0.1, 0.2), seed=0), Series("b", 1, ("a", "b"), (0.3, 0.2), seed=1))
    assert ahead(Chart("m", "P", "arm", "score", pairs), "a", "b") == "b ends above a in 1 of 2 pairs"


def test_the_clip_gap_names_its_ceiling(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path, change=exact_clips)) as evidence:
        section = clipping(Findings(evidence, "toy"))
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
