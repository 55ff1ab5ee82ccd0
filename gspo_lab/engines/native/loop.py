"""The native engine's training loop.

    for step in 0 .. steps-1:                                  one rollout batch
        problems ── sample ──> rollouts ── grade ──> rewards ── per group ──> advantages
                                   │
                                   └── old policy: log-probs (and routes) of mini-batches 1 .. K-1;
                                       mini-batch 0 learns its own from its first forward pass
        for minibatch in 0 .. K-1:   forward, surrogate, backward, AdamW ──> UpdateRecord
        StepRecord, training answers, now and then a benchmark and a checkpoint ──> the journal

All randomness comes from (seed, where it is used): a run taken up from a checkpoint goes on bit for bit.
"""

import dataclasses
import gc
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from gspo_lab.engines.base import Sink, Stop
from gspo_lab.engines.facts import facts
from gspo_lab.engines.native import checkpoint
from gspo_lab.engines.native.experience import Experience, pack, pack_routes
from gspo_lab.engines.native.prompts import PromptStream
from gspo_lab.engines.native.setup import Parts, set_up
from gspo_lab.engines.native.step_record import Clock, Step, Totals, step_record, training_answers
from gspo_lab.engines.native.update import Minibatch
from gspo_lab.engines.native.update_record import update_record
from gspo_lab.errors import LabError
from gspo_lab.evaluation import evaluate
from gspo_lab.models.load import encode_prompt
from gspo_lab.objectives import advantages
from gspo_lab.records import Record, RunStatus
from gspo_lab.runfolder import RunFolder
from gspo_lab.samplers.base import Request, Rollout, noise_key
from gspo_lab.states import STARTED
from gspo_lab.study import Run
from gspo_lab.tasks.base import Grade, Problem, grade_answer

WORDS = 200
"""How many characters are told of what a grader failed with."""


