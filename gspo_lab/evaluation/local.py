"""Models that answer in this process: a run's checkpoints, a folder, a Hub id, an embedded model."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from gspo_lab.evaluation.ask import POSITIONS_AT_A_TIME, Question, answers, not_asked, room
from gspo_lab.evaluation.bench import Bench
from gspo_lab.evaluation.session import Answered
from gspo_lab.models.embedded import is_byte_level
from gspo_lab.models.load import context_of, encode_prompt, load_model, set_thinking
from gspo_lab.samplers.base import Sampling
from gspo_lab.samplers.transformers_sampler import TransformersSampler

POSITIONS_ON_A_GPU = 262_144
"""A GPU wants many answers at once: of an 8B model with grouped queries this many positions take about 40 GB."""

Dtype = Literal["float32", "bfloat16"]


class LocalModel:
    """A model that is loaded when it is first asked. `name` and `checkpoint` as in `load_model`, `thinking` as in
    `set_thinking`.
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
        self._wanted = (name, checkpoint, dtype, device, seed)
        self._thinking = thinking
        self._loaded: tuple[Any, Any] | None = None

    def ready(self, bench: Bench) -> Mapping[str, Any]:
        """The model's context, the lowest and highest token limit of an answer, and what lowered them.

        "context": that leaves no more room behind some prompt. "embedded": the model is one.
        """
        _, tokenizer = self._load()
        context, limit = self._limits(bench)
        lengths = [len(encode_prompt(tokenizer, problem.prompt)) for problem in bench.problems]
        rooms = [room(length, limit, context) for length in lengths]
        by = None if min(rooms) == bench.sampling.max_tokens else "context" if min(rooms) < limit else "embedded"
        limits = {"context": context, "lowest": min(rooms), "highest": max(rooms), "lowered_by": by}
        return {**limits, "device": self._wanted[3]}

    def answer(self, bench: Bench, wanted: Sequence[Question], hand_over: Callable[[Answered], None]) -> list[str]:
        """Ask a model in this process and hand over every answer as it comes; lines for people on what went wrong."""
        model, tokenizer = self._load()
        if dead := _dead(model):
            self._loaded = None
            hand_over([(question, not_asked(dead)) for question in wanted])
            return [f"{dead}, so it was not asked and every answer counts as wrong"]
        context, limit = self._limits(bench)
        how = bench.sampling
        sampling = Sampling(how.temperature, how.top_p, limit, how.stop)
        at_a_time = POSITIONS_ON_A_GPU if model.device.type == "cuda" else POSITIONS_AT_A_TIME
        sampler = TransformersSampler(model, tokenizer)
        for part in answers(wanted, bench.task, sampler, tokenizer, sampling, context, at_a_time):
            hand_over(part)
        self._loaded = None  # the next model needs the room
        return []

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            name, checkpoint, dtype, device, seed = self._wanted
            self._loaded = load_model(name, dtype=dtype, device=device, checkpoint=checkpoint, seed=seed)
            set_thinking(self._loaded[1], self._thinking)
        return self._loaded

    def _limits(self, bench: Bench) -> tuple[int | None, int]:
        """The model's context, and the token limit of an answer for all that the context says."""
        model, tokenizer = self._load()
        return context_of(model), bench.token_limit(byte_level=is_byte_level(tokenizer))


@torch.no_grad()
def _dead(model: Any) -> str | None:
    """In words, which weight is NaN or infinite, so that every answer would be the same token; None: none is."""
    weights = dict(model.named_parameters())
    sick = [name for name, weight in weights.items() if not weight.sum().isfinite()]
    return f"its weights are not finite ({sick[0]}; {len(sick)} of {len(weights)} tensors)" if sick else None


def device_of(wanted: str) -> str:
    """`auto` is CUDA where there is one."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted
