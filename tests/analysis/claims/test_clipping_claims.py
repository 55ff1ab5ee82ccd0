"""C01 to C06 on numbers whose statistics can be computed by hand.

t(2, .975) = 4.30265.
"""

import math
from pathlib import Path
from typing import Any

import pytest
from assertions import assert_fields
from case_tables import cases
from claim_lab import Fields, Numbers, gives, result, results, why

from gspo_lab.study import Run

TOKEN = '[arm.gspo-token]\nobjective = "gspo-token"\n'
TWO_RULES = '[arm.grpo]\nobjective = "grpo"\n[arm.gspo]\nobjective = "gspo"\n'


def clips(grpo: dict[int, float], gspo: dict[int, float], active: float = 0.2) -> Numbers:
    """Clip fractions per seed on every mini-batch, the first included.

    So the mean of the clip fraction is the number itself.
    """

    def update(run: Run, step: int, minibatch: int) -> Fields:
        return {
            "clip_fraction_tokens": (grpo if run.arm == "grpo" else gspo)[run.seed],
            "clip_fraction_active_tokens": active,
        }

    return gives(update=update)


GRPO = {0: 0.001, 1: 0.001, 2: 0.001}
GSPO = {0: 0.05, 1: 0.1, 2: 0.2}
"""The ratios are 50, 100, 200: log10 1.699, 2, 2.301.

sd .30103, half-width 4.30265 x .30103 / sqrt(3) = .74781.
"""


def test_a_mean_over_updates_weighs_each_update_by_its_tokens(tmp_path: Path) -> None:
    def update(run: Run, step: int, minibatch: int) -> Fields:
        tokens = 3000 if minibatch == 3 else 1000
        share = 0.6 if minibatch == 3 else 0.1
        return {
            "response_tokens": tokens,
            "clip_fraction_tokens": share if run.arm == "gspo" else run.seed / 1000,
        }

    table = """[[claim]]
name = "clips"
metric = "clip_fraction_tokens"
statistic = "mean over updates"
comparison = "difference"
arms = { of = "gspo", against = "grpo" }
above = 0.0
"""
    found = results(tmp_path, gives(update=update), tables=table)["clips"]
    # (3 x 1000 x .1 + 3000 x .6) / 6000 = .35 in place of (.1 + .1 + .1 + .6) / 4 = .225; minus
    # .000, .001, .002
    assert found.parts[0].estimate == pytest.approx(0.35 - 0.001)


def test_the_clip_gap_is_a_ratio_with_the_interval_of_its_logarithm(tmp_path: Path) -> None:
    found = result(tmp_path, clips(GRPO, GSPO), "C04-clip-gap")
    part = found.parts[0]
    assert part.estimate == pytest.approx(100)
    assert [part.low, part.high] == pytest.approx(
        [10 ** (2 - 0.74781), 10 ** (2 + 0.74781)], rel=1e-4
    )
    # t = (2 - 1) / (.30103 / sqrt 3) = 5.75378; with 2 degrees of freedom p = 1 - t / sqrt(t^2 + 2)
    assert_fields(
        found, p=pytest.approx(1 - 5.75378 / math.sqrt(5.75378**2 + 2), abs=1e-5), word="supported"
    )
    assert "saturated" not in why(found)


@pytest.mark.parametrize(
    ("gspo", "active", "word", "published", "said"),
    [
        # 19.8 (15.5 to 25.2) is far above GRPO's share, and not the published 30 to 1,000 times.
        ({0: 0.019, 1: 0.02, 2: 0.021}, 0.2, "supported", "contradicted", "stated side"),
        ({0: 0.002, 1: 0.002, 2: 0.003}, 0.2, "contradicted", "contradicted", "other side"),
        (
            {0: 0.005, 1: 0.02, 2: 0.08},
            0.2,
            "inconclusive",
            "inconclusive",
            "these seeds could have seen a factor of",
        ),
        # 17.9 to 559.6 reaches below 30
        (
            GSPO,
            0.46,
            "supported",
            "inconclusive",
            "gspo is saturated: it clips 0.460 of the active tokens",
        ),
    ],
)
def test_where_the_gap_lies_decides_two_claims(
    tmp_path: Path, gspo: dict[int, float], active: float, word: str, published: str, said: str
) -> None:
    """Ratios above ten, below ten, on both sides of it, and of a saturated arm.

    The first ones are smaller than the published ratio.
    """
    entries = results(tmp_path, clips(GRPO, gspo, active))
    gap = entries["C04-clip-gap"]
    assert (gap.word, entries["C27-gap-as-published"].word) == (word, published)
    assert said in why(gap)
    (part,) = gap.parts
    assert gap.supplementary == ()
    assert part.estimate == pytest.approx(1000 * math.prod(gspo.values()) ** (1 / 3))
    (same,) = entries["C27-gap-as-published"].parts
    assert_fields(same, estimate=part.estimate, low=part.low, high=part.high)
    if word == "inconclusive":  # sd of ln ratio = ln 4; 3 seeds detect 3.26 sd: a factor 4^3.26
        assert part.detectable == pytest.approx(4**3.2573, rel=0.01)


