"""What an objective reads. Shapes: B responses, T response tokens (padded)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """A mini-batch, or some rows of one.

    `mask_BT` is the loss mask: True at the tokens that the policy chose, which alone have ratios, terms and lengths;
    what others put into a response (a tool's output) is attended to and no part of it. `adv_BT` holds the advantages,
    which may differ from token to token, `old_logp_BT` the old policy's log-probs, `ref_logp_BT` the starting model's
    (only with a KL term) and `sampler_logp_BT` those of the sampler that drew the tokens (only with a mismatch
    correction), each 0 where the mask is False. `responses` and `tokens` count the *whole* mini-batch, so that the
    losses of its parts add up to the loss of the whole.
    """

    mask_BT: "Tensor"
    adv_BT: "Tensor"
    old_logp_BT: "Tensor"
    responses: int
    tokens: int
    ref_logp_BT: "Tensor | None" = None
    sampler_logp_BT: "Tensor | None" = None
