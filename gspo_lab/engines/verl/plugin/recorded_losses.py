"""verl's policy losses and training engines, watched: every update leaves an UpdateRecord in the lab's definitions.

    loss_mode = lab-<verl's name>    verl's own loss; what it is given is kept until the update is over
    Watched.train_batch              the update's learning rate, verl's own update, the record

verl's learning rate changes once per rollout batch; the lab's rises from update to update, so it is set here.
"""

import json
import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss
from verl.workers.engine import EngineRegistry

from gspo_lab.engines.external.attempt import UPDATES, current
from gspo_lab.engines.external.records import learning_rate, measured
from gspo_lab.engines.verl.overrides import DEVICE, PREFIX
from gspo_lab.records import UpdateRecord, to_dict


@dataclass(frozen=True, slots=True)
class Part:
    """One forward pass's rows: l_t, the mask and the advantages [B, T]; verl's loss, of the whole mini-batch's size."""

    log_ratio_BT: torch.Tensor
    mask_BT: torch.Tensor
    adv_BT: torch.Tensor
    loss: float


_parts: list[Part] = []
"""Those of the update under way in this process."""


def _watched(name: str) -> None:
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
            old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights
        )
        mask_BT = response_mask.bool()
        log_ratio_BT = (log_prob.detach() - old_log_prob).float().masked_fill(~mask_BT, 0.0)
        adv_BT = advantages.detach().float().masked_fill(~mask_BT, 0.0)
        processes = config.global_batch_info.get("dp_size") or 1  # by which verl has multiplied the loss
        _parts.append(Part(log_ratio_BT.cpu(), mask_BT.cpu(), adv_BT.cpu(), float(out.detach()) / processes))
        return out, metrics


for _name in ("vanilla", "gspo"):
    _watched(_name)


class Watched:
    """Beside one of verl's engines: its updates, recorded by the first process."""

    _updates = 0

    def train_batch(self: Any, data: Any, loss_function: Any) -> Any:
        """One update, by verl, with the lab's learning rate; recorded."""
        _parts.clear()
        began, now = time.perf_counter(), current()
        number = now.first * now.run.settings.update.per_rollout_batch + self._updates
        self._updates += 1
        rate = learning_rate(now.run, number)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        outputs = super().train_batch(data, loss_function)  # type: ignore[misc]
        everyones: list[list[Part]] = [[] for _ in range(self.get_data_parallel_size())]
        torch.distributed.all_gather_object(everyones, _parts, group=self.get_data_parallel_group())
        if self.is_mp_src_rank_with_outputs() and self.get_data_parallel_rank() == 0:
            grad_norm = float(outputs["metrics"]["grad_norm"])
            parts = [part for one in everyones for part in one]
            record = _record(number, parts, grad_norm, time.perf_counter() - began)
            line = {"world": torch.distributed.get_world_size(), **to_dict(record)}
            with (now.path / UPDATES).open("a") as file:
                file.write(json.dumps(line) + "\n")
        return outputs


def _record(number: int, parts: list[Part], grad_norm: float, seconds: float) -> UpdateRecord:
    longest = max(part.mask_BT.shape[1] for part in parts)
    log_ratio_BT, mask_BT, adv_BT = (
        torch.cat([torch.nn.functional.pad(x_BT, (0, longest - x_BT.shape[1])) for x_BT in column])
        for column in zip(*((part.log_ratio_BT, part.mask_BT, part.adv_BT) for part in parts), strict=True)
    )
    loss, run = sum(part.loss for part in parts), current().run
    return measured(
        run,
        number,
        log_ratio_BT,
        mask_BT,
        adv_BT,
        loss=loss,
        grad_norm=grad_norm,
        learning_rate=learning_rate(run, number),
        nonfinite=int(not (math.isfinite(loss) and math.isfinite(grad_norm))),
        seconds=seconds,
    )


def _register(backends: list[str], module: str, of_models: str, of_values: str) -> None:
    """The lab's engines under a device name of their own (VERL_ENGINE_DEVICE), where the backend is installed."""
    try:
        found = __import__(module, fromlist=[of_models])
    except ImportError:
        return
    policy = type(f"Watched{of_models}", (Watched, getattr(found, of_models)), {})
    EngineRegistry.register("language_model", backends, DEVICE)(policy)
    EngineRegistry.register("value_model", backends, DEVICE)(getattr(found, of_values))


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