def test_without_a_clip_in_grpo_the_gap_is_a_lower_bound_that_cannot_contradict(
    tmp_path: Path,
) -> None:
    # 8 updates x 1000 tokens: of 8, 7 and 6 tokens against one that is assumed, the interval lies
    # below 10
    none = {0: 0.0, 1: 0.0, 2: 0.0}
    few = {0: 0.001, 1: 0.000875, 2: 0.00075}
    entries = results(tmp_path, clips(none, few))
    gap = entries["C04-clip-gap"]
    assert gap.parts[0].estimate == pytest.approx((8 * 7 * 6) ** (1 / 3))
    assert gap.parts[0].high < 10.1
    assert gap.word == "inconclusive"
    assert "lower bound" in why(gap)
    assert entries["C27-gap-as-published"].word == "not testable here"


def bands(grpo: list[int], gspo: list[int]) -> Numbers:
    """Tokens that each rule would bind at 1/4 to 4 times its range.

    Both sides together, in every update of both arms.
    """

    def update(run: Run, step: int, minibatch: int) -> Fields:
        zero = [0] * 5
        more = [count + run.seed for count in gspo]
        return {
            "band_counts": {
                "grpo": {"low": grpo, "high": zero},
                "gspo": {"low": zero, "high": more},
            }
        }

    return gives(update=update)


@pytest.mark.parametrize(
    ("grpo", "most", "half", "word"),
    cases(__file__, "grids"),
)
def test_the_grid_decides_by_the_cells_that_a_ratio_is_reached_in(
    tmp_path: Path, grpo: list[int], most: float, half: float, word: str
) -> None:
    found = result(tmp_path, bands(grpo, [800, 400, 200, 100, 50]), "C05-gap-robust")
    assert [part.estimate for part in found.parts] == pytest.approx([most, half], rel=0.02)
    assert found.word == word


def rising(sign: int = 1, first: float = 0.0) -> Numbers:
    """cf of .1, .2 and .3 on mini-batches 1 to 3, times 1, 1.1, 1.2 by seed."""

    def update(run: Run, step: int, minibatch: int) -> Fields:
        value = 0.1 * minibatch * (1 + run.seed / 10)
        return {
            "clip_fraction_tokens": first if minibatch == 0 else value if sign > 0 else 1 - value
        }

    return gives(update=update)


def test_growth_with_the_minibatch_is_a_difference_of_the_last_and_the_second(
    tmp_path: Path,
) -> None:
    found = result(tmp_path / "rises", rising(), "C06-grows-with-mb")
    zero, grpo, gspo = found.parts
    assert (zero.estimate, grpo.estimate, gspo.estimate) == pytest.approx((0, 0.22, 0.22))
    # .2, .22, .24: sd .02, half-width .04968
    assert grpo.low == pytest.approx(0.22 - 0.04968, abs=1e-5)
    assert found.word == "supported"
    assert result(tmp_path / "falls", rising(sign=-1), "C06-grows-with-mb").word == "contradicted"
    found = result(tmp_path / "first", rising(first=0.01), "C06-grows-with-mb")
    assert found.word == "contradicted"
    assert "largest cf on mini-batch 0 is 0.01, exactly 0 is required" in why(found)


