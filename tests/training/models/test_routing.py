"""Routing capture and replay, judged at the experts' own input.

So the experts that computed count, not those that a router reported.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as tf
from assertions import assert_fields
from calling import lab_error
from tiny_moe import (
    EXPERTS,
    LAYERS,
    POSITIONS,
    ROWS,
    SMALL,
    TOP_K,
    Computed,
    build,
    every_family,
    ragged,
    random_routes,
    routers_of,
    tokens,
)

from gspo_lab.training.models.load import computing_in
from gspo_lab.training.models.routing import (
    Routers,
    RoutingRecorder,
    expert_change,
    expert_load,
)


def by_hand(
    name: str, router: Any, states_NH: torch.Tensor, chosen_NK: torch.Tensor
) -> torch.Tensor:
    """Each family's published gate, one token and one expert at a time.

    It is written out in double precision.
    """
    family = name.partition("-")[0]
    logits = states_NH.double() @ router.weight.double().T
    if family == "gpt_oss":
        logits = logits + router.bias.double()
    rows = []
    for z, chosen in zip(logits, chosen_NK.tolist(), strict=True):
        if family in ("deepseek_v3", "glm4_moe"):
            gates = [1 / (1 + torch.exp(-z[e])) for e in chosen]
            divide = not name.endswith("unnormalised")
            scale = 2.5
        elif family in ("granitemoe", "gpt_oss"):
            gates = [torch.exp(z[e]) / sum(torch.exp(z[other]) for other in chosen) for e in chosen]
            divide = False
            scale = 1.0
        else:
            gates = [torch.exp(z[e]) / torch.exp(z).sum() for e in chosen]
            divide = name in ("mixtral", "qwen3_moe")
            scale = 1.0
        total = sum(gates) if divide else 1.0
        rows.append(torch.stack([scale * gate / total for gate in gates]))
    return torch.stack(rows)


# What computes under replay


@pytest.mark.parametrize("side", ["left", "right"])
@every_family
def test_the_recorded_experts_compute_at_every_real_token(name: str, side: str) -> None:
    model = build(name)
    ids = tokens()
    real_BS = ragged(side)
    routers = routers_of(model)
    computed = Computed.by(model)
    routes = random_routes().masked_fill(~real_BS[..., None, None], -1)
    with (
        torch.no_grad(),
        routers.tap(ROWS, POSITIONS, replay_BSLK=routes, replay_mask_BS=real_BS) as tap,
    ):
        model(ids, attention_mask=real_BS.long())
    used = computed.chosen_BSLK(ROWS, POSITIONS)
    assert torch.equal(used[real_BS], routes[real_BS].long())
    assert torch.equal(used[~real_BS], tap.natural_BSLK[~real_BS].long())
    assert not torch.equal(tap.natural_BSLK[real_BS], routes[real_BS])
    assert tap.seconds_replay > 0


def drifted(name: str) -> tuple[Any, torch.Tensor, torch.Tensor, Routers, Computed]:
    """A model, tokens, routes that are not its own, its routers, and what they compute."""
    model = build(name)
    return model, tokens(), random_routes(), routers_of(model), Computed.by(model)


@every_family
def test_the_weights_at_the_experts_are_the_familys_formula(name: str) -> None:
    model, ids, routes, routers, computed = drifted(name)
    with torch.no_grad(), routers.tap(ROWS, POSITIONS, replay_BSLK=routes):
        model(ids)
    for layer, (_, router) in enumerate(routers.modules):
        expected = by_hand(
            name, router, computed.states[layer][0], routes[:, :, layer].flatten(0, 1)
        )
        torch.testing.assert_close(
            computed.weights[layer][0].double(), expected, rtol=2e-5, atol=1e-6
        )


@every_family
def test_the_routers_gradient_under_drifted_routes_is_the_formulas(name: str) -> None:
    model, ids, routes, routers, computed = drifted(name)
    with routers.tap(ROWS, POSITIONS, replay_BSLK=routes):
        loss = model(ids, labels=ids).loss
    layer = 0
    router: Any = routers.modules[layer][1]
    weights_NK = computed.weights[layer][0]
    pull_NK = torch.randn(weights_NK.shape, generator=torch.Generator().manual_seed(9))
    (got,) = torch.autograd.grad((weights_NK * pull_NK).sum(), router.weight, retain_graph=True)
    hand_NK = by_hand(name, router, computed.states[layer][0], routes[:, :, layer].flatten(0, 1))
    (expected,) = torch.autograd.grad((hand_NK * pull_NK).sum(), router.weight)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    loss.backward()
    for parameter in routers.parameters:
        assert parameter.grad.abs().max() > 1e-6


# Gradient checkpointing, micro-batches, the cache


def _gradients(
    model: Any, routers: Routers, routes: torch.Tensor, real_BS: torch.Tensor
) -> tuple[RoutingRecorder, Any]:
    model.zero_grad()
    ids = tokens()
    with routers.tap(ROWS, POSITIONS, replay_BSLK=routes, replay_mask_BS=real_BS) as tap:
        model(
            ids, attention_mask=real_BS.long(), labels=ids.masked_fill(~real_BS, -100)
        ).loss.backward()
    return tap, {
        path: parameter.grad.clone()
        for path, parameter in model.named_parameters()
        if parameter.requires_grad
    }


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_checkpointing_replays_the_same_experts_again(side: str, reentrant: bool) -> None:
    model = build("qwen3_moe").train()
    real_BS = ragged(side)
    routes = random_routes()
    routers = routers_of(model)
    plain, expected = _gradients(model, routers, routes, real_BS)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    computed = Computed.by(model)
    tap, got = _gradients(model, routers, routes, real_BS)
    for layer in range(LAYERS):
        assert len(computed.chosen[layer]) == 2, "the layer was computed again in backward"
        for used in computed.chosen[layer]:
            assert torch.equal(
                used.view(ROWS, POSITIONS, TOP_K)[real_BS], routes[:, :, layer][real_BS].long()
            )
    assert torch.equal(tap.natural_BSLK, plain.natural_BSLK)
    assert torch.equal(tap.entropy_BSL, plain.entropy_BSL)
    for path, gradient in expected.items():
        torch.testing.assert_close(got[path], gradient, rtol=1e-5, atol=1e-7)


def test_a_checkpointed_backward_outside_the_tap_fails_loudly() -> None:
    model = build("qwen3_moe").train()
    ids = tokens()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with routers_of(model).tap(ROWS, POSITIONS, replay_BSLK=random_routes()):
        loss = model(ids, labels=ids).loss
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        loss.backward()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("cut", [1, 3])
def test_micro_batches_replay_their_own_rows(side: str, cut: int) -> None:
    model = build("qwen3_moe")
    ids = tokens()
    real_BS = ragged(side)
    routes = random_routes()
    routers = routers_of(model)
    computed = Computed.by(model)
    with torch.no_grad():
        with routers.tap(ROWS, POSITIONS, replay_BSLK=routes, replay_mask_BS=real_BS) as complete:
            logits = model(ids, attention_mask=real_BS.long()).logits
        for rows in (slice(0, cut), slice(cut, ROWS)):
            size = len(ids[rows])
            real = real_BS[rows]
            with routers.tap(
                size, POSITIONS, replay_BSLK=routes[rows], replay_mask_BS=real
            ) as part:
                part_logits = model(ids[rows], attention_mask=real.long()).logits
            assert torch.equal(
                computed.chosen_BSLK(size, POSITIONS)[real], routes[rows][real].long()
            )
            assert torch.equal(part.natural_BSLK[real], complete.natural_BSLK[rows][real])
            torch.testing.assert_close(part_logits[real], logits[rows][real], rtol=1e-4, atol=1e-5)


def test_prefill_and_decode_record_what_one_long_forward_records() -> None:
    model = build("qwen3_moe")
    ids = tokens()
    routers = routers_of(model)
    computed = Computed.by(model)
    with torch.inference_mode():
        with routers.tap(ROWS, POSITIONS) as complete:
            model(ids)
        cache = tf.DynamicCache(config=model.config)
        pieces = []
        for start, end in [(0, 4), (4, 5), (5, 6), (6, 7)]:
            with routers.tap(ROWS, end - start) as tap:
                model(ids[:, start:end], past_key_values=cache, use_cache=True)
            pieces.append(tap.natural_BSLK)
            assert torch.equal(computed.chosen_BSLK(ROWS, end - start), tap.natural_BSLK.long())
        natural = torch.cat(pieces, dim=1)
    assert torch.equal(natural, complete.natural_BSLK)


def test_replay_keeps_its_own_copy_of_routes_made_in_inference_mode() -> None:
    model = build("qwen3_moe")
    ids = tokens()
    routers = routers_of(model)
    computed = Computed.by(model)
    with torch.inference_mode():
        routes = random_routes().long()
    with routers.tap(ROWS, POSITIONS, replay_BSLK=routes):
        with torch.inference_mode():
            expected = routes.clone()
            routes.zero_()
        model(ids, labels=ids).loss.backward()
    assert torch.equal(computed.chosen_BSLK(ROWS, POSITIONS), expected)
    assert all(parameter.grad is not None for parameter in routers.parameters)


# What is recorded


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@every_family
def test_recording_changes_nothing_and_replaying_ones_own_choice_neither(
    name: str, dtype: torch.dtype
) -> None:
    model = build(name).to(dtype)
    ids = tokens()
    routers = routers_of(model)
    with torch.no_grad():
        plain = model(ids).logits
        with routers.tap(ROWS, POSITIONS) as tap:
            recorded = model(ids).logits
        with routers.tap(ROWS, POSITIONS, replay_BSLK=tap.natural_BSLK) as again:
            replayed = model(ids).logits
        final = model(ids).logits
    assert torch.equal(plain, recorded)
    assert torch.equal(plain, replayed)
    assert torch.equal(plain, final)
    assert torch.equal(tap.natural_BSLK, again.natural_BSLK)
    assert tap.natural_BSLK.dtype == torch.int16
    assert tap.seconds_replay == 0


@every_family
def test_natural_is_what_computes_without_replay_and_entropy_is_of_the_softmax(name: str) -> None:
    model = build(name)
    ids = tokens()
    routers = routers_of(model)
    computed = Computed.by(model)
    with torch.no_grad(), routers.tap(ROWS, POSITIONS) as tap:
        model(ids)
    assert torch.equal(computed.chosen_BSLK(ROWS, POSITIONS), tap.natural_BSLK.long())
    assert_fields(routers, layers=LAYERS, experts=EXPERTS, top_k=TOP_K)
    router: Any
    for layer, (_, router) in enumerate(routers.modules):
        logits = computed.states[layer][0].double() @ router.weight.detach().double().T
        if name == "gpt_oss":
            logits = logits + router.bias.detach().double()
        entropy = torch.distributions.Categorical(logits=logits).entropy().view(ROWS, POSITIONS)
        torch.testing.assert_close(
            tap.entropy_BSL[:, :, layer].double(), entropy, rtol=1e-4, atol=1e-5
        )
    assert not tap.entropy_BSL.requires_grad


def test_the_order_of_experts_within_a_token_is_free() -> None:
    model = build("mixtral")
    ids = tokens()
    routes = random_routes()
    routers = routers_of(model)
    with torch.no_grad():
        with routers.tap(ROWS, POSITIONS, replay_BSLK=routes):
            item = model(ids).logits
        with routers.tap(ROWS, POSITIONS, replay_BSLK=routes.flip(-1)):
            other = model(ids).logits
    torch.testing.assert_close(item, other, rtol=1e-4, atol=1e-5)


def test_layers_without_a_router_are_not_counted() -> None:
    routers = routers_of(build("deepseek_v3", num_hidden_layers=3, first_k_dense_replace=2))
    assert routers.layers == 1
    assert [tuple(parameter.shape) for parameter in routers.parameters] == [(EXPERTS, 32)]


# What is refused


def test_a_dense_model_has_no_routers() -> None:
    config = tf.Qwen3Config(
        **{key: value for key, value in SMALL.items() if "exp" not in key and "moe" not in key}
    )
    assert Routers.of(tf.Qwen3ForCausalLM(config)) is None


@pytest.mark.parametrize(
    ("model_type", "make"),
    [
        ("phimoe", lambda: tf.PhimoeForCausalLM(tf.PhimoeConfig(**SMALL, num_local_experts=4))),
        (
            "jetmoe",
            lambda: tf.JetMoeForCausalLM(
                tf.JetMoeConfig(**SMALL, num_local_experts=4, kv_channels=16)
            ),
        ),
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
    with lab_error(rf"MoE family '{model_type}'.*qwen3_moe"):
        Routers.of(make())


def _spoilt(place: tuple[int, int, int, int], value: int) -> torch.Tensor:
    routes = random_routes()
    routes[place] = value
    return routes


REAL = torch.ones(ROWS, POSITIONS, dtype=torch.bool)


@pytest.mark.parametrize(
    ("replay", "mask", "message"),
    [
        (random_routes()[:, :, :1], None, r"are \[4, 7, 1, 3\].*= \[4, 7, 2, 3\]"),
        (random_routes().transpose(0, 1), None, r"are \[7, 4, 2, 3\]"),
        (_spoilt((1, 2, 1, 0), EXPERTS), None, "expert 8; this model has experts 0 to 7"),
        (_spoilt((1, 2, 1, 0), -1), None, "expert -1"),
        (_spoilt((1, 2, 1, 0), int(random_routes()[1, 2, 1, 2])), None, "twice in one token"),
        (random_routes(), REAL[:, :3], r"with a mask \[4, 3\]"),
    ],
)
def test_routes_that_cannot_be_replayed_are_refused_at_once(
    replay: torch.Tensor, mask: torch.Tensor | None, message: str
) -> None:
    routers = routers_of(build("qwen3_moe"))
    with lab_error(message):
        routers.tap(ROWS, POSITIONS, replay_BSLK=replay, replay_mask_BS=mask)


def test_what_stands_at_padding_is_not_read() -> None:
    routers = routers_of(build("qwen3_moe"))
    mask = REAL.clone()
    mask[1, 2] = False
    routers.tap(ROWS, POSITIONS, replay_BSLK=_spoilt((1, 2, 1, 0), 99), replay_mask_BS=mask)


def _hooks(model: torch.nn.Module) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


def test_a_tap_refuses_other_tokens_than_its_own_and_leaves_no_hook() -> None:
    model = build("qwen3_moe")
    ids = tokens()
    routers = routers_of(model)
    model(ids)  # transformers sets its own hooks once
    initial = _hooks(model)
    with (
        lab_error(r"\[4, 7\] inside a tap made for \[7, 4\]"),
        routers.tap(POSITIONS, ROWS),
    ):
        model(ids)
    with (
        lab_error(r"\[4, 7\] inside a tap made for \[4, 8\]"),
        routers.tap(ROWS, 8),
    ):
        model(input_ids=ids)
    with lab_error("made for 4 x 8 tokens"), routers.tap(ROWS, 8):
        routers.modules[0][1](torch.zeros(28, 32))
    with pytest.raises(RuntimeError, match="on purpose"), routers.tap(ROWS, POSITIONS):
        raise RuntimeError("on purpose")
    assert _hooks(model) == initial
    with routers.tap(ROWS, POSITIONS):
        assert _hooks(model) > initial
        model(ids)
    assert _hooks(model) == initial


def test_a_tap_is_for_one_forward_pass() -> None:
    model = build("qwen3_moe")
    ids = tokens()
    routers = routers_of(model)
    with routers.tap(ROWS, POSITIONS):
        model(ids)
        with lab_error("second forward pass"):
            model(ids)
    with lab_error("nothing was recorded"), routers.tap(ROWS, POSITIONS):
        pass
    with routers.tap(ROWS, POSITIONS) as tap:
        model(ids)
    with lab_error("already been used"), tap:
        model(ids)


def test_a_tap_inside_a_tap_of_the_same_model_is_refused() -> None:
    model = build("qwen3_moe")
    other = build("qwen3_moe", seed=8)
    ids = tokens()
    earlier = routers_of(model)
    same_routers = routers_of(model)
    with earlier.tap(ROWS, POSITIONS) as tap:
        with (
            lab_error("inside a tap already"),
            same_routers.tap(ROWS, POSITIONS),
        ):
            pass
        with routers_of(other).tap(ROWS, POSITIONS) as separate:
            other(ids)
        model(ids)
    assert not torch.equal(tap.natural_BSLK, separate.natural_BSLK)
    with same_routers.tap(ROWS, POSITIONS) as later:
        model(ids)
    assert torch.equal(tap.natural_BSLK, later.natural_BSLK)


def test_a_forward_pass_past_a_router_is_refused() -> None:
    model = build("qwen3_moe")
    ids = tokens()
    routers = routers_of(model)
    model.model.layers[1].mlp = torch.nn.Identity()
    with lab_error(r"MoE layers \[1\]"), routers.tap(ROWS, POSITIONS):
        model(ids)


# Numbers from routes


def digits(routes: str) -> torch.Tensor:
    """Routes of one row: positions by commas, layers by spaces, a digit per expert."""
    return torch.tensor([[[[*map(int, e)] for e in p.split()] for p in routes.split(",")]])


def test_expert_change_counts_sets_by_hand() -> None:
    # 1 row, 4 positions (the last masked out), 2 layers, 2 experts each
    old = digits("01 23, 01 23, 45 67, 01 01")
    new = digits("10 23, 02 32, 45 01, 67 67")
    mask = torch.tensor([[True, True, True, False]])
    layers, anywhere = expert_change(old.to(torch.int16), new, mask)
    # layer 0: same set, one of two, same: 0, 1/2, 0.  layer 1: 0, 0, 1.  tokens changed: the 2nd
    # and the 3rd
    torch.testing.assert_close(layers, torch.tensor([1 / 6, 1 / 3]))
    assert float(anywhere) == pytest.approx(2 / 3)
    layers, anywhere = expert_change(old, old.flip(-1), torch.ones_like(mask))
    assert layers.tolist() == [0.0, 0.0]
    assert float(anywhere) == 0


def test_expert_load_by_hand() -> None:
    # 4 experts; layer 0 is balanced (each once), layer 1 puts both tokens on experts 0 and 1:
    # tokens 2, 2, 0, 0
    routes = digits("01 01, 23 10, 33 33").to(torch.int16)
    mask = torch.tensor([[True, True, False]])
    cv_L, dead_LE = expert_load(routes, mask, 4)
    assert cv_L.tolist() == pytest.approx([0.0, (4 / 2 - 1) ** 0.5])
    # Nobody chose experts 2 and 3 of layer 1; the third token does not count.
    assert dead_LE.tolist() == [[False] * 4, [False, False, True, True]]


def test_numbers_from_routes_refuse_what_has_no_answer() -> None:
    routes = random_routes()
    nothing = ~REAL
    with lab_error("no token"):
        expert_change(routes, routes, nothing)
    with lab_error("no token"):
        expert_load(routes, nothing, EXPERTS)
    with lab_error("shapes differ"):
        expert_change(routes, routes[:, :, :1], REAL)
    with lab_error(r"expert -1.*0 to 7"):
        expert_load(_spoilt((1, 2, 1, 0), -1), REAL, EXPERTS)


def products(model: Any, dtype: Any) -> set[torch.dtype]:
    """The formats that the experts' matrix products of one forward pass come in."""
    recorded: set[torch.dtype] = set()
    model.model.layers[0].mlp.experts.act_fn.register_forward_pre_hook(
        lambda _, x: recorded.add(x[0].dtype)
    )
    with computing_in(dtype, "cpu"):
        model(input_ids=tokens()).logits.float().sum().backward()
    return recorded


