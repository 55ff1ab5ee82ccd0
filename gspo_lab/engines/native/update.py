"""One optimizer update on one mini-batch: forward and backward part by part, then a step, then what is recorded of it.

Shapes as in experience.py; M rows of a mini-batch.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gspo_lab.engines.native.experience import Experience, Part, of_part, parts
from gspo_lab.engines.native.policy import Evaluated, Policy, store
from gspo_lab.models.routing import expert_change, load_cv
from gspo_lab.objectives import Batch, ObjectiveSettings, Surrogate, ratio_measures, response_detail, surrogate
from gspo_lab.records import UpdateRecord


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Which update this is, on which rows, and what of the old policy is still to be found out on the way."""

    step: int
    index: int
    rows: Tensor
    fresh: bool
    """The current policy is still the old one, and nobody has evaluated it on these rows: this forward pass does."""


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update did, kept until it is measured: l_t, clips and correction of the M rows, and the routes."""

    minibatch: Minibatch
    log_ratio_MT: Tensor
    clipped_MT: Tensor
    weight_MT: Tensor
    evaluated: list[tuple[Part, Evaluated]]
    loss: float
    kl_sum: float
    grad_norm: float
    router_grad_norm: float | None
    learning_rate: float
    finite: bool
    seconds: float

    @property
    def seconds_replay(self) -> float:
        return sum(seen.seconds_replay for _, seen in self.evaluated)


class Updater:
    """The optimizer, its learning rate and the objective of one run. `eight_bit` needs bitsandbytes and a GPU."""

    def __init__(
        self,
        policy: Policy,
        objective: ObjectiveSettings,
        *,
        learning_rate: float,
        warmup_updates: int,
        betas: tuple[float, float],
        weight_decay: float,
        max_grad_norm: float,
        bands: dict[str, tuple[float, float]],
        replay: str,
        sampler_is_old: bool,
        eight_bit: bool = False,
    ) -> None:
        self.policy = policy
        self.objective = objective
        self.updates = 0
        self._rate = learning_rate
        self._warmup = warmup_updates
        self._max_grad_norm = max_grad_norm
        self._bands = bands
        self._replay = replay
        self._sampler_is_old = sampler_is_old
        self._parameters = [p for p in policy.model.parameters() if p.requires_grad]
        settings: dict[str, Any] = {"lr": learning_rate, "betas": betas, "weight_decay": weight_decay}
        self.optimizer: torch.optim.Optimizer
        if eight_bit:
            from bitsandbytes.optim import AdamW8bit

            self.optimizer = AdamW8bit(self._parameters, **settings)
        else:
            self.optimizer = torch.optim.AdamW(self._parameters, foreach=True, **settings)

    def update(self, experience: Experience, minibatch: Minibatch) -> Updated:
        """Train on one mini-batch."""
        started = time.perf_counter()
        rows = minibatch.rows
        mask_MT = experience.mask_NT[rows]
        log_ratio_MT = torch.zeros_like(experience.adv_NT[rows])
        clipped_MT = torch.zeros_like(mask_MT)
        weight_MT = torch.ones_like(log_ratio_MT)
        evaluated: list[tuple[Part, Evaluated]] = []
        loss = kl_sum = 0.0
        place_of_row = {row: place for place, row in enumerate(rows.tolist())}
        self.optimizer.zero_grad(set_to_none=True)
        if not experience.evaluated_N[rows].any():
            self._no_gradient()
        for part in parts(experience, rows, self.policy.microbatch_tokens):
            outcome: list[Surrogate] = []

            def backward(logp_BT: Tensor, part: Part = part, outcome: list[Surrogate] = outcome) -> None:
                if minibatch.fresh:
                    experience.old_logp_NT[part.rows, : part.length] = logp_BT.detach()
                out = surrogate(logp_BT, self._batch(experience, part, mask_MT), self.objective)
                out.loss.backward()  # type: ignore[no-untyped-call]
                outcome.append(out)

            seen = self.policy.evaluate(
                part, replay_BSLK=self._routes(experience, part, minibatch), entropy=minibatch.fresh, backward=backward
            )
            if minibatch.fresh:
                store(experience, part, seen)
            out = outcome[0]
            places = torch.tensor([place_of_row[row] for row in part.rows.tolist()], device=rows.device)
            log_ratio_MT[places, : part.length] = out.log_ratio_BT
            clipped_MT[places, : part.length] = out.clipped_BT
            weight_MT[places, : part.length] = out.weight_BT
            loss += float(out.loss.detach())
            kl_sum += 0.0 if out.kl_sum is None else float(out.kl_sum)
            evaluated.append((part, seen.without_graph()))

        router_grad_norm = self._router_grad_norm()
        rate = self._rate * min(1.0, (self.updates + 1) / max(self._warmup, 1))
        grad_norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm, foreach=True))
        finite = math.isfinite(grad_norm) and math.isfinite(loss)
        if finite:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)  # sampling needs their memory
        self.updates += 1
        return Updated(
            minibatch=minibatch,
            log_ratio_MT=log_ratio_MT,
            clipped_MT=clipped_MT,
            weight_MT=weight_MT,
            evaluated=evaluated,
            loss=loss,
            kl_sum=kl_sum,
            grad_norm=grad_norm,
            router_grad_norm=router_grad_norm,
            learning_rate=rate,
            finite=finite,
            seconds=time.perf_counter() - started,
        )

    def measure(self, experience: Experience, done: Updated, *, detail: bool, token_detail: bool) -> UpdateRecord:
        """The record of an update; apart from `update`, so that a step is measured in one go, in warm caches."""
        rows = done.minibatch.rows
        mask_MT, adv_MT = experience.mask_NT[rows], experience.adv_NT[rows]
        evaluated_M = experience.evaluated_N[rows]
        fields = ratio_measures(
            done.log_ratio_MT,
            mask_MT,
            adv_MT,
            evaluated_M,
            self.objective,
            self._bands,
            other_log_ratio_BT=self._with_the_other_s_old_logprobs(experience, done),
            weight_BT=done.weight_MT if self.objective.mismatch_correction != "none" else None,
        )
        fields |= self._routing_fields(experience, done.evaluated)
        if detail:
            per_response = (done.log_ratio_MT, mask_MT, adv_MT, done.clipped_MT)
            fields["response_detail"] = response_detail(
                *(x_MT[evaluated_M] for x_MT in per_response), tokens=token_detail
            )
        return UpdateRecord(
            step=done.minibatch.step,
            minibatch=done.minibatch.index,
            loss=done.loss,
            kl=done.kl_sum / fields["response_tokens"] if self.objective.kl_coef > 0 else None,
            grad_norm=done.grad_norm,
            router_grad_norm=done.router_grad_norm,
            learning_rate=done.learning_rate,
            nonfinite=int(not done.finite),
            seconds=done.seconds,
            **fields,
        )

    def _batch(self, experience: Experience, part: Part, mask_MT: Tensor) -> Batch:
        rows, length = part.rows, part.length
        old = experience.sampler_logp_NT if self._sampler_is_old else experience.old_logp_NT
        reference = experience.ref_logp_NT
        return Batch(
            mask_BT=part.mask_BT,
            adv_BT=experience.adv_NT[rows, :length],
            old_logp_BT=old[rows, :length],
            responses=len(mask_MT),
            tokens=int(mask_MT.sum()),
            ref_logp_BT=None if reference is None else reference[rows, :length],
            sampler_logp_BT=experience.sampler_logp_NT[rows, :length],
        )

    def _with_the_other_s_old_logprobs(self, experience: Experience, done: Updated) -> Tensor | None:
        """[M, T] l_t against the sampler's log-probs where this run's is against the trainer's, or the reverse.

        None where the trainer has not evaluated the old policy on these rows.
        """
        rows = done.minibatch.rows
        if not experience.old_known_N[rows].any():
            return None
        d_MT = experience.mismatch_NT[rows]
        return done.log_ratio_MT - d_MT if self._sampler_is_old else done.log_ratio_MT + d_MT

    def _routes(self, experience: Experience, part: Part, minibatch: Minibatch) -> Tensor | None:
        """The experts to replay: the sampler's (R3), the old policy's (R2), or none.

        On a fresh mini-batch the old policy is the current one: its own choice *is* the recorded one.
        """
        if self._replay == "rollout":
            assert experience.rollout_routes_NSLK is not None
            return of_part(experience.rollout_routes_NSLK, part)
        if self._replay == "old-policy" and not minibatch.fresh:
            assert experience.natural_NSLK is not None
            return of_part(experience.natural_NSLK, part)
        return None

    def _no_gradient(self) -> None:
        """A gradient of exactly 0, as a pass over responses without advantage would leave: momentum and decay go on."""
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)

    def _router_grad_norm(self) -> float | None:
        if self.policy.routers is None:
            return None
        grads = [p.grad for p in self.policy.routers.parameters if p.grad is not None]
        return float(torch.stack([grad.norm() for grad in grads]).norm()) if grads else 0.0

    def _routing_fields(self, experience: Experience, evaluated: Sequence[tuple[Part, Evaluated]]) -> dict[str, Any]:
        """Expert change against the old policy at input positions that predict response tokens, where the trainer has
        evaluated that on them; and router health."""
        routers = self.policy.routers
        if routers is None or not evaluated:
            return {}
        old, new, entropy = [], [], []
        for part, seen in evaluated:
            assert seen.natural_BSLK is not None
            assert seen.router_entropy_BSL is not None
            length = part.length
            at_BT = part.mask_BT  # the last `length` input positions are those that predict the response tokens
            if experience.natural_NSLK is not None and bool(experience.old_known_N[part.rows].all()):
                old.append(of_part(experience.natural_NSLK, part)[:, -length:][at_BT])
            new.append(seen.natural_BSLK[:, -length:][at_BT])
            entropy.append(seen.router_entropy_BSL[:, -length:][at_BT])
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
