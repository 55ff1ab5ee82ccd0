"""Whether a loss function of another program is the paper's: for its test suite.

    def test_our_gspo() -> None:
        assert_conforms(our_loss, "gspo")     # our_loss(logp, old_logp, advantages, mask) -> loss

The paper's equations are written out here once more, response by response in double precision. The
lab's own losses are compared with them, too. Shapes as in objective.py.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.objectives.objective import surrogate
from gspo_lab.training.objectives.presets import Objective
from gspo_lab.training.objectives.ratios import RULES, Batch

if TYPE_CHECKING:
    from torch import Tensor

LossFunction = Callable[["Tensor", "Tensor", "Tensor", "Tensor"], Any]
"""(logp, old_logp, advantages, mask), [B, T] each, to the loss; or to the loss and the number of
tokens that the clip binds.
"""

TOLERANCE = 1e-5
"""Of losses and gradients of about 1; what GSPO's clip takes is larger."""

HALF_TOLERANCE = 2e-3
"""Of gradients in bfloat16, the format in which autograd returns them; losses have no such excuse.
"""

PADDING = 7.0
"""The log-ratio of what only pads: whoever counts it is far off."""

# Advantage and log-ratios of each response. Tokens leave GRPO's range; means leave GSPO's.
ABOVE = (1.0, (0.375, -0.373))
BELOW = (-1.0, (-0.375, 0.25, 0.119))
INSIDE = (2.0, (0.125, -0.0625, -0.0625, 0.0002))
AGAINST = (-0.5, (0.3, -0.298))
WITHOUT = (0.0, (0.5, 0.25, 0.125))
FAR = (1.0, (0.5, 0.4))
BATCHES = {
    "clipped above": (ABOVE,),
    "clipped below": (BELOW,),
    "clipped by either rule": (FAR,),
    "moved against the advantage": (AGAINST, INSIDE),
    "zero advantage": (WITHOUT, INSIDE),
    "mixed lengths": (INSIDE, (1.0, (-0.0002,)), BELOW),
    "ragged": (ABOVE, BELOW, INSIDE, AGAINST, WITHOUT),
}


@dataclass(frozen=True)
class Equation:
    """A surrogate's loss with one range: the paper's, or one that departs from it.

    `weight` is the mean over the response or the batch, or 1 for a sum over the response's tokens.
    `pick` takes the smaller or the larger of the clipped and the unclipped term.
    """

    low: float
    high: float
    ratio: Literal["token", "mean", "sum"]
    weight: Literal["response", "batch", "one"] = "response"
    pick: Literal["minimum", "maximum"] = "minimum"
    sign: int = 1
    counts_padding: bool = False
    detached: bool = False

    def __call__(
        self, logp_BT: "Tensor", old_BT: "Tensor", adv_BT: "Tensor", mask_BT: "Tensor"
    ) -> "tuple[Tensor, int]":
        """The loss of a batch, and how many tokens the clip binds, in double precision."""
        l_BT = logp_BT.double() - old_BT.double()
        if self.counts_padding:
            mask_BT = mask_BT | True
        tokens = int(mask_BT.sum())
        total = 0 * l_BT.sum()
        clipped = 0
        for l_T, adv_T, mask_T in zip(l_BT, adv_BT.double(), mask_BT, strict=True):
            l_t = l_T[mask_T].detach() if self.detached else l_T[mask_T]
            adv_t = adv_T[mask_T]
            if self.ratio != "token":
                l_t = getattr(l_t, self.ratio)().expand_as(l_t)
            term_t = l_t.exp() * adv_t
            bounded_t = l_t.exp().clamp(1 - self.low, 1 + self.high) * adv_t
            clipped += int((bounded_t < term_t).sum())
            weights = {
                "response": len(l_BT) * len(l_t),
                "batch": tokens,
                "one": len(l_BT),
            }
            total -= getattr(term_t, self.pick)(bounded_t).sum() / weights[self.weight]
        return self.sign * total, clipped


@dataclass(frozen=True)
class Outcome:
    """What a loss function makes of a batch."""

    loss: float
    gradient: "Tensor"
    clipped: int | None

    def close_to(self, other: "Outcome", tolerance: float) -> bool:
        """Whether losses and gradients are equal but for rounding."""
        near = abs(self.loss - other.loss) < TOLERANCE
        return near and bool((self.gradient - other.gradient).abs().max() < tolerance)


