"""Responses of several turns: the model writes, the task's environment replies, the model goes on behind the reply.

    prompt ─> turn ─> reply ─> turn ─> ... ─> the environment has no reply, no turn is left, or no token

Every turn is one continuation of what stands so far (`Request.given_ids`), asked of all responses that go on together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gspo_lab.samplers.base import Request, Rollout, Sampler, Sampling, joined
from gspo_lab.tasks.base import Problem, ReplyError, Task, Turn


def converse(
    sampler: Sampler,
    requests: Sequence[Request],
    problems: Sequence[Problem],
    task: Task,
    tokenizer: Any,
    sampling: Sampling,
    *,
    routes: bool = False,
) -> list[Rollout]:
    """One whole response per request, in their order; `problems` are those that each request asks.

    A token limit is that of a response's turns and replies together. A response is truncated where a turn is cut at it,
    and where a reply leaves no token for the next turn: that reply is left out.
    """
    if task.max_turns == 1:
        return sampler.sample(requests, sampling, routes=routes)
    talks = [_Talk(one, problem) for one, problem in zip(requests, problems, strict=True)]
    going = talks
    for turn in range(task.max_turns):
        drawn = sampler.sample([talk.next_request(sampling) for talk in going], sampling, routes=routes)
        for talk, rollout in zip(going, drawn, strict=True):
            text = str(tokenizer.decode(rollout.response_ids, skip_special_tokens=True))
            ends = [end for end in map(text.find, sampling.stop) if end >= 0]
            talk.said(rollout, text[: min(ends, default=None)])
        if turn + 1 < task.max_turns:
            going = [talk for talk in going if talk.replied(task, tokenizer, sampling)]
        if not going:
            break
    return [talk.whole() for talk in talks]


@dataclass(slots=True)
class _Talk:
    """One response on its way."""

    request: Request
    problem: Problem
    turns: list[Turn] = field(default_factory=list)
    given_ids: tuple[int, ...] = ()
    rollout: Rollout | None = None

    def next_request(self, sampling: Sampling) -> Request:
        """Asks for the next turn."""
        return replace(self.request, given_ids=self.given_ids, max_tokens=self._room(sampling))

    def said(self, rollout: Rollout, text: str) -> None:
        """Take a turn in."""
        self.turns.append(Turn(text, tokens=len(rollout.response_ids)))
        self.rollout = rollout if self.rollout is None else joined(self.rollout, rollout)
        self.given_ids += tuple(rollout.response_ids)

    def replied(self, task: Task, tokenizer: Any, sampling: Sampling) -> bool:
        """Put the environment's reply behind the last turn; False where the response is over."""
        from gspo_lab.models.load import encode_reply  # who asks a server needs no torch

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
        # The reply's tokens go behind those that the model drew. To tokenise the whole text anew could give other
        # tokens for what it wrote, which it never drew and which have other log-probs.
        self.given_ids += tuple(encode_reply(tokenizer, reply, list(self.given_ids), chat=task.chat))
        if self._room(sampling) < 1:
            self.rollout.truncated = True
            return False
        self.turns[-1] = replace(self.turns[-1], reply=reply)
        return True

    def whole(self) -> Rollout:
        """The response as one rollout."""
        assert self.rollout is not None
        return replace(self.rollout, request=self.request, turns=self.turns)

    def _room(self, sampling: Sampling) -> int:
        limit = min(sampling.max_tokens, self.request.max_tokens or sampling.max_tokens)
        return limit - len(self.given_ids)
