"""What routing capture and replay refuse, and the numbers computed from routes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as tf
from tiny_moe import EXPERTS, POSITIONS, ROWS, SMALL, build, random_routes, routers_of, tokens

from gspo_lab.errors import LabError
from gspo_lab.models.routing import Routers, expert_change, load_cv

# What is refused


def test_a_dense_model_has_no_routers() -> None:
    config = tf.Qwen3Config(**{key: value for key, value in SMALL.items() if "exp" not in key and "moe" not in key})
    assert Routers.of(tf.Qwen3ForCausalLM(config)) is None


@pytest.mark.parametrize(
    ("model_type", "make"),
    [
        ("phimoe", lambda: tf.PhimoeForCausalLM(tf.PhimoeConfig(**SMALL, num_local_experts=4))),
        ("jetmoe", lambda: tf.JetMoeForCausalLM(tf.JetMoeConfig(**SMALL, num_local_experts=4, kv_channels=16))),
        (
            "switch_transformers",
            lambda: tf.SwitchTransformersForConditionalGeneration(
                tf.SwitchTransformersConfig(
                    vocab_size=24, d_model=16, d_ff=16, num_layers=2, num_heads=2, num_experts=4
                )
            ),
        ),
    ],
)
def test_an_unknown_moe_family_is_refused_by_name(model_type: str, make: Callable[[], Any]) -> None:
    with pytest.raises(LabError, match=rf"MoE family '{model_type}'.*qwen3_moe"):
        Routers.of(make())


def _spoilt(place: tuple[int, int, int, int], value: int) -> torch.Tensor:
    routes = random_routes()
    routes[place] = value
    return routes


REAL = torch.ones(ROWS, POSITIONS, dtype=torch.bool)


@pytest.mark.parametrize(
    ("replay", "mask", "message"),
    [
        (None, REAL, "without routes"),
        (torch.empty(0, dtype=torch.int16), None, r"routes to replay are \[0\]"),
        (random_routes()[:, :, :1], None, r"are \[4, 7, 1, 3\].*= \[4, 7, 2, 3\]"),
        (random_routes()[..., :2], None, r"are \[4, 7, 2, 2\]"),
        (random_routes()[:3], None, r"are \[3, 7, 2, 3\]"),
        (random_routes().transpose(0, 1), None, r"are \[7, 4, 2, 3\]"),
        (random_routes().float(), None, "are torch.float32"),
        (_spoilt((1, 2, 1, 0), EXPERTS), None, "expert 8; this model has experts 0 to 7"),
        (_spoilt((1, 2, 1, 0), -1), None, "expert -1"),
        (_spoilt((1, 2, 1, 0), int(random_routes()[1, 2, 1, 2])), None, "twice in one token"),
        (random_routes(), REAL.long(), "mask is torch.int64"),
        (random_routes(), REAL[:, :3], r"mask is torch.bool \[4, 3\]"),
        (random_routes(), ~REAL, "False everywhere"),
    ],
)
def test_routes_that_cannot_be_replayed_are_refused_at_once(
    replay: torch.Tensor | None, mask: torch.Tensor | None, message: str
) -> None:
    routers = routers_of(build("qwen3_moe"))
    with pytest.raises(LabError, match=message):
        routers.tap(ROWS, POSITIONS, replay_BSLK=replay, replay_mask_BS=mask)
    with pytest.raises(LabError, match="at least one token"):
        routers.tap(0, POSITIONS)


def test_what_stands_at_padding_is_not_read() -> None:
    routers, mask = routers_of(build("qwen3_moe")), REAL.clone()
    mask[1, 2] = False
    routers.tap(ROWS, POSITIONS, replay_BSLK=_spoilt((1, 2, 1, 0), 99), replay_mask_BS=mask)


def _hooks(model: torch.nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_a_tap_refuses_other_tokens_than_its_own_and_leaves_no_hook() -> None:
    model, ids = build("qwen3_moe"), tokens()
    routers = routers_of(model)
    model(ids)  # transformers sets its own hooks once
    before = _hooks(model)
    with pytest.raises(LabError, match=r"\[4, 7\] inside a tap made for \[7, 4\]"), routers.tap(POSITIONS, ROWS):
        model(ids)
    with pytest.raises(LabError, match=r"\[4, 7\] inside a tap made for \[4, 8\]"), routers.tap(ROWS, 8):
        model(input_ids=ids)
    with pytest.raises(LabError, match="made for 4 x 8 tokens"), routers.tap(ROWS, 8):
        routers.modules[0][1](torch.zeros(28, 32))
    with pytest.raises(RuntimeError, match="on purpose"), routers.tap(ROWS, POSITIONS):
        raise RuntimeError("on purpose")
    assert _hooks(model) == before
    with routers.tap(ROWS, POSITIONS):
        assert _hooks(model) > before
        model(ids)
    assert _hooks(model) == before


def test_a_tap_is_for_one_forward_pass() -> None:
    model, ids = build("qwen3_moe"), tokens()
    routers = routers_of(model)
    with routers.tap(ROWS, POSITIONS):
        model(ids)
        with pytest.raises(LabError, match="second forward pass"):
            model(ids)
    with pytest.raises(LabError, match="nothing was recorded"), routers.tap(ROWS, POSITIONS):
        pass
    with routers.tap(ROWS, POSITIONS) as tap:
        model(ids)
    with pytest.raises(LabError, match="already been used"), tap:
        model(ids)


def test_a_tap_inside_a_tap_of_the_same_model_is_refused() -> None:
    model, other, ids = build("qwen3_moe"), build("qwen3_moe", seed=8), tokens()
    first, second = routers_of(model), routers_of(model)
    with first.tap(ROWS, POSITIONS) as tap:
        with pytest.raises(LabError, match="inside a tap already"), second.tap(ROWS, POSITIONS):
            pass
        with routers_of(other).tap(ROWS, POSITIONS) as apart:
            other(ids)
        model(ids)
    assert not torch.equal(tap.natural_BSLK, apart.natural_BSLK)
    with second.tap(ROWS, POSITIONS) as later:
        model(ids)
    assert torch.equal(tap.natural_BSLK, later.natural_BSLK)


def test_a_forward_pass_past_a_router_is_refused() -> None:
    model, ids = build("qwen3_moe"), tokens()
    routers = routers_of(model)
    model.model.layers[1].mlp = torch.nn.Identity()
    with pytest.raises(LabError, match=r"MoE layers \[1\]"), routers.tap(ROWS, POSITIONS):
        model(ids)


# Numbers from routes


def test_expert_change_counts_sets_by_hand() -> None:
    # 1 row, 4 positions (the last masked out), 2 layers, 2 experts each
    old = torch.tensor([[[[0, 1], [2, 3]], [[0, 1], [2, 3]], [[4, 5], [6, 7]], [[0, 1], [0, 1]]]])
    new = torch.tensor([[[[1, 0], [2, 3]], [[0, 2], [3, 2]], [[4, 5], [0, 1]], [[6, 7], [6, 7]]]])
    mask = torch.tensor([[True, True, True, False]])
    layers, anywhere = expert_change(old.to(torch.int16), new, mask)
    # layer 0: same set, one of two, same: 0, 1/2, 0.  layer 1: 0, 0, 1.  tokens changed: the 2nd and the 3rd
    torch.testing.assert_close(layers, torch.tensor([1 / 6, 1 / 3]))
    assert float(anywhere) == pytest.approx(2 / 3)
    layers, anywhere = expert_change(old, old.flip(-1), torch.ones_like(mask))
    assert layers.tolist() == [0.0, 0.0]
    assert float(anywhere) == 0


def test_load_cv_by_hand() -> None:
    # 4 experts; layer 0 is balanced (each once), layer 1 puts both tokens on experts 0 and 1: tokens 2, 2, 0, 0
    routes = torch.tensor([[[[0, 1], [0, 1]], [[2, 3], [1, 0]], [[3, 3], [3, 3]]]], dtype=torch.int16)
    mask = torch.tensor([[True, True, False]])
    assert load_cv(routes, mask, 4) == pytest.approx((0.0 + 1.0) / 2)
    assert load_cv(routes[:, :, 1:], mask, 4) == pytest.approx((4 / 2 - 1) ** 0.5)


def test_numbers_from_routes_refuse_what_has_no_answer() -> None:
    routes, nothing = random_routes(), ~REAL
    with pytest.raises(LabError, match="no token"):
        expert_change(routes, routes, nothing)
    with pytest.raises(LabError, match="no token"):
        load_cv(routes, nothing, EXPERTS)
    with pytest.raises(LabError, match="shapes differ"):
        expert_change(routes, routes[:, :, :1], REAL)
    with pytest.raises(LabError, match=r"wanted torch.bool \[4, 7\]"):
        expert_change(routes, routes, REAL[:2])
    with pytest.raises(LabError, match=r"expert -1.*0 to 7"):
        load_cv(_spoilt((1, 2, 1, 0), -1), REAL, EXPERTS)
