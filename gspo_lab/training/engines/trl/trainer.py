"""TRL's GRPOTrainer on a run's course: TRL computes and updates, the course says with what, and
what is recorded.

What the trainer is held by: `rollout_func` (the lab's sampler), a reward function (the task), and
its inner methods, each of which does what it did and keeps what it saw. Advantages alone are
replaced, by the lab's own: TRL adds 1e-4 to a standard deviation where the lab adds 1e-6, and knows
fewer kinds. Which responses share a mini-batch is TRL's choice: it permutes each process's share;
here by random numbers that depend on (seed, step, rank) alone.

TRL's own generation tells no log-probs: these are read off the model's passes while it draws.

Shapes: n responses of this process's share of a rollout batch, b of one pass, S = P + T positions
(TRL feeds the last token too), T response tokens, V vocabulary, L MoE layers, K experts per
token."""

import math
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from logging import ERROR
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from datasets.utils.logging import set_verbosity as set_datasets_verbosity
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject, OptionalFloat, OptionalInt
from gspo_lab.recording.records.update import OPTIMIZER_COLUMNS
from gspo_lab.study import Run
from gspo_lab.training.engines.base import Sink, Stop
from gspo_lab.training.engines.native.build_run import set_up
from gspo_lab.training.engines.native.loop import TrainingRun
from gspo_lab.training.engines.native.optimizer_update import UpdateResult
from gspo_lab.training.engines.native.step_record import Clock
from gspo_lab.training.engines.native.trainable_model import TrainableModel
from gspo_lab.training.engines.trl import VERSIONS, TrlEngine, trainer_settings
from gspo_lab.training.engines.trl.gather import Pass, RolloutBatch, Share, updated
from gspo_lab.training.objectives import advantages
from gspo_lab.training.samplers.base import Request, Rollout, noise_key
from gspo_lab.training.samplers.stopping import Stopping, eos_ids


class Generation:
    """Draws by the trainer's `_generate_single_turn`, with torch's random numbers; ends at the
    task's stop texts.
    """

    def __init__(self, trainer: GRPOTrainer, course: TrainingRun) -> None:
        self._trainer = trainer
        self._model = course.components.policy.model
        sampling = course.components.sampling
        self._temperature = sampling.temperature
        self._stopping = Stopping(course.components.tokenizer, sampling.stop, eos_ids(self._model))
        # Tokens that hold a stop text whole end a response like the end of a sequence; what spans
        # tokens is cut behind.
        trainer.eos_token_ids = sorted(self._stopping.ids)
        for settings in (trainer.generation_config, trainer.generation_kwargs):
            limits = {"eos_token_id": trainer.eos_token_ids, "max_new_tokens": sampling.max_tokens}
            settings.update(**limits)

    def sample(self, requests: Sequence[Request]) -> list[Rollout]:
        """One rollout per request, in the order of the requests."""
        prompts = [list(request.prompt_ids) for request in requests]
        with _Drawing(self._model, self._temperature) as drawing:
            drawn, _ = self._trainer._generate_single_turn(
                prompts, None, {}, self._trainer.num_generations
            )
        logprobs = drawing.logprobs(drawn)
        out = []
        for request, ids, logp in zip(requests, drawn, logprobs, strict=True):
            end = self._stopping.end(ids)
            text = self._stopping.text(ids[:end])
            out.append(Rollout(request, ids[:end], logp[:end], text, truncated=end is None))
        return out


