"""From what a program's processes leave of a run, answers and updates by step, to the lab's
records. An update is measured on what the program's loss was given, in the lab's definitions.
Shapes as in objectives/.
"""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.recording.journal import from_dict, to_dict
from gspo_lab.recording.records import REDUCTIONS, AnswerRecord, Record, StepRecord, UpdateRecord
from gspo_lab.recording.records.update import OPTIMIZER_COLUMNS
from gspo_lab.study import Run
from gspo_lab.training.engines.step_numbers import RunTotals, keeps, need_grades, step_numbers
from gspo_lab.training.objectives import Batch, Recorder, surrogate
from gspo_lab.training.objectives.settings import CLIP_RANGE

if TYPE_CHECKING:
    from torch import Tensor

    from gspo_lab.training.engines.native.prompt_stream import PromptStream


DIGESTS = {
    "rollout_digest": "sha256 of every response's digest of its token ids, in order",
    "logprob_digest": (
        "sha256 of every response's digest of its sampler log-probs as text, in order"
    ),
}
FROM_ANSWERS = dict.fromkeys(
    (
        "prompts",
        "responses",
        "reward_mean",
        "reward_std",
        "zero_variance_groups",
        "response_tokens_mean",
        "response_tokens_t1",
        "response_tokens_t2",
        "grader_errors",
        "truncated_responses",
        "prompts_total",
        "tokens_sampled_total",
        "tokens_trained_total",
        "updates_total",
        "prompt_digest",
        "device_seconds_total",
    ),
    "",
)
"""Columns of steps that are found from answers, as `Capabilities.records` has them; both digests
too.
"""
UNKNOWN = {
    "kl",
    *(f"bapo_{key}" for key in CLIP_RANGE),
    "clip_fraction_gradient",
    "would_clip_fraction_gradient_grpo",
    "would_clip_fraction_gradient_gspo",
    "gate_mean",
    "correction_weight_mean",
    "correction_masked_tokens",
    "flip_fraction_tokens_grpo",
    "flip_fraction_tokens_gspo",
}
"""Columns of updates that follow from what these programs are not given."""
MEASURED = dict.fromkeys(
    [
        *(name for name in REDUCTIONS if name not in UNKNOWN),
        *OPTIMIZER_COLUMNS,
        "nonfinite",
        "response_detail",
        "seconds",
    ],
    "",
)
"""Columns of updates that `write_update` fills from what a loss was given."""


def bench_records(step: int, answers: Sequence[JsonMapping]) -> list[AnswerRecord]:
    """The benchmarks' answers after `step` steps."""
    rows = [row for row in answers if row["bench"] != "rollout" and row["step"] == step]
    return [
        _answer(row)
        for row in sorted(rows, key=lambda row: (row["bench"], row["place"], row["sample"]))
    ]


def step_records(
    program: str,
    world: int,
    run: Run,
    number: int,
    report: JsonMapping,
    answers: Sequence[JsonMapping],
    updates: Sequence[JsonMapping],
    totals: RunTotals,
    stream: "PromptStream",
) -> list[Record]:
    """All records of the rollout batch `number` (from 0): updates, the step, the answers that the
    study keeps. `report` is the program's, by columns of steps. LabError where it trained on fewer
    responses, updates or processes (`world`) than wanted."""
    import torch

    settings = run.settings
    group = settings.rollout.group_size
    problems = stream.step(number)
    rows = sorted(
        (row for row in answers if row["bench"] == "rollout" and row["step"] == number),
        key=lambda row: (row["place"], row["sample"]),
    )
    own_updates = [update for update in updates if update["step"] == number]
    per_batch = settings.update.per_rollout_batch
    for lines, expected, name in (
        (rows, len(problems) * group, "responses"),
        (own_updates, per_batch, "updates"),
    ):
        if len(lines) != expected:
            raise LabError(f"{program} left {len(lines)} {name} of step {number}, not {expected}")
    if any(update["world"] != world for update in own_updates):
        raise LabError(
            f"{program} trained step {number} with {own_updates[0]['world']} processes, not the"
            f" {world} asked for"
        )
    graded = [(row.get("error"), row.get("reward")) for row in rows]
    need_grades(number, graded, settings.rollout.max_grader_errors)
    if strange := [row["problem"] for row in rows if row["problem"] != problems[row["place"]].id]:
        raise LabError(
            f"{program} asked '{strange[0]}' in step {number}, which is not that step's prompt"
        )

    rewards = [row.get("reward") for row in rows]
    lengths = [int(row["tokens"]) for row in rows]
    tokens = sum(lengths)
    totals.add(
        problems,
        sampled=tokens,
        trained=tokens * settings.update.epochs,
        device_seconds=report["seconds_step"] * world,
    )
    step = StepRecord(
        step=number,
        prompts=len(problems),
        **step_numbers(
            torch.tensor([reward or 0.0 for reward in rewards], dtype=torch.float32).view(
                -1, group
            ),
            rewards,
            lengths,
            sum(row["truncated"] for row in rows),
        ),
        evaluated_responses=len(rows),
        **asdict(totals),
        updates_total=(number + 1) * per_batch,
        rollout_digest=_digest(rows, "ids"),
        logprob_digest=_digest(rows, "logprobs"),
        **report,
    )
    kept_rows = [row for row in rows if keeps(settings, run.seed, number, row["place"])]
    return [*map(_update, own_updates), step, *map(_answer, kept_rows)]


