"""One copy of a prompt for all of a group's responses, which lie behind it one after another in one row.

    prompt | response 1 | response 2 | ...      every response attends to the prompt and to itself, and takes up the
                                                positions right behind the prompt

The log-probs and gradients are those of separate rows, but for rounding, and the prompt is computed once. Shapes as in
experience.py; G different prompts, P prompt columns, C columns of a row with all its responses.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gspo_lab.engines.native.experience import Microbatch
from gspo_lab.models.memory import WORTH
from gspo_lab.models.shapes import MASKED

LONGEST = 4096
"""Columns of a row: the mask has their square."""


@dataclass(frozen=True, slots=True)
class SharedPrompts:
    """What a model is fed, and where in it each target is predicted: `place_BT` indexes the flattened [G x C]."""

    inputs: dict[str, Tensor]
    place_BT: Tensor


def can_share(model: Any) -> bool:
    """Whether the model's attention takes such a mask: on a CPU, where this was measured, and without windows."""
    config = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    return bool(
        model.device.type == "cpu"
        and config.model_type in MASKED
        and config._attn_implementation == "sdpa"
        and layers == {"full_attention"}
    )


def share_prompts(part: Microbatch) -> SharedPrompts | None:
    """The same rows with every prompt once; None where that would spare too little."""
    B, S = part.input_BS.shape
    P = S - part.length + 1
    fed_BR = part.attention_BS[:, P:]  # fed response tokens: all but the last
    prompt_BP, real_BP = part.input_BS[:, :P], part.attention_BS[:, :P]
    _, group_B = torch.unique(torch.cat([prompt_BP, real_BP.long()], dim=1), dim=0, return_inverse=True)
    count_B = fed_BR.sum(dim=1)
    G = int(group_B.max()) + 1
    behind_B = torch.zeros_like(count_B)  # response tokens of the group that stand before this row's
    total_G = count_B.new_zeros(G)
    first_G = count_B.new_zeros(G)  # a row that has the group's prompt
    for row, group in enumerate(group_B.tolist()):
        behind_B[row] = total_G[group]
        total_G[group] += count_B[row]
        first_G[group] = row
    C = P + int(total_G.max())
    if C > LONGEST or G * C > WORTH * B * S:
        return None
    device, R = part.input_BS.device, fed_BR.shape[1]
    ids_GC = part.input_BS.new_zeros(G, C)
    position_GC = torch.zeros_like(ids_GC)
    owner_GC = torch.full((G, C), -1, device=device)  # the row of a response token; -1 a prompt's; -2 nobody's
    ids_GC[:, :P] = prompt_BP[first_G]
    position_GC[:, :P] = (real_BP[first_G].long().cumsum(dim=1) - 1).clamp(min=0)
    owner_GC[:, P:] = -2
    owner_GC[:, :P].masked_fill_(~real_BP[first_G], -2)
    row_BR, offset_BR = (
        torch.arange(B, device=device)[:, None].expand(B, R),
        torch.arange(R, device=device).expand(B, R),
    )
    column_BR = P + behind_B[:, None] + offset_BR
    at = (group_B[row_BR[fed_BR]], column_BR[fed_BR])
    ids_GC[at] = part.input_BS[:, P:][fed_BR]
    position_GC[at] = (real_BP.sum(dim=1)[:, None] + offset_BR)[fed_BR]
    owner_GC[at] = row_BR[fed_BR]
    causal_CC = torch.ones(C, C, dtype=torch.bool, device=device).tril()
    query_GC1, key_G1C = owner_GC[:, :, None], owner_GC[:, None, :]
    seen_GCC = causal_CC & ((key_G1C == -1) | (key_G1C == query_GC1)) & (key_G1C != -2)
    seen_GCC |= torch.eye(C, dtype=torch.bool, device=device)  # nobody's columns see themselves, or they were NaN
    inputs = {"input_ids": ids_GC, "attention_mask": seen_GCC[:, None], "position_ids": position_GC}
    start_B1 = (group_B * C)[:, None]
    # The prompt's last token predicts a response's first one, each fed token the next.
    place_BT = torch.cat([start_B1 + P - 1, start_B1 + column_BR], dim=1)
    return SharedPrompts(inputs, place_BT)
