"""Which experts computed: recorded at every forward pass, and replayed where a recorded choice must
compute again.

    routers = Routers.of(model)                       # None: a dense model
    with routers.tap(rows, positions) as old:         # record
        model(...)
    replayed = {"replay_BSLK": old.natural_BSLK, "replay_mask_BS": attention_mask.bool()}
    with routers.tap(rows, positions, **replayed) as new:
        loss(model(...)).backward()                   # the old experts compute, weighted by the
                                                      # router as it is now
    expert_change(old.natural_BSLK, new.natural_BSLK, response_mask_BS)

Replay follows Routing Replay (arXiv 2507.18071, section 5.3, and 2510.11370): only the choice is
replayed. The gate weights are computed again from the current logits by the family's own rule, so
the router keeps its gradient.

Shape suffixes: B rows, S positions, L layers that have a router, E experts, K experts per token, N
= B x S tokens.

In transformers (read in 5.19) the choice of experts is made inside one module per layer,
`<Family>TopKRouter` or `<Family>TopkRouter`; what follows it only computes with the experts and
weights that it returns. Each rule below is that module's own arithmetic with the choice taken as
given: on the router's own choice it returns the same bits.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import numpy as np
import torch

from gspo_lab.common.errors import LabError

Gate = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]
"""`(router, logits_NE, chosen_NK) -> weights_NK`, differentiable in the logits."""


@dataclass(frozen=True, slots=True)
class Family:
    """One family's router: the name users know, the gate rule, and the places in the tuple that it
    returns.
    """

    name: str
    gate: Gate
    logits_at: int = 0
    weights_at: int = 1
    chosen_at: int = 2


def _softmax_gate(router: Any, logits_NE: torch.Tensor, chosen_NK: torch.Tensor) -> torch.Tensor:
    """Softmax over all experts; divided by the sum over the chosen, unless `norm_topk_prob` is
    False.
    """
    weights_NK = torch.softmax(logits_NE, dim=-1, dtype=torch.float32).gather(-1, chosen_NK)
    divided = getattr(router, "norm_topk_prob", True)  # Mixtral's always divides
    return weights_NK / weights_NK.sum(dim=-1, keepdim=True) if divided else weights_NK


def _chosen_softmax_gate(_: Any, logits_NE: torch.Tensor, chosen_NK: torch.Tensor) -> torch.Tensor:
    """Softmax over the chosen experts only, in the precision of the logits."""
    return torch.softmax(logits_NE.gather(-1, chosen_NK), dim=-1, dtype=logits_NE.dtype)


def _sigmoid_gate(router: Any, logits_NE: torch.Tensor, chosen_NK: torch.Tensor) -> torch.Tensor:
    """Sigmoid scores; groups and `e_score_correction_bias` act on the choice alone, so they have no
    part here.
    """
    weights_NK = logits_NE.sigmoid().gather(-1, chosen_NK)
    if router.norm_topk_prob:
        weights_NK = weights_NK / (weights_NK.sum(dim=-1, keepdim=True) + 1e-20)
    scaled_NK: torch.Tensor = weights_NK * router.routed_scaling_factor
    return scaled_NK


FAMILIES: dict[str, Family] = {
    "Qwen2MoeTopKRouter": Family("qwen2_moe", _softmax_gate),
    "Qwen3MoeTopKRouter": Family("qwen3_moe", _softmax_gate),
    "OlmoeTopKRouter": Family("olmoe", _softmax_gate),
    "MixtralTopKRouter": Family("mixtral", _softmax_gate),
    "DeepseekV3TopkRouter": Family("deepseek_v3", _sigmoid_gate),
    "Glm4MoeTopkRouter": Family("glm4_moe", _sigmoid_gate),
    "GraniteMoeTopKRouter": Family(
        "granitemoe", _chosen_softmax_gate, logits_at=2, weights_at=1, chosen_at=0
    ),
    "GptOssTopKRouter": Family("gpt_oss", _chosen_softmax_gate),
}

_PART_OF_A_MOE = re.compile(
    r"(Experts?|Router|Gating|SparseMLP|SparseMoeBlock|MoeBlock|MoE|MoEGate)$"
)
"""How transformers' classes for mixtures of experts end; none of its dense families has such a
module.
"""


_tapped: WeakSet[torch.nn.Module] = WeakSet()
"""The first router of every model inside a tap, whichever `Routers` the tap came from."""


@dataclass(frozen=True, slots=True)
class Routers:
    """One model's routers, in layer order.

    `layers` counts the layers that have a router, so index 0 of L is the first MoE layer, not
    always the model's first. `parameters` are the routers' weights (and biases, where the family
    has them).
    """

    layers: int
    experts: int
    top_k: int
    parameters: list[torch.nn.Parameter]
    body: torch.nn.Module
    modules: tuple[tuple[Family, torch.nn.Module], ...]

    @staticmethod
    def of(model: torch.nn.Module) -> "Routers | None":
        """The routers of a transformers model; None for a dense model.

        LabError for a MoE family that is not in `FAMILIES`, named, and for layers of unequal width.
        """
        kinds = [(type(module).__name__, path, module) for path, module in model.named_modules()]
        routers = [(FAMILIES[kind], module) for kind, _, module in kinds if kind in FAMILIES]
        if not routers:
            unknown = next(
                ((kind, path) for kind, path, _ in kinds if _PART_OF_A_MOE.search(kind)), None
            )
            if unknown is None:
                return None
            name = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
            families = ", ".join(sorted(family.name for family in FAMILIES.values()))
            raise LabError(
                f"the MoE family '{name}' (module '{unknown[1]}', a {unknown[0]}) is not one whose"
                f" routing can be recorded and replayed; use a model of a known family: {families}"
            )
        widths = {(int(router.num_experts), int(router.top_k)) for _, router in routers}
        if len(widths) > 1:
            raise LabError(
                f"the model's MoE layers differ in (experts, experts per token): {sorted(widths)};"
                " one is wanted"
            )
        experts, top_k = widths.pop()
        body = getattr(model, "base_model", model)
        parameters = list(chain.from_iterable(router.parameters() for _, router in routers))
        return Routers(len(routers), experts, top_k, parameters, body, tuple(routers))

    def tap(
        self,
        rows: int,
        positions: int,
        *,
        replay_BSLK: torch.Tensor | None = None,
        replay_mask_BS: torch.Tensor | None = None,
    ) -> "RoutingRecorder":
        """A context for one forward pass over [rows, positions] tokens, and its backward pass when
        replaying.

        `replay_BSLK` (any integer type, any device) are the experts to compute with; where
        `replay_mask_BS` (bool) is False, as at padding, its entries are not read and the router's
        own choice stands. Their order within a token is free. LabError at once for a wrong shape,
        and for an expert that does not exist or comes twice in a token.
        """
        if replay_BSLK is None:
            return RoutingRecorder(self, rows, positions)
        return RoutingRecorder(
            self, rows, positions, *_checked(self, (rows, positions), replay_BSLK, replay_mask_BS)
        )


class RoutingRecorder:
    """What one forward pass did at its routers; complete when the forward pass is.

    natural_BSLK     int16, the router's own top-k at every position, in the router's order, also
                     while replaying; -1 before the forward pass. In a replay, the natural choice
                     of later layers follows what the replayed experts of earlier ones computed.
    entropy_BSL      float32, nats: entropy of the softmax over all experts' logits, for sigmoid
                     routers too; NaN before.
    seconds_replay   seconds in which the hooks swapped experts and computed weights again,
                     recomputation included (on an accelerator: seconds to launch that).

    Gradient checkpointing runs layers again during backward: keep the backward pass inside the
    context then. The hooks know their layer and token by index, so what they do twice, they do
    alike. A second forward pass needs its own tap.
    """

    def __init__(
        self,
        routers: Routers,
        rows: int,
        positions: int,
        replay_LNK: torch.Tensor | None = None,
        replay_mask_N1: torch.Tensor | None = None,
    ) -> None:
        device = routers.parameters[0].device
        shape = (rows, positions, routers.layers)
        self.natural_BSLK = torch.full(
            (*shape, routers.top_k), -1, dtype=torch.int16, device=device
        )
        self.entropy_BSL = torch.full(shape, torch.nan, dtype=torch.float32, device=device)
        self.seconds_replay = 0.0
        self._routers = routers
        self._replay_LNK = replay_LNK
        self._replay_mask_N1 = replay_mask_N1
        self._touched: set[int] = set()
        self._used = self._done = False
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> Self:
        first_router = self._routers.modules[0][1]
        if self._used:
            raise LabError("this tap has already been used: make a new one for every forward pass")
        if first_router in _tapped:
            raise LabError("the model is inside a tap already: leave that one before the next")
        _tapped.add(first_router)
        body = self._routers.body
        self._hooks.append(body.register_forward_pre_hook(self._before_forward, with_kwargs=True))
        for layer, (family, router) in enumerate(self._routers.modules):
            self._hooks.append(
                router.register_forward_hook(partial(self._at_router, layer, family))
            )
        self._hooks.append(body.register_forward_hook(self._after_forward))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        _tapped.discard(self._routers.modules[0][1])
        self._used = True
        self._replay_LNK = None
        if kind is None and not self._done:
            raise LabError(
                "no forward pass of the model ran to its end inside the tap: nothing was recorded"
            )

    def _before_forward(
        self, _: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._used:
            raise LabError(
                "a second forward pass inside one tap would overwrite the first's routes: give each"
                " its own tap"
            )
        self._used = True
        inputs = [*args[:1], kwargs.get("input_ids"), kwargs.get("inputs_embeds")]
        shape = next(
            (tuple(tokens.shape[:2]) for tokens in inputs if isinstance(tokens, torch.Tensor)), None
        )
        expected = tuple(self.entropy_BSL.shape[:2])
        if shape is not None and shape != expected:
            raise LabError(
                f"the model was fed [rows, positions] = {list(shape)} inside a tap made for"
                f" {list(expected)}"
            )

    def _after_forward(self, _: torch.nn.Module, __: Any, ___: Any) -> None:
        missing = sorted(set(range(self._routers.layers)) - self._touched)
        if missing:
            raise LabError(
                f"the forward pass did not use the routers of MoE layers {missing}, so their"
                " experts are unknown; switch off layer skipping and fused MoE kernels"
            )
        self._done = True

    def _at_router(
        self,
        layer: int,
        family: Family,
        router: torch.nn.Module,
        _: Any,
        output: tuple[torch.Tensor, ...],
    ) -> tuple[torch.Tensor, ...] | None:
        logits_NE = output[family.logits_at]
        natural_NK = output[family.chosen_at]
        rows, positions, _layers = self.entropy_BSL.shape
        if logits_NE.shape != (rows * positions, self._routers.experts):
            raise LabError(
                f"the router of MoE layer {layer} returned logits {list(logits_NE.shape)} inside a"
                f" tap made for {rows} x {positions} tokens and {self._routers.experts} experts"
            )
        self._touched.add(layer)
        self.natural_BSLK[:, :, layer] = natural_NK.view(rows, positions, -1)
        log_p_NE = torch.log_softmax(logits_NE.detach(), dim=-1, dtype=torch.float32)
        self.entropy_BSL[:, :, layer] = (
            (log_p_NE.exp() * log_p_NE).sum(-1).neg_().view(rows, positions)
        )
        if self._replay_LNK is None:
            return None

        began = time.perf_counter()
        chosen_NK = self._replay_LNK[layer].to(natural_NK.device)
        if self._replay_mask_N1 is not None:
            chosen_NK = torch.where(
                self._replay_mask_N1.to(natural_NK.device), chosen_NK, natural_NK
            )
        replayed = list(output)
        replayed[family.chosen_at] = chosen_NK
        replayed[family.weights_at] = family.gate(router, logits_NE, chosen_NK).to(
            output[family.weights_at].dtype
        )
        self.seconds_replay += time.perf_counter() - began
        return tuple(replayed)


def _checked(
    routers: Routers, size: tuple[int, int], replay_BSLK: torch.Tensor, mask_BS: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The routes [L, N, K], an own copy because backward reads them again, and the mask [N, 1]."""
    shape = (*size, routers.layers, routers.top_k)
    if tuple(replay_BSLK.shape) != shape or (mask_BS is not None and tuple(mask_BS.shape) != size):
        masked = "" if mask_BS is None else f" with a mask {list(mask_BS.shape)}"
        raise LabError(
            f"the routes to replay are {list(replay_BSLK.shape)}{masked}; this model and batch want"
            f" [rows, positions, MoE layers, experts per token] = {list(shape)}"
        )
    device = routers.parameters[0].device
    chosen_NLK = replay_BSLK.to(device, torch.int64).flatten(0, 1)
    mask_N = None if mask_BS is None else mask_BS.to(device).flatten()
    real_NLK = chosen_NLK if mask_N is None else chosen_NLK[mask_N]
    unknown_X = real_NLK[(real_NLK < 0) | (real_NLK >= routers.experts)]
    if len(unknown_X):
        raise LabError(
            f"the routes to replay name expert {int(unknown_X[0])}; this model has experts 0"
            f" to {routers.experts - 1} (were they recorded on another model, or is padding not"
            " masked?)"
        )
    if int((real_NLK[..., :, None] == real_NLK[..., None, :]).sum()) > real_NLK.numel():
        raise LabError(
            "the routes to replay name an expert twice in one token; each token has"
            f" {routers.top_k} different ones"
        )
    copied_LNK = chosen_NLK.transpose(0, 1).clone(memory_format=torch.contiguous_format)
    return copied_LNK, None if mask_N is None else mask_N[:, None]