def test_experts_compute_in_the_format_of_the_forward_pass() -> None:
    model = build("qwen3_moe")
    assert products(model, "float32") == {torch.float32}
    model = build("qwen3_moe")
    assert products(model, "bfloat16") == {torch.bfloat16}, "as every other matrix product"
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}


def test_the_whole_models_gradient_at_the_router_matches_finite_differences() -> None:
    model = build("qwen3_moe").double()
    ids = tokens(2, 4)
    routes = random_routes(2, 4)
    model.set_experts_implementation("eager")  # the grouped product knows no double precision
    routers = routers_of(model)

    def loss() -> torch.Tensor:
        with routers.tap(2, 4, replay_BSLK=routes):
            result: torch.Tensor = model(ids, labels=ids).loss
        return result

    loss().backward()
    for parameter in routers.parameters:
        for place in parameter.grad.abs().flatten().topk(3).indices.tolist():
            flat = parameter.data.view(-1)
            width = 1e-2
            local = float(flat[place])
            with torch.no_grad():
                flat[place] = local + width
                above = float(loss())
                flat[place] = local - width
                below = float(loss())
                flat[place] = local
            slope = (above - below) / (2 * width)
            assert slope == pytest.approx(float(parameter.grad.view(-1)[place]), rel=5e-3)


@every_family
def test_the_natural_choice_stays_visible_under_replay(name: str) -> None:
    model = build(name)
    ids = tokens()
    routes = random_routes()
    routers = routers_of(model)
    with torch.no_grad():
        with routers.tap(ROWS, POSITIONS) as free:
            model(ids)
        with routers.tap(ROWS, POSITIONS, replay_BSLK=routes) as replay:
            model(ids)
    assert torch.equal(free.natural_BSLK[:, :, 0], replay.natural_BSLK[:, :, 0])
    assert torch.equal(free.entropy_BSL[:, :, 0], replay.entropy_BSL[:, :, 0])
    assert not torch.equal(free.natural_BSLK[:, :, 1], replay.natural_BSLK[:, :, 1])