def _update(line: JsonMapping) -> UpdateRecord:
    record = from_dict({key: value for key, value in line.items() if key != "world"})
    assert isinstance(record, UpdateRecord)
    return record


def _answer(line: JsonMapping) -> AnswerRecord:
    record = from_dict(
        {key: value for key, value in line.items() if key not in ("place", "ids", "logprobs")}
    )
    assert isinstance(record, AnswerRecord)
    return record


def _digest(rows: Sequence[JsonMapping], name: str) -> str:
    return hashlib.sha256("".join(str(row[name]) for row in rows).encode()).hexdigest()


class StepLines:
    """The lines of a file that a program's processes write into, each with its step; read once,
    forgotten when over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._lines: list[JsonObject] = []

    def since(self, step: int) -> list[JsonObject]:
        """All whole lines of this step and later ones; earlier ones are not asked for again."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            complete, end, _ = new.rpartition(b"\n")
            self._read += len(complete) + len(end)
            self._lines += [json.loads(line) for line in complete.splitlines()]
        self._lines = [line for line in self._lines if line["step"] >= step]
        return self._lines


Row = tuple["Tensor", "Tensor", "Tensor"]
"""The l_t, the loss mask and the advantages of one response [T]."""


def write_update(
    path: Path, run: Run, number: int, rows: Sequence[Row], *, world: int, **of_program: Any
) -> None:
    """Write down the run's update `number`, from 0, on a whole mini-batch; l_t and advantages are 0
    off the mask. `of_program` are the columns that the program knows: loss, gradient norm, learning
    rate, seconds.
    """
    from torch.nn.utils.rnn import pad_sequence

    columns = [pad_sequence(list(column), batch_first=True) for column in zip(*rows, strict=True)]
    log_ratio_BT, mask_BT, adv_BT = columns
    objective = run.settings.objective
    # Against old log-probs of 0 the log-ratio is the policy's own log-prob.
    old_BT = log_ratio_BT.new_zeros(log_ratio_BT.shape)
    batch = Batch(mask_BT, adv_BT, old_BT, len(mask_BT), int(mask_BT.sum()))
    step, minibatch = divmod(number, run.settings.update.per_rollout_batch)
    finite = all(math.isfinite(of_program.get(name, 0.0)) for name in ("loss", "grad_norm"))
    record = Recorder(
        objective,
        run.reference_bands,
        run.settings.record.detail_every,
        run.settings.record.token_detail,
    ).update(
        step=step,
        minibatch=minibatch,
        log_ratio_BT=log_ratio_BT,
        mask_BT=mask_BT,
        adv_BT=adv_BT,
        metrics=surrogate(log_ratio_BT, batch, objective).metrics,
        nonfinite=int(not finite),
        **of_program,
    )
    append(path, json.dumps(to_dict(record) | {"world": world}))


def append(path: Path, line: str) -> None:
    """One whole line; several processes write into the same file, each at its end."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
