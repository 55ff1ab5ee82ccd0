"""What is recorded of one step beside its updates: its record, its training answers, what the run
has counted.
"""

import hashlib
import struct
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, compress
from pathlib import Path

import torch

from gspo_lab.common.plain_data import JsonObject, OptionalFloat, OptionalInt
from gspo_lab.recording.records import AnswerRecord, StepRecord
from gspo_lab.recording.records.metric import nine_quantiles
from gspo_lab.study import Settings
from gspo_lab.tasks.base import Grade, Problems, Task
from gspo_lab.tasks.evaluation import answer_record
from gspo_lab.training.engines.native.build_run import RunComponents
from gspo_lab.training.engines.native.experience import Experience, pack_routes, turn_fields
from gspo_lab.training.engines.step_numbers import RunTotals, keeps, step_numbers
from gspo_lab.training.models.routing import expert_change
from gspo_lab.training.objectives import explained_variance, mismatch_measures
from gspo_lab.training.samplers.base import Rollout


class Clock:
    """Laps of one step. On a GPU a lap waits for the work that it times."""

    def __init__(self) -> None:
        self._began = self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Add the seconds since the last lap to those of `name`, once the GPU has done what it was
        given.
        """
        # A run on the CPU has no business with a GPU that is there.
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        lap_end = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + lap_end - self._last
        self._last = lap_end

    def since_lap(self) -> float:
        """Seconds since the last lap."""
        return time.perf_counter() - self._last

    def total(self) -> float:
        """Seconds from the beginning to the last lap."""
        return self._last - self._began


@dataclass(frozen=True, slots=True)
class CompletedStep:
    """A step that is over: P problems trained on, P x G rollouts and grades.

    The rewards [P, G] are of its own prompts, dropped or not. It set out with `first_problems` and
    sampled `drawn`, which may be others than those trained on."""

    index: int
    problems: Problems
    rollouts: Sequence[Rollout]
    grades: Sequence[Grade]
    reward_PG: torch.Tensor
    experience: Experience
    clock: Clock
    seconds_replay: float
    trainer_positions: float
    """Positions that the trainer fed x forward passes' worth of each."""
    first_problems: Problems
    drawn: Sequence[Rollout]
    dropped: Sequence[Grade] | None = None
    """The grades of groups that were sampled and dropped; None: no group would have been."""
    replacements: int = 0
    """Problems asked in the place of dropped ones."""
    penalty_PG: torch.Tensor | None = None
    """What length took from the rewards; None: it takes nothing."""
    waiting: OptionalInt = None
    """Responses that go on in the next step; None: not known."""
    devices: int = 1
    kl_to_start: OptionalFloat = None


def correct_share(grades: Sequence[Grade]) -> OptionalFloat:
    """The share of correct answers among those that were graded; None where none was."""
    graded = [grade.correct for grade in grades if grade.correct is not None]
    return sum(graded) / len(graded) if graded else None


def positions(rollouts: Sequence[Rollout]) -> list[int]:
    """Each response's length, its prompt and what was given of it included."""
    return [len(r.request.fed_ids) + len(r.response_ids) for r in rollouts]


def sampled_positions(rollouts: Sequence[Rollout]) -> list[int]:
    """What drawing each response fed: its length, or the lengths of all its turns, for no sampler
    keeps a cache from one turn to the next, and each reads anew what stands before it."""
    fed = []
    for rollout in rollouts:
        ends = [len(rollout.response_ids)] if rollout.turns is None else _ends_of_turns(rollout)
        fed.append(len(rollout.request.fed_ids) * len(ends) + sum(ends))
    return fed


def _ends_of_turns(rollout: Rollout) -> list[int]:
    """How many of a response's tokens stand when each of its turns has ended."""
    places = [place for place, drawn in enumerate(rollout.full_loss_mask) if drawn]
    drawn_tokens = accumulate(turn.tokens or 0 for turn in rollout.turns or ())
    return [places[drawn - 1] + 1 for drawn in drawn_tokens]


def count(
    totals: RunTotals, step: CompletedStep, settings: Settings, components: RunComponents
) -> None:
    """Add one more step to a run's totals."""
    totals.add(
        step.first_problems,
        sampled=sum(rollout.written for rollout in step.drawn),
        trained=int(step.experience.mask_NT.sum()) * settings.update.epochs,
        device_seconds=step.devices * step.clock.total(),
    )
    totals.prompts_total += step.replacements
    totals.flops_total = (totals.flops_total or 0.0) + (
        2.0
        * components.active_parameters
        * (sum(sampled_positions(step.drawn)) + step.trainer_positions)
    )


def step_record(
    step: CompletedStep, settings: Settings, components: RunComponents, totals: RunTotals
) -> StepRecord:
    """The record of a step; `totals` have counted it."""
    experience = step.experience
    laps = step.clock.laps
    moe = components.policy.routers is not None
    replayed = {
        "none": None,
        "old-policy": experience.natural_NSLK,
        "rollout": experience.rollout_routes_NSLK,
    }
    routes = replayed[settings.routing_replay]
    replay_bytes = 0 if routes is None else routes.nbytes
    return StepRecord(
        step=step.index,
        prompts=len(step.first_problems) + step.replacements,
        waiting_responses=step.waiting,
        correct_responses=correct_share(step.grades),
        **_response_fields(step),
        **_version_fields(step),
        **_old_policy_fields(step, components),
        kl_to_start=step.kl_to_start,
        **asdict(totals),
        updates_total=components.updater.trained.updates,
        rollout_digest=_digest("q", [r.response_ids for r in step.drawn]),
        logprob_digest=_digest("d", [r.logprobs for r in step.drawn]),
        replay_bytes=replay_bytes if moe else None,
        seconds_replay=step.seconds_replay if moe else None,
        seconds_rollout=laps["rollout"],
        seconds_grade=laps["grade"],
        seconds_values=laps.get("values"),
        seconds_old_logprobs=laps["old_logprobs"],
        seconds_update=laps["update"],
        seconds_step=step.clock.total(),
        peak_memory_bytes=peak_memory(components.device),
    )


