"""`ratio_measures` of a mini-batch given by l_t: with what its objective clipped, as an engine calls it."""

from typing import Any

from torch import Tensor

from gspo_lab.objectives import Batch, ObjectiveSettings, measures, surrogate


def ratio_measures(
    l_BT: Tensor,
    mask_BT: Tensor,
    adv_BT: Tensor,
    evaluated_B: Tensor,
    settings: ObjectiveSettings,
    bands: measures.Bands,
    **more: Any,
) -> dict[str, Any]:
    out = surrogate(l_BT, Batch(mask_BT, adv_BT, 0 * l_BT, len(mask_BT), int(mask_BT.sum())), settings)
    found = (out.log_ratio_BT, mask_BT, adv_BT, evaluated_B, settings, bands)
    return measures.ratio_measures(*found, clipped_BT=out.clipped_BT, gate_BT=out.gate_BT, **more)
