"""The presets beyond GRPO and GSPO against TRL 1.16 and verl 0.9.

Loss and gradient are compared on the same tensors.

How to install the peers: see test_peer_parity.py. Where a peer means another number by a setting,
the test says so.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from cases import CASES, HORIZON, Case, Result, agree, far, near, ours

from gspo_lab.training.objectives import PRESETS, Objective

pytestmark = pytest.mark.filterwarnings("ignore")

DAPO = PRESETS["dapo"]
CISPO = PRESETS["cispo"]
SAPO = PRESETS["sapo"]
VESPO = PRESETS["vespo"]
LUSPO = PRESETS["luspo"]
GMPO = PRESETS["gmpo"]
DR_GRPO = PRESETS["dr-grpo"].replace(aggregation_constant=float(HORIZON))
WHOLE = ["near", "far", "empty"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("loss_type", "settings"),
    [("dapo", DAPO), ("dr_grpo", DR_GRPO), ("sapo", SAPO), ("luspo", LUSPO)],
    ids=["dapo", "dr-grpo", "sapo", "luspo"],
)
def test_trl(trl: Callable[..., Result], case: str, settings: Objective, loss_type: str) -> None:
    if case == "per-token" and loss_type == "luspo":
        pytest.skip("TRL's sequence level takes one advantage per response")
    data = CASES[case]()
    agree(ours(data, settings), trl(data, settings, loss_type))


@pytest.mark.parametrize("case", CASES)
def test_trl_s_epsilon_high_is_cispo_s_cap_itself(trl: Callable[..., Result], case: str) -> None:
    """`epsilon_high` 5 there is clip_high 4 here and in verl.

    At its default of 0.2 it scales every weight down.
    """
    data = CASES[case]()
    agree(ours(data, CISPO), trl(data, CISPO, "cispo", cap=5.0))
    assert abs(trl(data, CISPO, "cispo", cap=0.2).loss) < 0.5 * abs(ours(data, CISPO).loss)


@pytest.mark.parametrize("case", WHOLE)
def test_trl_s_vespo(trl: Callable[..., Result], case: str) -> None:
    data = CASES[case]()
    agree(ours(data, VESPO), trl(data, VESPO, "vespo"))


@pytest.mark.parametrize("case", WHOLE)
def test_trl_s_entropy_coefficient_is_one_of_a_token_mean(
    trl: Callable[..., Result], case: str
) -> None:
    """Whatever its loss; the lab's term is aggregated as the others are, which verl does too."""
    data = CASES[case]()
    settings = DAPO.replace(entropy_coef=0.1)
    agree(ours(data, settings), trl(data, settings, "dapo"))
    assert abs(ours(data, settings).loss - ours(data, DAPO).loss) > 1e-3


CLIP_COV = PRESETS["clip-cov"].replace(clip_cov_share=1.0, clip_cov_low=0.05, clip_cov_high=0.3)
KL_COV = PRESETS["kl-cov"].replace(kl_cov_share=0.1)


@pytest.mark.parametrize("case", ["near", "per-token"])
@pytest.mark.parametrize(
    ("loss_mode", "settings"),
    [
        ("clip_cov", CLIP_COV),
        ("clip_cov", CLIP_COV.replace(clip_low=0.02, clip_high=0.03)),
        ("kl_cov", KL_COV),
    ],
    ids=["clip-cov", "clip-cov-tight", "kl-cov"],
)
def test_verl_s_covariances(
    verl: Callable[..., Result], case: str, settings: Objective, loss_mode: str
) -> None:
    """Of a whole mini-batch without A = 0.

    Which candidates Clip-Cov takes is chance: here all of them.
    """
    data = CASES[case]()
    mine = ours(data, settings)
    agree(mine, verl(data, settings, loss_mode, "token-mean"))
    plain = settings.replace(clip_cov_low=1e6, clip_cov_high=1e7, kl_cov_coef=0.0)
    assert float((mine.grad_BT - ours(data, plain).grad_BT).abs().max()) > 1e-4


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("loss_mode", "settings"),
    [
        ("cispo", CISPO),
        ("cispo", CISPO.replace(clip_low=0.02, clip_high=0.03)),
        ("dppo_tv", PRESETS["dppo-tv"]),
        ("dppo_tv", PRESETS["dppo-tv"].replace(clip_low=0.02, clip_high=0.01)),
        ("dppo_kl", PRESETS["dppo-kl"]),
    ],
    ids=["cispo", "cispo-tight", "dppo-tv", "dppo-tv-tight", "dppo-kl"],
)
def test_verl(verl: Callable[..., Result], case: str, settings: Objective, loss_mode: str) -> None:
    data = CASES[case]()
    # The divergence is one of probabilities, and the far case's log-probs leave them.
    data = (
        replace(data, logp_BT=data.logp_BT.clamp(max=-0.01) * data.mask_BT)
        if loss_mode == "dppo_kl"
        else data
    )
    dual = {"dual_clip": 20.0} if loss_mode.startswith("dppo") else {}
    agree(ours(data, settings), verl(data, settings, loss_mode, "token-mean", **dual))


@pytest.mark.parametrize("case", ["near", "far", "per-token"])
def test_verl_s_sapo(verl: Callable[..., Result], case: str) -> None:
    data = CASES[case]()
    agree(ours(data, SAPO), verl(data, SAPO, "sapo", "seq-mean-token-mean"))


@pytest.mark.parametrize(
    "settings", [GMPO, GMPO.replace(clip_low=0.02, clip_high=0.03)], ids=["gmpo", "gmpo-tight"]
)
@pytest.mark.parametrize("case", ["near", "far"])
def test_verl_s_gmpo(verl: Callable[..., Result], case: str, settings: Objective) -> None:
    """verl writes the range in logs.

    `clip_low` and `clip_high` are ratios here, as with every other rule.
    """
    data = CASES[case]()
    mine = ours(data, settings)
    agree(mine, verl(data, _in_logs(settings), "geo_mean", "seq-mean-token-mean"))
    assert case == "near" or mine.clip["clip_fraction_tokens"] > 0.1


def _in_logs(settings: Objective) -> Objective:
    return settings.replace(
        clip_low=-math.log1p(-settings.clip_low), clip_high=math.log1p(settings.clip_high)
    )


def test_the_rules_differ_where_ratios_are_large() -> None:
    """So that agreement above is no agreement of everything with everything."""
    data: Case = far()
    losses = [ours(data, item).loss for item in (DAPO, DR_GRPO, SAPO, LUSPO, CISPO, VESPO, GMPO)]
    assert len({round(loss, 5) for loss in losses}) == len(losses)
    assert ours(near(), SAPO).clip["gate_mean"] > 0.99 > ours(data, SAPO).clip["gate_mean"]
