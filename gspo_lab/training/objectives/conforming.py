"""Whether a loss function of another program is the paper's: for its test suite.

    def test_our_gspo() -> None:
        assert_conforms(our_loss, "gspo")     # our_loss(logp, old_logp, advantages, mask) -> loss

The paper's equations are written out here once more, in double precision. The lab's own losses are
compared with them, too. Shapes as in objective.py.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product, starmap
from typing import TYPE_CHECKING, Any, Literal

from gspo_lab.common.plain_data import table_beside
from gspo_lab.training.objectives.objective import prepared, surrogate
from gspo_lab.training.objectives.presets import Objective
from gspo_lab.training.objectives.ratios import RULES, Batch

if TYPE_CHECKING:
    from torch import Tensor

LossFunction = Callable[..., Any]
"""(logp, old_logp, advantages, mask), [B, T] each, and with a KL term ref_logp, to the loss; or to
the loss and the number of tokens that the clip binds.
"""

TOLERANCE = 1e-5
"""The tolerance of losses and gradients of about 1; what GSPO's clip takes is larger."""

HALF_TOLERANCE = 2e-3
"""The tolerance of gradients in bfloat16, the format in which autograd returns them.

Losses have no such excuse.
"""

PADDING = 7.0
"""The log-ratio of what only pads: whoever counts it is far off."""

HALF = "bfloat16"
"""The batch in half precision. Its old log-probs are 0, so that its ratios lose no digit."""

OLD = -0.25
"""The old log-prob of a response's first token; token t has t^2 times this one."""

FAR_OFF = 10.0
"""A log-ratio that leaves every range."""

NO_CLIP = (0.999955, 1e3)
"""The range of 1 - exp(-`FAR_OFF`) and more, as it is read from a loss that clips nothing."""

IGNORED = ("old_logp is ignored", "the advantages are ignored or centred")
"""The mistakes of a loss that ignores an input: shifting all its numbers has no effect."""

MOVES = (-0.5, -0.1, 0.1, 0.5)
"""Log-ratios at which one token tells whether a loss has the papers' term."""


@dataclass(frozen=True)
class Equation:
    """A surrogate's loss with one range: the paper's, or one that departs from it.

    `weight` is the mean over the response or the batch, or the sum over the response or the batch.
    `pick` takes the smaller or the larger of the clipped and the unclipped term. `spreads`: the
    advantage stands at every token, not at the last alone. Every term loses `kl_coef` times k3 of
    the log-ratio of the reference to the policy, or with `towards` -1 of the opposite log-ratio.
    """

    low: float
    high: float
    ratio: Literal["token", "mean", "sum"]
    weight: Literal["response", "batch", "one", "sum"] = "response"
    pick: Literal["minimum", "maximum"] = "minimum"
    counts_padding: bool = False
    spreads: bool = True
    kl_coef: float = 0.0
    kl_sign: int = 1
    towards: int = 1

    def __call__(self, *tensors: "Tensor") -> "tuple[Tensor, int]":
        """The loss of a batch, and how many tokens the clip binds, in double precision."""
        logp_BT, old_BT, adv_BT, mask_BT, *ref_BT = tensors
        mask_BT = mask_BT | self.counts_padding
        length_B1 = mask_BT.sum(1, keepdim=True)
        l_BT = (logp_BT.double() - old_BT.double()) * mask_BT
        if self.ratio != "token":
            l_BT = l_BT.sum(1, keepdim=True).expand_as(mask_BT)
        if self.ratio == "mean":
            l_BT = l_BT / length_B1
        if not self.spreads:
            adv_BT = adv_BT * (mask_BT.cumsum(1) == length_B1)
        term_BT = l_BT.exp() * adv_BT
        bounded_BT = l_BT.exp().clamp(1 - self.low, 1 + self.high) * adv_BT
        clipped = int((mask_BT & (bounded_BT < term_BT)).sum())
        term_BT = getattr(term_BT, self.pick)(bounded_BT)
        if self.kl_coef:
            d_BT = self.towards * (ref_BT[0].double() - logp_BT.double())
            term_BT = term_BT - self.kl_sign * self.kl_coef * (d_BT.exp() - d_BT - 1)
        divisors = {
            "response": len(mask_BT) * length_B1,
            "batch": mask_BT.sum(),
            "one": len(mask_BT),
            "sum": 1,
        }
        return -(term_BT * mask_BT / divisors[self.weight]).sum(), clipped


