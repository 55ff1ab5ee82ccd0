"""Our objectives against the losses of TRL 1.16 and verl 0.9 on the same tensors.

Loss, gradient and clip fraction are compared.

Neither peer is in the base install, and their pins conflict with each other's and ours: run this
file in an environment of its own, with this project on PYTHONPATH (torch 2.13.0, trl 1.16.0; verl
0.9.1 with --no-deps, then tensordict omegaconf hydra-core codetiming ray orjson numpy pandas). What
is not importable is skipped, with the reason.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from case_tables import cases
from cases import (
    CASES,
    GRPO,
    GSPO,
    GSPO_TOKEN,
    HORIZON,
    TIGHT,
    Case,
    Result,
    agree,
    cosine,
    far,
    near,
    ours,
    uncapped,
)
from torch import Tensor

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.objectives import (
    PRESETS,
    Objective,
    advantages,
    assert_conforms,
    decoupled,
    surrogate,
)
from gspo_lab.training.objectives.objective import mismatch_weight
from gspo_lab.training.objectives.ratios import sequence_mean
from gspo_lab.training.objectives.settings import Aggregation, Correction

pytestmark = pytest.mark.filterwarnings("ignore")

# ---------------------------------------------------------------------------------------------------------------- TRL  # noqa: E501


TRL_AGGREGATIONS = [
    ("grpo", "seq-mean-token-mean"),
    ("dapo", "token-mean"),
    ("dr_grpo", "constant"),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("settings", [GRPO, TIGHT, GSPO], ids=["grpo", "grpo-tight", "gspo"])
@pytest.mark.parametrize(("loss_type", "aggregation"), TRL_AGGREGATIONS)
def test_trl(
    trl: Callable[..., Result],
    case: str,
    settings: Objective,
    loss_type: str,
    aggregation: Aggregation,
) -> None:
    # TRL's aggregations that are sums of a sequence's one term over its tokens weight it by its
    # length, as ours do.
    mine = settings.replace(aggregation=aggregation, aggregation_constant=float(HORIZON))
    data = CASES[case]()
    agree(ours(data, mine), trl(data, settings, loss_type))


def in_paper_range(peer: Callable[..., Result], rule: str, *options: str) -> Callable[..., Tensor]:
    """A peer's loss of a rule, as `assert_conforms` takes it."""
    settings = PRESETS[rule]

    def loss(logp_BT: Tensor, old_BT: Tensor, adv_BT: Tensor, mask_BT: Tensor) -> Tensor:
        # The peers' trainers compute log-probs in float32.
        exact_BT = logp_BT.float()
        old_BT = old_BT.float()
        case = Case(mask_BT, adv_BT.float(), old_BT, exact_BT.detach(), old_BT, old_BT)
        result = peer(case, settings, *options)
        linear = (exact_BT * result.grad_BT).sum()
        return linear - linear.detach() + result.loss

    return loss


@pytest.mark.parametrize(
    ("peer", "rule", "options", "departure"),
    cases(__file__, "conform_or_depart"),
)
def test_losses_of_peers_conform_or_depart(
    request: pytest.FixtureRequest,
    peer: str,
    rule: str,
    options: list[str],
    departure: str,
) -> None:
    loss = in_paper_range(request.getfixturevalue(peer), rule, *options)
    with pytest.raises(AssertionError, match=departure) if departure else nullcontext():
        assert_conforms(loss, rule)