class _Drawing:
    """The log-probs of drawn tokens: those that a pass is given were drawn from the pass before."""

    def __init__(self, model: Any, temperature: float) -> None:
        self._model = model
        self._temperature = temperature
        self._logp_nV: Tensor | None = None
        self._columns: list[Tensor] = []

    def __enter__(self) -> "_Drawing":
        self._hook = self._model.register_forward_hook(self._after_pass, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _after_pass(self, _: Any, args: Any, inputs: JsonObject, out: Any) -> None:
        self._tell(inputs["input_ids"][:, -1])
        self._logp_nV = (out.logits[:, -1].float() / self._temperature).log_softmax(dim=-1)

    def _tell(self, token_n: Tensor) -> None:
        if self._logp_nV is not None:
            self._columns.append(self._logp_nV.gather(1, token_n[:, None])[:, 0])

    def logprobs(self, drawn: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probs of each response's tokens.

        The last ones drawn were given to no pass.
        """
        last = len(self._columns)
        assert self._logp_nV is not None
        self._tell(
            torch.tensor(
                [ids[last] if len(ids) > last else 0 for ids in drawn], device=self._logp_nV.device
            )
        )
        rows = torch.stack(self._columns, dim=1).tolist()
        return [row[: len(ids)] for row, ids in zip(rows, drawn, strict=True)]


LONGEST_WAIT = 7 * 24 * 3600
"""Seconds that a process waits for another: rank 0 asks benchmarks alone."""

NOT_KEPT = {"epoch", "num_tokens", "step_time"}
"""Numbers of TRL's that count from where its process began, or time it."""


def train(
    run: Run,
    sink: Sink,
    folder: Path,
    stop: Stop,
    processes: int,
    microbatches: int,
    sampling: str = "lab",
) -> None:
    """Train a run from where its folder stands to its last step, or until `stop`, asked on rank 0,
    wants an end.
    """
    settings = run.settings
    logging.set_verbosity_error()
    set_datasets_verbosity(ERROR)
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    config = GRPOConfig(
        **trainer_settings(settings, processes, microbatches),
        output_dir=str(folder),
        use_cpu=settings.device == "cpu" or not torch.cuda.is_available(),
        seed=run.seed % 2**32,
        ddp_timeout=LONGEST_WAIT,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    if (world := config.distributed_state.num_processes) != processes:
        raise LabError(
            f"the engine 'trl' was to train in {processes} processes, and there are {world}"
        )
    course = TrainingRun(
        run, set_up(run, None if run.warm_start is None else Path(run.warm_start)), sink, folder
    )
    first_step = course.resume()
    if config.process_index == 0:
        course.begin(first_step, capabilities=TrlEngine.capabilities, packages=tuple(VERSIONS))
        if first_step == 0 and not course.open(stop):
            first_step = settings.steps + 1  # what every process is told: nobody has to train
    steps = [first_step]
    broadcast_object_list(steps)
    (first_step,) = steps
    if first_step < settings.steps:
        config.max_steps = (settings.steps - first_step) * settings.update.per_rollout_batch
        trainer = LabTrainer(course, first_step, stop, config, sampling)
        trainer.train()
        first_step = trainer.step
    if config.process_index == 0 and first_step == settings.steps:
        course.end()


class LabTrainer(GRPOTrainer):  # type: ignore[misc]
    """Trains a run from step `first` on; `step` is where it stands."""

    def __init__(
        self, course: TrainingRun, first_step: int, stop: Stop, config: GRPOConfig, sampling: str
    ) -> None:
        components = course.components
        trained = components.trained["policy"]
        past_updates = trained.updates
        self.course = course
        self.step = first_step
        self.stop = stop
        self.routers = components.policy.routers
        self.replays_old = course.settings.routing_replay == "old-policy"
        update = course.settings.update
        self.per_step = update.per_rollout_batch
        self.batch: RolloutBatch | None = None
        self.updates: list[UpdateResult] = []
        self.passes: list[Pass] = []
        self.moment = _Moment(trained)
        super().__init__(
            model=components.policy.model,
            args=config,
            reward_funcs=[self.reward],
            train_dataset=_prompts(course, first_step),
            processing_class=components.tokenizer,
            optimizers=(
                trained.optimizer,
                LambdaLR(trained.optimizer, lambda n: update.warmup_factor(past_updates + n)),
            ),
            rollout_func=lambda prompts, _: self.rollout(prompts),
            callbacks=[self.moment],
        )
        self.generation = Generation(self, course) if sampling == "trl" else None
        self.remove_callback(PrinterCallback)  # it prints dictionaries, which begin as records do

    # A rollout batch, in this process's share of it.

    def _generate_and_score_completions(self, inputs: list[JsonObject]) -> JsonObject:
        self.clock = Clock()
        self.share = Share()
        out: JsonObject = super()._generate_and_score_completions(inputs)
        settings = self.course.settings
        index = self.accelerator.process_index
        count = len(inputs)
        reward_PG = self.rewards_N.view(-1, settings.rollout.group_size)
        adv_PG = advantages(reward_PG, settings.objective.advantage)
        out["advantages"] = adv_PG.flatten()[index * count : (index + 1) * count]
        out["rows"] = torch.arange(
            index * count, (index + 1) * count, device=out["advantages"].device
        )
        if self.routers is not None:
            out["routes"] = self.share.routes_nSLK
        self.share.old_logp_nT = out.get("old_per_token_logps")
        self.batch = self.share.gathered(
            self.accelerator, self.course, self.step, reward_PG, self.clock
        )
        torch.manual_seed(noise_key(self.course.seed, "trl permutation", self.step, index))
        return out

    def rollout(self, prompts: list[str]) -> JsonObject:
        """TRL's `rollout_func`: this process's share of the samples, the lab's or TRL's own."""
        course = self.course
        first_row = self.accelerator.process_index * len(prompts)
        requests = course.requests(self.step)[first_row : first_row + len(prompts)]
        problems = course.prompts.step(self.step)
        group = course.settings.rollout.group_size
        self.share.problems = [
            problems[row // group] for row in range(first_row, first_row + len(prompts))
        ]
        assert prompts == [problem.prompt for problem in self.share.problems], (
            "TRL asks other prompts than the lab"
        )
        if self.generation is None:
            self.share.rollouts = course.sample(requests, self.share.problems)
        else:
            torch.manual_seed(
                noise_key(
                    *course.noise, "trl generation", self.step, self.accelerator.process_index
                )
            )
            self.share.rollouts = self.generation.sample(requests)
        course.components.sampler.pause()
        self.clock.lap("rollout")
        return {
            "prompt_ids": [list(rollout.request.prompt_ids) for rollout in self.share.rollouts],
            "completion_ids": [rollout.response_ids for rollout in self.share.rollouts],
            "logprobs": [rollout.logprobs for rollout in self.share.rollouts],
        }

    def reward(self, prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        """TRL's reward function: the task's grades."""
        self.clock.lap("old_logprobs")
        self.share.grades = self.course.grade(self.share.problems, self.share.rollouts)
        self.clock.lap("grade")
        return [0.0 if grade.reward is None else grade.reward for grade in self.share.grades]

    def _calculate_rewards(self, *args: Any) -> Tensor:
        rewards_N1: Tensor = super()._calculate_rewards(*args)
        self.rewards_N = rewards_N1[:, 0]
        return rewards_N1

    # A pass of the policy.

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: OptionalInt = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        if torch.is_grad_enabled():
            return self._updating_pass(model, input_ids, attention_mask, logits_to_keep, **options)
        passes = []
        size = batch_size or len(input_ids)
        for start in range(0, len(input_ids), size):
            ids_bS = input_ids[start : start + size]
            mask_bS = attention_mask[start : start + size]
            with ExitStack() as taps:
                tap = (
                    None
                    if self.routers is None
                    else taps.enter_context(self.routers.tap(*ids_bS.shape))
                )
                logp_bT, entropy_bT, _ = super()._get_per_token_logps_and_entropies(
                    model, ids_bS, mask_bS, logits_to_keep, **{**options, "compute_entropy": True}
                )
            passes.append((logp_bT, entropy_bT, None if tap is None else tap.natural_BSLK))
        logps, entropies, routes = zip(*passes, strict=True)
        self.share.entropy_nT = torch.cat(entropies)
        if self.routers is not None:
            self.share.routes_nSLK = torch.cat(routes)
        return torch.cat(logps), None, None

    def _updating_pass(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The pass whose backward pass follows, in which the routes are replayed too."""
        tap = None
        if self.routers is not None:
            replay_bSLK = self.old_routes_bSLK if self.replays_old else None
            mask_bS = None if replay_bSLK is None else attention_mask.bool()
            tap = self.taps.enter_context(
                self.routers.tap(*input_ids.shape, replay_BSLK=replay_bSLK, replay_mask_BS=mask_bS)
            )
        out = super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, **options
        )
        self.passes.append(Pass(self.rows_b, out[0].detach(), out[1].detach(), tap))
        return out  # type: ignore[no-any-return]

    def _compute_loss(self, model: Any, inputs: JsonObject) -> Tensor:
        # On the first mini-batch the policy is still the old one: this very pass is the old
        # policy's, as in native, and its ratios are 1, where TRL's earlier pass over it, among
        # other rows, differs in the last bits.
        fresh = not self.updates
        if fresh:
            inputs.pop("old_per_token_logps", None)
        self.rows_b = inputs["rows"]
        self.old_routes_bSLK = None if fresh else inputs.get("routes")
        loss: Tensor = super()._compute_loss(model, inputs)
        if fresh:  # for the epochs that follow; the inputs are those that TRL keeps for them
            inputs["old_per_token_logps"] = self.passes[-1].logp_bT
            if (tap := self.passes[-1].tap) is not None:
                inputs["routes"] = tap.natural_BSLK
        return loss

    # An update.

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        out = super()._prepare_inputs(generation_batch)
        if not self.passes:
            self.moment.began = time.perf_counter()
        return out

    def training_step(self, *args: Any) -> Tensor:
        """A pass forward and back, inside the taps of its routers."""
        with (
            ExitStack() as self.taps
        ):  # gradient checkpointing computes the pass again inside its backward pass
            loss: Tensor = super().training_step(*args)
        return loss

    def _clip_grad_norm(self, model: Any) -> Any:
        self.router_gradient = self.course.components.updater.router_gradient()
        return super()._clip_grad_norm(model)

    def log(self, logs: dict[str, float], start_time: OptionalFloat = None) -> None:
        """TRL tells its numbers of an update, which is then over."""
        super().log(logs, start_time)
        if "grad_norm" in logs:  # the last words of training have none
            self._record_update(logs)

    def _record_update(self, logs: dict[str, float]) -> None:
        """An update is over, and TRL has told its own numbers."""
        assert self.batch is not None
        index = len(self.updates)
        update = updated(self.accelerator, self.course, self.batch, self.passes, index)
        self.passes = []
        numbers = {
            name: float(value)
            for name, value in logs.items()
            if name not in NOT_KEPT and value is not None and math.isfinite(value)
        }
        update.columns |= {
            **{name: logs[name] for name in OPTIMIZER_COLUMNS},
            **self.router_gradient,
            "weight_norm": self.moment.weight_norm,
            "seconds": self.moment.seconds,
            "engine_metrics": numbers,
        }
        update.finite = {"grad_norm", "loss"} <= numbers.keys() and math.isfinite(
            self.moment.weight_norm
        )
        self.updates.append(update)
        if len(self.updates) == self.per_step:
            self._finish_step()

    def _finish_step(self) -> None:
        """All updates on a rollout batch are over."""
        course = self.course
        assert self.batch is not None
        course.components.sampler.refresh()
        self.clock.lap("update")
        self.step += 1
        end = [False]
        if self.accelerator.is_main_process:
            course.record(self.batch.step(self.clock, self.updates), self.updates)
            course.after(self.step)
            end = [self.step < course.settings.steps and self.stop()]
            if end[0]:
                course.checkpoint(self.step)
        self.updates = []
        broadcast_object_list(end)
        self.control.should_training_stop |= end[0]


class _Moment(TrainerCallback):  # type: ignore[misc]
    """What is known only as the optimizer has made its step."""

    def __init__(self, trained: TrainableModel) -> None:
        self.trained = trained
        self.began = 0.0
        self.seconds = 0.0
        self.weight_norm = 0.0

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.seconds = time.perf_counter() - self.began
        self.trained.updates += 1
        self.weight_norm = self.trained.weight_norm()


def _prompts(course: TrainingRun, first_step: int) -> Dataset:
    """The prompts of all steps from `first_step` on, in the lab's order, made when asked for."""
    per_step = course.settings.rollout.prompts_per_step
    places = Dataset.from_dict(
        {"place": range(first_step * per_step, course.settings.steps * per_step)}
    )

    def prompts(rows: dict[str, list[int]]) -> dict[str, list[str]]:
        return {
            "prompt": [
                course.prompts.step(place // per_step)[place % per_step].prompt
                for place in rows["place"]
            ]
        }

    return places.with_transform(prompts)
