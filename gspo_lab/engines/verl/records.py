"""From what an attempt leaves to the lab's records: verl's log line of a rollout batch, its answers, its updates.

verl counts steps from 1, and its line 0 is the evaluation before the first; the lab counts rollout batches from 0.
"""

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gspo_lab.engines.grades import failure, need_grades
from gspo_lab.engines.native.prompts import PromptStream, rolled
from gspo_lab.errors import LabError
from gspo_lab.records import AnswerRecord, Record, StepRecord, UpdateRecord, from_dict
from gspo_lab.samplers.base import noise_key
from gspo_lab.study import Run

OWN = {
    "entropy": "verl's actor/entropy: aggregated as objective.aggregation says, not over all tokens alike",
    "mismatch_k1": "",
    "mismatch_k3": "",
    "rollout_digest": "sha256 of every response's digest of its token ids, in order",
    "logprob_digest": "sha256 of every response's digest of its sampler log-probs as text, in order",
    "seconds_rollout": "sampling and grading, which go on side by side",
    "evaluated_responses": "all responses: verl evaluates those with A = 0 too",
}
"""Columns of steps whose definition verl has its own of, or that are read from its log."""

FROM_ANSWERS = (
    *("prompts", "responses", "reward_mean", "reward_std", "zero_variance_groups", "response_tokens_mean"),
    *("response_tokens_t1", "response_tokens_t2", "grader_errors", "truncated_responses", "prompts_total"),
    *("tokens_sampled_total", "tokens_trained_total", "updates_total", "prompt_digest", "seconds_old_logprobs"),
    *("seconds_update", "seconds_step", "device_seconds_total"),
)
OF_UPDATES = (
    *("loss", "grad_norm", "learning_rate", "nonfinite", "responses", "response_tokens", "active_tokens"),
    *("clipped_tokens", "clip_fraction_tokens", "clip_fraction_tokens_high", "clip_fraction_tokens_low"),
    *("clip_fraction_active_tokens", "clip_fraction_positive_tokens", "clip_fraction_negative_tokens"),
    *("clip_fraction_responses", "clip_any_responses", "would_clip_fraction_tokens_grpo"),
    *("would_clip_fraction_tokens_gspo", "dual_clip_fraction_tokens", "effective_fraction_tokens"),
    *("log_ratio_std_tokens", "log_ratio_std_responses", "log_ratio_max_abs", "log_ratio_quantiles_tokens"),
    *("log_ratio_quantiles_responses", "ratio_max_negative", "ess_tokens", "ess_responses", "chi2_tokens"),
    *("chi2_responses", "stale_k1", "stale_k3", "band_counts", "response_detail", "seconds"),
)
RECORDS = {**dict.fromkeys((*FROM_ANSWERS, *OF_UPDATES), ""), **OWN}
"""The columns that the engine fills, as its capabilities say. Updates are measured one by one, never step means."""

SECONDS = {
    "seconds_rollout": "timing_s/gen",
    "seconds_old_logprobs": "timing_s/old_log_prob",
    "seconds_update": "timing_s/update_actor",
}


@dataclass(slots=True)
class Totals:
    """What a run has counted up to a step, as its last StepRecord says."""

    tokens_sampled: int = 0
    device_seconds: float = 0.0
    prompt_digest: str = ""

    @staticmethod
    def of(step: Mapping[str, Any] | None) -> "Totals":
        """As a step's record has them; without one, nothing yet."""
        if step is None:
            return Totals()
        return Totals(step["tokens_sampled_total"], step["device_seconds_total"], step["prompt_digest"])


def bench_records(run: Run, step: int, answers: Sequence[Mapping[str, Any]]) -> list[AnswerRecord]:
    """The benchmarks' answers after `step` steps."""
    found = [one for one in answers if one["bench"] != "rollout" and one["step"] == step]
    return [_answer(one) for one in sorted(found, key=lambda one: (one["bench"], one["place"], one["sample"]))]


