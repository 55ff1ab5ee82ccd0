"""The recorded numbers of one hand-made mini-batch, both rules, unequal lengths."""

import math
import random
from typing import Any

import pytest
import torch
from assertions import assert_fields
from calling import lab_error
from measuring import numbers

from gspo_lab.common.plain_data import JsonObject, OptionalFloat
from gspo_lab.training.objectives import PRESETS, Batch, response_detail, surrogate
from gspo_lab.training.objectives.calibration import calibrated_band, clipped_share
from gspo_lab.training.objectives.losses import Common
from gspo_lab.training.objectives.ratios import Level

LN = math.log
# Three responses of 4, 2 and 1 tokens; A = +1, -1, 0.
#   0: w = 1.5, 1.5, 1.0, 1.0     s = 1.5^(1/2) = 1.2247
#   1: w = 0.5, 1.0               s = 0.5^(1/2) = 0.7071
#   2: w = 8.0                    s = 8
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)
L = torch.tensor(
    [[LN(1.5), LN(1.5), 0, 0], [LN(0.5), 0, 0, 0], [LN(8), 0, 0, 0]], dtype=torch.float64
)
ADV = torch.tensor([[1.0], [-1.0], [0.0]], dtype=torch.float64) * MASK
BANDS = {"grpo": (0.2, 0.27), "gspo": (0.2, 0.3)}


ALL = torch.ones(3, dtype=torch.bool)


def measured(level: Level, evaluated_B: torch.Tensor = ALL, **changes: Any) -> JsonObject:
    settings = PRESETS["grpo"].replace(importance_sampling_level=level, **changes)
    return numbers(L, MASK, ADV, evaluated_B, settings, BANDS)


def test_token_rule() -> None:
    out = measured("token", clip_low=0.2, clip_high=0.27)
    # Binding: the two 1.5 (A > 0) and the 0.5 (A < 0); the 8 has A = 0 and never binds.
    assert_fields(
        out,
        clipped_tokens=3,
        clip_fraction_tokens=pytest.approx(3 / 7),
        clip_fraction_tokens_high=pytest.approx(2 / 7),
        clip_fraction_tokens_low=pytest.approx(1 / 7),
        clip_fraction_active_tokens=pytest.approx(3 / 6),
        clip_fraction_responses=pytest.approx((2 / 4 + 1 / 2 + 0) / 3),
        clip_any_responses=pytest.approx(2 / 3),
        effective_fraction_tokens=pytest.approx(3 / 7),
        # GSPO's rule on the same batch: 1.2247 < 1.3 stays, 0.7071 < 0.8 binds with its 2 tokens.
        would_clip_fraction_tokens_grpo=pytest.approx(3 / 7),
        would_clip_fraction_tokens_gspo=pytest.approx(2 / 7),
        dual_clip_fraction_tokens=None,
    )


# |e_y - p| of each token; with two tokens in a vocabulary it is sqrt(2) (1 - p_y).
SIZE = torch.tensor([[0.5, 0.25, 1.0, 1.0], [1.0, 0.5, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0]])


def shares_of_the_gradient(settings: Common) -> tuple[OptionalFloat, ...]:
    batch = Batch(MASK, ADV, 0 * L, 3, 7)
    metrics = surrogate(L, batch, settings).metrics | {"logit_gradient": SIZE}
    out = numbers(L, MASK, ADV, ALL, settings, BANDS, metrics)
    return (
        out["clip_fraction_gradient"],
        out["would_clip_fraction_gradient_grpo"],
        out["would_clip_fraction_gradient_gspo"],
    )


def test_the_share_of_the_gradient_that_is_clipped() -> None:
    """r |A| |e_y - p|: what binds by what is there; A = 0 adds nothing, whatever its ratio."""
    total = 1.5 * 0.5 + 1.5 * 0.25 + 1.0 + 1.0 + 0.5 * 1.0 + 1.0 * 0.5
    by_token = (1.5 * 0.5 + 1.5 * 0.25 + 0.5 * 1.0) / total
    s_0 = math.sqrt(1.5)
    s_1 = math.sqrt(0.5)
    # GSPO's rule: 1.2247 < 1.3 stays, 0.7071 < 0.8 binds with its 2 tokens; at 0.2 and 0.2 both do.
    by_response = s_1 * 1.5 / (s_0 * 2.75 + s_1 * 1.5)
    grpo = PRESETS["grpo"].replace(clip_low=0.2, clip_high=0.27)
    gspo = PRESETS["gspo"].replace(clip_low=0.2, clip_high=0.2)
    rules = (pytest.approx(by_token), pytest.approx(by_response))
    assert shares_of_the_gradient(grpo) == (rules[0], *rules)
    assert shares_of_the_gradient(gspo) == (1.0, *rules)
    # No clip, and a ratio that is not the level's: what the rules would take is known all the same.
    assert shares_of_the_gradient(PRESETS["cispo"]) == (None, *rules)
    assert shares_of_the_gradient(PRESETS["fspo"]) == (None, *rules)
    assert measured("token")["clip_fraction_gradient"] is None, "without probabilities: unknown"
    idle = numbers(L * 0, MASK, ADV * 0, ~ALL, grpo, BANDS)
    assert_fields(idle, clip_fraction_tokens=0.0, clip_fraction_gradient=None)


