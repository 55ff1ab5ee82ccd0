"""A critic: a model of its own that says of every state what reward it expects. Before the policy's
updates of a step its values give advantages and returns; it learns the returns on each mini-batch.

Shapes as in experience.py; M rows of a mini-batch, H hidden size. The value of a token is of the
state before it.
"""

import copy
import time
from typing import Any

import torch
from torch import Tensor

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalFloat
from gspo_lab.study import Settings
from gspo_lab.training.engines.native.experience import Experience, Microbatch, microbatches
from gspo_lab.training.engines.native.trainable_model import TrainableModel
from gspo_lab.training.models.load import computing_in
from gspo_lab.training.objectives import (
    at_last_token,
    gae,
    sequence_advantages,
    value_loss,
    whitened,
)


class ValueModel(torch.nn.Module):
    """A causal language model's body with a scalar head of zeros: its first values are 0, whatever
    the seed.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        if model.base_model is model:
            raise LabError(
                "advantage = 'gae': the model has no body apart from its head, to put a value"
                " head on"
            )
        self.body = copy.deepcopy(model.base_model)
        self.head = torch.nn.Linear(model.config.get_text_config().hidden_size, 1, bias=False)
        torch.nn.init.zeros_(self.head.weight)
        self.to(next(model.parameters()).device)

    def forward(self, part: Microbatch) -> Tensor:
        """[B, T] float32, 0 off the loss mask."""
        hidden_BSH = self.body(**part.inputs, use_cache=False).last_hidden_state
        return self.head(hidden_BSH[:, -part.length :])[..., 0].float() * part.mask_BT  # type: ignore[no-any-return]

    def get_input_embeddings(self) -> Any:
        """The body's."""
        return self.body.get_input_embeddings()

    def get_output_embeddings(self) -> None:
        """None: no head over a vocabulary."""


class Critic:
    """Values, and with them advantages; trained beside the policy.

    `model` is the policy's at its start.
    """

    def __init__(self, model: Any, settings: Settings) -> None:
        self.objective = settings.objective
        self.clip = settings.critic.value_clip
        self.trained = TrainableModel(ValueModel(model), settings.critic_update)
        self._budget = settings.update.microbatch_tokens
        self._dtype = settings.update.dtype

    @torch.no_grad()
    def advantages(self, experience: Experience, reward_N: Tensor) -> Tensor:
        """[N, T] advantages of responses that earned `reward_N` at their end; fills in values and
        returns.
        """
        value_NT = torch.zeros_like(experience.old_logp_NT)
        for part in microbatches(experience, torch.arange(len(value_NT)), self._budget, every=True):
            value_NT[part.block] = self._values(part)
        mask_NT = experience.mask_NT
        settings = self.objective
        reward_NT = at_last_token(reward_N.to(value_NT), mask_NT)
        adv_NT, return_NT = gae(
            reward_NT, value_NT, mask_NT, gamma=settings.gamma, gae_lambda=settings.gae_lambda
        )
        experience.value_NT = value_NT
        experience.return_NT = return_NT
        if settings.whiten_advantages:
            adv_NT = whitened(adv_NT, mask_NT)
        if settings.importance_sampling_level == "sequence":
            adv_NT = sequence_advantages(adv_NT, mask_NT, settings.sequence_advantage)
        return adv_NT

    def update(self, experience: Experience, rows: Tensor) -> tuple[dict[str, OptionalFloat], bool]:
        """Learn the returns of one mini-batch, of all its responses: the UpdateRecord's columns of
        a critic, and whether the step was finite."""
        started = time.perf_counter()
        tokens = int(experience.mask_NT[rows].sum())
        loss, clipped, total = self._passes(experience, rows, tokens)
        while not self.trained.unscale():
            loss, clipped, total = self._passes(experience, rows, tokens)
        step_columns, finite = self.trained.step(loss)
        count = max(tokens, 1)
        columns = {
            "value_loss": loss,
            "value_mean": total / count,
            "value_clip_fraction": clipped / count,
            "critic_grad_norm": step_columns["grad_norm"],
            "critic_seconds": time.perf_counter() - started,
        }
        return columns, finite

    def _passes(
        self, experience: Experience, rows: Tensor, tokens: int
    ) -> tuple[float, float, float]:
        """Gather a mini-batch's gradient: its loss, how many values are clipped, and the sum of all
        values.
        """
        assert experience.value_NT is not None
        assert experience.return_NT is not None
        loss = clipped = total = 0.0
        self.trained.zero_grad()
        for part in microbatches(experience, rows, self._budget, every=True):
            value_BT = self._values(part)
            out = value_loss(
                value_BT,
                experience.value_NT[part.block],
                experience.return_NT[part.block],
                part.mask_BT,
                tokens=tokens,
                clip=self.clip,
            )
            self.trained.backward(out.loss)
            loss += float(out.loss.detach())
            clipped += float(out.clipped_BT.sum())
            total += float(value_BT.detach().sum())
        return loss, clipped, total

    def _values(self, part: Microbatch) -> Tensor:
        device = next(self.trained.model.parameters()).device.type
        with computing_in(self._dtype, device):
            value_BT: Tensor = self.trained.model(part)
        return value_BT