def expert_change(
    old_BSLK: torch.Tensor, new_BSLK: torch.Tensor, mask_BS: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """How far the choice of experts moved: `(per_layer_L, any_layer)`, both float32 and without
    gradient.

    `per_layer_L` is the mean over masked tokens of 1 - |old and new| / K (the experts as sets, so
    order is nothing); `any_layer` (0-d) the share of masked tokens with a different set in at least
    one layer. arXiv 2507.18071, 5.3. LabError where the shapes differ or the mask marks no token.
    """
    if old_BSLK.shape != new_BSLK.shape:
        raise LabError(
            f"cannot compare the routes {list(old_BSLK.shape)} with {list(new_BSLK.shape)}: shapes"
            " differ"
        )
    mask_BS = _some_token(mask_BS)
    # In numpy: a handful of small operations at every update, each of which costs torch several
    # times as much.
    old_NLK = old_BSLK[mask_BS].cpu().numpy()
    new_NLK = new_BSLK[mask_BS].cpu().numpy()
    top_k = old_BSLK.shape[-1]
    pairs = product(range(top_k), repeat=2)
    shared_NL = sum((old_NLK[..., i] == new_NLK[..., j]).astype(np.int64) for i, j in pairs)
    per_layer_L = 1 - shared_NL.mean(axis=0) / top_k
    return (
        torch.from_numpy(per_layer_L).float(),
        torch.tensor((shared_NL < top_k).any(axis=-1).mean()).float(),
    )


def expert_load(natural_BSLK: torch.Tensor, mask_BS: torch.Tensor, experts: int) -> tuple[Any, Any]:
    """`(cv_L, dead_LE)` of the masked tokens, by layer: the standard deviation (divisor E) over
    mean of the tokens per expert, and which experts no token chose.

    A cv of 0 is a perfect balance, sqrt(E / K - 1) every token on the same K experts. LabError
    where the mask marks no token, or a masked token names an expert that does not exist.
    """
    natural_NLK = natural_BSLK[_some_token(mask_BS)].cpu().numpy().astype(np.int64)
    unknown_X = natural_NLK[(natural_NLK < 0) | (natural_NLK >= experts)]
    if len(unknown_X):
        raise LabError(
            f"the routes name expert {unknown_X[0]}; the model has experts 0 to {experts - 1}"
        )
    layers = natural_NLK.shape[1]
    numbered_NLK = natural_NLK + experts * np.arange(layers)[:, None]
    tokens = np.bincount(numbered_NLK.ravel(), minlength=layers * experts)
    tokens_LE = tokens.reshape(layers, experts)
    return tokens_LE.std(axis=-1) / tokens_LE.mean(axis=-1), tokens_LE == 0


def _some_token(mask_BS: torch.Tensor) -> torch.Tensor:
    if not mask_BS.any():
        raise LabError("the mask marks no token: a mean over no tokens is unknown")
    return mask_BS
