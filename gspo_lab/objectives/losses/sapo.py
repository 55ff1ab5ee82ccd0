"""SAPO: a soft gate in the place of the clip."""

from typing import Annotated

from pydantic import Field

from gspo_lab.keys import HUGE
from gspo_lab.objectives.losses.loss import Loss, LossInputs, Term, everywhere, own_key
from gspo_lab.objectives.settings import Common

OWN = own_key("sapo")


class Sapo(Common):
    """Temperatures, by the sign of A."""

    sapo_tau_positive: Annotated[float, OWN] = Field(1.0, gt=0, le=HUGE, description="the temperature where A > 0")
    sapo_tau_negative: Annotated[float, OWN] = Field(1.05, gt=0, le=HUGE, description="the temperature where A <= 0")


def term(moved: LossInputs, settings: Sapo) -> Term:
    """(4 / tau) sigmoid(tau (r - 1)) A; it leaves sech^2(tau (r - 1) / 2) of the gradient."""
    adv_BT, ratio_BT = moved.batch.adv_BT, moved.ratio_BT
    tau_BT = everywhere(moved, settings.sapo_tau_positive).where(
        adv_BT > 0, everywhere(moved, settings.sapo_tau_negative)
    )
    risen_BT = (tau_BT * (ratio_BT - 1)).sigmoid()
    gate_BT = (4 * risen_BT * (1 - risen_BT)).detach()
    return Term(risen_BT * (4 / tau_BT) * adv_BT, gate_BT=gate_BT)


LOSS = Loss(
    name="sapo",
    source="2511.20347",
    formula="(4 / tau) sigmoid(tau (rho - 1)) A, tau by the sign of A",
    term=term,
    settings=Sapo,
    clips=None,
    reads_range=False,
)
