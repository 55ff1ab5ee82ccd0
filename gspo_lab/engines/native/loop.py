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
import hashlib
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gspo_lab.engines.base import Sink, Stop
from gspo_lab.engines.native import checkpoint
from gspo_lab.engines.native.experience import Experience, pack, pack_routes
from gspo_lab.engines.native.facts import facts
from gspo_lab.engines.native.prompts import PromptStream, rolled
from gspo_lab.engines.native.setup import Parts, set_up
from gspo_lab.engines.native.update import Minibatch
from gspo_lab.evaluation import answer_record, evaluate
from gspo_lab.models.load import encode_prompt
from gspo_lab.models.lora import load_trained_state, trained_state
from gspo_lab.objectives import advantages, mismatch_measures
from gspo_lab.records import AnswerRecord, Record, RunStatus, StepRecord
from gspo_lab.runfolder import RunFolder
from gspo_lab.samplers.base import Request, Rollout, noise_key
from gspo_lab.study import Run
from gspo_lab.tasks.base import Grade, Problem, grade_answer


@dataclasses.dataclass(slots=True)
class Totals:
    """What a run counts from its first step on; part of every checkpoint."""

    prompts: int = 0
    tokens_sampled: int = 0
    tokens_trained: int = 0
    flops: float = 0.0
    device_seconds: float = 0.0
    prompt_digest: str = ""
    seconds_record: float | None = None


