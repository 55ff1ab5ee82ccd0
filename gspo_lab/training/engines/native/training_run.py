"""A run's course around its updates: prompts, samples, grades, benchmarks, checkpoints and records,
whoever updates.

    begin ─> per step: problems ─> sample ─> grade ─> experience ─> (the updates) ─> record ─> after
    ─> ... ─> end

All randomness comes from (seed, where it is used): a run taken up from a checkpoint goes on bit for
bit.
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gspo_lab.common.states import STARTED, Phase
from gspo_lab.recording.records import Record, RunStatus
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Run
from gspo_lab.tasks.base import Grade, Problem, grade_answer
from gspo_lab.tasks.evaluation import evaluate
from gspo_lab.training.engines.base import Sink, Stop
from gspo_lab.training.engines.facts import facts
from gspo_lab.training.engines.native import checkpoint
from gspo_lab.training.engines.native.build_run import RunComponents
from gspo_lab.training.engines.native.experience import (
    Experience,
    pack_routes,
    pad_rollouts,
    turn_credit,
)
from gspo_lab.training.engines.native.optimizer_update import UpdateResult, update_record
from gspo_lab.training.engines.native.prompt_stream import PromptStream
from gspo_lab.training.engines.native.step_record import (
    CompletedStep,
    count,
    step_record,
    training_answers,
)
from gspo_lab.training.engines.step_numbers import RunTotals, need_grades
from gspo_lab.training.models.load import encode_prompt, weights_digest
from gspo_lab.training.objectives import advantages, decoupled, overlong_penalty
from gspo_lab.training.samplers.base import Request, Rollout, noise_key
from gspo_lab.training.samplers.multi_turn import sample_multi_turn


class TrainingRun:
    """One run on its way: the parts it needs, where its records go, and what it has counted."""

    def __init__(self, run: Run, parts: RunComponents, sink: Sink, folder: Path) -> None:
        self.settings = run.settings
        self.seed = run.seed
        self.owner = run.id
        # Coupled arms share every random number of a seed; uncoupled ones mix the arm's name into
        # their noise.
        self.noise = (run.seed,) if run.settings.rollout.coupled else (run.seed, run.arm)
        self.parts = parts
        self.sink = sink
        self.folder = RunFolder(folder)
        self.totals = RunTotals()
        self.kept: dict[str, checkpoint.Checkpointed] = {**parts.trained}
        """What a checkpoint holds, by its name."""
        if run.settings.rollout.staleness:
            self.kept["past"] = parts.lag
        self.problems = parts.task.problems("train")
        self.prompts = PromptStream(self.problems, run.seed, run.settings.rollout.prompts_per_step)

    def begin(self, first: int, **about: Any) -> None:
        """Say that a worker takes the run up at step `first`, with what it knows of itself; `about`
        as of `facts`.
        """
        parts = self.parts
        known = facts(
            model=parts.policy.model,
            tokenizer=parts.tokenizer,
            task=parts.task,
            task_keys=parts.task_keys,
            device=parts.device,
            **about,
        )
        if parts.critic is not None:
            known["critic"] = weights_digest(parts.critic.trained.model)
        if of_sampler := parts.sampler.facts():
            known["sampler"] = of_sampler
        self.sink.write([RunStatus(state=STARTED, step=first, at=time.time(), facts=known)])

    def open(self, stop: Stop) -> bool:
        """What comes before the first step of all; False when `stop` asks for an end there."""
        if stop():
            return False
        self.evaluate(0)
        self.checkpoint(0)
        return True

    def requests(
        self, step: int, others: Sequence[Problem] | None = None, first: int = 0
    ) -> list[Request]:
        """The [P x G] responses that a step asks for, a problem's side by side: to its own
        problems, or to `others`, which stand in the step from place `first` on."""
        return [
            Request(
                problem=problem.id,
                prompt_ids=tuple(encode_prompt(self.parts.tokenizer, problem.prompt)),
                sample=sample,
                noise_key=noise_key(*self.noise, "rollout", step, place, sample),
            )
            for place, problem in enumerate(
                self.prompts.step(step) if others is None else others, first
            )
            for sample in range(self.settings.rollout.group_size)
        ]

    def sample(self, requests: Sequence[Request], problems: Sequence[Problem]) -> list[Rollout]:
        """The responses asked for, in their order, with the turns that the task has; `problems` are
        the requests'.
        """
        parts = self.parts
        sampler = self.parts.sampler
        self.folder.enter(Phase.SAMPLING)
        routes = self.settings.routing_replay == "rollout" or (
            parts.policy.routers is not None and sampler.separate and sampler.tells_routes
        )
        return sample_multi_turn(
            sampler, requests, problems, parts.task, parts.tokenizer, parts.sampling, routes=routes
        )

    def grade(self, problems: Sequence[Problem], rollouts: Sequence[Rollout]) -> list[Grade]:
        """The grades of responses to `problems`, one each."""
        return [
            grade_answer(self.parts.task, problem, r.text, truncated=r.truncated, turns=r.turns)
            for problem, r in zip(problems, rollouts, strict=True)
        ]

    def rewards(self, grades: Sequence[Grade]) -> torch.Tensor:
        """[P, G] of a step's rewards; where the grader failed that is 0."""
        rewards = torch.tensor([0.0 if grade.reward is None else grade.reward for grade in grades])
        group = self.settings.rollout.group_size
        return rewards.view(len(grades) // group, group)

    def rewards_by_name(self, grades: Sequence[Grade]) -> torch.Tensor:
        """[K, P, G] of a step's K rewards by name, in the order of the task's names; 0 where the
        grader failed.
        """
        values = [
            [(grade.rewards or {}).get(name, 0.0) for grade in grades]
            for name in self.parts.task.reward_names
        ]
        return torch.tensor(values).view(len(values), -1, self.settings.rollout.group_size)

    def penalties(self, rollouts: Sequence[Rollout]) -> torch.Tensor:
        """[P, G] of what length takes from the rewards of responses."""
        rollout = self.settings.rollout
        # What the limit counts: of several turns the replies too.
        length_PG = torch.tensor([float(len(response.response_ids)) for response in rollouts]).view(
            -1, rollout.group_size
        )
        if rollout.overlong_buffer is None:
            return length_PG * 0
        limit = self.parts.sampling.max_tokens
        return overlong_penalty(length_PG, limit, rollout.overlong_buffer, rollout.overlong_penalty)

    def need_grades(self, step: int, grades: Sequence[Grade]) -> None:
        """LabError where the grader failed on more of a step's responses than the study allows."""
        need_grades(
            step,
            [(grade.error, grade.reward) for grade in grades],
            self.settings.rollout.max_grader_errors,
        )

    def experience(
        self, rollouts: Sequence[Rollout], reward_PG: torch.Tensor, grades: Sequence[Grade] = ()
    ) -> Experience:
        """The batch as tensors, with its advantages; the old policy is not yet known in it. Where
        turns are credited `grades` tell what each has earned, and the rewards by name."""
        parts = self.parts
        how = self.settings.objective
        self.folder.enter(Phase.UPDATING)
        experience = pad_rollouts(rollouts, parts.tokenizer.pad_token_id, parts.device)
        if not rollouts:
            adv = reward_PG.view(0, 1)
        elif parts.critic is not None:
            adv = parts.critic.advantages(experience, reward_PG.flatten())
        elif how.turn_credit == "turn":
            adv = turn_credit(rollouts, grades, reward_PG, how.advantage)
        elif how.advantage == "gdpo":
            weights = [how.reward_weights.get(name, 1.0) for name in parts.task.reward_names]
            adv = decoupled(self.rewards_by_name(grades), weights).view(-1, 1)
        else:
            adv = advantages(reward_PG, how.advantage).view(-1, 1)
        experience.credit(adv.to(parts.device))
        experience.leave_out(rollouts, how.truncated)
        if self.settings.update.skip_zero_advantage and not how.regularised:
            experience.evaluated_N = (experience.adv_NT != 0).any(dim=1)
        if self.settings.routing_replay == "rollout":
            routers = parts.policy.routers
            assert routers is not None
            experience.rollout_routes_NSLK = pack_routes(
                rollouts, experience, routers.layers, routers.top_k
            )
        return experience

    def record(self, step: CompletedStep, updates: Sequence[UpdateResult]) -> None:
        """Count a step that has been trained on, and write all that is recorded of it."""
        settings = self.settings
        parts = self.parts
        records: list[Record] = [
            update_record(parts.updater, step.experience, update) for update in updates
        ]
        count(self.totals, step, settings, parts)
        records.append(step_record(step, settings, parts, self.totals))
        records += training_answers(step, settings, parts.task, self.seed)
        self.sink.write(records)
        self.totals.seconds_record = step.clock.since_lap()

    def after(self, done: int) -> None:
        """What is due when `done` steps are complete: benchmarks, a checkpoint."""
        self.evaluate(done)
        if done % self.settings.update.checkpoint_every == 0 and done < self.settings.steps:
            self.checkpoint(done)

    def end(self) -> None:
        """Leave the trained model."""
        checkpoint.save_model(self.folder.final, self.parts.policy.model, self.parts.tokenizer)

    def evaluate(self, done: int) -> None:
        """Ask the benchmarks that are due after `done` steps; all are at the start and at the
        end.
        """
        steps = self.settings.steps
        parts = self.parts
        due = [
            bench for bench in self.settings.bench if done in (0, steps) or done % bench.every == 0
        ]
        if not due:
            return
        self.folder.enter(Phase.EVALUATING)
        with parts.lag.sample_current_weights(parts.sampler):
            for bench in due:
                task = parts.bench_tasks[bench.name]
                sampler = parts.sampler
                self.sink.write(
                    evaluate(
                        bench,
                        task,
                        sampler,
                        parts.tokenizer,
                        seed=self.seed,
                        step=done,
                        steps=steps,
                    )
                )

    def checkpoint(self, done: int) -> None:
        """Keep what the run goes on from after `done` steps."""
        checkpoint.save(
            self.folder.resume, self.owner, done, self.kept, dataclasses.asdict(self.totals)
        )

    def resume(self) -> int:
        """Put back what the last checkpoint kept; the step to go on with."""
        saved = checkpoint.load(self.folder.resume, self.owner, self.kept)
        if saved is None:
            return 0
        step, totals = saved
        self.parts.lag.follow(self.parts.sampler)
        self.totals = RunTotals(**totals)
        return step