def _batches() -> "Iterator[tuple[str, list[Tensor]]]":
    """Each batch with its name: log-probs, old ones, advantages, mask, the reference's log-probs.
    The last is in bfloat16.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    for name, responses in table_beside(__file__, "conforming.toml")["batches"].items():
        # Every batch is padded, by at least one position.
        rows = [torch.tensor([*moves, PADDING]) for _, moves in responses]
        l_BT = pad_sequence(rows, True, PADDING)
        old_BT = (OLD * torch.arange(1, l_BT.shape[1] + 1) ** 2).expand_as(l_BT)
        adv_BT = torch.tensor([[adv] for adv, _ in responses]).expand_as(l_BT)
        mask_BT = l_BT != PADDING
        yield name, [l_BT + old_BT, old_BT, adv_BT, mask_BT, old_BT + 0.25]
    half_BT = l_BT.bfloat16()
    yield HALF, [half_BT, 0 * half_BT, adv_BT.bfloat16(), mask_BT, 0 * half_BT + 0.25]


def _response(move: float, adv: int, tokens: int = 1, old: float = OLD) -> "list[Tensor]":
    """A batch of one response with the same log-ratio at each token, on which k3 is 0."""
    import torch

    old_BT = torch.full((1, tokens), old)
    return [old_BT + move, old_BT, torch.full_like(old_BT, adv), old_BT < 0, old_BT + move]


def _outcome(loss: LossFunction, tensors: "list[Tensor]") -> "tuple[Tensor, Any]":
    """A loss and its gradients in one vector, and the number of clipped tokens if it is told."""
    import torch

    logp_BT = tensors[0].clone().requires_grad_()
    result = loss(logp_BT, *tensors[1:])
    value, clipped = result if isinstance(result, tuple) else (result, None)
    # A loss that does not depend on the log-probs has a gradient too: 0.
    (gradient_BT,) = torch.autograd.grad(value + 0 * logp_BT.sum(), logp_BT)
    return torch.cat([value.detach().view(1), gradient_BT.flatten()]).double(), clipped


def loss_of(settings: Objective) -> LossFunction:
    """The lab's own loss with these settings, as `assert_conforms` takes it."""

    def loss(
        logp_BT: "Tensor",
        old_BT: "Tensor",
        adv_BT: "Tensor",
        mask_BT: "Tensor",
        ref_BT: "Tensor | None" = None,
    ) -> "tuple[Tensor, Tensor]":
        tokens = int(mask_BT.sum())
        # The sampler's log-probs are the old ones.
        batch = Batch(mask_BT, adv_BT * mask_BT, old_BT, len(mask_BT), tokens, ref_BT, old_BT)
        prepared_settings, selected_BT = prepared(logp_BT.detach(), batch, settings, settings.loss)
        made = surrogate(logp_BT, replace(batch, selected_BT=selected_BT), prepared_settings)
        return made.loss, made.clipped_BT.sum()

    return loss