@pytest.mark.parametrize("case", ["near", "far"])
def test_trl_counts_responses_at_sequence_level_and_tokens_at_token_level(
    trl: Callable[..., Result], case: str
) -> None:
    data = CASES[case]()
    token = ours(data, TIGHT).clip
    sequence = ours(data, GSPO).clip
    peer = trl(data, TIGHT, "grpo").clip
    assert peer["clip_ratio/region_mean"] == pytest.approx(token["clip_fraction_tokens"], abs=1e-6)
    assert peer["clip_ratio/low_mean"] == pytest.approx(token["clip_fraction_tokens_low"], abs=1e-6)
    assert peer["clip_ratio/high_mean"] == pytest.approx(
        token["clip_fraction_tokens_high"], abs=1e-6
    )
    peer = trl(data, GSPO, "grpo").clip
    assert peer["clip_ratio/region_mean"] == pytest.approx(
        sequence["clip_fraction_responses"], abs=1e-6
    )
    assert peer["clip_ratio/region_mean"] != pytest.approx(
        sequence["clip_fraction_tokens"], abs=1e-2
    )
    assert token["clip_fraction_tokens"] > 0
    assert sequence["clip_fraction_tokens"] > 0


def test_trl_delta_is_a_dual_clip(trl: Callable[..., Result]) -> None:
    data = far()
    capped = ours(data, GRPO.replace(dual_clip=3.0))
    agree(capped, trl(data, GRPO, "grpo", delta=3.0))
    assert capped.loss < ours(data, GRPO).loss - 0.1


@pytest.mark.parametrize("settings", [GRPO, GSPO], ids=["grpo", "gspo"])
@pytest.mark.parametrize(("loss_type", "aggregation"), TRL_AGGREGATIONS)
def test_trl_kl(
    trl: Callable[..., Result], settings: Objective, loss_type: str, aggregation: Aggregation
) -> None:
    data = near()
    beta = settings.replace(kl_coef=0.5)
    mine = ours(data, beta.replace(aggregation=aggregation, aggregation_constant=float(HORIZON)))
    agree(mine, trl(data, beta, loss_type))
    assert (
        mine.loss
        > ours(data, settings.replace(aggregation=aggregation, aggregation_constant=100.0)).loss
        + 1e-4
    )


@pytest.mark.parametrize(("loss_type", "aggregation"), TRL_AGGREGATIONS)
def test_trl_s_bias_correction_is_the_unbiased_estimate(
    trl: Callable[..., Result], loss_type: str, aggregation: Aggregation
) -> None:
    """With one ratio per token.

    TRL weights by the sequence's ratio at sequence level; the paper's is the token's.
    """
    data = near()
    settings = GRPO.replace(kl_coef=0.5, kl_estimate="unbiased")
    mine = ours(
        data, settings.replace(aggregation=aggregation, aggregation_constant=float(HORIZON))
    )
    agree(mine, trl(data, settings, loss_type))
    plain = ours(
        data,
        settings.replace(kl_estimate="k3", aggregation=aggregation, aggregation_constant=100.0),
    )
    assert float((mine.grad_BT - plain.grad_BT).abs().max()) > 1e-5


@pytest.mark.parametrize("settings", [GRPO, GSPO], ids=["grpo", "gspo"])
@pytest.mark.parametrize(("loss_type", "aggregation"), TRL_AGGREGATIONS)
@pytest.mark.parametrize("case", CASES)
def test_trl_s_off_policy_mask(
    trl: Callable[..., Result],
    case: str,
    settings: Objective,
    loss_type: str,
    aggregation: Aggregation,
) -> None:
    data = CASES[case]()
    data = replace(data, sampler_BT=(data.sampler_BT + 1.0) * data.mask_BT)
    far_B = sequence_mean((data.sampler_BT - data.logp_BT) * data.mask_BT, data.mask_BT)[:, 0]
    # A limit that the farthest of the responses with A < 0 alone is above.
    masking = settings.replace(
        off_policy_mask=float(far_B[data.adv_BT.amin(dim=1) < 0].max()) - 1e-3, kl_coef=0.5
    )
    mine = masking.replace(aggregation=aggregation, aggregation_constant=float(HORIZON))
    agree(ours(data, mine), trl(data, masking, loss_type))
    assert abs(ours(data, mine).loss - ours(data, mine.replace(off_policy_mask=None)).loss) > 1e-4


