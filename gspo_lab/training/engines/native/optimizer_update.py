"""One optimizer update on one mini-batch: forward, loss, backward on each microbatch, then a step
of the optimizer.

Its record is made when the step has ended: it is then measured in one go, in warm caches. Shapes as
in experience.py; M rows of a mini-batch."""

import math
import time
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records.metric import rounded
from gspo_lab.recording.records.update import UpdateRecord
from gspo_lab.training.engines.native.critic import Critic
from gspo_lab.training.engines.native.experience import (
    Experience,
    Microbatch,
    microbatch_slice,
    microbatches,
)
from gspo_lab.training.engines.native.policy import Forward, Policy, keep_old_policy
from gspo_lab.training.engines.native.trainable_model import TrainableModel
from gspo_lab.training.models.routing import expert_change, expert_load
from gspo_lab.training.objectives.losses import Common, Loss, Metrics
from gspo_lab.training.objectives.objective import Surrogate, prepared, surrogate
from gspo_lab.training.objectives.ratios import Batch
from gspo_lab.training.objectives.recorder import Recorder


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
    """What an update did, kept until it is recorded.

    It has l_t of the M rows, what the loss told of them, and the forward passes. `columns` are the
    record's fields that are known without measuring. `finite`: the loss, the gradient and the
    trained weights are."""

    minibatch: MinibatchRows
    log_ratio_MT: Tensor
    metrics: Metrics
    columns: JsonObject
    forwards: list[tuple[Microbatch, Forward]] = field(default_factory=list)
    finite: bool = True

    def add(self, part: Microbatch, forward: Forward, out: Surrogate) -> None:
        """Put one microbatch's outcome at its rows' places."""
        places = torch.searchsorted(self.minibatch.rows, part.rows)
        self.log_ratio_MT[places, : part.length] = out.log_ratio_BT
        for name, number in (out.metrics | forward.metrics).items():
            if not isinstance(number, Tensor):
                self.metrics[name] = number
            elif number.dim() == 0:
                self.metrics[name] = self.metrics.get(name, 0.0) + float(number)
            else:
                zeros_MT = number.new_zeros(self.log_ratio_MT.shape)
                self.metrics.setdefault(name, zeros_MT)[places, : part.length] = number
        self.columns["loss"] += float(out.loss.detach())
        self.forwards.append((part, forward.without_graph()))

    @property
    def seconds_replay(self) -> float:
        """Seconds that the forward passes spent on replaying routes."""
        return sum(forward.seconds_replay for _, forward in self.forwards)


@dataclass(slots=True)
class Updater:
    """Trains a policy with one objective and its policy loss, and its critic if it has one;
    `replay` names the routes to replay.
    """

    policy: Policy
    trained: TrainableModel
    objective: Common
    loss: Loss[Any]
    recorder: Recorder
    replay: str
    sampler_is_old: bool
    critic: Critic | None = None

    def update(self, experience: Experience, minibatch: MinibatchRows) -> UpdateResult:
        """Train on one mini-batch."""
        started = time.perf_counter()
        objective, selected_MT = self.prepared(experience, minibatch)
        result = self._passes(experience, minibatch, objective, selected_MT)
        while not self.trained.unscale():
            result = self._passes(experience, minibatch, objective, selected_MT)
        result.columns |= self.router_gradient()
        measure = self.recorder.detailed(minibatch.step)
        columns, result.finite = self.trained.step(result.columns["loss"], measure=measure)
        result.columns |= columns
        if self.critic is not None:
            columns, finite = self.critic.update(experience, minibatch.rows)
            result.columns |= columns
            result.finite = result.finite and finite
        result.columns["seconds"] = time.perf_counter() - started
        return result

    def _passes(
        self,
        experience: Experience,
        minibatch: MinibatchRows,
        objective: Common,
        selected_MT: Tensor | None,
    ) -> UpdateResult:
        """Gather a mini-batch's gradient with what `prepared` gave."""
        rows = minibatch.rows
        log_ratio_MT = torch.zeros_like(experience.old_logp_NT[rows])
        result = UpdateResult(minibatch, log_ratio_MT, {}, {"loss": 0.0})
        self.trained.zero_grad()
        for part in microbatches(experience, rows, self.policy.microbatch_tokens):
            routes_BSLK = self._routes(experience, part, minibatch)
            entropy = minibatch.fresh or objective.entropy_coef > 0
            with self.policy.forward(
                part, replay_BSLK=routes_BSLK, entropy=entropy, logit_gradient=True
            ) as forward:
                if minibatch.fresh:
                    keep_old_policy(experience, part, forward)
                batch = self._batch(experience, part.rows, part.mask_BT, minibatch)
                if selected_MT is not None:
                    places = torch.searchsorted(rows, part.rows)
                    batch = replace(batch, selected_BT=selected_MT[places, : part.length])
                out = surrogate(forward.logp_BT, batch, objective, self.loss, forward.entropy_BT)
                self.trained.backward(out.loss)
            result.add(part, forward, out)
        if not result.forwards:
            self.trained.zero_gradient()
            batch = self._batch(experience, rows, experience.mask_NT[rows], minibatch)
            result.metrics = surrogate(batch.old_logp_BT, batch, objective, self.loss).metrics
        return result

    @torch.no_grad()
    def prepared(
        self, experience: Experience, minibatch: MinibatchRows
    ) -> tuple[Common, Tensor | None]:
        """The objective of one mini-batch, and the [M, T] tokens that its loss selects, found in a
        pass over the whole before it."""
        if not self.needs_whole_minibatch_pass(fresh=minibatch.fresh):
            return self.objective, None
        rows = minibatch.rows
        logp_MT = torch.zeros_like(experience.old_logp_NT[rows])
        for part in microbatches(experience, rows, self.policy.microbatch_tokens):
            routes_BSLK = self._routes(experience, part, minibatch)
            with self.policy.forward(part, replay_BSLK=routes_BSLK) as forward:
                logp_MT[torch.searchsorted(rows, part.rows), : part.length] = forward.logp_BT
        batch = self._batch(experience, rows, experience.mask_NT[rows], minibatch)
        return prepared(logp_MT, batch, self.objective, self.loss)

    def needs_whole_minibatch_pass(self, *, fresh: bool) -> bool:
        """Whether a pass over the whole mini-batch comes before its update. Where it is fresh, all
        ratios are 1, and what a loss would find there may change nothing.
        """
        changes_nothing = fresh and self.loss.reinforce_on_policy and not self.sampler_is_old
        return self.loss.sees_whole and not changes_nothing

    def _batch(
        self, experience: Experience, rows: Tensor, mask_BT: Tensor, minibatch: MinibatchRows
    ) -> Batch:
        """Some rows of a mini-batch as its objective reads them."""
        length = mask_BT.shape[1]
        responses, tokens = experience.counts(minibatch.rows)
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
        routes_NSLK = None
        if self.replay == "rollout":
            routes_NSLK = experience.rollout_routes_NSLK
        elif self.replay == "old-policy" and not minibatch.fresh:
            routes_NSLK = experience.natural_NSLK
        return microbatch_slice(routes_NSLK, part)

    def router_gradient(self) -> JsonObject:
        """The columns of the gradient that has gathered in the routers; none for a dense model, and
        for frozen routers.
        """
        if self.policy.routers is None:
            return {}
        layers = [
            [p.grad.norm() for p in router.parameters() if p.grad is not None]
            for _, router in self.policy.routers.modules
        ]
        norms = list(chain.from_iterable(layers))
        if not norms:
            return {}
        return {
            "router_grad_norm": float(torch.stack(norms).norm()),
            "router_grad_norm_layers": rounded(
                [math.hypot(*map(float, layer)) for layer in layers]
            ),
        }


