"""A model behind an OpenAI-compatible server: concurrent requests; the answer to a failed one is
missing.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.evaluation.benchmark_spec import Bench
from gspo_lab.tasks.evaluation.evaluation_run import Answered
from gspo_lab.tasks.evaluation.run_benchmark import (
    ModelAnswer,
    Question,
    answer_token_limit,
    does_not_fit,
    empty_answer,
)
from gspo_lab.training.samplers.server_sampler import NoReply, ServerEndpoint, ServerSampler

GIVE_UP_AFTER = 8
"""Consecutive failures after which the server counts as gone and no more requests are sent."""

TEMPLATE_TOKENS = 256
"""More than any chat template adds to a message. A token has at least one byte, so that a prompt's
bytes plus these bound its tokens."""


class ServerModel:
    """The model of one server."""

    def __init__(self, server: ServerEndpoint) -> None:
        self._server = server
        self._context: int | None = None
        self._prompt_tokens: dict[str, int] = {}
        self._too_long: dict[str, str] = {}

    def ready(self, bench: Bench) -> JsonMapping:
        """The server's context, the lowest and highest token limit of an answer, and what lowered
        them.

        LabError for a task of several turns: a server returns no tokens to continue.
        """
        if bench.task.max_turns > 1:
            raise LabError(
                f"--bench {bench.name}: its answers have up to {bench.task.max_turns} turns, and a"
                " server gives one; evaluate a run, or a model in this process (--model without"
                " --server)"
            )
        asyncio.run(self._read_context(bench))
        limits = [self._token_limit(bench, problem.id) for problem in bench.problems]
        by = None if min(limits) == bench.sampling.max_tokens else "context"
        return {
            "context": self._context,
            "lowest": min(limits),
            "highest": max(limits),
            "lowered_by": by,
        }

    def answer(
        self, bench: Bench, pending: Sequence[Question], hand_over: Callable[[Answered], None]
    ) -> list[str]:
        """Request answers and hand over each. Returns one line per kind of failure."""
        return asyncio.run(self._answer(bench, pending, hand_over))

    async def _read_context(self, bench: Bench) -> None:
        """Request the context and, for long prompts, their lengths.

        Only the server can count tokens: an answer of one token comes with the prompt's length.
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
                    # Servers refuse a prompt that fills the context, and name it. Other failures
                    # appear later.
                    if failure.refused and "context" in str(failure).lower():
                        self._too_long[problem.id] = f"the prompt does not fit: {failure}"
                    return
                if reply.prompt_tokens is not None:
                    self._prompt_tokens[problem.id] = reply.prompt_tokens

            tight = [
                problem
                for problem in bench.problems
                if len(problem.prompt.encode(errors="replace")) > spare
            ]
            await asyncio.gather(*map(count, tight))

    def _token_limit(self, bench: Bench, problem: str) -> int:
        if problem in self._too_long:
            return 0
        length = self._prompt_tokens.get(problem)
        return (
            bench.sampling.max_tokens
            if length is None
            else answer_token_limit(length, bench.sampling.max_tokens, self._context)
        )

    async def _answer(
        self, bench: Bench, pending: Sequence[Question], hand_over: Callable[[Answered], None]
    ) -> list[str]:
        failures: Counter[str] = Counter()
        refused: set[str] = set()
        in_a_row = 0
        waiting = iter(pending)

        async def work(sampler: ServerSampler) -> None:
            nonlocal in_a_row
            for question in waiting:
                if in_a_row >= GIVE_UP_AFTER:
                    return
                problem = question.problem
                if problem.id in refused:
                    continue
                limit = self._token_limit(bench, problem.id)
                if not limit:
                    fills = does_not_fit(self._prompt_tokens.get(problem.id), self._context)
                    hand_over([(question, empty_answer(self._too_long.get(problem.id, fills)))])
                    continue
                sampling = replace(bench.sampling, max_tokens=limit)
                try:
                    reply = await sampler.ask(
                        problem.prompt, sampling, question.seed, chat=bench.chat
                    )
                except NoReply as failure:
                    failures[str(failure)] += 1
                    in_a_row += 1
                    if failure.refused:
                        refused.add(problem.id)  # its other samples would be refused too
                    continue
                in_a_row = 0
                answered_by = None if reply.model == self._server.model else reply.model
                answer = ModelAnswer(
                    reply.text, reply.tokens, reply.truncated, answered_by=answered_by
                )
                hand_over([(question, answer)])

        async with ServerSampler(self._server) as sampler:
            await asyncio.gather(
                *(work(sampler) for _ in range(min(self._server.at_once, len(pending))))
            )
        return [
            f"{reason} ({count} x)" if count > 1 else reason
            for reason, count in failures.most_common()
        ]