@pytest.mark.parametrize(
    ("loss_type", "aggregation"), [("grpo", "seq-mean-token-mean"), ("dapo", "token-mean")]
)
def test_trl_s_mask_of_truncated_completions(
    trl: Callable[..., Result], loss_type: str, aggregation: Aggregation
) -> None:
    """TRL empties the masks of truncated responses.

    That is `truncated = "mask"` where its loss is a mean over responses, "drop" where it is one
    over tokens, whose count then lacks theirs.
    """
    data = near()
    emptied_BT = data.mask_BT.clone()
    adv_BT = data.adv_BT.clone()
    emptied_BT[[1, 4]] = False
    adv_BT[[1, 4]] = 0.0
    peer = trl(replace(data, mask_BT=emptied_BT, adv_BT=adv_BT), GRPO, loss_type)
    batch = replace(data, adv_BT=adv_BT).batch()
    batch = replace(batch, tokens=int(emptied_BT.sum())) if loss_type == "dapo" else batch
    leaf = data.logp_BT.clone().requires_grad_()
    loss = surrogate(leaf, batch, GRPO.replace(aggregation=aggregation)).loss
    loss.backward()
    assert leaf.grad is not None
    agree(Result(float(loss.detach()), leaf.grad, {}), peer)


def test_trl_parts_of_a_minibatch(trl: Callable[..., Result]) -> None:
    data = near()
    for part in (slice(0, 2), slice(2, 6)):
        mine = ours(data, GSPO.replace(aggregation="token-mean"), part=part)
        agree(mine, trl(data.rows(part), GSPO, "dapo", items=int(data.mask_BT.sum())))


CORRECTIONS = [
    ("tis", 0.0, 1.2),
    ("icepop", 0.8, 1.25),
    ("sequence-mask", 0.0, 2.0),
    ("geometric-mask", 0.95, 1.05),
]


@pytest.mark.parametrize("settings", [GRPO, GSPO], ids=["grpo", "gspo"])
@pytest.mark.parametrize(("correction", "low", "high"), CORRECTIONS[:3])
def test_trl_corrects_the_sampler_s_mismatch_alike(
    trl: Callable[..., Result], settings: Objective, correction: Correction, low: float, high: float
) -> None:
    """`vllm_importance_sampling_mode` token_truncate, token_mask and sequence_mask.

    TRL computes them inline while it generates. So its three lines stand here, and its loss is
    called.
    """
    data = near()
    ratio = (data.old_BT - data.sampler_BT).mul(data.mask_BT)
    ratio = (ratio.sum(-1, keepdim=True) if correction == "sequence-mask" else ratio).exp()
    outside = (ratio < low) | (ratio > high)
    assert outside.any()
    ratio = ratio.clamp(low, high) if correction == "tis" else ratio.masked_fill(outside, 0.0)
    mine = settings.replace(mismatch_correction=correction, mismatch_low=low, mismatch_high=high)
    agree(ours(data, mine), trl(data, settings, "grpo", sampler_ratio=ratio))
    assert abs(ours(data, mine).loss - ours(data, settings).loss) > 1e-4


def test_trl_does_not_cap_a_huge_ratio_either(trl: Callable[..., Result]) -> None:
    uncapped(ours, lambda data, settings: trl(data, settings, "grpo"), 1e11)


# --------------------------------------------------------------------------------------------------------------- verl  # noqa: E501


VERL_RULES = [
    ("vanilla", GRPO.replace(dual_clip=3.0)),
    ("vanilla", TIGHT.replace(dual_clip=3.0)),
    ("gspo", GSPO),
    ("gspo", GSPO_TOKEN),
]
VERL_IDS = ["grpo", "grpo-tight", "gspo", "gspo-token"]
VERL_AGGREGATIONS: dict[str, Aggregation] = {
    "seq-mean-token-mean": "seq-mean-token-mean",
    "token-mean": "token-mean",
    "seq-mean-token-sum": "seq-mean-token-sum",
    "seq-mean-token-sum-norm": "constant",
}


