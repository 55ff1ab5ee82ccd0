"""Losses that see a whole mini-batch first.

BAPO's range, and the tokens that Clip-Cov and KL-Cov select.
"""

import math
from dataclasses import replace

import pytest
import torch
from case_tables import cases
from measuring import batch_of
from torch import Tensor

from gspo_lab.training.objectives import PRESETS, Batch, Objective, prepared, surrogate
from gspo_lab.training.objectives.losses import LOSSES, Common
from gspo_lab.training.objectives.losses.clipping import Bapo
from gspo_lab.training.objectives.losses.covariances import ClipCov, KlCov, covariance
from gspo_lab.training.objectives.objective import loss_inputs

BAPO = Bapo(policy_loss="bapo", clip_low=0.4, clip_high=0.2, aggregation="token-mean")


def range_of(logp_BT: Tensor, batch: Batch, settings: Bapo) -> Common:
    return prepared(logp_BT, batch, settings, LOSSES["bapo"])[0]


def logp_of(*rows: list[float]) -> Tensor:
    return torch.tensor([[math.log(w) for w in row] for row in rows], dtype=torch.float64)


# Response 0 with A = +1: w = 2, 1, 0.5, so that the tokens with A > 0 add up to min(2, bound) +
# 1.5: 2.7 at 1.2. Response 1 with A = -1: one token, with the size max(w, bound).
MASK = [[1, 1, 1], [1, 0, 0]]
PENCIL = cases(__file__, "pencil")


@pytest.mark.parametrize(("w", "share", "low", "high"), PENCIL)
def test_pencil(w: float, share: float, low: float, high: float) -> None:
    batch = batch_of(MASK, [1.0, -1.0])
    logp_BT = logp_of([2.0, 1.0, 0.5], [w, 1.0, 1.0])
    actual = range_of(logp_BT, batch, BAPO.replace(bapo_share=share))
    assert (1 - actual.clip_low, 1 + actual.clip_high) == (pytest.approx(low), pytest.approx(high))
    # The loss is then GRPO's with that range, over tokens.
    objective = (min(2.0, high) + 1.5 - max(w, low)) / 4
    assert float(surrogate(logp_BT, batch, actual).loss) == pytest.approx(-objective)
    assert surrogate(logp_BT, batch, actual).clipped_BT.int().tolist() == [
        [int(high < 2), 0, 0],
        [int(w < low), 0, 0],
    ]


def test_the_last_step_is_as_long_as_is_left() -> None:
    """2.82 / 3.82 = 0.7382 at an end of 1.32, where 1.3 had 2.8 / 3.8 = 0.7368."""
    batch = batch_of(MASK, [1.0, -1.0])
    logp_BT = logp_of([2.0, 1.0, 0.5], [1.0, 1.0, 1.0])
    for share, high in ((0.735, 1.3), (0.738, 1.32), (0.9, 1.32)):
        actual = range_of(logp_BT, batch, BAPO.replace(bapo_share=share, bapo_clip_high=0.32))
        assert 1 + actual.clip_high == pytest.approx(high)


def test_limits() -> None:
    batch = batch_of(MASK, [1.0, -1.0])
    logp_BT = logp_of([2.0, 1.0, 0.5], [0.5, 1.0, 1.0])
    still = BAPO.replace(
        bapo_clip_low=BAPO.clip_low, bapo_clip_high=BAPO.clip_high, bapo_share=0.99
    )
    assert range_of(logp_BT, batch, still) == still, "without room it is the clip"
    assert float(surrogate(logp_BT, batch, still).loss) == float(
        surrogate(logp_BT, batch, PRESETS["dapo"].replace(clip_low=0.4, clip_high=0.2)).loss
    )
    for adv, moved in (([1.0, 1.0], False), ([0.0, 0.0], False), ([-1.0, -1.0], True)):
        actual = range_of(logp_BT, batch_of(MASK, adv), BAPO)
        ends = (
            (BAPO.bapo_clip_low, BAPO.bapo_clip_high) if moved else (BAPO.clip_low, BAPO.clip_high)
        )
        assert (actual.clip_low, actual.clip_high) == ends, "nobody has A < 0, A at all, or A > 0"
    broken = range_of(torch.full((2, 3), math.nan, dtype=torch.float64), batch, BAPO)
    assert (broken.clip_low, broken.clip_high) == (0.1, 2.0), "a dead model ends no search"


def test_a_kl_term_moves_no_bound_and_a_sequence_ratio_may_be_balanced() -> None:
    batch = batch_of(MASK, [1.0, -1.0])
    logp_BT = logp_of([2.0, 1.0, 0.5], [1.0, 1.0, 1.0])
    settings = BAPO.replace(bapo_share=0.74)
    adapters = replace(batch, ref_logp_BT=logp_BT - 3)
    assert range_of(logp_BT, adapters, settings.replace(kl_coef=9.0)).clip_high == pytest.approx(
        0.35
    )
    # s of response 0 is 1, so its terms add up to 3 whatever the bounds: 3 / 4 at once.
    sequence = settings.replace(importance_sampling_level="sequence")
    assert range_of(logp_BT, batch, sequence) == sequence