def test_what_the_dual_clip_took_is_counted_from_the_loss() -> None:
    # Of the second response (A < 0) one token's ratio, e^0.5 or so, lies above the cap; its
    # gradient is lost as well.
    settings = PRESETS["grpo"].replace(clip_low=0.2, clip_high=0.27)
    dual_BT = MASK & False
    dual_BT[1, 0] = True
    clipped_BT = MASK & (ADV > 0) & (L.exp() > 1.27)
    metrics = {"clip_fraction_tokens": clipped_BT, "dual_clip_fraction_tokens": dual_BT}
    out = numbers(L, MASK, ADV, ALL, settings, BANDS, metrics)
    assert_fields(
        out,
        clipped_tokens=2,
        dual_clip_fraction_tokens=pytest.approx(1 / 7),
        effective_fraction_tokens=pytest.approx((6 - 2 - 1) / 7),
    )


def test_what_bound_is_what_would_bind_at_the_same_range() -> None:
    # The surrogate's ratio may lie on the other side of the bound by its last bit: here it took the
    # 0.5 for one inside.
    settings = PRESETS["grpo"].replace(clip_low=0.2, clip_high=0.27)
    clipped_BT = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)
    out = numbers(L, MASK, ADV, ALL, settings, BANDS, {"clip_fraction_tokens": clipped_BT})
    assert (
        out["would_clip_fraction_tokens_grpo"]
        == out["clip_fraction_tokens"]
        == pytest.approx(2 / 7)
    )
    assert [out["band_counts"]["grpo"][side][2] for side in ("low", "high")] == [0, 2]
    assert out["would_clip_fraction_tokens_gspo"] == pytest.approx(2 / 7)


def test_sequence_rule() -> None:
    out = measured("sequence", clip_low=0.2, clip_high=0.2)
    # Both active responses bind whole: 4 + 2 tokens.
    assert_fields(
        out,
        clip_fraction_tokens=pytest.approx(6 / 7),
        clip_fraction_responses=pytest.approx(2 / 3),
        clip_fraction_active_tokens=1.0,
        effective_fraction_tokens=0.0,
        # The counterfactual uses the reference bands, not this arm's own.
        would_clip_fraction_tokens_gspo=pytest.approx(2 / 7),
    )


def test_a_response_without_advantage_counts_in_fractions_whether_evaluated_or_not() -> None:
    complete = measured("token")
    skipped = measured("token", torch.tensor([True, True, False]))
    assert (complete["evaluated_responses"], skipped["evaluated_responses"]) == (3, 2)
    assert [name for name in complete if "clip" in name] == [
        name for name in skipped if "clip" in name
    ]
    assert all(
        complete[name] == skipped[name]
        for name in complete
        if "clip" in name or name == "band_counts"
    )
    # Without the 8 the largest move is the 0.5's.
    assert_fields(
        skipped,
        log_ratio_max_abs=pytest.approx(LN(2)),
        # l over the six tokens: ln 1.5, ln 1.5, 0, 0, ln .5, 0
        stale_k1=pytest.approx(-(2 * LN(1.5) + LN(0.5)) / 6),
    )


def test_nothing_evaluated_is_not_measured() -> None:
    out = numbers(L * 0, MASK, ADV * 0, ~ALL, PRESETS["grpo"], BANDS)
    assert_fields(out, evaluated_responses=0, responses=3, clip_fraction_tokens=0.0)
    prefixes = ("log_ratio", "ess", "chi2", "stale")
    assert {out[name] for name in out if name.startswith(prefixes)} == {None}


def test_spread() -> None:
    out = measured("token")
    assert_fields(
        out,
        response_tokens=7,
        responses=3,
        log_ratio_max_abs=pytest.approx(LN(8)),
        ratio_max_negative=1.0,
    )
    mean = (2 * LN(1.5) + LN(0.5) + LN(8)) / 7
    assert out["stale_k1"] == pytest.approx(-mean)
    square = (2 * LN(1.5) ** 2 + LN(0.5) ** 2 + LN(8) ** 2) / 7
    assert out["log_ratio_std_tokens"] == pytest.approx(math.sqrt(square - mean**2))
    total = 1.5 * 2 + 3 + 0.5 + 8
    squares = 2 * 2.25 + 3 + 0.25 + 64
    assert_fields(
        out,
        ess_tokens=pytest.approx(total**2 / (7 * squares)),
        chi2_tokens=pytest.approx(squares / 7 - 1),
    )
    assert out["log_ratio_quantiles_tokens"][0] == pytest.approx(LN(0.5), rel=1e-6)
    assert out["log_ratio_quantiles_tokens"][-1] == pytest.approx(LN(8), rel=1e-6)