def step_records(
    run: Run,
    number: int,
    line: Mapping[str, Any],
    answers: Sequence[Mapping[str, Any]],
    updates: Sequence[Mapping[str, Any]],
    totals: Totals,
    stream: PromptStream,
    world: int,
) -> list[Record]:
    """All records of the rollout batch `number` (from 0): updates, the step, and the answers that the study keeps.

    `line` is verl's `data` of it. LabError where verl trained on fewer responses, updates or processes than asked for.
    """
    settings = run.settings
    group, problems = settings.rollout.group_size, stream.step(number)
    rows = sorted(
        (one for one in answers if one["bench"] == "rollout" and one["step"] == number),
        key=lambda one: (one["place"], one["sample"]),
    )
    _whole(number, rows, len(problems) * group, "responses")
    own = [one for one in updates if one["step"] == number]
    _whole(number, own, settings.update.per_rollout_batch, "updates")
    if any(one["world"] != world for one in own):
        raise LabError(f"verl trained step {number} with {own[0]['world']} processes, not the {world} asked for")
    errors = [failure(one.get("error"), one.get("reward")) for one in rows]
    need_grades(number, errors, settings.rollout.max_grader_errors)
    if other := [one for one in rows if one["problem"] != problems[one["place"]].id]:
        raise LabError(f"verl asked '{other[0]['problem']}' in step {number}, which is not that step's prompt")

    rewards = [float(one.get("reward") or 0.0) for one in rows]
    groups = [rewards[first : first + group] for first in range(0, len(rewards), group)]
    lengths = sorted(int(one["tokens"]) for one in rows)
    totals.tokens_sampled += sum(lengths)
    seconds = float(line["timing_s/step"]) - float(line.get("timing_s/save_checkpoint", 0.0))
    totals.device_seconds += seconds * world
    totals.prompt_digest = rolled(totals.prompt_digest, problems)
    step = StepRecord(
        step=number,
        prompts=len(problems),
        responses=len(rows),
        reward_mean=statistics.fmean(rewards),
        reward_std=statistics.stdev(rewards),
        zero_variance_groups=sum(min(one) == max(one) for one in groups) / len(groups),
        response_tokens_mean=statistics.fmean(lengths),
        response_tokens_t1=float(lengths[len(lengths) // 3]),
        response_tokens_t2=float(lengths[2 * len(lengths) // 3]),
        grader_errors=sum(one.get("reward") is None for one in rows),
        truncated_responses=sum(one["truncated"] for one in rows) / len(rows),
        evaluated_responses=len(rows),
        entropy=line.get("actor/entropy"),
        mismatch_k1=line.get("rollout_corr/kl"),
        mismatch_k3=line.get("rollout_corr/k3_kl"),
        prompts_total=(number + 1) * len(problems),
        tokens_sampled_total=totals.tokens_sampled,
        tokens_trained_total=totals.tokens_sampled * settings.update.epochs,
        updates_total=(number + 1) * settings.update.per_rollout_batch,
        prompt_digest=totals.prompt_digest,
        rollout_digest=_digest(rows, "ids"),
        logprob_digest=_digest(rows, "logprobs"),
        seconds_step=seconds,
        device_seconds_total=totals.device_seconds,
        **{name: line.get(key) for name, key in SECONDS.items()},
    )
    kept = [one for one in rows if _kept(run, number, one["place"])]
    return [*map(_update, own), step, *map(_answer, kept)]


def _kept(run: Run, step: int, place: int) -> bool:
    """Whether the study keeps the responses to this prompt: those that the native engine would."""
    rollout = run.settings.rollout
    return noise_key(run.seed, "keep", step, place * rollout.group_size) < run.settings.record.rollouts * 2**63


def _whole(step: int, found: Sequence[Any], wanted: int, what: str) -> None:
    if len(found) != wanted:
        raise LabError(f"verl left {len(found)} {what} of step {step}, not {wanted}")


def _update(line: Mapping[str, Any]) -> UpdateRecord:
    record = from_dict({key: value for key, value in line.items() if key != "world"})
    assert isinstance(record, UpdateRecord)
    return record


def _answer(line: Mapping[str, Any]) -> AnswerRecord:
    record = from_dict({key: value for key, value in line.items() if key not in ("place", "ids", "logprobs")})
    assert isinstance(record, AnswerRecord)
    return record


def _digest(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    return hashlib.sha256("".join(str(one[name]) for one in rows).encode()).hexdigest()
