"""The native engine's training loop.

    for step in 0 .. steps-1:                  one rollout batch
        problems ── sample, by the lagging policy ──> rollouts
        rollouts ── grade ──> rewards          complete groups; the others wait for more tokens, and
                                               other problems are asked in dropped groups' place
        rewards ── per group, or by a critic ──> advantages
        rollouts ── old policy ──> log-probs   (and routes) of mini-batches 1 .. K-1; mini-batch 0
                                               learns its own from its first forward pass
        for minibatch in 0 .. K-1:
            forward, surrogate, backward, AdamW (and the critic's) ──> UpdateRecord
        StepRecord, training answers, now and then a benchmark and a checkpoint ──> the journal

All randomness comes from (seed, where it is used): a run taken up from a checkpoint goes on bit for
bit.
"""

import dataclasses
import gc
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from pathlib import Path
from typing import Any

import torch

from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.common.states import STARTED, Phase
from gspo_lab.recording.records import Record, RunStatus
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Run
from gspo_lab.tasks.base import Grade, Problems, grade_answer
from gspo_lab.tasks.evaluation import evaluate
from gspo_lab.training.engines.base import Sink, Stop
from gspo_lab.training.engines.facts import facts
from gspo_lab.training.engines.native import checkpoint
from gspo_lab.training.engines.native.asynchrony import Asked, Group, PendingGroups
from gspo_lab.training.engines.native.build_run import RunComponents, set_up
from gspo_lab.training.engines.native.experience import (
    Experience,
    pack_routes,
    pad_rollouts,
    turn_credit,
)
from gspo_lab.training.engines.native.optimizer_update import (
    MinibatchRows,
    UpdateResult,
    update_record,
)
from gspo_lab.training.engines.native.prompt_stream import PromptStream, training_prompts
from gspo_lab.training.engines.native.step_record import (
    Clock,
    CompletedStep,
    count,
    positions,
    step_record,
    training_answers,
)
from gspo_lab.training.engines.step_numbers import RunTotals, need_grades
from gspo_lab.training.models.load import encode_prompt, weights_digest
from gspo_lab.training.objectives import advantages, decoupled, mismatch_measures, overlong_penalty
from gspo_lab.training.samplers.base import Request, Rollout, noise_key
from gspo_lab.training.samplers.multi_turn import sample_multi_turn


