"""A model behind an OpenAI-compatible server: many requests in flight; a failed one leaves its answer missing."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.evaluation.ask import Answer, Question, does_not_fit, not_asked, room
from gspo_lab.evaluation.bench import Bench
from gspo_lab.evaluation.session import Answered
from gspo_lab.samplers.server_sampler import NoReply, Server, ServerSampler
from gspo_lab.tasks.base import Problem

GIVE_UP_AFTER = 8
"""Failures with no answer in between after which nothing more is asked: the server is gone."""

TEMPLATE_TOKENS = 256
"""More than any chat template adds to a message. No token is shorter than a byte, so that with these a prompt's bytes
bound its tokens."""


class ServerModel:
    """Asks the model of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._context: int | None = None
        self._prompt_tokens: dict[str, int] = {}
        self._unfit: dict[str, str] = {}

    def ready(self, bench: Bench) -> Mapping[str, Any]:
        """The context that the server tells of, the lowest and highest token limit of an answer, what lowered them.

        LabError for a task of several turns: a server is asked by text, and tells no tokens to go on behind.
        """
        if bench.task.max_turns > 1:
            raise LabError(
                f"--bench {bench.name}: its answers have up to {bench.task.max_turns} turns, and a server is asked for "
                "one; ask a run, or a model in this process (--model without --server)"
            )
        asyncio.run(self._look(bench))
        rooms = [self._room(bench, problem.id) for problem in bench.problems]
        by = None if min(rooms) == bench.sampling.max_tokens else "context"
        return {"context": self._context, "lowest": min(rooms), "highest": max(rooms), "lowered_by": by}

    def answer(self, bench: Bench, wanted: Sequence[Question], hand_over: Callable[[Answered], None]) -> list[str]:
        """Ask the server and hand over every answer as it comes; lines for people on what went wrong."""
        return asyncio.run(self._answer(bench, wanted, hand_over))

    async def _look(self, bench: Bench) -> None:
        """Ask for the context and, where prompts may not leave what is asked of it, for the prompts' lengths.

        Nobody but the server can count: an answer of one token comes with the prompt's.
        """
        async with ServerSampler(self._server) as sampler:
            self._context = await sampler.context()
            if self._context is None:
                return
            spare = self._context - bench.sampling.max_tokens - TEMPLATE_TOKENS
            one_token = replace(bench.sampling, max_tokens=1)

            async def count(problem: Problem) -> None:
                try:
                    reply = await sampler.ask(problem.prompt, one_token, seed=0, chat=bench.chat)
                except NoReply as failure:
                    # Servers refuse a prompt that fills the context, and name it. What else fails is told when asked.
                    if failure.refused and "context" in str(failure).lower():
                        self._unfit[problem.id] = f"the prompt does not fit: {failure}"
                    return
                if reply.prompt_tokens is not None:
                    self._prompt_tokens[problem.id] = reply.prompt_tokens

            tight = [problem for problem in bench.problems if len(problem.prompt.encode(errors="replace")) > spare]
            await asyncio.gather(*map(count, tight))

    def _room(self, bench: Bench, problem: str) -> int:
        if problem in self._unfit:
            return 0
        length = self._prompt_tokens.get(problem)
        return bench.sampling.max_tokens if length is None else room(length, bench.sampling.max_tokens, self._context)

    async def _answer(
        self, bench: Bench, wanted: Sequence[Question], hand_over: Callable[[Answered], None]
    ) -> list[str]:
        failures: Counter[str] = Counter()
        refused: set[str] = set()
        in_a_row = 0
        waiting = iter(wanted)

        async def work(sampler: ServerSampler) -> None:
            nonlocal in_a_row
            for question in waiting:
                if in_a_row >= GIVE_UP_AFTER:
                    return
                problem = question.problem
                if problem.id in refused:
                    continue
                limit = self._room(bench, problem.id)
                if not limit:
                    fills = does_not_fit(self._prompt_tokens.get(problem.id), self._context)
                    hand_over([(question, not_asked(self._unfit.get(problem.id, fills)))])
                    continue
                sampling = replace(bench.sampling, max_tokens=limit)
                try:
                    reply = await sampler.ask(problem.prompt, sampling, question.seed, chat=bench.chat)
                except NoReply as failure:
                    failures[str(failure)] += 1
                    in_a_row += 1
                    if failure.refused:
                        refused.add(problem.id)  # its other samples would be refused in the same words
                    continue
                in_a_row = 0
                another = None if reply.model == self._server.model else reply.model
                answer = Answer(reply.text, reply.tokens, reply.truncated, answered_by=another)
                hand_over([(question, answer)])

        async with ServerSampler(self._server) as sampler:
            await asyncio.gather(*(work(sampler) for _ in range(min(self._server.at_once, len(wanted)))))
        return [f"{reason} ({count} x)" if count > 1 else reason for reason, count in failures.most_common()]
