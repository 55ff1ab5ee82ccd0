"""Losses that no token loses its gradient to: weights and gates in the place of a clip (`cispo.py`
is another).
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gspo_lab.common.keys import HUGE
from gspo_lab.training.objectives.losses.loss import (
    LARGEST_LOG_RATIO,
    Loss,
    LossInputs,
    Metrics,
    everywhere,
    own_key,
    spread_sum,
    weighted,
)
from gspo_lab.training.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor


def reinforce(inputs: LossInputs, settings: Common) -> "tuple[Tensor, Metrics]":
    """A log pi: no ratio, and so no correction for a policy that has moved since it sampled.
    REINFORCE, 2402.14740 section 2.3, the term of its leave-one-out estimator."""
    return weighted(inputs, everywhere(inputs, 1.0))


REINFORCE = Loss(
    name="reinforce",
    source="2402.14740 section 2.3",
    formula="A log pi: no ratio, so nothing corrects for updates after the first",
    term=reinforce,
    clips=None,
    reads_range=False,
    ratio="own",
)

SAPO_OWN = own_key("sapo")


class Sapo(Common):
    """Temperatures, by the sign of A."""

    sapo_tau_positive: Annotated[float, SAPO_OWN] = Field(
        1.0, gt=0, le=HUGE, description="temperature where A > 0"
    )
    sapo_tau_negative: Annotated[float, SAPO_OWN] = Field(
        1.05, gt=0, le=HUGE, description="temperature where A <= 0"
    )


def sapo(inputs: LossInputs, settings: Sapo) -> "tuple[Tensor, Metrics]":
    """(4 / tau) sigmoid(tau (r - 1)) A, which is SAPO's: 2511.20347 eq. 5-6.

    It leaves sech^2(tau (r - 1) / 2) of the gradient."""
    adv_BT = inputs.batch.adv_BT
    ratio_BT = inputs.ratio_BT
    tau_BT = everywhere(inputs, settings.sapo_tau_positive).where(
        adv_BT > 0, everywhere(inputs, settings.sapo_tau_negative)
    )
    risen_BT = (tau_BT * (ratio_BT - 1)).sigmoid()
    gate_BT = (4 * risen_BT * (1 - risen_BT)).detach()
    return risen_BT * (4 / tau_BT) * adv_BT, {"gate_mean": gate_BT}


SAPO = Loss(
    name="sapo",
    source="2511.20347 eq. 5-6",
    formula="(4 / tau) sigmoid(tau (rho - 1)) A, tau by the sign of A",
    term=sapo,
    settings=Sapo,
    clips=None,
    reads_range=False,
)


class Pspo(Common):
    """How much of the old policy stays."""

    pspo_smoothing: Annotated[float, own_key("pspo", affects="update")] = Field(
        0.1, ge=0, lt=1, description="share of the old probability in the smoothed one"
    )


def pspo(inputs: LossInputs, settings: Pspo) -> "tuple[Tensor, Metrics]":
    """((1 - a) r + a) A, a = pspo_smoothing: PSPO, 2509.21282, its smoothed ratio."""
    share = 1 - settings.pspo_smoothing
    value_BT = (share * inputs.ratio_BT + settings.pspo_smoothing) * inputs.batch.adv_BT
    return value_BT, {"gate_mean": everywhere(inputs, share)}


PSPO = Loss(
    name="pspo",
    source="2509.21282",
    formula="((1 - a) rho + a) A, a = `pspo_smoothing`",
    term=pspo,
    settings=Pspo,
    clips=None,
    reads_range=False,
    reinforce_on_policy=False,
)

VESPO_LARGEST = 20.0
VESPO_SMALLEST = math.log(1e-8)
"""Limits of l_t, on both sides, and of log W, as in TRL's reading of its code."""

VESPO_OWN = own_key("vespo")


class Vespo(Common):
    """Exponent and decay, by the sign of A."""

    vespo_k_positive: Annotated[float, VESPO_OWN] = Field(
        2.0, ge=0, le=HUGE, description="exponent k where A >= 0"
    )
    vespo_lambda_positive: Annotated[float, VESPO_OWN] = Field(
        3.0, gt=0, le=HUGE, description="decay lambda where A >= 0"
    )
    vespo_k_negative: Annotated[float, VESPO_OWN] = Field(
        3.0, ge=0, le=HUGE, description="exponent k where A < 0"
    )
    vespo_lambda_negative: Annotated[float, VESPO_OWN] = Field(
        2.0, gt=0, le=HUGE, description="decay lambda where A < 0"
    )


def vespo(inputs: LossInputs, settings: Vespo) -> "tuple[Tensor, Metrics]":
    """sg(W^k exp(lambda (1 - W))) A log pi: VESPO, 2602.10693 eq. 20."""
    up_BT = inputs.batch.adv_BT >= 0
    l_BT = inputs.log_ratio_BT.detach().clamp(-VESPO_LARGEST, VESPO_LARGEST)
    log_whole_BT = spread_sum(l_BT).clamp(VESPO_SMALLEST, VESPO_LARGEST)
    gain_BT = (
        settings.vespo_lambda_positive * (1 - log_whole_BT.exp())
        + settings.vespo_k_positive * log_whole_BT
    )
    loss_BT = (
        settings.vespo_lambda_negative * (1 - log_whole_BT.exp())
        + settings.vespo_k_negative * log_whole_BT
    )
    return weighted(inputs, gain_BT.where(up_BT, loss_BT).clamp(max=LARGEST_LOG_RATIO).exp())


def _refused(settings: Vespo) -> Iterator[str]:
    """A correction beside W."""
    if settings.mismatch_correction != "none":
        yield (
            f"mismatch_correction = '{settings.mismatch_correction}' with policy_loss = 'vespo':"
            " its paper puts the mismatch into W, which is not done here; use mismatch_correction"
            " = 'none'"
        )


VESPO = Loss(
    name="vespo",
    source="2602.10693 eq. 20",
    formula="sg(W^k exp(lambda (1 - W))) A log pi, k and lambda by the sign of A",
    term=vespo,
    settings=Vespo,
    clips=None,
    reads_range=False,
    ratio="own",
    refuses=_refused,
    differs="W leaves the mismatch of sampler and trainer out",
)
