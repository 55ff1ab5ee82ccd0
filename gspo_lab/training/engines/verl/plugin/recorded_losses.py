"""verl's policy losses and training engines, watched: every update leaves an UpdateRecord in the
lab's definitions.

    loss_mode = lab-<verl's name>    verl's own loss; its inputs are kept until the update is over
    RecordedEngine.train_batch       the update's learning rate, verl's own update, the record

verl's learning rate changes once per rollout batch; the lab's rises from update to update, so it is
set here.
"""

import time
from itertools import chain
from typing import Any

import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss
from verl.workers.engine import EngineRegistry

from gspo_lab.recording.records.update import optimizer_columns
from gspo_lab.training.engines.external.attempt import UPDATES, current
from gspo_lab.training.engines.external.records import Row, write_update
from gspo_lab.training.engines.verl import DEVICE, PREFIX

Part = tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]
"""The l_t, the mask and the advantages of a forward pass [B, T], and verl's loss.

The loss is of the whole mini-batch's size.
"""

_parts: list[Part] = []
"""The parts of the update under way in this process."""


def _register_recording(name: str) -> None:
    loss_of = get_policy_loss_fn(name)

    @register_policy_loss(PREFIX + name)  # type: ignore[untyped-decorator]
    def loss(
        old_log_prob: torch.Tensor,
        log_prob: torch.Tensor,
        advantages: torch.Tensor,
        response_mask: torch.Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        out, metrics = loss_of(
            old_log_prob,
            log_prob,
            advantages,
            response_mask,
            loss_agg_mode,
            config,
            rollout_is_weights,
        )
        mask_BT = response_mask.bool()
        log_ratio_BT = (log_prob.detach() - old_log_prob).float().masked_fill(~mask_BT, 0.0)
        adv_BT = advantages.detach().float().masked_fill(~mask_BT, 0.0)
        processes = (
            config.global_batch_info.get("dp_size") or 1
        )  # by which verl has multiplied the loss
        _parts.append(
            (log_ratio_BT.cpu(), mask_BT.cpu(), adv_BT.cpu(), float(out.detach()) / processes)
        )
        return out, metrics


for _name in ("vanilla", "gspo"):
    _register_recording(_name)


class RecordedEngine:
    """Beside one of verl's engines: its updates, recorded by the first process."""

    _updates = 0

    def train_batch(self: Any, data: Any, loss_function: Any) -> Any:
        """One update, by verl, with the lab's learning rate; recorded."""
        _parts.clear()
        began = time.perf_counter()
        attempt = current()
        update = attempt.run.settings.update
        number = attempt.first_step * update.per_rollout_batch + self._updates
        self._updates += 1
        rate = update.rate(number)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        outputs = super().train_batch(data, loss_function)  # type: ignore[misc]
        everyones: list[list[Part]] = [[] for _ in range(self.get_data_parallel_size())]
        torch.distributed.all_gather_object(everyones, _parts, group=self.get_data_parallel_group())
        if self.is_mp_src_rank_with_outputs() and self.get_data_parallel_rank() == 0:
            rows: list[Row] = []
            loss = 0.0
            for *tensors, part_loss in chain.from_iterable(everyones):
                rows += zip(*tensors, strict=True)
                loss += part_loss
            write_update(
                attempt.path / UPDATES,
                attempt.run,
                number,
                rows,
                world=torch.distributed.get_world_size(),
                loss=loss,
                seconds=time.perf_counter() - began,
                **optimizer_columns(float(outputs["metrics"]["grad_norm"]), rate),
            )
        return outputs


def _register(backends: list[str], module: str, of_models: str, of_values: str) -> None:
    """The lab's engines under a device name of their own (VERL_ENGINE_DEVICE), where the backend is
    installed.
    """
    try:
        engines = __import__(module, fromlist=[of_models])
    except ImportError:
        return
    policy = type(f"Recorded{of_models}", (RecordedEngine, getattr(engines, of_models)), {})
    EngineRegistry.register("language_model", backends, DEVICE)(policy)
    EngineRegistry.register("value_model", backends, DEVICE)(getattr(engines, of_values))


_register(
    ["fsdp", "fsdp2"],
    "verl.workers.engine.fsdp.transformer_impl",
    "FSDPEngineWithLMHead",
    "FSDPEngineWithValueHead",
)
_register(
    ["megatron"],
    "verl.workers.engine.megatron.transformer_impl",
    "MegatronEngineWithLMHead",
    "MegatronEngineWithValueHead",
)
