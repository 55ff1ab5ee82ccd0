"""BAPO's range against a table for a pencil, its limiting cases, and why it must see the whole mini-batch."""

import math
from dataclasses import replace

import pytest
import torch
from measuring import batch_of
from torch import Tensor

from gspo_lab.objectives import PRESETS, Batch, prepared, surrogate
from gspo_lab.objectives.losses import LOSSES, Common
from gspo_lab.objectives.losses.clipping import Bapo

BAPO = Bapo(policy_loss="bapo", clip_low=0.4, clip_high=0.2, aggregation="token-mean")


def range_of(logp_BT: Tensor, batch: Batch, settings: Bapo) -> Common:
    return prepared(logp_BT, batch, settings, LOSSES["bapo"])[0]


def logp_of(*rows: list[float]) -> Tensor:
    return torch.tensor([[math.log(w) for w in row] for row in rows], dtype=torch.float64)


# Response 0 with A = +1: w = 2, 1, 0.5, so that the tokens with A > 0 add up to min(2, bound) + 1.5: 2.7 at 1.2.
# Response 1 with A = -1: one token, with the size max(w, bound).
MASK = [[1, 1, 1], [1, 0, 0]]
PENCIL = [
    # w of response 1, the share wanted; the bounds found
    (1.0, 0.72, 0.6, 1.20),  # 2.7 / 3.7 = 0.7297 at once: nothing moves
    (1.0, 0.74, 0.9, 1.35),  # the lower bound moves nothing that is 1; then 2.85 / 3.85 = 0.7403, 2.8 / 3.8 was 0.7368
    (0.5, 0.80, 0.6, 1.20),  # 2.7 / (2.7 + 0.6) = 0.818
    (0.5, 0.79, 0.6, 1.20),
    (0.5, 0.82, 0.9, 3.00),  # at 0.9 the one token has the size 0.9, and 3.5 / 4.4 = 0.795 is all that there is
    (0.5, 0.78, 0.6, 1.20),
]


@pytest.mark.parametrize(("w", "share", "low", "high"), PENCIL)
def test_pencil(w: float, share: float, low: float, high: float) -> None:
    batch, logp_BT = batch_of(MASK, [1.0, -1.0]), logp_of([2.0, 1.0, 0.5], [w, 1.0, 1.0])
    found = range_of(logp_BT, batch, BAPO.replace(bapo_share=share))
    assert (1 - found.clip_low, 1 + found.clip_high) == (pytest.approx(low), pytest.approx(high))
    # The loss is then GRPO's with that range, over tokens.
    objective = (min(2.0, high) + 1.5 - max(w, low)) / 4
    assert float(surrogate(logp_BT, batch, found).loss) == pytest.approx(-objective)
    assert surrogate(logp_BT, batch, found).clipped_BT.int().tolist() == [[int(high < 2), 0, 0], [int(w < low), 0, 0]]


def test_the_last_step_is_as_long_as_is_left() -> None:
    """2.82 / 3.82 = 0.7382 at an end of 1.32, where 1.3 had 2.8 / 3.8 = 0.7368."""
    batch, logp_BT = batch_of(MASK, [1.0, -1.0]), logp_of([2.0, 1.0, 0.5], [1.0, 1.0, 1.0])
    for share, high in ((0.735, 1.3), (0.738, 1.32), (0.9, 1.32)):
        found = range_of(logp_BT, batch, BAPO.replace(bapo_share=share, bapo_clip_high=0.32))
        assert 1 + found.clip_high == pytest.approx(high)


def test_limits() -> None:
    batch, logp_BT = batch_of(MASK, [1.0, -1.0]), logp_of([2.0, 1.0, 0.5], [0.5, 1.0, 1.0])
    still = BAPO.replace(bapo_clip_low=BAPO.clip_low, bapo_clip_high=BAPO.clip_high, bapo_share=0.99)
    assert range_of(logp_BT, batch, still) == still, "without room it is the clip"
    assert float(surrogate(logp_BT, batch, still).loss) == float(
        surrogate(logp_BT, batch, PRESETS["dapo"].replace(clip_low=0.4, clip_high=0.2)).loss
    )
    for adv, moved in (([1.0, 1.0], False), ([0.0, 0.0], False), ([-1.0, -1.0], True)):
        found = range_of(logp_BT, batch_of(MASK, adv), BAPO)
        ends = (BAPO.bapo_clip_low, BAPO.bapo_clip_high) if moved else (BAPO.clip_low, BAPO.clip_high)
        assert (found.clip_low, found.clip_high) == ends, "nobody has A < 0, A at all, or A > 0"
    broken = range_of(torch.full((2, 3), math.nan, dtype=torch.float64), batch, BAPO)
    assert (broken.clip_low, broken.clip_high) == (0.1, 2.0), "a dead model ends no search"


def test_a_kl_term_moves_no_bound_and_a_sequence_ratio_may_be_balanced() -> None:
    batch, logp_BT = batch_of(MASK, [1.0, -1.0]), logp_of([2.0, 1.0, 0.5], [1.0, 1.0, 1.0])
    settings = BAPO.replace(bapo_share=0.74)
    beside = replace(batch, ref_logp_BT=logp_BT - 3)
    assert range_of(logp_BT, beside, settings.replace(kl_coef=9.0)).clip_high == pytest.approx(0.35)
    # s of response 0 is 1, so its terms add up to 3 whatever the bounds: 3 / 4 at once.
    sequence = settings.replace(importance_sampling_level="sequence")
    assert range_of(logp_BT, batch, sequence) == sequence


def test_parts_alone_would_find_other_ranges() -> None:
    """The whole mini-batch's range gives both parts the whole's gradient; each part's own range does not."""
    mask, adv = [[1, 1], [1, 1]], [1.0, -1.0]
    batch, logp_BT = batch_of(mask, adv), logp_of([1.5, 1.5], [0.5, 0.8])

    def gradient(rows: slice, settings: Common) -> Tensor:
        leaf = logp_BT[rows].clone().requires_grad_()
        part = Batch(batch.mask_BT[rows], batch.adv_BT[rows], batch.old_logp_BT[rows], batch.responses, batch.tokens)
        surrogate(leaf, part, settings).loss.backward()
        return leaf.grad

    range_ = range_of(logp_BT, batch, BAPO)  # 2.4 of 3.8 have A > 0: it stays
    assert range_ == BAPO
    whole = gradient(slice(0, 2), range_)
    parts = [gradient(rows, range_) for rows in (slice(0, 1), slice(1, 2))]
    assert torch.equal(torch.cat(parts), whole)
    alone = Batch(batch.mask_BT[1:], batch.adv_BT[1:], batch.old_logp_BT[1:], 1, 2)
    own = gradient(slice(1, 2), range_of(logp_BT[1:], alone, BAPO))
    assert not torch.equal(own, whole[1:])
