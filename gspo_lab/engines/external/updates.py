"""The record of an update on another program's tensors: what a run's objective did to l_t, in the lab's definitions.

For engines whose optimizer is not the lab's: they hand over what their loss was given. Shapes as in objectives/.
"""

from typing import TYPE_CHECKING, Any

from gspo_lab.objectives import Batch, ratio_measures, response_detail, surrogate
from gspo_lab.records import UpdateRecord
from gspo_lab.study import Run

if TYPE_CHECKING:
    from torch import Tensor


def learning_rate(run: Run, number: int) -> float:
    """The learning rate of the run's update `number`, from 0: it rises over the first ones."""
    update = run.settings.update
    return update.learning_rate * min(1.0, (number + 1) / max(update.warmup_updates, 1))


def measured(
    run: Run, number: int, log_ratio_BT: "Tensor", mask_BT: "Tensor", adv_BT: "Tensor", **own: Any
) -> UpdateRecord:
    """The record of the run's update `number`, from 0, on one whole mini-batch, every response of which was evaluated.

    `log_ratio_BT` is l_t and `adv_BT` the advantages, both 0 off the mask; `own` are the fields that the other program
    knows: the loss, the gradient's norm, seconds.
    """
    objective, record = run.settings.objective, run.settings.record
    # Against old log-probs of 0 the log-ratio is the policy's own log-prob.
    batch = Batch(mask_BT, adv_BT, log_ratio_BT.new_zeros(log_ratio_BT.shape), len(mask_BT), int(mask_BT.sum()))
    out = surrogate(log_ratio_BT, batch, objective)
    measures = ratio_measures(
        *(log_ratio_BT, mask_BT, adv_BT, mask_BT.new_ones(len(mask_BT)), objective, run.reference_bands),
        clipped_BT=out.clipped_BT,
        dual_clipped_BT=out.dual_clipped_BT,
    )
    step, minibatch = divmod(number, run.settings.update.per_rollout_batch)
    if step % record.detail_every == 0:
        measures["response_detail"] = response_detail(
            log_ratio_BT, mask_BT, adv_BT, out.clipped_BT, tokens=record.token_detail
        )
    return UpdateRecord(step=step, minibatch=minibatch, **measures, **own)
