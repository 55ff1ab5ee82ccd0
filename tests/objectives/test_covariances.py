"""Which tokens Clip-Cov and KL-Cov select: by hand, of the whole mini-batch, and the same when it is done again."""

import math
from dataclasses import replace

import pytest
import torch
from measuring import batch_of

from gspo_lab.objectives import Batch, Objective, prepared, surrogate
from gspo_lab.objectives.losses import LOSSES
from gspo_lab.objectives.losses.covariances import ClipCov, KlCov, covariance
from gspo_lab.objectives.objective import moved_by

# A = 1, 1 in the first response, -1 in the second, and 0 in the third, which counts nowhere. log pi = 0, -4, -2.
# Means 1/3 and -2, so that the centred products are 2/3 x 2, 2/3 x -2, -4/3 x 0.
MASK = [[1, 1], [1, 0], [1, 1]]
LOGP = torch.tensor([[0.0, -4.0], [-2.0, 0.0], [-9.0, -9.0]], dtype=torch.float64)
ADVANTAGES = [1.0, -1.0, 0.0]


def mini_batch() -> Batch:
    return batch_of(MASK, ADVANTAGES, LOGP.clone())


def test_covariances_by_hand() -> None:
    found_BT = covariance(moved_by(LOGP, mini_batch(), Objective()))
    assert found_BT[:2].flatten().tolist() == pytest.approx([4 / 3, -4 / 3, 0.0, math.nan], nan_ok=True)
    assert found_BT[2].isnan().all()


@pytest.mark.parametrize(
    ("settings", "selected"),
    [
        (KlCov(policy_loss="kl-cov"), [[1, 0], [0, 0], [0, 0]]),  # one at least
        (KlCov(policy_loss="kl-cov", kl_cov_share=0.4), [[1, 0], [1, 0], [0, 0]]),  # two of five tokens
        (KlCov(policy_loss="kl-cov", kl_cov_share=1.0), [[1, 1], [1, 0], [0, 0]]),  # never one with A = 0
        (ClipCov(policy_loss="clip-cov", clip_cov_share=1.0), [[1, 0], [0, 0], [0, 0]]),  # 4/3 is between 1 and 5
        (ClipCov(policy_loss="clip-cov", clip_cov_share=1.0, clip_cov_low=2.0), [[0, 0], [0, 0], [0, 0]]),
        (ClipCov(policy_loss="clip-cov", clip_cov_share=1.0, clip_cov_low=-2.0), [[1, 1], [1, 0], [0, 0]]),
    ],
)
def test_the_selected_tokens(settings: KlCov | ClipCov, selected: list[list[int]]) -> None:
    loss = LOSSES[settings.policy_loss]
    _, selected_BT = prepared(LOGP, mini_batch(), settings, loss)
    assert selected_BT is not None
    assert selected_BT.int().tolist() == selected
    out = surrogate(LOGP, mini_batch(), settings)
    assert (out.clipped_BT.int().tolist() == selected) is (
        settings.policy_loss == "clip-cov" or not any(map(any, selected))
    )


def test_chance_is_the_same_each_time_and_takes_as_many_as_it_should() -> None:
    torch.manual_seed(0)
    logp_BT, mask_BT = torch.randn(20, 10), torch.ones(20, 10, dtype=torch.bool)
    batch = Batch(mask_BT, torch.randn(20, 1).expand(20, 10), logp_BT, 20, 200)
    settings = ClipCov(policy_loss="clip-cov", clip_cov_share=0.1, clip_cov_low=0.5)
    moved = moved_by(logp_BT, batch, settings)
    first, second = (LOSSES["clip-cov"].select(settings, moved) for _ in range(2))
    assert torch.equal(first, second)
    assert int(first.sum()) == 20
    assert (covariance(moved)[first] > 0.5).all()
    assert int(((covariance(moved) > 0.5) & (covariance(moved) < 5)).sum()) > 20


def test_parts_of_a_mini_batch_keep_the_whole_s_selection() -> None:
    """A part alone would select its own token with the largest covariance."""
    settings = KlCov(policy_loss="kl-cov")
    logp_BT = LOGP + 0.1
    _, selected_BT = prepared(logp_BT, mini_batch(), settings, LOSSES["kl-cov"])
    assert selected_BT is not None
    whole = surrogate(logp_BT, mini_batch(), settings)
    batch = replace(mini_batch(), selected_BT=selected_BT)
    parts = []
    for rows in (slice(0, 1), slice(1, 3)):
        names = ("mask_BT", "adv_BT", "old_logp_BT")
        part = replace(batch, selected_BT=None, **{name: getattr(batch, name)[rows] for name in names})
        parts.append(surrogate(logp_BT[rows], replace(part, selected_BT=selected_BT[rows]), settings).loss)
        alone = surrogate(logp_BT[rows], part, settings).loss
    assert float(sum(parts)) == pytest.approx(float(whole.loss))
    assert float(alone) != pytest.approx(float(parts[1]))
