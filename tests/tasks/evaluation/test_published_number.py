"""`eval --published`: a score beside a published number."""

from pathlib import Path
from typing import Any

import pytest
from asking import done
from assertions import assert_fields
from calling import gspo_lab, lab_error
from case_tables import cases

from gspo_lab.analysis.stats.passk import checkpoint_score
from gspo_lab.cli.published_score import PublishedNumber, sentence
from gspo_lab.common.plain_data import JsonObject, OptionalInt
from gspo_lab.tasks.evaluation.benchmark_spec import BenchmarkOverrides, bench_of

MODEL = ("--model", "tiny-qwen3", "--limit", 8, "--max-tokens", 2)
ADDITION = ("eval", "--bench", "addition", *MODEL)


def compared(right: int, problems: int, number: float, answers: OptionalInt = None) -> JsonObject:
    bench = bench_of("addition", {"held_out": problems}, Path(), BenchmarkOverrides())
    score = checkpoint_score([place < right for place in range(problems)], [1])
    row = {"score": score.mean, "low": score.item_low, "high": score.item_high}
    return PublishedNumber(number, answers).compared(row, bench)


@pytest.mark.parametrize(
    ("right", "problems", "published", "said"),
    cases(__file__, "needs_enough_answers"),
)
def test_a_difference_needs_enough_answers_on_both_sides(
    right: int, problems: int, published: tuple[Any, ...], said: str
) -> None:
    assert sentence(compared(right, problems, *published)).startswith(said)


def test_independent_scores_are_compared_as_newcombe_does() -> None:
    """56 of 70 against 48 of 80: his example, .2 with .0524 to .3339 by Wilson's intervals."""
    comparison = compared(56, 70, 0.6, 80)
    bounds = (comparison["low"], comparison["high"])
    assert bounds == pytest.approx((0.0524, 0.3339), abs=0.008)


def test_a_number_that_cannot_be_is_refused() -> None:
    for number in (101.0, -1.0, float("nan")):
        with lab_error("--published"):
            PublishedNumber(number)


def test_eval_says_how_far_the_published_number_is(here: Path) -> None:
    text = " ".join(done(*ADDITION, "--published", 47.4).out.split())
    assert "below the published 0.474 (1000 answers assumed, one a problem)" in text
    assert "usual settings: problems 8 (usual 1000), token limit 2" in text
    options = (*ADDITION, "--published", 0.01, "--published-answers", 30)
    [row] = done(*options, "--json").json["scores"]
    assert_fields(row["published"], answers=30, distinguishable=False)
    for wrong in (("--bench", "chain", "--published", 47.4), ("--published-answers", 30)):
        refused = gspo_lab(*ADDITION, *wrong)
        assert (refused.code, "belong to one --bench" in refused.err) == (2, True)