def train(run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
    """Train a run from where its folder stands; True when complete, False when `stop` asked for an earlier end."""
    parts = set_up(run, None if run.warm_start is None else Path(run.warm_start))
    # Models and modules stay to the end: the collector need not walk through them again and again.
    gc.collect()
    gc.freeze()
    return Loop(run, parts, sink, folder).run(stop)


class Loop:
    """One run's training: the parts it needs, where its records go, and what it has counted."""

    def __init__(self, run: Run, parts: Parts, sink: Sink, folder: Path) -> None:
        self.settings = run.settings
        self.seed = run.seed
        self.owner = run.id
        # Coupled arms share every random number of a seed; uncoupled ones mix the arm's name into their noise.
        self.noise = (run.seed,) if run.settings.rollout.coupled else (run.seed, run.arm)
        self.parts = parts
        self.sink = sink
        self.folder = RunFolder(folder)
        self.totals = Totals()
        self.prompts = PromptStream(parts.task.problems("train"), run.seed, run.settings.rollout.prompts_per_step)

    def run(self, stop: Stop) -> bool:
        """Train to the last step; True when done, False when `stop` asked for an earlier end."""
        first = self._resume()
        self._say_started(first)
        if first == 0:
            if stop():
                return False
            self._evaluate(0)
            self._checkpoint(0)
        for step in range(first, self.settings.steps):
            if stop():
                self._checkpoint(step)
                return False
            self._step(step)
            done = step + 1
            self._evaluate(done)
            if done % self.settings.update.checkpoint_every == 0 and done < self.settings.steps:
                self._checkpoint(done)
        checkpoint.save_model(self.folder.final, self.parts.policy.model, self.parts.tokenizer)
        return True

    def _step(self, index: int) -> None:
        settings, parts, clock = self.settings, self.parts, Clock()
        problems = self.prompts.step(index)
        rollouts = self._sample(index, problems)
        parts.sampler.rest()
        clock.lap("rollout")

        grades, reward_PG = self._grade(problems, rollouts)
        self._need_grades(index, grades)
        clock.lap("grade")

        adv_PG = advantages(reward_PG, settings.objective.advantage)
        experience = self._experience(rollouts, adv_PG)
        minibatches = self._minibatches(index, experience)
        seconds_replay = self._old_policy(experience, minibatches)
        clock.lap("old_logprobs")

        updates = [parts.updater.update(experience, minibatch) for minibatch in minibatches]
        parts.sampler.refresh()
        clock.lap("update")

        seconds_replay += sum(one.seconds_replay for one in updates)
        step = Step(index, problems, rollouts, grades, reward_PG, experience, clock, seconds_replay)
        detail, tokens = index % settings.record.detail_every == 0, settings.record.token_detail
        records: list[Record] = [
            update_record(parts.updater, experience, one, detail=detail, token_detail=tokens) for one in updates
        ]
        self.totals.add(step, settings, parts)
        records.append(step_record(step, settings, parts, self.totals))
        records += training_answers(step, settings, parts.task, self.seed)
        self.sink.write(records)
        self.totals.seconds_record = clock.since_lap()

    def _sample(self, step: int, problems: Sequence[Problem]) -> list[Rollout]:
        """[P x G] responses, a problem's side by side."""
        requests = [
            Request(
                problem=problem.id,
                prompt_ids=tuple(encode_prompt(self.parts.tokenizer, problem.prompt)),
                sample=sample,
                noise_key=noise_key(*self.noise, "rollout", step, place, sample),
            )
            for place, problem in enumerate(problems)
            for sample in range(self.settings.rollout.group_size)
        ]
        sampler = self.parts.sampler
        routes = self.settings.routing_replay == "rollout" or (
            self.parts.policy.routers is not None and sampler.separate and sampler.tells_routes
        )
        return sampler.sample(requests, self.parts.sampling, routes=routes)

    def _grade(self, problems: Sequence[Problem], rollouts: Sequence[Rollout]) -> tuple[list[Grade], torch.Tensor]:
        """The grades, and as [P, G] the rewards; where a grader failed that is 0."""
        group = self.settings.rollout.group_size
        grades = [
            grade_answer(self.parts.task, problems[row // group], r.text, truncated=r.truncated)
            for row, r in enumerate(rollouts)
        ]
        rewards = torch.tensor([0.0 if grade.reward is None else grade.reward for grade in grades])
        return grades, rewards.view(len(problems), group)

    def _need_grades(self, step: int, grades: Sequence[Grade]) -> None:
        """LabError where the grader failed on more of a step's responses than the study allows."""
        failed = [grade.error or "it gave no reward" for grade in grades if grade.reward is None]
        most = self.settings.rollout.max_grader_errors
        if len(failed) > most * len(grades):
            last = failed[-1].strip().partition("\n")[0][:WORDS]
            raise LabError(
                f"the grader failed on {len(failed)} of {len(grades)} responses of step {step}, more than "
                f"rollout.max_grader_errors = {most:g} allows; the last time: {last}. Mend it and start the study "
                "again: the run goes on from its last checkpoint"
            )

    def _experience(self, rollouts: Sequence[Rollout], adv_PG: torch.Tensor) -> Experience:
        parts = self.parts
        experience = pack(rollouts, parts.tokenizer.pad_token_id, parts.device)
        experience.credit(adv_PG.view(-1, 1).to(parts.device))
        if self.settings.update.skip_zero_advantage and parts.reference is None:
            experience.evaluated_N = (experience.adv_NT != 0).any(dim=1)
        if self.settings.routing_replay == "rollout":
            routers = parts.policy.routers
            assert routers is not None
            experience.rollout_routes_NSLK = pack_routes(rollouts, experience, routers.layers, routers.top_k)
        return experience

    def _minibatches(self, step: int, experience: Experience) -> list[Minibatch]:
        update = self.settings.update
        rows = torch.arange(len(experience.mask_NT), device=self.parts.device).chunk(update.minibatches)
        return [
            Minibatch(step, index, rows[index % len(rows)], fresh=index == 0)
            for index in range(update.minibatches * update.epochs)
        ]

    def _old_policy(self, experience: Experience, minibatches: Sequence[Minibatch]) -> float:
        """What is asked of the policy before it moves, and of the starting one; the seconds that replay took."""
        seconds = 0.0
        if self.parts.asks_old_policy:
            # Mini-batch by mini-batch, so that each pass has the very rows and padding that its update will have: in
            # bfloat16 another grouping alone moves log s by more than GSPO's range is wide.
            later = minibatches[1 : self.settings.update.minibatches]
            seconds = sum(self.parts.policy.remember(experience, one.rows) for one in later)
        if self.parts.reference is not None:
            experience.ref_logp_NT = self.parts.reference.reference(experience)
        return seconds

    def _evaluate(self, done: int) -> None:
        """Ask the benchmarks that are due after `done` steps; all are at the start and at the end."""
        for bench in self.settings.bench:
            if done in (0, self.settings.steps) or done % bench.every == 0:
                task = self.parts.bench_tasks[bench.name]
                sampler, tokenizer = self.parts.sampler, self.parts.tokenizer
                steps = self.settings.steps
                self.sink.write(evaluate(bench, task, sampler, tokenizer, seed=self.seed, step=done, steps=steps))

    def _say_started(self, first: int) -> None:
        parts = self.parts
        about = facts(
            model=parts.policy.model,
            tokenizer=parts.tokenizer,
            task=parts.task,
            task_keys=parts.task_keys,
            device=parts.device,
        )
        if of_sampler := parts.sampler.facts():
            about["sampler"] = of_sampler
        self.sink.write([RunStatus(state=STARTED, step=first, at=time.time(), facts=about)])

    def _checkpoint(self, done: int) -> None:
        checkpoint.save(self.folder.resume, self.owner, done, self.parts.trained, dataclasses.asdict(self.totals))

    def _resume(self) -> int:
        found = checkpoint.load(self.folder.resume, self.owner, self.parts.trained, self.parts.device)
        if found is None:
            return 0
        step, totals = found
        self.parts.sampler.refresh()
        self.totals = Totals(**totals)
        return step
