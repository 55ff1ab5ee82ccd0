"""PSPO: probabilities smoothed toward the old ones."""

from typing import Annotated

from pydantic import Field

from gspo_lab.objectives.losses.loss import Loss, LossInputs, Term, everywhere, own_key
from gspo_lab.objectives.settings import Common


class Pspo(Common):
    """How much of the old policy stays."""

    pspo_smoothing: Annotated[float, own_key("pspo", acts="update")] = Field(
        0.1, ge=0, lt=1, description="the share of the old probability in the smoothed one"
    )


def term(moved: LossInputs, settings: Pspo) -> Term:
    """((1 - a) r + a) A, a = pspo_smoothing."""
    share = 1 - settings.pspo_smoothing
    value_BT = (share * moved.ratio_BT + settings.pspo_smoothing) * moved.batch.adv_BT
    return Term(value_BT, gate_BT=everywhere(moved, share))


LOSS = Loss(
    name="pspo",
    source="2509.21282",
    formula="((1 - a) rho + a) A, a = `pspo_smoothing`",
    term=term,
    settings=Pspo,
    clips=None,
    reads_range=False,
    alike_at_1=False,
)