def weights(partly: int = 0, largest: dict[int, float] | None = None) -> Numbers:
    def update(run: Run, step: int, minibatch: int) -> Fields:
        beyond = (largest or {0: 3.0, 1: 3.1, 2: 3.2})[run.seed]
        clipped = [4, 0, 4 - partly] if run.arm == "gspo" else [1, 0, 2]
        # within a response: mean of l^2 - (mean l)^2 = (.04 + seed / 1000) - 0
        return {
            "ratio_max_negative": beyond,
            "response_detail": {
                "length": [4, 4, 4],
                "advantage": [1.0, 0.0, -1.0],
                "sum_log_ratio": [0.0, 0.0, 0.0],
                "sum_square_log_ratio": [4 * (0.04 + run.seed / 1000)] * 3,
                "max_abs_log_ratio": [0.3, 0.3, 0.3],
                "clipped_tokens": clipped,
            },
        }

    return gives(update=update)


def test_gspo_weights_alike_and_grpo_beyond_its_range(tmp_path: Path) -> None:
    found = result(tmp_path / "alike", weights(), "C03-equal-weights")
    spread = sum(math.sqrt(0.04 + s / 1000) for s in range(3)) / 3
    assert [part.estimate for part in (*found.parts, *found.supplementary)] == pytest.approx(
        [0, (3 * 3.1 * 3.2) ** (1 / 3), spread]
    )
    assert found.supplementary[0].word == "measured", "a spread cannot be negative"
    assert found.word == "supported"
    # 2 steps x 3 later mini-batches x one response clipped in part
    found = result(tmp_path / "partly", weights(partly=1), "C03-equal-weights")
    assert found.word == "contradicted"
    assert "this is a bug: GSPO's responses clipped in part is 6" in why(found)
    found = result(
        tmp_path / "inside", weights(largest={0: 1.1, 1: 1.11, 2: 1.12}), "C03-equal-weights"
    )
    assert found.word == "contradicted"
    assert "GRPO: largest weight at A < 0" in why(found)


def first(**changed: Any) -> Numbers:
    def update(run: Run, step: int, minibatch: int) -> Fields:
        return changed if run.arm == "gspo" and run.seed == 1 and minibatch == 0 else {}

    return gives(update=update)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"log_ratio_max_abs": 1e-3}, "largest |l_t| on mini-batch 0 is 0.001"),
        ({"clip_fraction_tokens": 0.25}, "largest cf on mini-batch 0 is 0.25"),
        ({"grad_norm": 1.001}, "relative difference of the first gradient's norm is 0.000999"),
        ({"loss": 0.5}, "difference of the first loss is 0.5"),
    ],
)
def test_a_broken_identity_is_a_bug(tmp_path: Path, changed: Fields, said: str) -> None:
    found = result(tmp_path, first(**changed), "C01-first-minibatch")
    assert found.word == "contradicted"
    assert f"this is a bug: {said}" in why(found)
    assert "s1" in why(found)


def test_one_run_suffices_for_an_identity(tmp_path: Path) -> None:
    every = results(tmp_path, first(clip_fraction_tokens=0.1), seeds=1)
    found = every["C01-first-minibatch"]
    assert (found.word, found.p) == ("supported", None), "the changed run is that of seed 1"
    assert [part.estimate for part in found.parts] == [0, 0, 0, 0]
    assert why(every["C04-clip-gap"]).startswith("1 seeds finished")


def test_gradients_of_nothing_prove_nothing(tmp_path: Path) -> None:
    found = results(
        tmp_path,
        gives(update=lambda run, step, minibatch: {"grad_norm": 0.0}),
        arms=TWO_RULES + TOKEN,
    )
    for name in ("C01-first-minibatch", "C02-token-variant"):
        assert found[name].word == "not testable here"
        assert "the gradients compared are 0" in why(found[name])


def test_first_updates_of_other_responses_are_not_compared(tmp_path: Path) -> None:
    halved = TOKEN.replace(
        'objective = "gspo-token"', 'objective = "gspo-token"\nupdate.minibatches = 2'
    )
    found = result(tmp_path, Numbers(), "C02-token-variant", arms=TWO_RULES + halved)
    assert found.word == "not testable here"
    assert "split into 2 and 4 mini-batches" in why(found)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({}, "supported"),
        ({"clipped_tokens": 3}, "contradicted"),
        ({"loss": 1e-5}, "contradicted"),
        ({"grad_norm": 1.001}, "contradicted"),
    ],
)
def test_the_token_variant_is_the_same(tmp_path: Path, changed: Fields, word: str) -> None:
    def update(run: Run, step: int, minibatch: int) -> Fields:
        return changed if run.arm == "gspo-token" and minibatch == 2 else {}

    assert (
        result(tmp_path, gives(update=update), "C02-token-variant", arms=TWO_RULES + TOKEN).word
        == word
    )