class NativeEngine:
    """Trains a transformers model in this process, on a CPU or one GPU."""

    def train(self, run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
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
        # Coupled arms share every random number of a seed; uncoupled ones mix the arm's name into their noise.
        self.noise = (run.seed,) if run.settings.rollout.coupled else (run.seed, run.arm)
        self.parts = parts
        self.sink = sink
        self.folder = RunFolder(folder)
        self.totals = Totals()
        rollout = self.settings.rollout
        self.prompts = PromptStream(parts.task.problems("train"), run.seed, rollout.prompts_per_step)

    def run(self, stop: Stop) -> bool:
        """Train to the last step; True when done, False when `stop` asked for an earlier end."""
        first = self._resume()
        parts = self.parts
        about = facts(parts.start, parts.tokenizer, parts.task, parts.task_keys, parts.device)
        if of_sampler := parts.sampler.facts():
            about["sampler"] = of_sampler
        self.sink.write([RunStatus(state="started", step=first, at=time.time(), facts=about)])
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

    def _step(self, step: int) -> None:
        clock = Clock()
        settings, parts = self.settings, self.parts
        problems = self.prompts.step(step)
        rollouts = self._sample(step, problems)
        parts.sampler.rest()
        clock.lap("rollout")
        group = settings.rollout.group_size
        asked = [problem for problem in problems for _ in range(group)]
        grades = [
            grade_answer(parts.task, p, r.text, truncated=r.truncated) for p, r in zip(asked, rollouts, strict=True)
        ]
        clock.lap("grade")

        reward_PG = torch.tensor([[_reward(g) for g in grades[i : i + group]] for i in range(0, len(grades), group)])
        adv_N = advantages(reward_PG, settings.objective.advantage).flatten().to(parts.device)
        experience = self._experience(rollouts, adv_N)
        minibatches = torch.arange(len(rollouts), device=parts.device).chunk(settings.update.minibatches)
        seconds_replay = self._old_policy(experience, minibatches)
        if parts.reference is not None:
            experience.ref_logp_NT = parts.reference.reference(experience)
        clock.lap("old_logprobs")

        updates = []
        for index in range(settings.update.minibatches * settings.update.epochs):
            minibatch = Minibatch(step, index, minibatches[index % len(minibatches)], fresh=index == 0)
            updates.append(parts.updater.update(experience, minibatch))
        parts.sampler.refresh()
        clock.lap("update")

        detail, tokens = step % settings.record.detail_every == 0, settings.record.token_detail
        measure = parts.updater.measure
        records: list[Record] = [measure(experience, one, detail=detail, token_detail=tokens) for one in updates]
        seconds_replay += sum(one.seconds_replay for one in updates)
        self._count(rollouts, problems, experience, clock)
        records.append(self._step_record(step, rollouts, grades, reward_PG, experience, clock, seconds_replay))
        records += self._training_answers(step, asked, rollouts, grades, adv_N.tolist())
        self.sink.write(records)
        self.totals.seconds_record = clock.since_lap()

    def _sample(self, step: int, problems: Sequence[Problem]) -> list[Rollout]:
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

    def _experience(self, rollouts: list[Rollout], adv_N: torch.Tensor) -> Experience:
        parts = self.parts
        experience = pack(rollouts, parts.tokenizer.pad_token_id, parts.device)
        experience.adv_NT = adv_N[:, None] * experience.mask_NT
        if self.settings.update.skip_zero_advantage and parts.reference is None:
            experience.evaluated_N = adv_N != 0
        if self.settings.routing_replay == "rollout":
            routers = parts.policy.routers
            assert routers is not None
            experience.rollout_routes_NSLK = pack_routes(rollouts, experience, routers.layers, routers.top_k)
        return experience

    @property
    def _needs_old_policy(self) -> bool:
        return self.settings.update.old_logprobs == "trainer" or self.settings.routing_replay == "old-policy"

    def _old_policy(self, experience: Experience, minibatches: Sequence[torch.Tensor]) -> float:
        if not self._needs_old_policy or len(minibatches) < 2:
            return 0.0
        # Mini-batch by mini-batch, so that each pass has the very rows and padding that its update will have: in
        # bfloat16 another grouping alone moves log s by more than GSPO's range is wide.
        return sum(self.parts.policy.remember(experience, rows) for rows in minibatches[1:])

    def _count(
        self, rollouts: Sequence[Rollout], problems: Sequence[Problem], experience: Experience, clock: "Clock"
    ) -> None:
        totals, update = self.totals, self.settings.update
        tokens = sum(len(r.response_ids) for r in rollouts)
        positions = [len(r.request.prompt_ids) + len(r.response_ids) for r in rollouts]
        evaluated = sum(count for count, one in zip(positions, experience.evaluated_N.tolist(), strict=True) if one)
        old_share = (update.minibatches - 1) / update.minibatches if self._needs_old_policy else 0.0
        passes = old_share + 3 * update.epochs + (self.parts.reference is not None)
        totals.prompts += len(problems)
        totals.tokens_sampled += tokens
        totals.tokens_trained += tokens * update.epochs
        totals.flops += 2.0 * self.parts.active_parameters * (sum(positions) + passes * evaluated)
        totals.device_seconds += clock.total()
        totals.prompt_digest = rolled(totals.prompt_digest, problems)

    def _step_record(
        self,
        step: int,
        rollouts: Sequence[Rollout],
        grades: Sequence[Grade],
        reward_PG: torch.Tensor,
        experience: Experience,
        clock: "Clock",
        seconds_replay: float,
    ) -> StepRecord:
        totals = self.totals
        lengths = sorted(len(r.response_ids) for r in rollouts)
        moe = self.parts.policy.routers is not None
        replayed = {"none": None, "old-policy": experience.natural_NSLK, "rollout": experience.rollout_routes_NSLK}
        kept = replayed[self.settings.routing_replay]
        return StepRecord(
            step=step,
            prompts=reward_PG.shape[0],
            responses=len(rollouts),
            reward_mean=float(reward_PG.mean()),
            reward_std=float(reward_PG.std()),
            zero_variance_groups=float((reward_PG.amax(dim=1) == reward_PG.amin(dim=1)).float().mean()),
            grader_errors=sum(grade.reward is None for grade in grades),
            response_tokens_mean=sum(lengths) / len(lengths),
            response_tokens_t1=float(lengths[len(lengths) // 3]),
            response_tokens_t2=float(lengths[2 * len(lengths) // 3]),
            truncated_responses=sum(r.truncated for r in rollouts) / len(rollouts),
            **self._old_policy_fields(rollouts, experience),
            prompts_total=totals.prompts,
            tokens_sampled_total=totals.tokens_sampled,
            tokens_trained_total=totals.tokens_trained,
            updates_total=self.parts.updater.updates,
            flops_total=totals.flops,
            prompt_digest=totals.prompt_digest,
            rollout_digest=_digest(
                b"".join(struct.pack(f"<{len(r.response_ids)}q", *r.response_ids) for r in rollouts)
            ),
            logprob_digest=_digest(b"".join(struct.pack(f"<{len(r.logprobs)}d", *r.logprobs) for r in rollouts)),
            replay_bytes=(0 if kept is None else kept.numel() * kept.element_size()) if moe else None,
            seconds_replay=seconds_replay if moe else None,
            seconds_rollout=clock.laps["rollout"],
            seconds_grade=clock.laps["grade"],
            seconds_old_logprobs=clock.laps["old_logprobs"],
            seconds_update=clock.laps["update"],
            seconds_record=totals.seconds_record,
            seconds_step=clock.total(),
            device_seconds_total=totals.device_seconds,
            peak_memory_bytes=_peak_memory(self.parts.device),
        )

    def _old_policy_fields(self, rollouts: Sequence[Rollout], experience: Experience) -> dict[str, Any]:
        """Entropy and mismatch over the responses on which the trainer has evaluated the old policy."""
        out: dict[str, Any] = {"evaluated_responses": int(experience.old_known_N.sum())}
        mask_NT = experience.mask_NT & experience.old_known_N[:, None]
        if not mask_NT.any():
            return out
        out["entropy"] = float(experience.entropy_NT[mask_NT].double().mean())
        out |= mismatch_measures(experience.mismatch_NT, mask_NT)
        if experience.natural_NSLK is not None and rollouts[0].routes is not None:
            out["route_gap"] = self._route_gap(rollouts, experience)
        return out

    def _route_gap(self, rollouts: Sequence[Rollout], experience: Experience) -> float:
        from gspo_lab.models.routing import expert_change

        routers = self.parts.policy.routers
        assert routers is not None
        assert experience.natural_NSLK is not None
        sampled_NSLK = pack_routes(rollouts, experience, routers.layers, routers.top_k)
        seen_NS = experience.input_mask_NS & experience.old_known_N[:, None]
        layers_L, _ = expert_change(sampled_NSLK, experience.natural_NSLK, seen_NS)
        return float(layers_L.mean())

    def _training_answers(
        self,
        step: int,
        asked: Sequence[Problem],
        rollouts: Sequence[Rollout],
        grades: Sequence[Grade],
        adv_N: Sequence[float],
    ) -> list[AnswerRecord]:
        """The responses to the share of prompts that the study wants kept, chosen by (seed, step, place) alone."""
        group, share = self.settings.rollout.group_size, self.settings.record.rollouts
        kept = []
        for place in range(0, len(asked), group):
            if noise_key(self.seed, "keep", step, place) < share * 2**63:
                for row in range(place, place + group):
                    kept.append(
                        answer_record(
                            self.parts.task,
                            asked[row],
                            rollouts[row],
                            grades[row],
                            bench="rollout",
                            step=step,
                            advantage=adv_N[row],
                        )
                    )
        return kept

    def _evaluate(self, done: int) -> None:
        """Ask the benchmarks that are due after `done` steps; all are at the start and at the end."""
        for bench in self.settings.bench:
            if done in (0, self.settings.steps) or done % bench.every == 0:
                task = self.parts.bench_tasks[bench.name]
                sampler, tokenizer = self.parts.sampler, self.parts.tokenizer
                self.sink.write(evaluate(bench, task, sampler, tokenizer, seed=self.seed, step=done))

    def _checkpoint(self, done: int) -> None:
        checkpoint.save(
            self.folder.resume,
            {
                "step": done,
                "model": trained_state(self.parts.policy.model),
                "optimizer": self.parts.updater.optimizer.state_dict(),
                "updates": self.parts.updater.updates,
                "totals": dataclasses.asdict(self.totals),
            },
        )

    def _resume(self) -> int:
        state = checkpoint.load(self.folder.resume, self.parts.device)
        if state is None:
            return 0
        load_trained_state(self.parts.policy.model, state["model"])
        self.parts.updater.optimizer.load_state_dict(state["optimizer"])
        self.parts.updater.updates = state["updates"]
        self.parts.sampler.refresh()
        self.totals = Totals(**state["totals"])
        return int(state["step"])


class Clock:
    """Laps of one step. On a GPU a lap waits for the work that it times."""

    def __init__(self) -> None:
        self._began = self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now

    def since_lap(self) -> float:
        return time.perf_counter() - self._last

    def total(self) -> float:
        return self._last - self._began


def _reward(grade: Grade) -> float:
    return 0.0 if grade.reward is None else grade.reward


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _peak_memory(device: torch.device) -> int | None:
    """The peak since the last call, which begins a new one: of the GPU, or of this process where Linux tells it."""
    if device.type != "cuda":
        return _peak_resident()
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return int(peak)


def _peak_resident() -> int | None:
    try:
        status = Path("/proc/self/status").read_text()
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM to what is resident now
    except OSError:
        return None
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(line.split()[1])
