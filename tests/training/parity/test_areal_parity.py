"""Our objectives against AReaL 1.0.4's loss on the same tensors, padded and packed.

Loss, gradient and clip fraction are compared.

AReaL means every token alike and has no other aggregation: ours are called with token-mean. It is
not in the base install: run this file where it is (gspo-lab engines install areal), with this
project and pytest on the path.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import (
    CASES,
    GRPO,
    GSPO,
    GSPO_TOKEN,
    TIGHT,
    Case,
    Result,
    agree,
    cosine,
    far,
    imported,
    near,
    ours,
    peer,
    uncapped,
)

from gspo_lab.training.objectives import Objective

pytestmark = pytest.mark.filterwarnings("ignore")

RULES = {"grpo": GRPO, "grpo-tight": TIGHT, "gspo": GSPO}


@pytest.fixture(scope="module")
def areal_losses() -> Any:
    peer("areal", "1.0.4")

    def load() -> Any:
        from areal.utils.functional import ppo_actor_loss_fn

        return ppo_actor_loss_fn

    return imported("areal", load)


@pytest.fixture(params=["padded", "packed"])
def areal(request: pytest.FixtureRequest, areal_losses: Any) -> Callable[..., Result]:
    def loss(case: Case, settings: Objective, **args: Any) -> Result:
        """Packed: one row behind the other, with where each begins.

        What only pads is off the mask in both forms.

        Packed in float64: AReaL then adds a response's advantages one behind the other, and in
        float32 their mean is off by up to 8e-7 here (64 tokens) and its loss by 7e-7; padded rows
        are summed in pairs. In float64 packed and padded are equal to 1e-16.
        """
        if request.param == "packed":
            case = case.double()
        leaf = case.logp_BT.clone().requires_grad_()
        inputs = [leaf, case.old_BT, case.old_BT, case.adv_BT, case.mask_BT]
        if request.param == "packed":
            size = case.mask_BT.shape[1]
            inputs = [x.flatten() for x in inputs]
            args["cu_seqlens"] = torch.arange(0, len(case.mask_BT) * size + 1, size)
        logp, proximal, old, adv, mask = inputs
        value, stat = areal_losses(
            logprobs=logp,
            proximal_logprobs=proximal,
            old_logprobs=old,
            advantages=adv,
            eps_clip=settings.clip_low,
            eps_clip_higher=settings.clip_high,
            loss_mask=mask,
            c_clip=settings.dual_clip,
            importance_sampling_level=settings.importance_sampling_level,
            **args,
        )
        value.backward()
        tokens = int(case.mask_BT.sum())
        clip = {name: float(stat[name].sum()) / tokens for name in ("clip_mask", "dual_clip_mask")}
        return Result(float(value.detach()), leaf.grad, clip)

    return loss


def token_mean(settings: Objective) -> Objective:
    return settings.replace(aggregation="token-mean")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", RULES)
def test_areal(areal: Callable[..., Result], case: str, name: str) -> None:
    data = CASES[case]()
    settings = RULES[name]
    mine = ours(data, token_mean(settings))
    agree(mine, areal(data, settings))
    if case != "empty":  # what the paper means is another objective where lengths differ
        assert cosine(mine, ours(data, settings.replace(aggregation="seq-mean-token-mean"))) < 0.99


@pytest.mark.parametrize("case", ["near", "far", "empty"])
@pytest.mark.parametrize("name", RULES)
def test_areal_counts_clipped_tokens(areal: Callable[..., Result], case: str, name: str) -> None:
    data = CASES[case]()
    settings = RULES[name]
    mine = ours(data, token_mean(settings)).clip["clip_fraction_tokens"]
    assert areal(data, settings).clip["clip_mask"] == pytest.approx(mine, abs=1e-6)
    assert mine > 0 or name == "grpo"


@pytest.mark.parametrize("settings", [GRPO, TIGHT], ids=["grpo", "grpo-tight"])
def test_areal_s_c_clip_is_a_dual_clip(areal: Callable[..., Result], settings: Objective) -> None:
    data = far()
    capped = settings.replace(dual_clip=3.0)
    mine = ours(data, token_mean(capped))
    agree(mine, areal(data, capped))
    assert mine.loss < ours(data, token_mean(settings)).loss - 0.1
    assert areal(data, capped).clip["dual_clip_mask"] == pytest.approx(
        mine.clip["dual_clip_fraction_tokens"], abs=1e-6
    )


def test_areal_means_a_response_s_advantages_where_they_vary(areal: Callable[..., Result]) -> None:
    """AReaL's sequence level is GSPO and not GSPO-token.

    The gradient of GSPO-token keeps each token's own advantage.
    """
    data = near(per_token=True)
    result = areal(data, GSPO)
    agree(ours(data, token_mean(GSPO)), result)
    assert cosine(ours(data, token_mean(GSPO_TOKEN)), result) < 0.99


def test_areal_does_not_cap_a_huge_ratio_either(areal: Callable[..., Result]) -> None:
    uncapped(lambda data, settings: ours(data, token_mean(settings)), areal, 1e9)
