"""Mini-batches of unequal lengths, our objectives on them, and tolerances.

Tests of peers share them.

Equal lengths would hide the aggregation, so no case has them. Shapes: B responses, T response
tokens (padded).
"""

import importlib.metadata
import importlib.util
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from gspo_lab.recording.journal import to_dict
from gspo_lab.training.objectives import (
    PRESETS,
    Batch,
    Objective,
    Recorder,
    surrogate,
)

LOSS = 1e-7
GRADIENT = 4e-9
"""The absolute tolerances of values and gradients.

Both grow with the size of the value itself where ratios are large (float32 has 1.2e-7 of it).
"""
LENGTHS = (4, 9, 17, 30, 47, 64)
BANDS = {"grpo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}
HORIZON = 100


@dataclass(frozen=True)
class Case:
    """One mini-batch: what every loss function here reads."""

    mask_BT: Tensor
    adv_BT: Tensor
    old_BT: Tensor
    logp_BT: Tensor
    ref_BT: Tensor
    sampler_BT: Tensor

    def rows(self, rows: slice) -> "Case":
        return Case(*(x[rows] for x in self._tensors))

    def double(self) -> "Case":
        """The same numbers as float64."""
        return Case(self.mask_BT, *(x.double() for x in self._tensors[1:]))

    @property
    def _tensors(self) -> tuple[Tensor, ...]:
        return (self.mask_BT, self.adv_BT, self.old_BT, self.logp_BT, self.ref_BT, self.sampler_BT)

    def batch(self, complete: "Case | None" = None) -> Batch:
        """What our objectives read of it, as (a part of) the mini-batch `complete`."""
        mask_BT = (complete or self).mask_BT
        return Batch(
            self.mask_BT,
            self.adv_BT,
            self.old_BT,
            len(mask_BT),
            int(mask_BT.sum()),
            self.ref_BT,
            self.sampler_BT,
        )


def case_of(log_ratio_BT: Tensor, lengths: tuple[int, ...], adv_BT: Tensor) -> Case:
    mask_BT = torch.arange(log_ratio_BT.shape[1])[None, :] < torch.tensor(lengths)[:, None]
    old_BT = -2.0 * torch.rand(log_ratio_BT.shape) * mask_BT
    ref_BT = (old_BT + 0.1 * torch.randn(log_ratio_BT.shape)) * mask_BT
    # A sampler that disagrees by up to a factor of 2 or so at a token; its response means lie on
    # both sides of 1.
    sampler_BT = (old_BT + 0.25 * torch.randn(log_ratio_BT.shape)) * mask_BT
    logp_BT = (old_BT + log_ratio_BT) * mask_BT
    return Case(
        mask_BT, adv_BT.expand(mask_BT.shape) * mask_BT, old_BT, logp_BT, ref_BT, sampler_BT
    )


def near(*, per_token: bool = False, empty: bool = False) -> Case:
    """Sequence ratios around 1 +- 6e-4, so that GSPO's range binds for some responses.

    Token ratios are within +- 10 %.
    """
    generator = torch.Generator().manual_seed(11)
    torch.manual_seed(11)
    lengths = (0, *LENGTHS[1:]) if empty else LENGTHS
    noise_BT = 0.1 * torch.randn(6, 64, generator=generator)
    for row, length in enumerate(lengths):
        noise_BT[row, :length] -= noise_BT[row, :length].mean() if length else 0.0
    shift_B1 = torch.tensor([6e-4, -6e-4, 6e-4, -6e-4, 1e-4, -1e-4])[:, None]
    adv_B1 = torch.tensor([1.1, -0.7, -0.9, 0.6, 1.3, -1.4])[:, None]
    adv_BT = adv_B1 * (0.2 + torch.rand(6, 64, generator=generator)) if per_token else adv_B1
    return case_of(noise_BT + shift_B1, lengths, adv_BT)


def far() -> Case:
    """Log-ratios of standard deviation 1.

    Tokens and responses are far outside every range, w > 3 with A < 0 included.
    """
    torch.manual_seed(12)
    log_ratio_BT = torch.randn(6, 64) + torch.tensor([0.5, -0.5, 0.8, 0.0, 1.4, -0.3])[:, None]
    return case_of(log_ratio_BT, LENGTHS, torch.tensor([1.1, -0.7, -0.9, 0.6, -1.4, 0.0])[:, None])


CASES: dict[str, Callable[[], Case]] = {
    "near": near,
    "far": far,
    "empty": lambda: near(empty=True),
    "per-token": lambda: near(per_token=True),
}
GRPO = PRESETS["grpo"].replace(clip_low=0.2, clip_high=0.28)
TIGHT = GRPO.replace(clip_low=0.02, clip_high=0.03)
GSPO = PRESETS["gspo"]
GSPO_TOKEN = PRESETS["gspo-token"]


@dataclass(frozen=True)
class Result:
    loss: float
    grad_BT: Tensor
    clip: dict[str, float]


def entropy_of(logp_BT: Tensor) -> Tensor:
    """A stand-in for entropies: any function of the policy that has a gradient."""
    return -logp_BT * logp_BT.exp()


def ours(case: Case, settings: Objective, *, part: slice | None = None) -> Result:
    """Our loss of a whole mini-batch, or of some of its rows."""
    rows = case if part is None else case.rows(part)
    leaf = rows.logp_BT.clone().requires_grad_()
    entropy_BT = entropy_of(leaf) * rows.mask_BT if settings.entropy_coef else None
    out = surrogate(leaf, rows.batch(case), settings, entropy_BT=entropy_BT)
    out.loss.backward()
    record = Recorder(settings, BANDS).update(
        step=0,
        minibatch=0,
        log_ratio_BT=out.log_ratio_BT,
        mask_BT=rows.mask_BT,
        adv_BT=rows.adv_BT,
        metrics=out.metrics,
        evaluated_B=rows.mask_BT.any(dim=1),
    )
    return Result(float(out.loss.detach()), leaf.grad, to_dict(record))


def agree(a: Result, b: Result, scale: float = 1.0) -> None:
    """`a` equals `b` x scale, in loss and in gradient."""
    assert a.loss == pytest.approx(scale * b.loss, abs=LOSS, rel=1e-6)
    worst = float((a.grad_BT - scale * b.grad_BT).abs().max())
    assert worst <= max(GRADIENT, 5e-7 * float(a.grad_BT.abs().max())), worst


def cosine(a: Result, b: Result) -> float:
    return float(torch.cosine_similarity(a.grad_BT.flatten(), b.grad_BT.flatten(), dim=0))


Compared = Callable[[Case, Objective], Result]


def uncapped(mine: Compared, theirs: Compared, above: float) -> None:
    """At a log-ratio of 30 neither caps the ratio: both losses are equal, and larger than this."""
    data = far()
    data.logp_BT[1, :9] = data.old_BT[1, :9] + 30.0
    for settings in (GRPO, GSPO):
        result = mine(data, settings)
        other = theirs(data, settings)
        assert result.loss == pytest.approx(other.loss, rel=1e-6)
        assert result.loss > above
        assert torch.linalg.norm(result.grad_BT - other.grad_BT) <= 1e-6 * torch.linalg.norm(
            result.grad_BT
        )


def peer(package: str, version: str) -> None:
    """Skip where a peer is not installed or has another release.

    The release is the one whose internals are called here.
    """
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: see this file's first lines")
    actual = importlib.metadata.version(package)
    if not actual.startswith(version):
        pytest.skip(f"{package} {actual} is installed; this test calls internals of {version}")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def imported(package: str, load: Callable[[], Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return load()
    except ImportError as error:
        pytest.skip(f"{package} is installed but cannot be imported: {error}")
