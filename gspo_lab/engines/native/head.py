"""From hidden states to the log-probs of the tokens that were sampled, without the [B, T, V] logits of a batch.

Only response tokens reach the head, some at a time: where they do not fit in one piece, each piece's logits are
computed again in the backward pass instead of being kept. Shapes: B rows, T response tokens, S positions, H hidden
size, N tokens of a piece, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

PIECE_BYTES = 2**28
"""Float32 logits that may exist at once; a piece has at least one token."""

REWRITTEN = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""Settings of models that change the logits after the head's matrix product."""


def plain_head(model: Any) -> bool:
    """Whether the model's logits are its output embedding of the last hidden state, and nothing more."""
    linear = isinstance(model.get_output_embeddings(), torch.nn.Linear) and model.base_model is not model
    return linear and not any(getattr(model.config, name, None) for name in REWRITTEN)


def token_logprobs(
    model: Any, inputs: dict[str, Any], target_BT: Tensor, mask_BT: Tensor, *, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probs [B, T] of `target_BT` under logits / temperature, 0 off the mask, and on request the entropies [B, T].

    `inputs` are the model's, their last T positions those that predict the targets. The log-probs carry the gradient,
    the entropies (nats) do not.
    """
    length = target_BT.shape[1]
    if plain_head(model):
        hidden_BSH = model.base_model(**inputs, use_cache=False).last_hidden_state
        states_NH, head = hidden_BSH[:, -length:][mask_BT], model.get_output_embeddings()
    else:
        logits_BTV = model(**inputs, use_cache=False, logits_to_keep=length).logits
        states_NH, head = logits_BTV[mask_BT], torch.nn.Identity()
    target_N = target_BT[mask_BT]

    def piece(states_NH: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
        logp_NV = (head(states_NH).float() / temperature).log_softmax(dim=-1)
        known = logp_NV.detach()
        entropy_N = -(known.exp() * known).sum(dim=-1) if entropy else known.new_zeros(len(known))
        return logp_NV.gather(1, target_N[:, None])[:, 0], entropy_N

    size = max(1, PIECE_BYTES // (4 * model.config.get_text_config().vocab_size))
    if len(target_N) <= size:
        logp_N, entropy_N = piece(states_NH, target_N)
    else:
        pieces = zip(torch.split(states_NH, size), torch.split(target_N, size), strict=True)
        done = [checkpoint(piece, *one, use_reentrant=False) for one in pieces]
        logp_N, entropy_N = (torch.cat(column) for column in zip(*done, strict=True))
    logp_BT = torch.zeros(mask_BT.shape, device=logp_N.device).masked_scatter(mask_BT, logp_N)
    if not entropy:
        return logp_BT, None
    return logp_BT, torch.zeros(mask_BT.shape, device=logp_N.device).masked_scatter(mask_BT, entropy_N)
