"""The loss functions of TRL 1.16 and verl 0.9, called on the cases of `cases.py`.

What is not importable is skipped.
"""

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cases import HORIZON, Case, Result, entropy_of, imported, peer
from torch import Tensor

from gspo_lab.common.plain_data import JsonObject, OptionalFloat, OptionalInt
from gspo_lab.training.objectives import Objective

# ---------------------------------------------------------------------------------------------------------------- TRL  # noqa: E501


class OneProcess:
    """The part of an accelerator that the loss function talks to, for one process."""

    num_processes = 1
    sync_gradients = True

    def gather(self, x: Tensor) -> Tensor:
        return x

    def reduce(self, x: Tensor, reduction: str) -> Tensor:
        return x


@pytest.fixture(scope="module")
def trl() -> Callable[..., Result]:
    peer("trl", "1.16")

    def load() -> Any:
        from trl import GRPOTrainer

        return GRPOTrainer

    trainer = imported("trl", load)

    def loss(
        case: Case,
        settings: Objective,
        loss_type: str,
        *,
        delta: OptionalFloat = None,
        items: OptionalInt = None,
        sampler_ratio: Tensor | None = None,
        cap: OptionalFloat = None,
    ) -> Result:
        """TRL's loss on a case.

        `cap` is its `epsilon_high`, our clip_high by default; `items` are the tokens of the whole
        accumulation window (dapo), the case's own by default; `sampler_ratio` what it makes of
        vLLM's log-probs: [B, T] or, where it is of a sequence, [B, 1].
        """
        leaf = case.logp_BT.clone().requires_grad_()
        metrics: JsonObject = {"train": defaultdict(list), "eval": defaultdict(list)}
        stand_in = SimpleNamespace(
            _get_per_token_logps_and_entropies=lambda *args, **kwargs: (
                leaf,
                entropy_of(leaf),
                None,
            ),
            _entropy_bonus_enabled=settings.entropy_coef > 0,
            entropy_coef=settings.entropy_coef,
            use_adaptive_entropy=False,
            _metrics=metrics,
            accelerator=OneProcess(),
            args=SimpleNamespace(
                delta=delta,
                steps_per_generation=1,
                use_bias_correction_kl=settings.kl_estimate == "unbiased",
                sapo_temperature_pos=settings.sapo_tau_positive,
                sapo_temperature_neg=settings.sapo_tau_negative,
                vespo_k_pos=settings.vespo_k_positive,
                vespo_lambda_pos=settings.vespo_lambda_positive,
                vespo_k_neg=settings.vespo_k_negative,
                vespo_lambda_neg=settings.vespo_lambda_negative,
            ),
            get_gamma_weights=trainer.get_gamma_weights,
            aux_loss_enabled=False,
            beta=settings.kl_coef,
            current_gradient_accumulation_steps=1,
            epsilon_low=settings.clip_low,
            epsilon_high=settings.clip_high if cap is None else cap,
            importance_sampling_level=settings.importance_sampling_level,
            loss_type=loss_type,
            max_completion_length=HORIZON,
            model=SimpleNamespace(training=True),
            off_policy_mask_threshold=settings.off_policy_mask,
            get_off_policy_mask=trainer.get_off_policy_mask,
            top_entropy_quantile=1.0,
            use_vllm=sampler_ratio is not None,
            vllm_importance_sampling_correction=sampler_ratio is not None,
        )
        mask_BT = case.mask_BT.long()
        first_B1 = case.adv_BT[:, :1]
        per_token = not torch.equal(first_B1 * case.mask_BT, case.adv_BT)
        inputs = {
            "prompt_ids": torch.zeros_like(mask_BT[:, :1]),
            "prompt_mask": torch.ones_like(mask_BT[:, :1]),
            "completion_ids": torch.zeros_like(mask_BT),
            "completion_mask": mask_BT,
            "advantages": case.adv_BT if per_token else first_B1[:, 0],
            "old_per_token_logps": case.old_BT,
            "ref_per_token_logps": case.ref_BT,
            "sampling_per_token_logps": case.sampler_BT,
            "num_items_in_batch": torch.tensor(
                float(case.mask_BT.sum()) if items is None else float(items)
            ),
            "importance_sampling_ratio": sampler_ratio,
        }
        value = trainer._compute_loss(stand_in, None, inputs)
        value.backward()
        numbers = {key: sum(values) for key, values in metrics["train"].items()}
        return Result(float(value.detach()), leaf.grad, numbers)

    return loss


# --------------------------------------------------------------------------------------------------------------- verl  # noqa: E501


@pytest.fixture(scope="module")
def verl_modules() -> Any:
    peer("verl", "0.9")

    def load() -> Any:
        from verl.trainer.ppo import core_algos
        from verl.workers.config import ActorConfig, PolicyLossConfig

        return core_algos, ActorConfig, PolicyLossConfig

    return imported("verl", load)


@pytest.fixture(scope="module")
def verl(verl_modules: Any) -> Callable[..., Result]:
    core_algos, actor_config, policy_loss_config = verl_modules

    def loss(
        case: Case,
        settings: Objective,
        name: str,
        method: str,
        *,
        dual_clip: float = 3.0,
        complete: Case | None = None,
        weights: Tensor | None = None,
    ) -> Result:
        """verl's loss on a case.

        `complete` is the mini-batch that `case` is a part of, `weights` the rollout correction's.
        """
        config = actor_config(
            strategy="fsdp",
            rollout_n=1,
            use_dynamic_bsz=True,
            clip_ratio=settings.clip_low,
            clip_ratio_low=settings.clip_low,
            clip_ratio_high=settings.clip_high,
            clip_ratio_c=dual_clip,
            loss_agg_mode=method,
            tau_pos=settings.sapo_tau_positive,
            tau_neg=settings.sapo_tau_negative,
            policy_loss=policy_loss_config(
                clip_cov_ratio=settings.clip_cov_share,
                clip_cov_lb=settings.clip_cov_low,
                clip_cov_ub=settings.clip_cov_high,
                kl_cov_ratio=settings.kl_cov_share,
                ppo_kl_coef=settings.kl_cov_coef,
            ),
        )
        config.global_batch_info.clear()
        if complete is not None:
            config.global_batch_info.update(
                dp_size=1,
                batch_num_tokens=int(complete.mask_BT.sum()),
                global_batch_size=len(complete.mask_BT),
            )
        if method == "seq-mean-token-sum-norm":
            config.global_batch_info["loss_scale_factor"] = HORIZON
        leaf = case.logp_BT.clone().requires_grad_()
        value, numbers = core_algos.get_policy_loss_fn(name)(
            old_log_prob=case.old_BT,
            log_prob=leaf,
            advantages=case.adv_BT,
            response_mask=case.mask_BT.float(),
            loss_agg_mode=method,
            config=config,
            rollout_is_weights=weights,
        )
        value.backward()
        return Result(float(value.detach()), leaf.grad, numbers)

    return loss
