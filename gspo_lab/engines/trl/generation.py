"""TRL's own generation, asked for the lab's prompts: what it draws, as rollouts.

It tells no log-probs, so that they are read off the model's passes while it draws. Shapes: n responses, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from gspo_lab.engines.native.course import Course
from gspo_lab.samplers.base import Request, Rollout
from gspo_lab.samplers.stopping import Stopping, eos_ids


class Generation:
    """Draws by the trainer's `_generate_single_turn`, with torch's random numbers; ends at the task's stop texts."""

    def __init__(self, trainer: GRPOTrainer, course: Course) -> None:
        self._trainer, self._model = trainer, course.parts.policy.model
        sampling = course.parts.sampling
        self._temperature = sampling.temperature
        self._stopping = Stopping(course.parts.tokenizer, sampling.stop, eos_ids(self._model))
        # Tokens that hold a stop text whole end a response like the end of a sequence; what spans tokens is cut behind.
        trainer.eos_token_ids = sorted(self._stopping.ids)
        for settings in (trainer.generation_config, trainer.generation_kwargs):
            given = {"eos_token_id": trainer.eos_token_ids, "max_new_tokens": sampling.max_tokens}
            settings.update(**given)

    def sample(self, requests: Sequence[Request]) -> list[Rollout]:
        """One rollout per request, in the order of the requests."""
        prompts = [list(request.prompt_ids) for request in requests]
        with _Drawing(self._model, self._temperature) as drawing:
            drawn, _ = self._trainer._generate_single_turn(prompts, None, {}, self._trainer.num_generations)
        logprobs = drawing.logprobs(drawn)
        out = []
        for request, ids, logp in zip(requests, drawn, logprobs, strict=True):
            end = self._stopping.end(ids)
            text = self._stopping.text(ids[:end])
            out.append(Rollout(request, ids[:end], logp[:end], text, truncated=end is None))
        return out


class _Drawing:
    """The log-probs of drawn tokens: those that a pass is given were drawn from the pass before."""

    def __init__(self, model: Any, temperature: float) -> None:
        self._model, self._temperature = model, temperature
        self._logp_nV: Tensor | None = None
        self._columns: list[Tensor] = []

    def __enter__(self) -> "_Drawing":
        self._hook = self._model.register_forward_hook(self._passed, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _passed(self, _: Any, args: Any, given: dict[str, Any], out: Any) -> None:
        self._tell(given["input_ids"][:, -1])
        self._logp_nV = (out.logits[:, -1].float() / self._temperature).log_softmax(dim=-1)

    def _tell(self, token_n: Tensor) -> None:
        if self._logp_nV is not None:
            self._columns.append(self._logp_nV.gather(1, token_n[:, None])[:, 0])

    def logprobs(self, drawn: Sequence[Sequence[int]]) -> list[list[float]]:
        """By response those of its tokens. The last ones drawn were given to no pass."""
        last = len(self._columns)
        assert self._logp_nV is not None
        self._tell(torch.tensor([ids[last] if len(ids) > last else 0 for ids in drawn], device=self._logp_nV.device))
        rows = torch.stack(self._columns, dim=1).tolist()
        return [row[: len(ids)] for row, ids in zip(rows, drawn, strict=True)]
