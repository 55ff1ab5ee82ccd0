"""One optimizer update on one mini-batch: forward, loss, backward on each microbatch, then a step
of the optimizer.

Its record is made when the step has ended: it is then measured in one go, in warm caches. Shapes as
in experience.py; M rows of a mini-batch."""

import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from gspo_lab.recording.records import UpdateRecord
from gspo_lab.training.engines.native.critic import Critic
from gspo_lab.training.engines.native.experience import (
    Experience,
    Microbatch,
    microbatches,
    of_microbatch,
)
from gspo_lab.training.engines.native.policy import Forward, Policy, store
from gspo_lab.training.engines.native.trainable_model import OptimizerStep, TrainableModel
from gspo_lab.training.models.routing import expert_change, load_cv
from gspo_lab.training.objectives import (
    Batch,
    Surrogate,
    prepared,
    ratio_measures,
    response_detail,
    surrogate,
)
from gspo_lab.training.objectives.losses import Common, Loss


@dataclass(frozen=True, slots=True)
class MinibatchRows:
    """Which update this is, on which rows (ascending), and what of the old policy is still to be
    found out.
    """

    step: int
    index: int
    rows: Tensor
    fresh: bool
    """The current policy is still the old one, and nobody has evaluated it on these rows: this
    forward pass does.
    """


@dataclass(slots=True)
class UpdateResult:
    """What an update did, kept until it is measured: l_t, clips, correction, gate and dual clips of
    the M rows, and the routes; `objective` is what it was trained with."""

    minibatch: MinibatchRows
    objective: Common
    log_ratio_MT: Tensor
    clipped_MT: Tensor
    weight_MT: Tensor
    gate_MT: Tensor | None = None
    dual_clipped_MT: Tensor | None = None
    forwards: list[tuple[Microbatch, Forward]] = field(default_factory=list)
    loss: float = 0.0
    kl_sum: float = 0.0
    router_grad_norm: float | None = None
    moved: OptimizerStep = OptimizerStep(0.0, 0.0, True)
    critic_columns: dict[str, float] = field(default_factory=dict)
    critic_finite: bool = True
    seconds: float = 0.0
    engine_metrics: dict[str, float] | None = None

    def add(self, part: Microbatch, forward: Forward, out: Surrogate) -> None:
        """Put one microbatch's outcome at its rows' places."""
        places = torch.searchsorted(self.minibatch.rows, part.rows)
        for name in ("log_ratio", "clipped", "weight", "gate", "dual_clipped"):
            whole_MT = getattr(self, f"{name}_MT")
            x_BT = getattr(out, f"{name}_BT")
            if whole_MT is not None and x_BT is not None:
                whole_MT[places, : part.length] = x_BT
        self.loss += float(out.loss.detach())
        self.kl_sum += 0.0 if out.kl_sum is None else float(out.kl_sum)
        self.forwards.append((part, forward.without_graph()))

    @property
    def seconds_replay(self) -> float:
        """Seconds that the forward passes spent on replaying routes."""
        return sum(forward.seconds_replay for _, forward in self.forwards)