@pytest.mark.parametrize("far", [-800.0, -400.0])
def test_where_every_ratio_or_its_square_underflows_there_is_no_effective_sample_size(
    far: float,
) -> None:
    """exp(-800) is 0; exp(-400) is 2e-174, and its square is 0."""
    out = numbers(far * MASK.double(), MASK, ADV, ALL, PRESETS["grpo"], BANDS)
    assert_fields(
        out,
        ess_tokens=None,
        ess_responses=None,
        chi2_tokens=-1.0,
        stale_k1=-far,
        log_ratio_max_abs=-far,
    )


def test_band_counts_give_the_grid() -> None:
    counts = measured("token")["band_counts"]
    # A < 0 tokens: 0.5 and 1.0. 0.5 < 1 - 0.2 x {1/4, 1/2, 1, 2} but not < 1 - 0.8.
    assert_fields(
        counts["grpo"],
        low=[1, 1, 1, 1, 0],
        # A > 0 tokens: 1.5, 1.5, 1, 1; 1.5 > 1 + 0.27 x {1/4, 1/2, 1} only.
        high=[2, 2, 2, 0, 0],
    )
    assert counts["gspo"]["high"] == [4, 4, 0, 0, 0]


def test_response_detail() -> None:
    clipped = torch.zeros_like(MASK)
    clipped[0, :2] = True
    out = response_detail(L, MASK, ADV, clipped, tokens=True)
    assert_fields(
        out,
        length=[4, 2, 1],
        advantage=[1.0, -1.0, 0.0],
        sum_log_ratio=pytest.approx([2 * LN(1.5), LN(0.5), LN(8)], rel=1e-6),
        clipped_tokens=[2, 0, 0],
    )
    assert [len(row) for row in out["log_ratios"]] == [4, 2, 1]


def details(n: int = 1000) -> list[JsonObject]:
    """Responses of 4 tokens; A = +1 moves up by 0.01 on average, A = -1 down by 0.02.

    The noise is 0.05 a token.
    """
    rng = random.Random(1)
    out: list[JsonObject] = []
    for _ in range(n):
        sign = rng.choice([1, -1, 0])
        drift = {1: 0.01, -1: -0.02, 0: 0.0}[sign]
        tokens = [rng.gauss(drift, 0.05) for _ in range(4)]
        out.append(
            {
                "length": [4],
                "advantage": [float(sign)],
                "sum_log_ratio": [sum(tokens)],
                "log_ratios": [tokens],
            }
        )
    return out


@pytest.mark.parametrize("target", [0.05, 0.2])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_found_band_clips_the_target_share_of_each_sign(level: Level, target: float) -> None:
    data = details()
    low, high = calibrated_band(data, level, target)
    for sign in (1, -1):
        values: list[float] = []
        for item in data:
            if item["advantage"][0] == sign:
                values += (
                    item["log_ratios"][0] if level == "token" else [item["sum_log_ratio"][0] / 4]
                )
        bound = [math.exp(v) > 1 + high if sign > 0 else math.exp(v) < 1 - low for v in values]
        assert sum(bound) / len(bound) == pytest.approx(target, abs=1.5 / len(bound))
    # A sequence's mean over 4 tokens has half the noise, so its band is narrower.
    assert calibrated_band(data, "sequence", target)[1] < calibrated_band(data, "token", target)[1]


def test_too_little_data_and_no_movement_are_said() -> None:
    with lab_error("saw"):
        calibrated_band(details(20), "sequence", 0.1)
    flat = [
        {"length": [1], "advantage": [s], "sum_log_ratio": [0.0], "log_ratios": [[0.0]]}
        for s in (1.0, -1.0)
    ] * 60
    with lab_error("clip_target"):
        calibrated_band(flat, "sequence", 0.1)


def test_the_share_that_a_range_clips_counts_what_moves_along_its_advantage() -> None:
    """Beyond 1 + .1 with A > 0: log 1.2; beyond 1 - .2 with A < 0: log .7.

    Not log .5 with A > 0, nor what has no A.
    """
    recorded = [
        {
            "length": [2],
            "advantage": [1.0],
            "sum_log_ratio": [math.log(0.6)],
            "log_ratios": [[math.log(1.2), math.log(0.5)]],
        },
        {
            "length": [2],
            "advantage": [-1.0],
            "sum_log_ratio": [math.log(0.63)],
            "log_ratios": [[math.log(0.7), math.log(0.9)]],
        },
        {"length": [1], "advantage": [0.0], "sum_log_ratio": [9.0], "log_ratios": [[9.0]]},
    ]
    assert clipped_share(recorded, "token", (0.2, 0.1)) == 2 / 4
    # The means: log(.6) / 2 < 0 with A > 0, and log(.63) / 2 = -.231 with A < 0, below log(.8) =
    # -.223.
    assert clipped_share(recorded, "sequence", (0.2, 0.1)) == 1 / 2
    with lab_error("no response with an advantage"):
        clipped_share(recorded[2:], "token", (0.2, 0.1))
