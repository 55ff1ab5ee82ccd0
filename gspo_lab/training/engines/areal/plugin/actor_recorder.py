"""AReaL's actor, watched: every update leaves an UpdateRecord. AReaL reads its loss by name from
its own module and packs rows one behind the other (`cu_seqlens`); a token's log-prob and mask stand
one position before it.
"""

import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import areal.trainer.ppo.actor as ppo
import areal.utils.data as packing
import torch
from areal.engine.fsdp_engine import FSDPPPOActor

from gspo_lab.recording.records.update import optimizer_columns
from gspo_lab.study import Run
from gspo_lab.training.engines.external.records import Row, write_update

_rows: list[Row] = []
"""The rows of the update under way in this process.

The prompt's positions are off the mask.
"""


def _recording_loss(loss_of: Callable[..., Any]) -> Callable[..., Any]:
    def loss(
        logprobs: torch.Tensor,
        entropy: torch.Tensor,
        input_data: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        mask = input_data["loss_mask"].bool()
        # As AReaL resolves it: with recompute_logprob the trainer's own stand in `logprobs`.
        old = (
            input_data["logprobs"]
            if input_data.get("prox_logp") is None
            else input_data["prox_logp"]
        )
        moved = (logprobs.detach() - old).float().masked_fill(~mask, 0.0)
        adv = input_data["advantages"].float().masked_fill(~mask, 0.0)
        ends = input_data.get("cu_seqlens")
        sizes = mask.shape[1] if ends is None else ends.diff().tolist()
        columns = [torch.split(x.reshape(-1).cpu(), sizes) for x in (moved, mask, adv)]
        for row in zip(*columns, strict=True):
            if row[1].any():  # rows that only pad have no token
                _rows.append(row)
        return loss_of(logprobs, entropy, input_data, *args, **kwargs)

    return loss


ppo.grpo_loss_fn = _recording_loss(ppo.grpo_loss_fn)


def watch(actor: FSDPPPOActor, run: Run, path: Path, first_update: int = 0) -> None:
    """From now on write a line into `path` for every update of this actor, the first one of which
    is `first_update`.
    """
    train_batch = actor.train_batch
    number = first_update

    def recorded(*args: Any, **kwargs: Any) -> Any:
        nonlocal number
        _rows.clear()
        began = time.perf_counter()
        stats = train_batch(*args, **kwargs)
        everyones: list[list[Row]] = [
            [] for _ in range(torch.distributed.get_world_size(actor.data_parallel_group))
        ]
        torch.distributed.all_gather_object(everyones, list(_rows), group=actor.data_parallel_group)
        if torch.distributed.get_rank() == 0:
            rows = list(chain.from_iterable(everyones))
            write_update(
                path,
                run,
                number,
                rows,
                world=len(everyones),
                seconds=time.perf_counter() - began,
                **optimizer_columns(float(stats["grad_norm"]), stats.get("lr")),
            )
        number += 1
        return stats

    actor.train_batch = recorded


def one_response_a_row(budget: int) -> None:
    """Without a GPU AReaL lets responses that share a row see each other: none shares one, whatever
    `budget` holds.
    """
    plain = packing.allocate_balanced_mbs

    def alone(spec: Any, lengths: list[int]) -> list[list[int]]:
        # The split into mini-batches goes the same way, with another limit, and stays AReaL's.
        return (
            [[row] for row in range(len(lengths))]
            if spec.max_tokens_per_mb == budget
            else plain(spec, lengths)
        )

    packing.allocate_balanced_mbs = alone