def update_record(updater: Updater, experience: Experience, result: UpdateResult) -> UpdateRecord:
    """The record of an update."""
    rows = result.minibatch.rows
    finite = result.finite and bool(experience.sampler_logp_NT[rows].isfinite().all())
    return updater.recorder.update(
        step=result.minibatch.step,
        minibatch=result.minibatch.index,
        log_ratio_BT=result.log_ratio_MT,
        mask_BT=experience.mask_NT[rows],
        adv_BT=experience.adv_NT[rows],
        metrics=result.metrics,
        evaluated_B=experience.evaluated_N[rows],
        other_log_ratio_BT=log_ratio_against_sampler(updater, experience, result),
        nonfinite=int(not finite),
        **_routing_columns(updater, experience, result),
        **result.columns,
    )


def log_ratio_against_sampler(
    updater: Updater, experience: Experience, result: UpdateResult
) -> Tensor | None:
    """[M, T] l_t against the sampler's log-probs; where these are the old ones already, against the
    trainer's. None where the trainer has not evaluated the old policy.
    """
    rows = result.minibatch.rows
    if not experience.old_known_N[rows].any():
        return None
    d_MT = experience.mismatch_NT[rows]
    return result.log_ratio_MT - d_MT if updater.sampler_is_old else result.log_ratio_MT + d_MT


def _routing_columns(updater: Updater, experience: Experience, result: UpdateResult) -> JsonObject:
    """Expert change against the old policy at input positions that predict response tokens, where
    the trainer has evaluated that on them; and router health.
    """
    routers = updater.policy.routers
    if routers is None or not result.forwards:
        return {}
    old = []
    new = []
    entropy = []
    for part, forward in result.forwards:
        if bool(experience.old_known_N[part.rows].all()):
            old.append(_at_responses(microbatch_slice(experience.natural_NSLK, part), part))
        new.append(_at_responses(forward.natural_BSLK, part))
        entropy.append(_at_responses(forward.router_entropy_BSL, part))
    new_N1LK = torch.cat(new)[:, None]
    everywhere = torch.ones(new_N1LK.shape[:2], dtype=torch.bool, device=new_N1LK.device)
    cv_L, dead_LE = expert_load(new_N1LK, everywhere, routers.experts)
    out = {
        **_mean_and_layers("router_entropy", torch.cat(entropy)),
        **_mean_and_layers("expert_load_cv", cv_L[None]),
        **_mean_and_layers("dead_experts", dead_LE.T),
    }
    if len(old) == len(new):
        layers_L, any_layer = expert_change(torch.cat(old)[:, None], new_N1LK, everywhere)
        out["expert_change"] = float(layers_L.mean())
        out["expert_change_layers"] = [round(float(value), 7) for value in layers_L]
        out["expert_change_any_tokens"] = float(any_layer)
    return out


def _at_responses(values_BSX: Any, part: Microbatch) -> Tensor:
    """The values at the input positions that predict response tokens: the last `length`."""
    values_NX: Tensor = values_BSX[:, -part.length :][part.mask_BT]
    return values_NX


def _mean_and_layers(column: str, values_XL: Any) -> JsonObject:
    """The mean of an array over all, and in `*_layers` that of each layer."""
    return {
        column: float(values_XL.mean()),
        f"{column}_layers": rounded(values_XL.mean(axis=0).tolist()),
    }