@pytest.mark.parametrize("method", VERL_AGGREGATIONS)
@pytest.mark.parametrize(("name", "settings"), VERL_RULES, ids=VERL_IDS)
@pytest.mark.parametrize("case", CASES)
def test_verl(
    verl: Callable[..., Result], case: str, name: str, settings: Objective, method: str
) -> None:
    data = CASES[case]()
    mine = ours(
        data,
        settings.replace(
            aggregation=VERL_AGGREGATIONS[method], aggregation_constant=float(HORIZON)
        ),
    )
    peer = verl(data, settings, name, method)
    if case == "per-token" and settings is GSPO:
        # verl's gspo is GSPO-token: where A varies within a response it is not the sequence
        # objective.
        assert cosine(mine, peer) < 0.99
        return
    # verl's means over responses leave out those without tokens; ours, as TRL's, count them with a
    # term of 0.
    agree(peer, mine, 6 / 5 if case == "empty" and method != "token-mean" else 1.0)


@pytest.mark.parametrize(("name", "settings"), VERL_RULES, ids=VERL_IDS)
@pytest.mark.parametrize("case", ["near", "far", "empty"])
def test_verl_clip_fractions(
    verl: Callable[..., Result], case: str, name: str, settings: Objective
) -> None:
    data = CASES[case]()
    mine = ours(data, settings).clip
    peer = verl(data, settings, name, "token-mean").clip
    # verl compares the rounded products r A: a token whose two products round alike is not counted.
    assert peer["actor/pg_clipfrac"] == pytest.approx(mine["clip_fraction_tokens"], abs=1e-6)
    assert peer["actor/ppo_kl"] == pytest.approx(mine["stale_k1"], abs=1e-6)
    if settings.dual_clip is not None:
        assert peer["actor/pg_clipfrac_lower"] == pytest.approx(
            mine["dual_clip_fraction_tokens"], abs=1e-6
        )
        assert case != "far" or mine["dual_clip_fraction_tokens"] > 0.01


def test_verl_without_dual_clip(verl: Callable[..., Result]) -> None:
    data = far()
    agree(ours(data, GRPO), verl(data, GRPO, "vanilla", "seq-mean-token-mean", dual_clip=1e30))


@pytest.mark.parametrize("method", ["seq-mean-token-mean", "token-mean"])
@pytest.mark.parametrize(("name", "settings"), VERL_RULES, ids=VERL_IDS)
def test_verl_parts_of_a_minibatch(
    verl: Callable[..., Result], name: str, settings: Objective, method: Aggregation
) -> None:
    for data in (near(), near(empty=True)):
        for part in (slice(0, 2), slice(2, 6)):
            mine = ours(data, settings.replace(aggregation=method), part=part)
            agree(mine, verl(data.rows(part), settings, name, method, complete=data))


@pytest.mark.parametrize(("correction", "low", "high"), CORRECTIONS)
def test_verl_corrects_the_sampler_s_mismatch_alike(
    verl_modules: Any, verl: Callable[..., Result], correction: Correction, low: float, high: float
) -> None:
    """verl's importance weights and its rejection mask; then its losses with them."""
    from verl.trainer.ppo import rollout_corr_helper as verl_correction

    data = near()
    d_BT = (data.old_BT - data.sampler_BT) * data.mask_BT
    mask_BT = data.mask_BT.float()
    settings = GRPO.replace(mismatch_correction=correction, mismatch_low=low, mismatch_high=high)
    level = "sequence" if correction == "sequence-mask" else "token"
    bound = f"{high}" if correction == "tis" else f"{low or 1e-30}_{high}"
    if correction == "geometric-mask":
        # Its bounds are those of -d, so of the inverse ratio.
        peer, _ = verl_correction.compute_rollout_rejection_mask(
            d_BT, mask_BT, "seq_mean_k1", f"{1 / high}_{1 / low}"
        )
    else:
        peer, _ = verl_correction.compute_rollout_correction_weights(d_BT, mask_BT, level, bound)
    mine = mismatch_weight(data.batch(), settings) * mask_BT
    assert torch.allclose(mine, peer, rtol=1e-6)
    assert int((mine != mask_BT).sum()) > 0
    assert bool((mine[data.mask_BT] == 0).any()) is (correction != "tis")
    correction_of: JsonObject = {
        "mismatch_correction": correction,
        "mismatch_low": low,
        "mismatch_high": high,
    }
    # A token's own weight has another gradient under GSPO than under GSPO-token, which is what
    # verl's gspo is.
    for name, rule in (("vanilla", GRPO.replace(dual_clip=3.0)), ("gspo", GSPO_TOKEN)):
        rule = rule.replace(**correction_of)
        agree(ours(data, rule), verl(data, rule, name, "seq-mean-token-mean", weights=peer))


