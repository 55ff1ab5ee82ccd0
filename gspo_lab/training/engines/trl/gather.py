"""From the processes' shares to what is recorded: the tensors of the native engine, on every
process.

Shapes: N responses of a rollout batch, n of one process's share, M of a mini-batch, b of one pass,
P prompt positions, T response tokens, S = P + T - 1 input positions (TRL's own passes have one
more, the last token), L, K as ever.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor

from gspo_lab.tasks.base import Grade, Problem
from gspo_lab.training.engines.native.experience import Experience, Microbatch, microbatch
from gspo_lab.training.engines.native.loop import TrainingRun
from gspo_lab.training.engines.native.optimizer_update import MinibatchRows, UpdateResult
from gspo_lab.training.engines.native.policy import Forward
from gspo_lab.training.engines.native.step_record import Clock, CompletedStep, positions
from gspo_lab.training.models.routing import RoutingRecorder
from gspo_lab.training.objectives import Batch, surrogate
from gspo_lab.training.samplers.base import Rollout


@dataclass(slots=True)
class Pass:
    """One forward pass of an update, in one process."""

    rows_b: Tensor
    logp_bT: Tensor
    entropy_bT: Tensor
    tap: RoutingRecorder | None


@dataclass(slots=True)
class Share:
    """One process's part of a rollout batch. The old policy's numbers are None where TRL does not
    ask it, because there is but one update."""

    problems: list[Problem] = field(default_factory=list)
    rollouts: list[Rollout] = field(default_factory=list)
    grades: list[Grade] = field(default_factory=list)
    old_logp_nT: Tensor | None = None
    entropy_nT: Tensor | None = None
    routes_nSLK: Tensor | None = None

    def gathered(
        self, accelerator: Any, course: TrainingRun, step: int, reward_PG: Tensor, clock: Clock
    ) -> "RolloutBatch":
        """The whole batch."""
        rollouts: list[Rollout] = gather_object(self.rollouts)
        grades: list[Grade] = gather_object(self.grades)
        if accelerator.is_main_process:
            course.need_grades(step, grades)
        experience = course.experience(rollouts, reward_PG)
        processes = accelerator.num_processes
        knows_old = self.old_logp_nT is not None
        batch = RolloutBatch(
            course, step, rollouts, grades, experience, clock, processes, knows_old
        )
        if self.old_logp_nT is not None:
            assert self.entropy_nT is not None
            routes_NSLK = None
            if self.routes_nSLK is not None:
                routes_NSLK = _gathered_positions(
                    accelerator, self.routes_nSLK, self.old_logp_nT.shape[1]
                )
            batch.know_old(
                torch.arange(len(rollouts), device=experience.mask_NT.device),
                _gather_rows(accelerator, self.old_logp_nT),
                _gather_rows(accelerator, self.entropy_nT),
                routes_NSLK,
            )
        return batch


@dataclass(slots=True)
class RolloutBatch:
    """A rollout batch, whole."""

    course: TrainingRun
    index: int
    rollouts: list[Rollout]
    grades: list[Grade]
    experience: Experience
    clock: Clock
    processes: int
    asked_old: bool
    """Whether TRL asked the old policy before the first update; of the first mini-batch, its own
    pass tells it.
    """

    def know_old(
        self, rows_M: Tensor, logp_MT: Tensor, entropy_MT: Tensor, routes_MSLK: Tensor | None
    ) -> None:
        """The old policy's numbers on some rows: kept for those whose ratios are measured."""
        experience = self.experience
        kept_M1 = experience.evaluated_N[rows_M][:, None] & experience.mask_NT[rows_M]
        experience.old_logp_NT[rows_M] = logp_MT.masked_fill(~experience.mask_NT[rows_M], 0.0)
        experience.entropy_NT[rows_M] = entropy_MT.masked_fill(~kept_M1, 0.0)
        experience.old_known_N[rows_M] = experience.evaluated_N[rows_M]
        if routes_MSLK is not None:
            experience.keep_routes(rows_M, routes_MSLK)

    def step(self, clock: Clock, updates: Sequence[UpdateResult]) -> CompletedStep:
        """The step that has been trained on."""
        course = self.course
        problems = self.course.prompts.step(self.index)
        epochs = course.settings.update.epochs
        return CompletedStep(
            self.index,
            problems,
            self.rollouts,
            self.grades,
            course.rewards(self.grades),
            self.experience,
            clock,
            sum(update.seconds_replay for update in updates),
            sum(positions(self.rollouts)) * (self.asked_old + 3.0 * epochs),
            first_problems=problems,
            drawn=self.rollouts,
            devices=self.processes,
        )


