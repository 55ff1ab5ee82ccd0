"""A group's prompt is computed once.

The log-probs, entropies and gradients are those of separate rows.
"""

from typing import Any

import pytest
import torch
import transformers as tf

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.engines.native.experience import Experience, microbatches, pad_rollouts
from gspo_lab.training.engines.native.policy import Policy, can_share, share_prompts
from gspo_lab.training.models.lora import add_adapters
from gspo_lab.training.samplers.base import Request, Rollout

FAMILIES: dict[str, JsonObject] = {"Llama": {}, "Qwen2": {}, "Qwen3": {"head_dim": 8}}


def model_of(family: str, **options: Any) -> Any:
    torch.manual_seed(0)
    sizes: JsonObject = {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
    }
    config = getattr(tf, f"{family}Config")(
        vocab_size=50,
        num_hidden_layers=2,
        pad_token_id=0,
        eos_token_id=1,
        **sizes | (FAMILIES | MIXTURES)[family],
        **options,
    )
    return getattr(tf, f"{family}ForCausalLM")(config).train()


def experience() -> Experience:
    """Prompts of 9, 6 and 9 tokens with 4, 3 and 1 responses of 1 to 6 tokens.

    One has tokens of others within.
    """
    rng = torch.Generator().manual_seed(1)

    def ids(count: int) -> list[int]:
        return torch.randint(2, 50, (count,), generator=rng).tolist()

    prompts = [tuple(ids(9)), tuple(ids(6)), tuple(ids(9))]
    rollouts = []
    for prompt, lengths in zip(prompts, [(3, 1, 6, 4), (2, 5, 5), (4,)], strict=True):
        for sample, length in enumerate(lengths):
            request = Request("p", prompt, sample, 0)
            rollouts.append(Rollout(request, ids(length), [0.0] * length, "", False))
    rollouts[2].loss_mask = [True, True, False, False, True, True]
    return pad_rollouts(rollouts, 0, torch.device("cpu"))


EXPERTS: JsonObject = {"num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 16}
MIXTURES: dict[str, JsonObject] = {
    "Qwen2Moe": {
        **EXPERTS,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 32,
    },
    "Qwen3Moe": {**EXPERTS, "head_dim": 8, "moe_intermediate_size": 16, "mlp_only_layers": [0]},
    "Olmoe": EXPERTS,
    "Mixtral": {"intermediate_size": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
}


@pytest.mark.parametrize("family", MIXTURES)
@pytest.mark.parametrize("replay", [False, True])
def test_a_mixture_chooses_the_same_experts_as_in_separate_rows(family: str, replay: bool) -> None:
    (part,) = microbatches(experience(), torch.arange(8), 10_000)
    policy = Policy(model_of(family), temperature=0.8, dtype="float32", microbatch_tokens=10_000)
    replayed = None
    passes = []
    for shares in (False, False, True):
        policy._shares = shares
        with torch.no_grad(), policy.forward(part, replay_BSLK=replayed) as forward:
            passes.append(forward)
        if replay:
            replayed = (passes[0].natural_BSLK + 1) % 4
    _, separate, together = passes
    real_BS = part.attention_BS
    assert torch.equal(together.natural_BSLK[real_BS], separate.natural_BSLK[real_BS])
    torch.testing.assert_close(
        together.router_entropy_BSL[real_BS], separate.router_entropy_BSL[real_BS]
    )
    torch.testing.assert_close(together.logp_BT, separate.logp_BT, rtol=1e-4, atol=1e-5)


def test_routes_that_differ_within_a_prompt_are_replayed_in_separate_rows() -> None:
    (part,) = microbatches(experience(), torch.arange(8), 10_000)
    shared = share_prompts(part)
    routes_BSLK = torch.zeros(8, 14, 1, 2, dtype=torch.int16)
    assert shared.gather_routes(routes_BSLK, part.attention_BS) is not None
    routes_BSLK[1, 3] = 1
    assert shared.gather_routes(routes_BSLK, part.attention_BS) is None


def passed(
    model: Any, shares: bool, budget: int = 10_000
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """[N, T] log-probs and entropies, and the gradients of a weighted sum of the log-probs."""
    batch = experience()
    policy = Policy(model, temperature=0.8, dtype="float32", microbatch_tokens=budget)
    policy._shares = shares
    weight_NT = torch.linspace(-1, 1, batch.mask_NT.numel()).view(batch.mask_NT.shape)
    logp_NT = torch.zeros(batch.mask_NT.shape)
    entropy_NT = torch.zeros(batch.mask_NT.shape)
    model.zero_grad()
    for part in microbatches(batch, torch.arange(len(logp_NT)), budget):
        with policy.forward(part, entropy=True) as forward:
            (forward.logp_BT * weight_NT[part.block]).sum().backward()
        logp_NT[part.block] = forward.logp_BT.detach()
        assert forward.entropy_BT is not None
        entropy_NT[part.block] = forward.entropy_BT
    return logp_NT, entropy_NT, [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("family", [*FAMILIES, *MIXTURES])
@pytest.mark.parametrize("budget", [10_000, 60])
@pytest.mark.parametrize("adapters", [False, True])
def test_log_probs_and_gradients_are_those_of_separate_rows(
    family: str, budget: int, adapters: bool
) -> None:
    if adapters and family == "Qwen3Moe":
        pytest.skip("peft warns of the experts, which get no adapters")
    model = model_of(family)
    if adapters:
        add_adapters(model, rank=2, alpha=4)
    assert can_share(model)
    separate = passed(model, False, budget)
    together = passed(model, True, budget)
    torch.testing.assert_close(together[0], separate[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together[1], separate[1], rtol=1e-4, atol=1e-5)
    assert len(together[2]) == len(separate[2])
    for item, other in zip(together[2], separate[2], strict=True):
        torch.testing.assert_close(item, other, rtol=1e-3, atol=1e-4)


def test_a_prompt_is_fed_once() -> None:
    """3 rows of 19 fed tokens replace 8 of 14.

    The first group's 9 + (2 + 0 + 5 + 3) tokens are the longest row.
    """
    batch = experience()
    (part,) = microbatches(batch, torch.arange(8), 10_000)
    shared = share_prompts(part)
    assert shared.inputs["input_ids"].shape == (3, 19)
    assert part.input_BS.shape == (8, 14)
    mask = shared.inputs["attention_mask"]
    assert mask.shape == (3, 1, 19, 19)
    assert not mask.triu(1).any(), "nobody sees what comes after"


def test_rows_that_share_nothing_stay_as_they_are() -> None:
    batch = experience()
    (part,) = microbatches(batch, torch.tensor([0, 4, 7]), 10_000)
    assert share_prompts(part) is None


def test_models_that_this_is_not_known_of_are_left_alone() -> None:
    torch.manual_seed(0)
    windows = model_of("Qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=0)
    assert not can_share(windows)
    assert not can_share(model_of("Mixtral", sliding_window=4))
    model = model_of("Llama")
    assert not Policy(model, temperature=1.0, dtype="float32", microbatch_tokens=100)._shares, (
        "too small to be worth it"
    )