def _batches() -> "Iterator[tuple[str, Tensor, Tensor, Tensor]]":
    """Each batch with its name: log-ratios, advantages and mask. The last is in bfloat16."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    for name, responses in BATCHES.items():
        rows = [torch.tensor(moves) for _, moves in responses]
        lengths = torch.tensor([len(row) for row in rows])
        # One position more than the longest response has: every batch is padded.
        l_BT = pad_sequence([*rows, torch.zeros(int(lengths.max()) + 1)], True, PADDING)[:-1]
        mask_BT = torch.arange(l_BT.shape[1]) < lengths[:, None]
        adv_BT = torch.tensor([[adv] for adv, _ in responses]).expand_as(l_BT)
        yield name, l_BT, adv_BT, mask_BT
    yield "bfloat16", l_BT.bfloat16(), adv_BT.bfloat16(), mask_BT


def _departures(rule: str, paper: Equation) -> Iterator[tuple[str, Equation]]:
    """Equations that depart from a rule's in one thing or in two, with what it is."""
    other = RULES["gspo" if rule == "grpo" else "grpo"].band
    changes: dict[str, JsonObject] = {
        "token aggregation": {"weight": "batch"},
        "no division by the response's length": {"weight": "one"},
        "the range of the other rule": {"low": other[0], "high": other[1]},
        "no clip": {"low": 1.0, "high": math.inf},
        "the larger of the two terms": {"pick": "maximum"},
        "padding counted": {"counts_padding": True},
        "sum of the log-ratios instead of their mean": {"ratio": "sum"},
        "the opposite sign": {"sign": -1},
        "a ratio without gradient": {"detached": True},
    }
    if rule == "gspo":
        changes["token ratio"] = {"ratio": "token"}
    else:
        changes["sequence ratio"] = {"ratio": "mean"}
    for count in (1, 2):
        for names in combinations(changes, count):
            fields: JsonObject = {}
            for name in names:
                fields |= changes[name]
            yield " and ".join(names), replace(paper, **fields)


def _outcome(loss_function: LossFunction, tensors: "tuple[Tensor, Tensor, Tensor]") -> Outcome:
    """What a loss makes of a batch. The old log-probs are 0, so that log-probs are log-ratios."""
    import torch

    l_BT, adv_BT, mask_BT = tensors
    logp_BT = l_BT.clone().requires_grad_()
    result = loss_function(logp_BT, 0 * l_BT, adv_BT, mask_BT)
    loss, clipped = result if isinstance(result, tuple) else (result, None)
    # A loss that does not depend on the log-probs has a gradient too: 0.
    (gradient_BT,) = torch.autograd.grad(loss + 0 * logp_BT.sum(), logp_BT)
    count = None if clipped is None else int(clipped)
    return Outcome(float(loss.detach()), gradient_BT.double(), count)


def loss_of(settings: Objective) -> LossFunction:
    """The lab's own loss with these settings, as `assert_conforms` takes it."""

    def loss(
        logp_BT: "Tensor", old_BT: "Tensor", adv_BT: "Tensor", mask_BT: "Tensor"
    ) -> "tuple[Tensor, Tensor]":
        batch = Batch(mask_BT, adv_BT * mask_BT, old_BT, len(mask_BT), int(mask_BT.sum()))
        made = surrogate(logp_BT, batch, settings)
        return made.loss, made.clipped_BT.sum()

    return loss


def assert_conforms(loss_function: LossFunction, rule: str) -> None:
    """AssertionError where a loss is not the paper's, with the departure that explains it.

    `loss_function(logp, old_logp, advantages, mask)` gets [B, T] tensors and returns the loss to
    minimise, or the loss and the number of clipped tokens. It has the published range of its rule:
    .2 and .27 for "grpo", 3e-4 and 4e-4 for "gspo" (2507.18071, section 5.1). Losses, gradients and
    clip counts are compared on ragged, padded and bfloat16 batches. A response's advantage stands
    at its padding too, and the log-ratio there is large: the mask alone tells what counts.
    """
    low, high = RULES[rule].band
    paper = Equation(low, high, "token" if rule == "grpo" else "mean")
    wrong: list[str] = []
    fitting = dict(_departures(rule, paper))
    for name, *tensors in _batches():
        l_BT, adv_BT, mask_BT = tensors
        actual = _outcome(loss_function, (l_BT, adv_BT, mask_BT))
        exact = (l_BT.double(), adv_BT, mask_BT)
        expected = _outcome(paper, exact)
        tolerance = HALF_TOLERANCE if name == "bfloat16" else TOLERANCE
        if not actual.close_to(expected, tolerance):
            wrong.append(f"{name}: loss {actual.loss:.6f}, the paper's {expected.loss:.6f}")
        elif actual.clipped not in (None, expected.clipped):
            wrong.append(f"{name}: {actual.clipped} clipped tokens, the paper's {expected.clipped}")
        if name != "bfloat16":
            fitting = {
                key: equation
                for key, equation in fitting.items()
                if actual.close_to(_outcome(equation, exact), TOLERANCE)
            }
    if not wrong:
        return
    reason = next(iter(fitting), "no departure that is known here")
    if all(line.startswith("bfloat16") for line in wrong):
        reason = "log-ratios computed in half precision"
    raise AssertionError(f"the loss is not {rule}'s: {reason}\n" + "\n".join(wrong))
