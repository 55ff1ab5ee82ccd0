"""The table of ratio rules, when a clip binds, and what a third rule takes: an entry."""

import math
from dataclasses import dataclass, fields
from typing import Any, get_args

import numpy as np
import pytest
import torch
from assertions import assert_fields
from measuring import numbers

from gspo_lab.recording.records import UpdateRecord, update
from gspo_lab.recording.records.metric import metric
from gspo_lab.study.declaration import reference_bands
from gspo_lab.training.objectives import PRESETS, Batch, Recorder, response_detail, surrogate
from gspo_lab.training.objectives.losses.clipping import binds
from gspo_lab.training.objectives.ratios import RATIOS, RULES, Level, Ratio

LN = math.log


def test_levels_rules_and_columns_agree() -> None:
    assert tuple(RATIOS) == get_args(Level)
    assert tuple(RULES) == tuple(update.RULES) == tuple(reference_bands([]))
    columns = {field.name for field in fields(UpdateRecord)}
    assert {
        f"{name}_{rule}"
        for name in ("would_clip_fraction_tokens", "flip_fraction_tokens")
        for rule in RULES
    } < columns


@pytest.mark.parametrize("array", [torch.tensor, np.array])
def test_a_clip_binds_by_the_sign_of_the_advantage(array: Any) -> None:
    ratio = array([1.3, 1.3, 0.7, 0.7, 1.3, 1.3])
    adv = array([1.0, -1.0, 1.0, -1.0, 0.0, 1.0])
    mask = array([True, True, True, True, True, False])
    low, high = binds(ratio, adv, mask, 0.2, 0.27)
    assert low.tolist() == [False, False, False, True, False, False]
    assert high.tolist() == [True, False, False, False, False, False]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_the_same_of_tensors_and_arrays(rule: str) -> None:
    l_BT = torch.tensor(
        [[LN(4), 0.0, -LN(2)], [LN(3), 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64
    )
    mask_BT = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]], dtype=torch.bool)
    want = {"grpo": l_BT.numpy(), "gspo": np.array([[LN(2) / 3], [LN(3)], [0.0]])}[rule]
    make = RULES[rule].log_ratio
    assert make(l_BT, mask_BT).numpy() == pytest.approx(want)
    assert make(l_BT.numpy(), mask_BT.numpy()) == pytest.approx(want)


def second_half(l_BT: Any, mask_BT: Any) -> Any:
    """A toy rule for pairs of tokens: both carry the second's."""
    return l_BT[:, 1:]


def test_a_third_rule_is_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Ratio(
        "toy", second_half, lambda detail, index: detail["log_ratios"][index][1:], band=(0.1, 0.1)
    )
    monkeypatch.setitem(RULES, "toy", toy)
    monkeypatch.setitem(RATIOS, "second", toy)  # type: ignore[misc]
    monkeypatch.setitem(update.RULES, "toy", "r = w_2 and a toy's range")

    @dataclass
    @update._for_each_rule
    class Columns:
        earlier: int = metric("before")
        would_RULE: float = metric("with RULE", rule=update.share("would_clip_RULE", "tokens"))
        flip_RULE: float = metric("with RULE", rule=update.share("flip_RULE", "tokens"))
        last: int = metric("after")

    rules = ("grpo", "gspo", "toy")
    columns = {entry.name: entry.metadata for entry in fields(Columns)}
    of_rules = [f"{name}_{rule}" for name in ("would", "flip") for rule in rules]
    assert list(columns) == ["earlier", *of_rules, "last"]
    assert columns["would_toy"]["meaning"] == "with r = w_2 and a toy's range"
    bands = reference_bands([])
    assert bands["toy"] == (0.1, 0.1)
    # w = (1, 2) with A = +1 and (2, 1) with A = -1: the toy clips the first response whole, and
    # nothing of the second.
    l_BT = torch.tensor([[0.0, LN(2)], [LN(2), 0.0]])
    mask_BT = torch.ones(2, 2, dtype=torch.bool)
    adv_BT = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    later: Any = "second"  # a level that only this test has
    settings = PRESETS["grpo"].replace(importance_sampling_level=later, clip_low=0.1, clip_high=0.1)
    result = surrogate(l_BT, Batch(mask_BT, adv_BT, 0 * l_BT, responses=2, tokens=4), settings)
    assert result.clipped_BT.tolist() == [[True, True], [False, False]]
    everyone = torch.ones(2, dtype=torch.bool)
    arrays = Recorder(settings, bands).arrays(
        l_BT, mask_BT, adv_BT, result.metrics, everyone, 0 * l_BT
    )
    assert columns["would_toy"]["rule"](arrays) == columns["flip_toy"]["rule"](arrays) == 0.5
    out = numbers(l_BT, mask_BT, adv_BT, everyone, settings, bands)
    assert out["clip_fraction_tokens"] == 0.5
    assert out["band_counts"]["toy"] == {"low": [0] * 5, "high": [2] * 5}


def test_what_the_policy_did_not_choose_has_no_ratio_no_length_and_no_count() -> None:
    # Four tokens, the middle two a tool's output: w = 2, -, -, 2; whatever they hold, s = 2 and L =
    # 2.
    mask_BT = torch.tensor([[1, 0, 0, 1]], dtype=torch.bool)
    adv_BT = torch.ones(1, 4) * mask_BT
    logp_BT = torch.tensor([[LN(2), 50.0, float("nan"), LN(2)]], requires_grad=True)
    settings = PRESETS["gspo"].replace(clip_low=0.9, clip_high=9.0)
    out = surrogate(
        logp_BT, Batch(mask_BT, adv_BT, torch.zeros(1, 4), responses=1, tokens=2), settings
    )
    assert float(out.loss.detach()) == pytest.approx(-2.0)
    out.loss.backward()
    assert logp_BT.grad[0].tolist() == pytest.approx([-1.0, 0.0, 0.0, -1.0])
    everyone = torch.ones(1, dtype=torch.bool)
    actual = numbers(
        out.log_ratio_BT, mask_BT, adv_BT, everyone, PRESETS["gspo"], reference_bands([])
    )
    assert_fields(actual, response_tokens=2, active_tokens=2, clipped_tokens=2)
    assert response_detail(out.log_ratio_BT, mask_BT, adv_BT, out.clipped_BT, tokens=True)[
        "length"
    ] == [2]


def test_advantages_may_differ_within_a_response() -> None:
    # One response of two turns of two tokens, s = 2: the turn with A > 0 is clipped, the one with A
    # < 0 is not.
    mask_BT = torch.ones(1, 4, dtype=torch.bool)
    adv_BT = torch.tensor([[1.0, 1.0, -3.0, -3.0]])
    l_BT = torch.full((1, 4), LN(2))
    out = surrogate(
        l_BT, Batch(mask_BT, adv_BT, 0 * l_BT, responses=1, tokens=4), PRESETS["gspo-token"]
    )
    assert out.clipped_BT.tolist() == [[True, True, False, False]]
    assert float(out.loss) == pytest.approx(-(2 * (1 + 4e-4) - 3 * 2 * 2) / 4)
    everyone = torch.ones(1, dtype=torch.bool)
    actual = numbers(l_BT, mask_BT, adv_BT, everyone, PRESETS["gspo-token"], reference_bands([]))
    assert_fields(actual, clip_fraction_tokens_high=0.5, clip_fraction_tokens_low=0.0)
    assert response_detail(l_BT, mask_BT, adv_BT, out.clipped_BT)["advantage"] == [-1.0]
