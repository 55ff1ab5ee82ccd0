"""Models in this process: a run's checkpoints, a folder, a Hub id, a built-in model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gspo_lab.common.keys import Dtype
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.tasks.evaluation.benchmark_spec import Bench
from gspo_lab.tasks.evaluation.evaluation_run import Answered
from gspo_lab.tasks.evaluation.run_benchmark import (
    POSITIONS_AT_A_TIME,
    Question,
    answer_token_limit,
    answers,
    empty_answer,
)
from gspo_lab.training.models.builtin_models import is_byte_level
from gspo_lab.training.models.load import context_of, encode_prompt, load_model, set_thinking
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler

POSITIONS_ON_A_GPU = 262_144
"""A GPU is fast with many answers at once: for an 8B model with grouped queries these take about 40
GB.
"""


class LocalModel:
    """A model that is loaded at first use.

    Its arguments are those of `load_model` and `set_thinking`.
    """

    def __init__(
        self,
        name: str,
        checkpoint: Path | None,
        *,
        dtype: Dtype,
        device: str,
        seed: int = 0,
        thinking: bool | None = None,
    ) -> None:
        self._source = (name, checkpoint, dtype, device, seed)
        self._thinking = thinking
        self._loaded: tuple[Any, Any] | None = None

    def ready(self, bench: Bench) -> JsonMapping:
        """The model's context, the lowest and highest token limit of an answer, and what lowered
        them.
        """
        _, tokenizer = self._load()
        context, limit = self._limits(bench)
        lengths = [len(encode_prompt(tokenizer, problem.prompt)) for problem in bench.problems]
        limits = [answer_token_limit(length, limit, context) for length in lengths]
        lowered_by = None
        if min(limits) < limit:
            lowered_by = "context"
        elif limit < bench.sampling.max_tokens:
            lowered_by = "embedded"
        bounds = {
            "context": context,
            "lowest": min(limits),
            "highest": max(limits),
            "lowered_by": lowered_by,
        }
        return {**bounds, "device": self._source[3]}

    def answer(
        self, bench: Bench, pending: Sequence[Question], hand_over: Callable[[Answered], None]
    ) -> list[str]:
        """Sample answers and hand over each batch. Returns one line per kind of failure."""
        model, tokenizer = self._load()
        if diverged := _nonfinite_weights(model):
            self._loaded = None
            hand_over([(question, empty_answer(diverged)) for question in pending])
            return [f"{diverged}, so it was not asked and every answer counts as wrong"]
        context, limit = self._limits(bench)
        sampling = replace(bench.sampling, max_tokens=limit)
        at_a_time = POSITIONS_AT_A_TIME if model.device.type == "cpu" else POSITIONS_ON_A_GPU
        sampler = TransformersSampler(model, tokenizer)
        for part in answers(pending, bench.task, sampler, tokenizer, sampling, context, at_a_time):
            hand_over(part)
        self._loaded = None  # free memory for the next model
        return []

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            name, checkpoint, dtype, device, seed = self._source
            self._loaded = load_model(
                name, dtype=dtype, device=device, checkpoint=checkpoint, seed=seed
            )
            set_thinking(self._loaded[1], self._thinking)
        return self._loaded

    def _limits(self, bench: Bench) -> tuple[int | None, int]:
        """The model's context, and the token limit of an answer without regard to the context."""
        model, tokenizer = self._load()
        return context_of(model), bench.token_limit(byte_level=is_byte_level(tokenizer))


@torch.no_grad()
def _nonfinite_weights(model: Any) -> str | None:
    """Names a weight that is NaN or infinite, with which all answers are one token; None: all are
    finite.
    """
    weights = dict(model.named_parameters())
    odd = [name for name, weight in weights.items() if not weight.sum().isfinite()]
    return (
        f"its weights are not finite ({odd[0]}; {len(odd)} of {len(weights)} tensors)"
        if odd
        else None
    )