class TrainingRun:
    """One run on its way: the parts it needs, where its records go, and what it has counted."""

    def __init__(self, run: Run, components: RunComponents, sink: Sink, folder: Path) -> None:
        self.settings = run.settings
        self.seed = run.seed
        self.owner = run.id
        # Coupled arms share every random number of a seed; uncoupled ones mix the arm's name into
        # their noise.
        self.noise = (run.seed,) if run.settings.rollout.coupled else (run.seed, run.arm)
        self.components = components
        self.sink = sink
        self.folder = RunFolder(folder)
        self.totals = RunTotals()
        self.kept: dict[str, checkpoint.Checkpointed] = {**components.trained}
        """What a checkpoint holds, by its name."""
        if run.settings.rollout.staleness:
            self.kept["past"] = components.lag
        self.problems = components.task.problems("train")
        self.prompts = training_prompts(run, components.task)

    def begin(self, step: int, **about: Any) -> None:
        """Say that a worker takes the run up at step `step`, with what it knows of itself; `about`
        as of `facts`.
        """
        components = self.components
        worker_facts = facts(
            model=components.policy.model,
            tokenizer=components.tokenizer,
            task=components.task,
            task_keys=components.task_keys,
            device=components.device,
            **about,
        )
        if components.critic is not None:
            worker_facts["critic"] = weights_digest(components.critic.trained.model)
        if of_sampler := components.sampler.facts():
            worker_facts["sampler"] = of_sampler
        self.sink.write([RunStatus(state=STARTED, step=step, at=time.time(), facts=worker_facts)])

    def open(self, stop: Stop) -> bool:
        """What comes before the first step of all; False when `stop` asks for an end there."""
        if stop():
            return False
        self.evaluate(0)
        self.checkpoint(0)
        return True

    def requests(
        self, step: int, replacements: Problems | None = None, start: int = 0
    ) -> list[Request]:
        """The [P x G] responses that a step asks for, a problem's side by side: to its own
        problems, or to `replacements`, which stand in the step from place `start` on."""
        problems = self.prompts.step(step) if replacements is None else replacements
        requests = []
        for place, problem in enumerate(problems, start):
            prompt_ids = tuple(encode_prompt(self.components.tokenizer, problem.prompt))
            for sample in range(self.settings.rollout.group_size):
                key = noise_key(*self.noise, "rollout", step, place, sample)
                requests.append(Request(problem.id, prompt_ids, sample, key))
        return requests

    def sample(self, requests: Sequence[Request], problems: Problems) -> list[Rollout]:
        """The responses asked for, in their order, with the turns that the task has; `problems` are
        the requests'.
        """
        components = self.components
        sampler = self.components.sampler
        self.folder.enter(Phase.SAMPLING)
        routes = self.settings.routing_replay == "rollout" or (
            components.policy.routers is not None and sampler.separate and sampler.returns_routes
        )
        return sample_multi_turn(
            sampler,
            requests,
            problems,
            components.task,
            components.tokenizer,
            components.sampling,
            routes=routes,
        )

    def grade(self, problems: Problems, rollouts: Sequence[Rollout]) -> list[Grade]:
        """The grades of responses to `problems`, one each."""
        return [
            grade_answer(
                self.components.task, problem, r.text, truncated=r.truncated, turns=r.turns
            )
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
            for name in self.components.task.reward_names
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
        limit = self.components.sampling.max_tokens
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
        components = self.components
        objective = self.settings.objective
        self.folder.enter(Phase.UPDATING)
        experience = pad_rollouts(rollouts, components.tokenizer.pad_token_id, components.device)
        if not rollouts:
            adv = reward_PG.view(0, 1)
        elif components.critic is not None:
            adv = components.critic.advantages(experience, reward_PG.flatten())
        elif objective.turn_credit == "turn":
            adv = turn_credit(rollouts, grades, reward_PG, objective.advantage)
        elif objective.advantage == "gdpo":
            weights = [
                objective.reward_weights.get(name, 1.0) for name in components.task.reward_names
            ]
            adv = decoupled(self.rewards_by_name(grades), weights).view(-1, 1)
        else:
            adv = advantages(reward_PG, objective.advantage).view(-1, 1)
        experience.credit(adv.to(components.device))
        experience.leave_out(rollouts, objective.truncated)
        if self.settings.update.skip_zero_advantage and not objective.regularised:
            experience.evaluated_N = (experience.adv_NT != 0).any(dim=1)
        if self.settings.routing_replay == "rollout":
            routers = components.policy.routers
            assert routers is not None
            experience.rollout_routes_NSLK = pack_routes(
                rollouts, experience, routers.layers, routers.top_k
            )
        return experience

    def record(self, step: CompletedStep, updates: Sequence[UpdateResult]) -> None:
        """Count a step that has been trained on, and write all that is recorded of it."""
        settings = self.settings
        components = self.components
        records: list[Record] = [
            update_record(components.updater, step.experience, update) for update in updates
        ]
        count(self.totals, step, settings, components)
        records.append(step_record(step, settings, components, self.totals))
        records += training_answers(step, settings, components.task, self.seed)
        self.sink.write(records)
        self.totals.seconds_record = step.clock.since_lap()

    def after(self, steps: int) -> None:
        """What is due when `steps` steps are complete: benchmarks, a checkpoint."""
        self.evaluate(steps)
        if steps % self.settings.update.checkpoint_every == 0 and steps < self.settings.steps:
            self.checkpoint(steps)

    def end(self) -> None:
        """Leave the trained model."""
        checkpoint.save_model(
            self.folder.final, self.components.policy.model, self.components.tokenizer
        )

    def evaluate(self, step: int) -> None:
        """Ask the benchmarks that are due after `step` steps; all are at the start and at the
        end.
        """
        steps = self.settings.steps
        components = self.components
        due = [
            bench for bench in self.settings.bench if step in (0, steps) or step % bench.every == 0
        ]
        if not due:
            return
        self.folder.enter(Phase.EVALUATING)
        with components.lag.sample_current_weights(components.sampler):
            for bench in due:
                task = components.bench_tasks[bench.name]
                sampler = components.sampler
                self.sink.write(
                    evaluate(
                        bench,
                        task,
                        sampler,
                        components.tokenizer,
                        seed=self.seed,
                        step=step,
                        steps=steps,
                    )
                )

    def checkpoint(self, steps: int) -> None:
        """Keep what the run goes on from after `steps` steps."""
        checkpoint.save(
            self.folder.resume, self.owner, steps, self.kept, dataclasses.asdict(self.totals)
        )

    def resume(self) -> int:
        """Put back what the last checkpoint kept; the step to go on with."""
        saved = checkpoint.load(self.folder.resume, self.owner, self.kept)
        if saved is None:
            return 0
        step, totals = saved
        self.components.lag.follow(self.components.sampler)
        self.totals = RunTotals(**totals)
        return step


def train(run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
    """Train a run from where its folder stands; True when complete, False when `stop` asked for an
    earlier end.
    """
    components = set_up(run, None if run.warm_start is None else Path(run.warm_start))
    # Models and modules stay to the end: the collector need not walk through them again and again.
    gc.collect()
    gc.freeze()
    return Loop(run, components, sink, folder).run(stop)


@dataclass(slots=True)
class Sampled:
    """What a step sampled: the `initial` groups, of the step's own prompts; those that train, also
    of other prompts; those that are `dropped`; and every rollout, also of what waits."""

    initial: list[Group] = field(default_factory=list)
    training: list[Group] = field(default_factory=list)
    dropped: list[Group] = field(default_factory=list)
    rollouts: list[Rollout] = field(default_factory=list)


def grades_of(groups: Iterable[Group]) -> list[Grade]:
    """The grades of the groups' responses, group after group."""
    return list(chain.from_iterable(group.grades for group in groups))


class Loop(TrainingRun):
    """One run's training in this process."""

    def __init__(self, run: Run, components: RunComponents, sink: Sink, folder: Path) -> None:
        super().__init__(run, components, sink, folder)
        budget = run.settings.rollout.tokens_per_step
        self.waiting = PendingGroups(self._groups_of_step, budget, components.sampling.max_tokens)
        if budget is not None:
            self.kept["waiting"] = self.waiting

    def run(self, stop: Stop) -> bool:
        """Train to the last step; True when done, False when `stop` asked for an earlier end."""
        first_step = self.resume()
        self.begin(first_step)
        if first_step == 0 and not self.open(stop):
            return False
        for step in range(first_step, self.settings.steps):
            if stop():
                self.checkpoint(step)
                return False
            self._step(step)
            self.after(step + 1)
        self.end()
        if unfinished := self.waiting.responses():
            print(
                f"{unfinished} responses did not end by the last step: sampled, not trained on",
                flush=True,
            )
        return True

    def _step(self, index: int) -> None:
        settings = self.settings
        components = self.components
        clock = Clock()
        sampled = self._sampled(index, clock)
        rollouts = list(chain.from_iterable(group.responses for group in sampled.training))
        grades = grades_of(sampled.training)
        penalty_PG = self.penalties(rollouts)
        experience = self.experience(rollouts, self.rewards(grades) - penalty_PG, grades)
        if components.critic is not None:
            clock.lap("values")
        minibatches = self._minibatches(index, experience)
        seconds_replay = self._old_policy(experience, minibatches)
        clock.lap("old_logprobs")

        components.lag.save_weights()
        updates = [components.updater.update(experience, minibatch) for minibatch in minibatches]
        components.lag.follow(components.sampler)
        clock.lap("update")

        seconds_replay += sum(update.seconds_replay for update in updates)
        step = CompletedStep(
            index,
            [group.problem for group in sampled.training],
            rollouts,
            grades,
            self.rewards(grades_of(sampled.initial)),
            experience,
            clock,
            seconds_replay,
            self._positions(rollouts, experience, len(minibatches) // settings.update.epochs),
            first_problems=self.prompts.step(index),
            drawn=sampled.rollouts,
            dropped=grades_of(sampled.dropped) if settings.rollout.dynamic_sampling else None,
            replacements=len(sampled.training) + len(sampled.dropped) - len(sampled.initial),
            penalty_PG=None if settings.rollout.overlong_buffer is None else penalty_PG,
            waiting=self.waiting.responses(),
            kl_to_start=self._kl_to_start(experience, minibatches),
        )
        self.record(step, updates)

    def _sampled(self, step: int, clock: Clock) -> Sampled:
        """A step's groups and their grades.

        DAPO's dynamic sampling (2503.14476, sec. 3.2): a group whose responses all earned the same
        has no gradient. The rewards that decide are the grader's, before length costs anything.
        """
        rollout = self.settings.rollout
        out = Sampled()
        for turn in range(max(rollout.dynamic_sampling, 1)):
            replacements = (
                self._replacement_groups(step, len(out.training), len(out.dropped))
                if turn
                else None
            )
            requests = self.waiting.requests_of_step(step, replacements)
            new = self.sample(
                [request for _, request in requests], [problem for problem, _ in requests]
            )
            groups = self.waiting.take(new, self.components.lag.version(step))
            clock.lap("rollout")
            for group in groups:
                group.grades = self.grade([group.problem for _ in group.responses], group.responses)
                reward_1G = self.rewards(group.grades)
                alike = rollout.dynamic_sampling and bool(reward_1G.amax() == reward_1G.amin())
                (out.dropped if alike else out.training).append(group)
            out.initial = out.initial if turn else groups
            out.rollouts += new
            self.need_grades(step, grades_of([*out.training, *out.dropped]))
            clock.lap("grade")
            if len(out.training) == rollout.prompts_per_step:
                break
        self.components.sampler.pause()
        clock.lap("rollout")
        return out

    def _groups_of_step(self, step: int) -> list[Asked]:
        """The problems of a step, each with the requests for its group's responses."""
        return self._requests_by_problem(self.prompts.step(step), self.requests(step))

    def _replacement_groups(self, step: int, trained: int, dropped: int) -> list[Asked]:
        """As many other problems as groups are missing, in an order of the step's own: which one
        stands in a place of the step depends on the seed alone, not on how many rounds an arm may
        ask."""
        per_step = self.settings.rollout.prompts_per_step
        first_place = trained + dropped
        order = PromptStream(self.problems, self.seed, per_step, f"others of step {step}")
        problems = order.take(first_place - per_step, per_step - trained)
        return self._requests_by_problem(problems, self.requests(step, problems, first_place))

    def _requests_by_problem(self, problems: Problems, requests: list[Request]) -> list[Asked]:
        group = self.settings.rollout.group_size
        return [
            (problem, requests[place * group : (place + 1) * group])
            for place, problem in enumerate(problems)
        ]

    def _positions(
        self, rollouts: Sequence[Rollout], experience: Experience, minibatches: int
    ) -> float:
        """The positions that the trainer fed, each times its forward passes' worth: a backward pass
        counts as two.
        """
        epochs = self.settings.update.epochs
        components = self.components
        updater = components.updater
        fresh_share = 1 / max(minibatches, 1)
        passes = 3.0 * epochs
        if components.evaluates_old_policy:
            passes += 1 - fresh_share
        if updater.needs_whole_minibatch_pass(fresh=True):
            passes += fresh_share
        if updater.needs_whole_minibatch_pass(fresh=False):
            passes += epochs - fresh_share
        if self.settings.objective.kl_coef > 0:
            passes += 1
        lengths = positions(rollouts)
        total = passes * sum(compress(lengths, experience.evaluated_N.tolist()))
        if components.critic is not None:
            total += (1 + 3 * epochs) * sum(lengths)
        return total

    def _minibatches(self, step: int, experience: Experience) -> list[MinibatchRows]:
        """Whole groups, shared out as evenly as they go; where there are fewer groups than
        mini-batches, one each.
        """
        update = self.settings.update
        group = self.settings.rollout.group_size
        groups = len(experience.mask_NT) // group
        rows_PG = torch.arange(groups * group, device=self.components.device).view(groups, group)
        blocks = rows_PG.tensor_split(min(update.minibatches, groups)) if groups else ()
        return [
            MinibatchRows(step, index, blocks[index % len(blocks)].flatten(), fresh=index == 0)
            for index in range(len(blocks) * update.epochs)
        ]

    def _old_policy(self, experience: Experience, minibatches: Sequence[MinibatchRows]) -> float:
        """What is asked of the policy before it moves, and of the starting one; the seconds that
        replay took.
        """
        seconds = 0.0
        if self.components.evaluates_old_policy:
            # Mini-batch by mini-batch, so that each pass has the very rows and padding that its
            # update will have: in bfloat16 another grouping alone moves log s by more than GSPO's
            # range is wide.
            later = minibatches[1 : len(minibatches) // self.settings.update.epochs]
            seconds = sum(
                self.components.policy.fill_old_policy(experience, minibatch.rows)
                for minibatch in later
            )
        reference = self.components.reference
        if reference is not None and self.settings.objective.kl_coef > 0:
            rows = torch.arange(len(experience.mask_NT), device=self.components.device)
            experience.ref_logp_NT = reference.reference(experience, rows)
        return seconds

    def _kl_to_start(
        self, experience: Experience, minibatches: Sequence[MinibatchRows]
    ) -> OptionalFloat:
        """The estimate of a step's KL(pi_old, pi_start) on its first mini-batch, whose old policy
        every run evaluates, and a quarter of its responses at most. None: not due.
        """
        reference = self.components.reference
        detailed = self.components.updater.recorder.detailed
        if reference is None or not minibatches or not detailed(minibatches[0].step):
            return None
        rows = minibatches[0].rows[: -(-len(experience.mask_NT) // 4)]
        rows = rows[experience.old_known_N[rows]]
        d_NT = reference.reference(experience, rows) - experience.old_logp_NT
        return mismatch_measures(d_NT[rows], experience.mask_NT[rows]).get("mismatch_k3")
