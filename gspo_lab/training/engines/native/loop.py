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

Everything except the updates is in training_run.py.
"""

import gc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from pathlib import Path

import torch

from gspo_lab.study import Run
from gspo_lab.tasks.base import Grade, Problem
from gspo_lab.training.engines.base import Sink, Stop
from gspo_lab.training.engines.native.asynchrony import Asked, Group, PendingGroups
from gspo_lab.training.engines.native.build_run import RunComponents, set_up
from gspo_lab.training.engines.native.experience import Experience
from gspo_lab.training.engines.native.optimizer_update import MinibatchRows
from gspo_lab.training.engines.native.prompt_stream import PromptStream
from gspo_lab.training.engines.native.step_record import Clock, CompletedStep, positions
from gspo_lab.training.engines.native.training_run import TrainingRun
from gspo_lab.training.samplers.base import Request, Rollout


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
        self.waiting = PendingGroups(self._asked, budget, components.sampling.max_tokens)
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

    def _asked(self, step: int) -> list[Asked]:
        """The problems of a step, each with the requests for its group's responses."""
        return self._by_problem(self.prompts.step(step), self.requests(step))

    def _replacement_groups(self, step: int, trained: int, dropped: int) -> list[Asked]:
        """As many other problems as groups are missing, in an order of the step's own: which one
        stands in a place of the step depends on the seed alone, not on how many rounds an arm may
        ask."""
        per_step = self.settings.rollout.prompts_per_step
        first_place = trained + dropped
        order = PromptStream(self.problems, self.seed, per_step, f"others of step {step}")
        problems = order.take(first_place - per_step, per_step - trained)
        return self._by_problem(problems, self.requests(step, problems, first_place))

    def _by_problem(self, problems: Sequence[Problem], requests: list[Request]) -> list[Asked]:
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
        if components.asks_old_policy:
            passes += 1 - fresh_share
        if updater.needs_whole_minibatch_pass(fresh=True):
            passes += fresh_share
        if updater.needs_whole_minibatch_pass(fresh=False):
            passes += epochs - fresh_share
        if components.reference is not None:
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
        if self.components.asks_old_policy:
            # Mini-batch by mini-batch, so that each pass has the very rows and padding that its
            # update will have: in bfloat16 another grouping alone moves log s by more than GSPO's
            # range is wide.
            later = minibatches[1 : len(minibatches) // self.settings.update.epochs]
            seconds = sum(
                self.components.policy.fill_old_policy(experience, minibatch.rows)
                for minibatch in later
            )
        if self.components.reference is not None:
            experience.ref_logp_NT = self.components.reference.reference(experience)
        return seconds