@dataclass(slots=True)
class Updater:
    """Trains a policy with one objective and its policy loss, and its critic if it has one. `bands`
    are the rules' reference ranges, `replay` the routes to replay."""

    policy: Policy
    trained: TrainableModel
    objective: Common
    loss: Loss[Any]
    bands: dict[str, tuple[float, float]]
    replay: str
    sampler_is_old: bool
    critic: Critic | None = None

    def update(self, experience: Experience, minibatch: MinibatchRows) -> UpdateResult:
        """Train on one mini-batch."""
        started = time.perf_counter()
        objective, selected_MT = self.prepared(experience, minibatch)
        done = self._passes(experience, minibatch, objective, selected_MT)
        while not self.trained.unscale():
            done = self._passes(experience, minibatch, objective, selected_MT)
        done.router_grad_norm = self.router_grad_norm()
        done.moved = self.trained.move(done.loss)
        if self.critic is not None:
            done.critic_columns, done.critic_finite = self.critic.update(experience, minibatch.rows)
        done.seconds = time.perf_counter() - started
        return done

    def _passes(
        self,
        experience: Experience,
        minibatch: MinibatchRows,
        objective: Common,
        selected_MT: Tensor | None,
    ) -> UpdateResult:
        """Gather a mini-batch's gradient with what `prepared` gave."""
        mask_MT = experience.mask_NT[minibatch.rows]
        responses, tokens = experience.counts(minibatch.rows)
        like_MT = torch.zeros(mask_MT.shape, device=mask_MT.device)
        done = UpdateResult(
            minibatch, objective, like_MT, torch.zeros_like(mask_MT), torch.ones_like(like_MT)
        )
        done.gate_MT = torch.ones_like(like_MT) if self.loss.clips is None else None
        done.dual_clipped_MT = None if objective.dual_clip is None else torch.zeros_like(mask_MT)

        self.trained.forget_gradient()
        if not experience.evaluated_N[minibatch.rows].any():
            self.trained.zero_gradient()
        for part in microbatches(experience, minibatch.rows, self.policy.microbatch_tokens):
            routes_BSLK = self._routes(experience, part, minibatch)
            entropy = minibatch.fresh or objective.entropy_coef > 0
            with self.policy.forward(part, replay_BSLK=routes_BSLK, entropy=entropy) as forward:
                if minibatch.fresh:
                    store(experience, part, forward)
                batch = self._batch(
                    experience, part.rows, part.mask_BT, responses=responses, tokens=tokens
                )
                if selected_MT is not None:
                    places = torch.searchsorted(minibatch.rows, part.rows)
                    batch = replace(batch, selected_BT=selected_MT[places, : part.length])
                out = surrogate(forward.logp_BT, batch, objective, self.loss, forward.entropy_BT)
                self.trained.backward(out.loss)
            done.add(part, forward, out)
        return done

    @torch.no_grad()
    def prepared(
        self, experience: Experience, minibatch: MinibatchRows
    ) -> tuple[Common, Tensor | None]:
        """The objective of one mini-batch, and the [M, T] tokens that its loss selects, found in a
        pass over the whole before it."""
        if not self.sees_first(fresh=minibatch.fresh):
            return self.objective, None
        rows = minibatch.rows
        mask_MT = experience.mask_NT[minibatch.rows]
        logp_MT = torch.zeros(mask_MT.shape, device=mask_MT.device)
        for part in microbatches(experience, rows, self.policy.microbatch_tokens):
            with self.policy.forward(
                part, replay_BSLK=self._routes(experience, part, minibatch)
            ) as forward:
                logp_MT[torch.searchsorted(rows, part.rows), : part.length] = forward.logp_BT
        responses, tokens = experience.counts(rows)
        whole = self._batch(experience, rows, mask_MT, responses=responses, tokens=tokens)
        return prepared(logp_MT, whole, self.objective, self.loss)

    def sees_first(self, *, fresh: bool) -> bool:
        """Whether the loss sees a mini-batch in a pass before its update. Where it is fresh, all
        ratios are 1, and what a loss would find there may change nothing."""
        return self.loss.sees_whole and not (
            fresh and self.loss.alike_at_1 and not self.sampler_is_old
        )

    def _batch(
        self, experience: Experience, rows: Tensor, mask_BT: Tensor, *, responses: int, tokens: int
    ) -> Batch:
        length = mask_BT.shape[1]
        old = experience.sampler_logp_NT if self.sampler_is_old else experience.old_logp_NT
        reference = experience.ref_logp_NT
        return Batch(
            mask_BT=mask_BT,
            adv_BT=experience.adv_NT[rows, :length],
            old_logp_BT=old[rows, :length],
            responses=responses,
            tokens=tokens,
            ref_logp_BT=None if reference is None else reference[rows, :length],
            sampler_logp_BT=experience.sampler_logp_NT[rows, :length],
        )

    def _routes(
        self, experience: Experience, part: Microbatch, minibatch: MinibatchRows
    ) -> Tensor | None:
        """The experts to replay: the sampler's (R3), the old policy's (R2; a fresh mini-batch's own
        are these), or none."""
        if self.replay == "rollout":
            assert experience.rollout_routes_NSLK is not None
            return of_microbatch(experience.rollout_routes_NSLK, part)
        if self.replay == "old-policy" and not minibatch.fresh:
            assert experience.natural_NSLK is not None
            return of_microbatch(experience.natural_NSLK, part)
        return None

    def router_grad_norm(self) -> float | None:
        """The norm of the gradient that has gathered in the routers; None for a dense model, and
        for frozen routers.
        """
        if self.policy.routers is None:
            return None
        grads = [p.grad for p in self.policy.routers.parameters if p.grad is not None]
        return float(torch.stack([grad.norm() for grad in grads]).norm()) if grads else None


def update_record(
    updater: Updater,
    experience: Experience,
    done: UpdateResult,
    *,
    detail: bool,
    token_detail: bool,
) -> UpdateRecord:
    """The record of an update, on request with every response's own numbers and with every
    token's.
    """
    objective = updater.objective
    rows = done.minibatch.rows
    mask_MT = experience.mask_NT[rows]
    adv_MT = experience.adv_NT[rows]
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
        weight_BT=done.weight_MT if objective.weighs_tokens else None,
    )
    if updater.loss.prepare is not None:
        fields |= {
            "bapo_clip_low": done.objective.clip_low,
            "bapo_clip_high": done.objective.clip_high,
        }
    fields |= _routing_fields(updater, experience, done) | done.critic_columns
    alive = done.moved.finite and done.critic_finite
    if detail:
        per_response = (done.log_ratio_MT, mask_MT, adv_MT, done.clipped_MT)
        fields["response_detail"] = response_detail(
            *(x_MT[evaluated_M] for x_MT in per_response), tokens=token_detail
        )
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


def _with_the_other_s_old_logprobs(
    updater: Updater, experience: Experience, done: UpdateResult
) -> Tensor | None:
    """[M, T] l_t against the other program's old log-probs; None where the trainer has not
    evaluated the old policy.
    """
    rows = done.minibatch.rows
    if not experience.old_known_N[rows].any():
        return None
    d_MT = experience.mismatch_NT[rows]
    return done.log_ratio_MT - d_MT if updater.sampler_is_old else done.log_ratio_MT + d_MT


def _routing_fields(updater: Updater, experience: Experience, done: UpdateResult) -> dict[str, Any]:
    """Expert change against the old policy at input positions that predict response tokens, where
    the trainer has evaluated that on them; and router health."""
    routers = updater.policy.routers
    if routers is None or not done.forwards:
        return {}
    old = []
    new = []
    entropy = []
    for part, forward in done.forwards:
        assert forward.natural_BSLK is not None
        assert forward.router_entropy_BSL is not None
        length = part.length
        at_BT = (
            part.mask_BT
        )  # the last `length` input positions are those that predict the response tokens
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