def _response_fields(step: CompletedStep) -> JsonObject:
    """What follows from the responses trained on, and the rewards of the step's own prompts, which
    arms share.
    """
    rollouts = step.rollouts
    dropped = step.dropped or ()
    reward_PG = step.reward_PG
    out = step_numbers(
        reward_PG,
        (grade.reward for grade in (*step.grades, *dropped)),
        step.experience.mask_NT.sum(dim=1).tolist(),
        sum(rollout.truncated for rollout in rollouts),
    )
    out["dropped_groups"] = (
        None if step.dropped is None else len(dropped) // max(reward_PG.shape[1], 1)
    )
    if rewards_by_name := [grade.rewards for grade in step.grades if grade.rewards]:
        out["rewards_mean"] = {
            name: sum(rewards[name] for rewards in rewards_by_name) / len(step.grades)
            for name in rewards_by_name[0]
        }
    if rollouts:
        out["overlong_penalty"] = None if step.penalty_PG is None else float(step.penalty_PG.mean())
        value_NT = step.experience.value_NT
        return_NT = step.experience.return_NT
        if value_NT is not None and return_NT is not None:
            out["value_explained_variance"] = explained_variance(
                value_NT, return_NT, step.experience.mask_NT
            )
        out |= turn_fields(rollouts)
    return out


def _version_fields(step: CompletedStep) -> JsonObject:
    """How far the policies that drew the tokens trained on lie behind the step's; nothing where no
    one kept it.
    """
    lags: list[int] = []
    mixed = 0
    for rollout in step.rollouts:
        if rollout.versions is None:
            return {}
        versions = list(compress(rollout.versions, rollout.full_loss_mask))
        lags += [step.index - version for version in versions]
        mixed += len(set(versions)) > 1
    if not lags:
        return {}
    return {
        "version_lag_mean": sum(lags) / len(lags),
        "version_lag_max": max(lags),
        "mixed_version_share": mixed / len(step.rollouts),
    }


def _old_policy_fields(step: CompletedStep, components: RunComponents) -> JsonObject:
    """Entropy and mismatch over the responses on which the trainer has evaluated the old policy."""
    experience = step.experience
    out: JsonObject = {"evaluated_responses": int(experience.old_known_N.sum())}
    mask_NT = experience.mask_NT & experience.old_known_N[:, None]
    if not mask_NT.any():
        return out
    entropy_N = experience.entropy_NT[mask_NT].double()
    out["entropy"] = float(entropy_N.mean())
    out["entropy_quantiles"] = nine_quantiles(entropy_N.sort().values)
    out |= mismatch_measures(experience.mismatch_NT, mask_NT)
    routers = components.policy.routers
    if (
        routers is not None
        and experience.natural_NSLK is not None
        and step.rollouts[0].routes is not None
    ):
        sampled_NSLK = pack_routes(step.rollouts, experience, routers.layers, routers.top_k)
        seen_NS = experience.input_mask_NS & experience.old_known_N[:, None]
        layers_L, _ = expert_change(sampled_NSLK, experience.natural_NSLK, seen_NS)
        out["route_gap"] = float(layers_L.mean())
    return out


def training_answers(
    step: CompletedStep, settings: Settings, task: Task, seed: int
) -> list[AnswerRecord]:
    """The answers that the study keeps, chosen by (seed, step, place). Where a problem is in a step
    twice, the later group's samples are counted on."""
    group = settings.rollout.group_size
    adv_N = step.experience.adv_N.tolist()
    samples: Counter[str] = Counter()
    answers = []
    for place, problem in enumerate(step.problems):
        first_sample = samples[problem.id]
        samples[problem.id] += group
        if not keeps(settings, seed, step.index, place):
            continue
        for sample in range(group):
            row = place * group + sample
            answers.append(
                answer_record(
                    task,
                    problem,
                    step.rollouts[row],
                    step.grades[row],
                    bench="rollout",
                    step=step.index,
                    sample=first_sample + sample,
                    advantage=adv_N[row],
                )
            )
    return answers


def _digest(kind: str, rows: Sequence[Sequence[float]]) -> str:
    """sha256 of numbers as 8 bytes each: whole ("q") or double precision ("d")."""
    return hashlib.sha256(
        b"".join(struct.pack(f"<{len(row)}{kind}", *row) for row in rows)
    ).hexdigest()


def peak_memory(device: torch.device) -> OptionalInt:
    """The peak since the last call, which begins a new one: of the device where its backend tells
    it; on a CPU of this process where Linux tells it."""
    if device.type == "cpu":
        return _peak_resident()
    module = torch.get_device_module(device)
    if not hasattr(module, "reset_peak_memory_stats"):
        return None
    peak = module.max_memory_allocated(device)
    module.reset_peak_memory_stats(device)
    return int(peak)


def _peak_resident() -> OptionalInt:
    try:
        status = Path("/proc/self/status").read_text()
        Path("/proc/self/clear_refs").write_text(
            "5"
        )  # proc(5): resets VmHWM to what is resident now
    except OSError:
        return None
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(line.split()[1])
