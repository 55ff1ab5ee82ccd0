"""What is recorded of one update; made when a step has ended, so that it is measured in one go, in warm caches.

Shapes as in experience.py; M rows of a mini-batch.
"""

from typing import Any

import torch
from torch import Tensor

from gspo_lab.engines.native.critic import Learnt
from gspo_lab.engines.native.experience import Experience, of_microbatch
from gspo_lab.engines.native.update import Updated, Updater
from gspo_lab.models.routing import expert_change, load_cv
from gspo_lab.objectives import ratio_measures, response_detail
from gspo_lab.records import UpdateRecord


def update_record(
    updater: Updater, experience: Experience, done: Updated, *, detail: bool, token_detail: bool
) -> UpdateRecord:
    """The record of an update, on request with every response's own numbers and with every token's."""
    objective, rows = updater.objective, done.minibatch.rows
    mask_MT, adv_MT = experience.mask_NT[rows], experience.adv_NT[rows]
    evaluated_M = experience.evaluated_N[rows]
    fields = ratio_measures(
        done.log_ratio_MT,
        mask_MT,
        adv_MT,
        evaluated_M,
        objective,
        updater.bands,
        clipped_BT=done.clipped_MT,
        gate_BT=done.gate_MT,
        dual_clipped_BT=done.dual_clipped_MT,
        other_log_ratio_BT=_with_the_other_s_old_logprobs(updater, experience, done),
        weight_BT=done.weight_MT if objective.mismatch_correction != "none" else None,
    )
    if updater.moves_range:
        fields |= {"bapo_clip_low": done.objective.clip_low, "bapo_clip_high": done.objective.clip_high}
    fields |= _routing_fields(updater, experience, done)
    alive = done.moved.finite
    if done.critic is not None:
        fields |= _critic_fields(done.critic)
        alive &= done.critic.moved.finite
    if detail:
        per_response = (done.log_ratio_MT, mask_MT, adv_MT, done.clipped_MT)
        fields["response_detail"] = response_detail(*(x_MT[evaluated_M] for x_MT in per_response), tokens=token_detail)
    return UpdateRecord(
        step=done.minibatch.step,
        minibatch=done.minibatch.index,
        loss=done.loss,
        kl=done.kl_sum / fields["response_tokens"] if objective.kl_coef > 0 else None,
        grad_norm=done.moved.grad_norm,
        router_grad_norm=done.router_grad_norm,
        learning_rate=done.moved.learning_rate,
        nonfinite=int(not (alive and experience.sampler_logp_NT[rows].isfinite().all())),
        seconds=done.seconds,
        engine_metrics=done.engine_metrics,
        **fields,
    )


def _critic_fields(learnt: Learnt) -> dict[str, float]:
    return {
        "value_loss": learnt.loss,
        "value_mean": learnt.value_mean,
        "value_clip_fraction": learnt.clip_fraction,
        "critic_grad_norm": learnt.moved.grad_norm,
        "critic_seconds": learnt.seconds,
    }


def _with_the_other_s_old_logprobs(updater: Updater, experience: Experience, done: Updated) -> Tensor | None:
    """[M, T] l_t against the sampler's log-probs where this run's is against the trainer's, or the reverse.

    None where the trainer has not evaluated the old policy on these rows.
    """
    rows = done.minibatch.rows
    if not experience.old_known_N[rows].any():
        return None
    d_MT = experience.mismatch_NT[rows]
    return done.log_ratio_MT - d_MT if updater.sampler_is_old else done.log_ratio_MT + d_MT


def _routing_fields(updater: Updater, experience: Experience, done: Updated) -> dict[str, Any]:
    """Expert change against the old policy at input positions that predict response tokens, where the trainer has
    evaluated that on them; and router health."""
    routers = updater.policy.routers
    if routers is None or not done.forwards:
        return {}
    old, new, entropy = [], [], []
    for part, forward in done.forwards:
        assert forward.natural_BSLK is not None
        assert forward.router_entropy_BSL is not None
        length = part.length
        at_BT = part.mask_BT  # the last `length` input positions are those that predict the response tokens
        if experience.natural_NSLK is not None and bool(experience.old_known_N[part.rows].all()):
            old.append(of_microbatch(experience.natural_NSLK, part)[:, -length:][at_BT])
        new.append(forward.natural_BSLK[:, -length:][at_BT])
        entropy.append(forward.router_entropy_BSL[:, -length:][at_BT])
    new_N1LK = torch.cat(new)[:, None]
    everywhere = torch.ones(new_N1LK.shape[:2], dtype=torch.bool, device=new_N1LK.device)
    out: dict[str, Any] = {
        "router_entropy": float(torch.cat(entropy).mean()),
        "expert_load_cv": load_cv(new_N1LK, everywhere, routers.experts),
    }
    if len(old) == len(new):
        layers_L, any_layer = expert_change(torch.cat(old)[:, None], new_N1LK, everywhere)
        out["expert_change"] = float(layers_L.mean())
        out["expert_change_layers"] = [round(float(value), 7) for value in layers_L]
        out["expert_change_any_tokens"] = float(any_layer)
    return out