def updated(
    accelerator: Any, course: TrainingRun, batch: RolloutBatch, passes: Sequence[Pass], index: int
) -> UpdateResult:
    """What update `index` of a rollout batch did, from this process's passes and all others'."""
    experience = batch.experience
    rows_M = torch.cat([_gather_rows(accelerator, part.rows_b) for part in passes])
    order_M = rows_M.argsort()
    rows_M = rows_M[order_M]

    def whole(shares: Iterable[Tensor]) -> Tensor:
        return torch.cat(list(shares))[order_M]

    logp_MT = whole(_gather_rows(accelerator, part.logp_bT) for part in passes)
    forward = Forward(logp_MT, None)
    taps = [(part.tap, part.logp_bT.shape[1]) for part in passes if part.tap is not None]
    if taps:
        forward.natural_BSLK = whole(
            _gathered_positions(accelerator, tap.natural_BSLK, length) for tap, length in taps
        )
        forward.router_entropy_BSL = whole(
            _gathered_positions(accelerator, tap.entropy_BSL, length) for tap, length in taps
        )
        forward.seconds_replay = sum(tap.seconds_replay for tap, _ in taps)
    if index == 0:
        entropy_MT = whole(_gather_rows(accelerator, part.entropy_bT) for part in passes)
        batch.know_old(rows_M, logp_MT, entropy_MT, forward.natural_BSLK)
    mask_MT = experience.mask_NT[rows_M]
    old = Batch(
        mask_BT=mask_MT,
        adv_BT=experience.adv_NT[rows_M],
        old_logp_BT=experience.old_logp_NT[rows_M],
        responses=len(rows_M),
        tokens=int(mask_MT.sum()),
    )
    out = surrogate(logp_MT, old, course.components.updater.objective)
    minibatch = MinibatchRows(batch.index, index, rows_M, fresh=False)
    result = UpdateResult(minibatch, out.log_ratio_BT, out.metrics, {"loss": float(out.loss)})
    if taps:
        result.forwards = _measured_rows(experience, rows_M, forward)
    return result


def _measured_rows(
    experience: Experience, rows_M: Tensor, forward: Forward
) -> list[tuple[Microbatch, Forward]]:
    """The rows whose ratios are measured, as one pass of the native engine; none where there are no
    such rows.
    """
    evaluated_M = experience.evaluated_N[rows_M]
    if not evaluated_M.any():
        return []
    assert forward.natural_BSLK is not None
    assert forward.router_entropy_BSL is not None
    part = microbatch(
        experience, rows_M[evaluated_M], experience.prompt_NP.shape[1], experience.mask_NT.shape[1]
    )
    measured = Forward(
        forward.logp_BT[evaluated_M],
        None,
        natural_BSLK=forward.natural_BSLK[evaluated_M],
        router_entropy_BSL=forward.router_entropy_BSL[evaluated_M],
        seconds_replay=forward.seconds_replay,
    )
    return [(part, measured)]


def _gather_rows(accelerator: Any, x_n: Tensor) -> Tensor:
    """All processes' rows, in the order of their ranks, padded on the right to the longest."""
    if x_n.dim() > 1:
        x_n = accelerator.pad_across_processes(x_n.contiguous(), dim=1)
    gathered: Tensor = accelerator.gather(x_n.contiguous())
    return gathered


def _gathered_positions(accelerator: Any, x_nS: Tensor, length: int) -> Tensor:
    """What is known of positions, from all processes; the last `length` are a response's.

    Prompts are padded on the left. The last position is left out: the lab does not feed it.
    """
    kind = x_nS.dtype
    x_nS = (
        x_nS.int() if x_nS.dtype == torch.int16 else x_nS
    )  # which processes cannot send each other
    prompt_width = x_nS.shape[1] - length
    prompt_nP = accelerator.pad_across_processes(
        x_nS[:, :prompt_width].contiguous(), dim=1, pad_first=True
    )
    columns = (
        accelerator.gather(prompt_nP),
        _gather_rows(accelerator, x_nS[:, prompt_width:])[:, :-1],
    )
    return torch.cat(columns, dim=1).to(kind)
