"""Responses of several turns, drawn from a real model that knows nothing.

Any printable character ends a turn.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from assertions import assert_fields
from followed import SMALL, TOKENIZER

from gspo_lab.common.plain_data import OptionalText
from gspo_lab.tasks import Problem, ReplyError, Turn
from gspo_lab.tasks.addition import Addition
from gspo_lab.training.models.builtin_models import build
from gspo_lab.training.samplers import Request, Rollout, Sampling, noise_key
from gspo_lab.training.samplers.multi_turn import sample_multi_turn
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler

PROBLEMS = [Problem(f"p{n}", "?" * (n + 1), "") for n in range(6)]
REQUESTS = [
    Request(p.id, tuple(TOKENIZER.encode(p.prompt)), 0, noise_key("turns", p.id)) for p in PROBLEMS
]
SAMPLING = Sampling(max_tokens=60, stop=tuple(map(chr, range(32, 127))))
REPLY = " a\nb "


class Echo(Addition):
    """Replies the same whatever it hears; it holds stop texts from its first character on."""

    max_turns = 3
    output: OptionalText = REPLY

    def reply(self, problem: Problem, turns: Sequence[Turn]) -> OptionalText:
        return self.output


@pytest.fixture(scope="module")
def sampler() -> TransformersSampler:
    return TransformersSampler(build("tiny-qwen3", 1, SMALL), TOKENIZER)


def conversed(
    sampler: TransformersSampler, task: Addition, sampling: Sampling = SAMPLING
) -> list[Rollout]:
    return sample_multi_turn(sampler, REQUESTS, PROBLEMS, task, TOKENIZER, sampling)


def test_turns_and_replies_stand_by_turns_and_only_the_replies_are_off_the_mask(
    sampler: TransformersSampler,
) -> None:
    reply_ids = TOKENIZER.encode(REPLY)
    for request, rollout in zip(REQUESTS, conversed(sampler, Echo()), strict=True):
        assert rollout.request == request
        assert [turn.reply for turn in rollout.turns] == [REPLY, REPLY, None]
        assert not rollout.truncated
        mask: list[bool] = []
        for turn in rollout.turns:
            mask += [True] * turn.tokens + [False] * len(reply_ids) * (turn.reply is not None)
        assert rollout.loss_mask == mask
        peer = [token for token, mine in zip(rollout.response_ids, mask, strict=True) if not mine]
        assert peer == reply_ids * 2
        assert [logp for logp, mine in zip(rollout.logprobs, mask, strict=True) if not mine] == [
            0.0
        ] * len(peer)
        assert REPLY in rollout.text


def test_log_probs_are_the_models_behind_all_that_stands_before(
    sampler: TransformersSampler,
) -> None:
    for rollout in conversed(sampler, Echo()):
        ids = torch.tensor([[*rollout.request.prompt_ids, *rollout.response_ids]])
        with torch.no_grad():
            logp = sampler._model(ids).logits[0].float().log_softmax(-1)
        start = len(rollout.request.prompt_ids) - 1
        for t, (token, mine) in enumerate(
            zip(rollout.response_ids, rollout.loss_mask, strict=True)
        ):
            assert rollout.logprobs[t] == pytest.approx(
                float(logp[start + t, token]) if mine else 0.0, abs=2e-5
            )


def test_a_task_of_one_turn_is_sampled_as_ever(sampler: TransformersSampler) -> None:
    plain = sampler.sample(REQUESTS, SAMPLING)
    assert conversed(sampler, Addition()) == plain
    assert plain[0].turns is None
    # Where the environment has nothing to say the first turn is that response too, but for being
    # called a turn.
    silent = Echo()
    silent.output = None
    for item, other in zip(conversed(sampler, silent), plain, strict=True):
        assert item.turns == [Turn(other.text, tokens=len(other.response_ids))]
        assert replace(item, turns=None) == other


def test_an_empty_reply_lets_the_model_go_on(sampler: TransformersSampler) -> None:
    task = Echo()
    task.output = ""
    for rollout in conversed(sampler, task):
        assert len(rollout.turns) == 3
        assert sum(turn.tokens for turn in rollout.turns) == len(rollout.response_ids)
        assert rollout.loss_mask is None


def test_an_endless_conversation_ends_at_the_token_limit(sampler: TransformersSampler) -> None:
    task = Echo()
    task.max_turns = 10**9
    for rollout in conversed(sampler, task):
        assert rollout.truncated
        assert len(rollout.response_ids) <= SAMPLING.max_tokens
        # It ended in a turn that was cut, or with a reply that would have left no token: that one
        # is left out.
        assert rollout.turns[-1].reply is None
        assert len(rollout.response_ids) + len(REPLY) + 1 > SAMPLING.max_tokens
        assert rollout.loss_mask[-1]


def test_a_reply_that_leaves_no_token_is_left_out(sampler: TransformersSampler) -> None:
    task = Echo()
    task.output = "x" * SAMPLING.max_tokens
    for rollout, plain in zip(
        conversed(sampler, task), sampler.sample(REQUESTS, SAMPLING), strict=True
    ):
        assert rollout.response_ids == plain.response_ids
        assert rollout.truncated
        assert [turn.reply for turn in rollout.turns] == [None]


def test_a_reply_that_fails_ends_its_own_response_alone(sampler: TransformersSampler) -> None:
    class Broken(Echo):
        def reply(self, problem: Problem, turns: Sequence[Turn]) -> OptionalText:
            if problem.id == "p2" and len(turns) == 2:
                raise ReplyError("it broke")
            return REPLY

    complete = conversed(sampler, Echo())
    broken = conversed(sampler, Broken())
    for place in (0, 1, 3, 4, 5):  # log-probs have other last bits in another batch
        assert_fields(
            broken[place], response_ids=complete[place].response_ids, turns=complete[place].turns
        )
    assert [turn.error for turn in broken[2].turns] == [None, "it broke"]
    assert broken[2].response_ids == complete[2].response_ids[: len(broken[2].response_ids)]
    assert not broken[2].truncated


def test_a_request_with_a_lower_limit_keeps_it(sampler: TransformersSampler) -> None:
    requests = [replace(request, max_tokens=20) for request in REQUESTS]
    task = Echo()
    task.max_turns = 100
    assert (
        max(
            len(item.response_ids)
            for item in sample_multi_turn(sampler, requests, PROBLEMS, task, TOKENIZER, SAMPLING)
        )
        <= 20
    )
