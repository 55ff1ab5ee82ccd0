"""REINFORCE: no ratio, and so no correction for a policy that has moved since it sampled."""

from gspo_lab.objectives.losses.loss import Loss, LossInputs, Term, everywhere, weighted
from gspo_lab.objectives.settings import Common


def term(moved: LossInputs, settings: Common) -> Term:
    """A log pi."""
    return weighted(moved, everywhere(moved, 1.0))


LOSS = Loss(
    name="reinforce",
    source="2402.14740",
    formula="A log pi: no ratio, so nothing corrects for updates after the first",
    term=term,
    clips=None,
    reads_range=False,
    ratio="own",
)