def test_verl_k3(verl_modules: Any) -> None:
    core_algos, *_ = verl_modules
    data = near()
    leaf = data.logp_BT.clone()
    mine = surrogate(leaf, data.batch(), GRPO.replace(kl_coef=1.0)).metrics["kl"]
    peer = (core_algos.kl_penalty_forward(leaf, data.ref_BT, "k3") * data.mask_BT).sum()
    assert float(mine) == pytest.approx(float(peer), rel=1e-5)
    assert float(peer) > 0.1


def test_verl_s_gdpo(verl_modules: Any) -> None:
    """It whitens over tokens; here every response has one, so that they are responses."""
    core_algos, *_ = verl_modules
    torch.manual_seed(13)
    reward_KPG = torch.stack([torch.rand(5, 4), (torch.rand(5, 4) > 0.5).float() * 30])
    names = ("style", "correct")
    weights = (0.5, 2.0)
    peer, _ = core_algos.compute_gdpo_outcome_advantage(
        token_level_rewards=torch.zeros(20, 1),
        response_mask=torch.ones(20, 1),
        index=[prompt for prompt in range(5) for _ in range(4)],
        config={"gdpo_reward_keys": names, "gdpo_reward_weights": weights},
        non_tensor_batch=dict(zip(names, reward_KPG.flatten(1).numpy(), strict=True)),
        batch={
            "prompts": torch.zeros(20, 1),
            "attention_mask": torch.ones(20, 2, dtype=torch.long),
        },
    )
    assert torch.allclose(decoupled(reward_KPG, weights), peer[:, 0].view(5, 4), atol=1e-4)


def test_verl_advantages(verl_modules: Any) -> None:
    core_algos, *_ = verl_modules
    torch.manual_seed(13)
    reward_PG = torch.cat(
        [torch.rand(3, 4), torch.ones(1, 4), torch.tensor([[0.0, 1.0, 1.0, 0.0]])]
    )
    index = [prompt for prompt in range(5) for _ in range(4)]
    one_token = {"response_mask": torch.ones(20, 1), "index": index}

    def theirs(function: str, **options: Any) -> Tensor:
        # Fresh rewards each time: verl's functions write into theirs.
        scored = reward_PG.flatten()[:, None].clone()
        return getattr(core_algos, function)(token_level_rewards=scored, **one_token, **options)[0][
            :, 0
        ].view(5, 4)

    grpo = "compute_grpo_outcome_advantage"
    assert torch.allclose(advantages(reward_PG, "group-mean-std"), theirs(grpo), atol=2e-6)
    no_std = theirs(grpo, norm_adv_by_std_in_grpo=False)
    assert torch.allclose(advantages(reward_PG, "group-mean"), no_std, atol=1e-6)
    assert torch.allclose(
        advantages(reward_PG, "leave-one-out"), theirs("compute_rloo_outcome_advantage"), atol=1e-6
    )
    # Whitened over tokens there, over responses here: the same where every response has one token,
    # but for epsilon.
    baseline = theirs("compute_reinforce_plus_plus_baseline_outcome_advantage")
    assert torch.allclose(advantages(reward_PG, "batch-std"), baseline, atol=1e-4)
