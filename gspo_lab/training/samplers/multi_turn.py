"""Sample responses of several turns: the model writes, the task's environment replies, the model
continues.

    prompt ─> turn ─> reply ─> turn ─> ... ─> until the environment has no reply, or no turn or
    token is left

Every turn continues the response so far (`Request.given_ids`). All unfinished responses are sampled
in one batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any

from gspo_lab.common.plain_data import Integers
from gspo_lab.tasks.base import Problem, Problems, ReplyError, Task, Turn
from gspo_lab.training.samplers.base import Request, Rollout, Sampler, Sampling, joined
from gspo_lab.training.samplers.stopping import plain_text


def sample_multi_turn(
    sampler: Sampler,
    requests: Sequence[Request],
    problems: Problems,
    task: Task,
    tokenizer: Any,
    sampling: Sampling,
    *,
    routes: bool = False,
) -> list[Rollout]:
    """One complete response per request, in order. The token limit counts turns and replies; a
    response is truncated if it cuts a turn, or if a reply, then left out, leaves no token for the
    next."""
    if task.max_turns == 1:
        return sampler.sample(requests, sampling, routes=routes)
    dialogues = list(starmap(_Dialogue, zip(requests, problems, strict=True)))
    unfinished = dialogues
    for turn in range(task.max_turns):
        drawn = sampler.sample(
            [dialogue.next_request(sampling) for dialogue in unfinished], sampling, routes=routes
        )
        for dialogue, rollout in zip(unfinished, drawn, strict=True):
            text = plain_text(tokenizer, rollout.response_ids)
            ends = [end for end in map(text.find, sampling.stop) if end >= 0]
            dialogue.add_turn(rollout, text[: min(ends, default=None)])
        if turn + 1 < task.max_turns:
            unfinished = [
                dialogue for dialogue in unfinished if dialogue.add_reply(task, tokenizer, sampling)
            ]
        if not unfinished:
            break
    return [dialogue.to_rollout() for dialogue in dialogues]


@dataclass(slots=True)
class _Dialogue:
    """An unfinished response."""

    request: Request
    problem: Problem
    turns: list[Turn] = field(default_factory=list)
    given_ids: Integers = ()
    rollout: Rollout | None = None

    def next_request(self, sampling: Sampling) -> Request:
        """The request for the next turn."""
        return replace(
            self.request, given_ids=self.given_ids, max_tokens=self._tokens_left(sampling)
        )

    def add_turn(self, rollout: Rollout, text: str) -> None:
        """Append a turn."""
        self.turns.append(Turn(text, tokens=len(rollout.response_ids)))
        self.rollout = rollout if self.rollout is None else joined(self.rollout, rollout)
        self.given_ids += tuple(rollout.response_ids)

    def add_reply(self, task: Task, tokenizer: Any, sampling: Sampling) -> bool:
        """Append the environment's reply to the last turn; False if the response is finished."""
        from gspo_lab.training.models.load import encode_reply  # here, because it imports torch

        assert self.rollout is not None
        if self.rollout.truncated:
            return False
        try:
            reply = task.reply(self.problem, self.turns)
        except ReplyError as error:
            self.turns[-1] = replace(self.turns[-1], error=str(error))
            return False
        if reply is None:
            return False
        # Append the reply's tokens to the drawn ones. Tokenising the complete text again could give
        # tokens that the model never drew, with other log-probs.
        self.given_ids += tuple(
            encode_reply(tokenizer, reply, list(self.given_ids), chat=task.chat)
        )
        if self._tokens_left(sampling) < 1:
            self.rollout.truncated = True
            return False
        self.turns[-1] = replace(self.turns[-1], reply=reply)
        return True

    def to_rollout(self) -> Rollout:
        """The complete response."""
        assert self.rollout is not None
        return replace(self.rollout, request=self.request, turns=self.turns)

    def _tokens_left(self, sampling: Sampling) -> int:
        limit = min(sampling.max_tokens, self.request.max_tokens or sampling.max_tokens)
        return limit - len(self.given_ids)