def test_parts_alone_would_find_other_ranges() -> None:
    """The whole mini-batch's range gives both parts the whole's gradient.

    Each part's own range does not.
    """
    mask = [[1, 1], [1, 1]]
    adv = [1.0, -1.0]
    batch = batch_of(mask, adv)
    logp_BT = logp_of([1.5, 1.5], [0.5, 0.8])

    def gradient(rows: slice, settings: Common) -> Tensor:
        leaf = logp_BT[rows].clone().requires_grad_()
        part = Batch(
            batch.mask_BT[rows],
            batch.adv_BT[rows],
            batch.old_logp_BT[rows],
            batch.responses,
            batch.tokens,
        )
        surrogate(leaf, part, settings).loss.backward()
        return leaf.grad

    range_ = range_of(logp_BT, batch, BAPO)  # 2.4 of 3.8 have A > 0: it stays
    assert range_ == BAPO
    complete = gradient(slice(0, 2), range_)
    pieces = [gradient(rows, range_) for rows in (slice(0, 1), slice(1, 2))]
    assert torch.equal(torch.cat(pieces), complete)
    alone = Batch(batch.mask_BT[1:], batch.adv_BT[1:], batch.old_logp_BT[1:], 1, 2)
    native = gradient(slice(1, 2), range_of(logp_BT[1:], alone, BAPO))
    assert not torch.equal(native, complete[1:])


# A = 1, 1 in the first response, -1 in the second, and 0 in the third, which counts nowhere. log pi
# = 0, -4, -2. Means 1/3 and -2, so that the centred products are 2/3 x 2, 2/3 x -2, -4/3 x 0.
THREE_MASK = [[1, 1], [1, 0], [1, 1]]
THREE_LOGP = torch.tensor([[0.0, -4.0], [-2.0, 0.0], [-9.0, -9.0]], dtype=torch.float64)
SIGNS = [1.0, -1.0, 0.0]


def mini_batch() -> Batch:
    return batch_of(THREE_MASK, SIGNS, THREE_LOGP.clone())


def test_covariances_by_hand() -> None:
    found_BT = covariance(loss_inputs(THREE_LOGP, mini_batch(), Objective()))
    assert found_BT[:2].flatten().tolist() == pytest.approx(
        [4 / 3, -4 / 3, 0.0, math.nan], nan_ok=True
    )
    assert found_BT[2].isnan().all()


@pytest.mark.parametrize(
    ("settings", "selected"),
    [
        (KlCov(policy_loss="kl-cov"), [[1, 0], [0, 0], [0, 0]]),  # one at least
        (
            KlCov(policy_loss="kl-cov", kl_cov_share=0.4),
            [[1, 0], [1, 0], [0, 0]],
        ),  # two of five tokens
        (
            KlCov(policy_loss="kl-cov", kl_cov_share=1.0),
            [[1, 1], [1, 0], [0, 0]],
        ),  # never one with A = 0
        (
            ClipCov(policy_loss="clip-cov", clip_cov_share=1.0),
            [[1, 0], [0, 0], [0, 0]],
        ),  # 4/3 is between 1 and 5
        (
            ClipCov(policy_loss="clip-cov", clip_cov_share=1.0, clip_cov_low=2.0),
            [[0, 0], [0, 0], [0, 0]],
        ),
        (
            ClipCov(policy_loss="clip-cov", clip_cov_share=1.0, clip_cov_low=-2.0),
            [[1, 1], [1, 0], [0, 0]],
        ),
    ],
)
def test_the_selected_tokens(settings: KlCov | ClipCov, selected: list[list[int]]) -> None:
    loss = LOSSES[settings.policy_loss]
    _, selected_BT = prepared(THREE_LOGP, mini_batch(), settings, loss)
    assert selected_BT is not None
    assert selected_BT.int().tolist() == selected
    out = surrogate(THREE_LOGP, mini_batch(), settings)
    assert (out.clipped_BT.int().tolist() == selected) is (
        settings.policy_loss == "clip-cov" or not any(map(any, selected))
    )


def test_chance_is_the_same_each_time_and_takes_as_many_as_it_should() -> None:
    torch.manual_seed(0)
    logp_BT = torch.randn(20, 10)
    mask_BT = torch.ones(20, 10, dtype=torch.bool)
    batch = Batch(mask_BT, torch.randn(20, 1).expand(20, 10), logp_BT, 20, 200)
    settings = ClipCov(policy_loss="clip-cov", clip_cov_share=0.1, clip_cov_low=0.5)
    moved = loss_inputs(logp_BT, batch, settings)
    start = LOSSES["clip-cov"].select(settings, moved)
    later = LOSSES["clip-cov"].select(settings, moved)
    assert torch.equal(start, later)
    assert int(start.sum()) == 20
    assert (covariance(moved)[start] > 0.5).all()
    assert int(((covariance(moved) > 0.5) & (covariance(moved) < 5)).sum()) > 20


def test_parts_of_a_mini_batch_keep_the_whole_s_selection() -> None:
    """A part alone would select its own token with the largest covariance."""
    settings = KlCov(policy_loss="kl-cov")
    logp_BT = THREE_LOGP + 0.1
    _, selected_BT = prepared(logp_BT, mini_batch(), settings, LOSSES["kl-cov"])
    assert selected_BT is not None
    complete = surrogate(logp_BT, mini_batch(), settings)
    batch = replace(mini_batch(), selected_BT=selected_BT)
    pieces = []
    for rows in (slice(0, 1), slice(1, 3)):
        names = ("mask_BT", "adv_BT", "old_logp_BT")
        part = replace(
            batch, selected_BT=None, **{name: getattr(batch, name)[rows] for name in names}
        )
        pieces.append(
            surrogate(logp_BT[rows], replace(part, selected_BT=selected_BT[rows]), settings).loss
        )
        alone = surrogate(logp_BT[rows], part, settings).loss
    assert float(sum(pieces)) == pytest.approx(float(complete.loss))
    assert float(alone) != pytest.approx(float(pieces[1]))