def assert_conforms(loss_function: LossFunction, rule: str, kl_coef: float = 0.0) -> None:
    """AssertionError where a loss is not the paper's, with the departure that explains it.

    `loss_function(logp, old_logp, advantages, mask)` gets [B, T] tensors and returns the loss to
    minimise, or the loss and the number of clipped tokens. It has the published range of its rule:
    .2 and .27 for "grpo", 3e-4 and 4e-4 for "gspo" (2507.18071, section 5.1). With a `kl_coef` the
    reference's log-probs are a fifth tensor, and each term loses that multiple of k3. Losses,
    gradients and clip counts are compared on ragged, padded and bfloat16 batches. A response's
    advantage stands at its padding too, and the log-ratio there is large: the mask alone tells what
    counts.
    """
    low, high = RULES[rule].band
    paper = Equation(low, high, "token" if rule == "grpo" else "mean", kl_coef=kl_coef)

    def loss(*tensors: "Tensor") -> Any:
        return loss_function(*tensors[: 5 if kl_coef else 4])

    batches = dict(_batches())
    wrong = {}
    for name, tensors in batches.items():
        found, clipped = _outcome(loss, tensors)
        expected, binding = _outcome(paper, [tensors[0].double(), *tensors[1:]])
        errors = (found - expected).abs()
        error = float(errors[1:].max())
        allowed = HALF_TOLERANCE if name == HALF else TOLERANCE
        # What is not finite is no smaller than anything.
        if errors[0] <= TOLERANCE and error <= allowed and clipped in (None, binding):
            continue
        count = "not told" if clipped is None else clipped
        wrong[name] = (
            f"{name}: loss {found[0]:.6f}, the paper's {expected[0]:.6f}; gradients apart by"
            f" {error:.2g}; clipped tokens {count}, the paper's {binding}"
        )
    if not wrong:
        return
    del batches[HALF]
    reason = "log-ratios computed in half precision"
    if set(wrong) != {HALF}:
        reason = _departure(loss, paper, batches)
    raise AssertionError("\n".join([f"the loss is not {rule}'s: {reason}", *wrong.values()]))


def _departure(loss: LossFunction, paper: Equation, batches: "dict[str, list[Tensor]]") -> str:
    """What explains that a loss is not the paper's: its range and a factor are measured at one
    token, and up to two further changes are tried. Else it may ignore an input.
    """
    scale = -float(_outcome(loss, _response(0.0, 1))[0][1])
    low, high = ends = _range(loss, scale)
    measured = replace(paper, low=low, high=high)
    published = {ratio.band: "the range of the other rule" for ratio in RULES.values()}
    published |= {
        (paper.low, paper.high): "",
        (paper.low, NO_CLIP[1]): "no clip above",
        (NO_CLIP[0], paper.high): "no clip below",
        NO_CLIP: "no clip",
    }
    clip = published.get(ends, f"the range {low:.3g} / {high:.3g}")
    signs = {1.0: "", -1.0: "the opposite sign"}
    factor = signs.get(round(scale, 5), f"the factor {scale:.3g}")
    changes = {"": {}, **table_beside(__file__, "conforming.toml")["departures"]}
    for first, second in product(changes, repeat=2):
        changed = replace(measured, **{**changes[first], **changes[second]})
        if _fits(loss, scale, changed, batches.values()):
            differences = filter(None, (first, second, clip, factor))
            return " and ".join(differences) or "another count of clipped tokens"
    ragged = batches["ragged"]
    found, _ = _outcome(loss, ragged)
    if not found.isfinite().all():
        return "a loss or gradient that is not finite"
    for place, name in enumerate(IGNORED, 1):
        shifted = [*ragged]
        shifted[place] = shifted[place] + 1
        change = (_outcome(loss, shifted)[0] - found).abs().max()
        if change <= TOLERANCE * found.abs().max():
            return name
    if scale == 0:
        return "a ratio without gradient"
    if not _fits(loss, scale, measured, starmap(_response, product(MOVES, (-1, 1)))):
        return "another term than min(rho A, clip(rho) A)"
    for name, shape in ("length", (4, OLD)), ("old log-probs", (1, 8 * OLD)):
        if _range(loss, scale, *shape) != ends:
            return f"a range that depends on the response's {name}"
    return "one token alone has the paper's term, several have not"


def _fits(
    loss: LossFunction, scale: float, equation: Equation, batches: "Iterable[list[Tensor]]"
) -> bool:
    """Whether a loss is `scale` times the equation's."""
    pairs = ((_outcome(loss, batch)[0], _outcome(equation, batch)[0]) for batch in batches)
    return all((actual / scale - expected).abs().max() < TOLERANCE for actual, expected in pairs)


def _range(
    loss: LossFunction, scale: float, tokens: int = 1, old: float = OLD
) -> tuple[float, float]:
    """The clip range of a loss, read from its values far outside."""
    sizes = []
    for move, adv in product((-FAR_OFF, FAR_OFF), (-1, 1)):
        found, _ = _outcome(loss, _response(move, adv, tokens, old))
        sizes.append(abs(float(found[0] / scale)))
    return round(1 - max(sizes[:2]), 6), round(min(*sizes[2:], 1 + NO_CLIP[1]) - 1, 6)
