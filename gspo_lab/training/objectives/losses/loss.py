"""What a policy loss is: what a token adds to the objective, and all that the lab must know of the
loss.

Shapes: B responses, T response tokens (padded); everything is [B, T]. Losses use tensor methods
only, so that their files import without torch.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from gspo_lab.common.keys import Affects, Key, Read
from gspo_lab.training.objectives.ratios import Batch
from gspo_lab.training.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor

S = TypeVar("S", bound=Common)

LARGEST_LOG_RATIO = 38.0
"""A ratio's gradient has its size, and its norm sums squares: e^76 is finite in float32. What is
larger is cut off here and has no gradient: no infinity, no NaN, no update that is lost to one
token."""

SMALLEST_LOG_RATIO = -20.0
"""What a gate is divided by has this logarithm at least."""


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What a policy loss reads of a mini-batch: l_t (0 off the mask) and the level's ratio (1 where
    A = 0), with the gradient of `logp_BT`; `active_BT` are the mask's tokens with A != 0."""

    batch: Batch
    logp_BT: "Tensor"
    log_ratio_BT: "Tensor"
    ratio_BT: "Tensor"
    active_BT: "Tensor"


Metrics = dict[str, Any]
"""What a loss tells of a mini-batch, by the fields of `UpdateRecord`: [B, T] tensors without
gradient; a sum over tokens (a tensor without dimensions), which parts of a mini-batch add up; or a
float of the whole mini-batch.

`clip_fraction_tokens` marks the tokens whose gradient the loss takes, `dual_clip_fraction_tokens`
those whose gradient the dual clip takes. A loss without a clip has `gate_mean` instead: the weight
of A grad log pi, divided by the ratio.
"""


@dataclass(frozen=True, kw_only=True)
class Loss(Generic[S]):
    """A policy loss. Its file declares its settings, its limits and what differs from its paper."""

    name: str
    source: str
    formula: str
    """The term of token t, for the reference (docs/reference/objectives.md has the symbols)."""
    term: "Callable[[LossInputs, S], tuple[Tensor, Metrics]]"
    """[B, T], what a token adds to the objective (to maximise), and what is recorded of it."""
    settings: type[S] = Common  # type: ignore[assignment]
    """`Common`, or a table under it with the loss's own keys."""
    clips: str | None = "tokens"
    """What loses its gradient; None: no token does, and a clip fraction is then no number, not 0.
    """
    reads_range: bool = True
    """Whether the clip range matters."""
    lower_bound: bool = True
    """Whether the range must end above 0."""
    ratio: Literal["level", "sequence", "own"] = "level"
    """Whose ratio it reads: that of the level, its own mean over the response, or another one or
    none.
    """
    reinforce_on_policy: bool = True
    """At ratio 1 its gradient is REINFORCE's."""
    clips_at_1: bool = False
    """Whether it takes tokens' gradient where all ratios are 1, too."""
    prepare: "Callable[[S, Batch, Callable[[Batch, S], float]], S] | None" = None
    """The settings for one whole mini-batch, found by a forward pass of its own; the function given
    is the size of the loss of a batch at settings."""
    select: "Callable[[S, LossInputs], Tensor] | None" = None
    """[B, T], the tokens of one whole mini-batch that the loss treats otherwise, found by such a
    pass too. `term` reads them as `Batch.selected_BT`."""
    refuses: Callable[[S], Iterable[str]] = lambda settings: ()
    """What its settings cannot be together, one line each."""
    differs: str = ""
    """What is not as in its paper."""

    @property
    def sees_whole(self) -> bool:
        """Whether a mini-batch takes a forward pass before its update, in which the loss sees the
        whole of it.
        """
        return self.prepare is not None or self.select is not None


def own_key(loss: str, affects: Affects = "ratio") -> Key:
    """A setting that only this loss reads."""
    read = Read(lambda run: run.objective.policy_loss == loss, f"without policy_loss = '{loss}'")
    return Key(read=read, affects=affects)


def everywhere(inputs: LossInputs, value: float) -> "Tensor":
    """One number at every token."""
    return inputs.ratio_BT.new_full(inputs.ratio_BT.shape, value)


def spread_sum(x_BT: "Tensor") -> "Tensor":
    """A response's sum, at each of its tokens."""
    return x_BT.sum(dim=1, keepdim=True).expand_as(x_BT)


def weighted(inputs: LossInputs, weight_BT: "Tensor") -> "tuple[Tensor, Metrics]":
    """weight A log pi, the weight without gradient."""
    logp_BT = inputs.logp_BT.masked_fill(~inputs.active_BT, 0.0)
    gate_BT = weight_BT / inputs.ratio_BT.detach().clamp(min=math.exp(SMALLEST_LOG_RATIO))
    return weight_BT * inputs.batch.adv_BT * logp_BT, {"gate_mean": gate_BT}
