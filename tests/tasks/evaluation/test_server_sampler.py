"""Asking a server: what is sent, what comes back, what is tried again, and what is no answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TypeVar

import pytest
from calling import lab_error
from tiny_server import MODEL, TinyServer, serving
from waiting import until

from gspo_lab.common.errors import LabError
from gspo_lab.training.samplers.base import Sampling
from gspo_lab.training.samplers.server_sampler import NoReply, Reply, ServerEndpoint, ServerSampler

Result = TypeVar("Result")
SAMPLING = Sampling(temperature=0.8, top_p=0.9, max_tokens=12, stop=("e",))


def with_sampler(
    place: ServerEndpoint, what: Callable[[ServerSampler], Awaitable[Result]]
) -> Result:
    async def run() -> Result:
        async with ServerSampler(place) as sampler:
            return await what(sampler)

    return asyncio.run(run())


def ask(
    server: TinyServer, *, seed: int = 1, chat: bool = True, tries: int = 6, prompt: str = "1+1="
) -> Reply:
    place = ServerEndpoint(server.url, MODEL, tries=tries)
    return with_sampler(place, lambda sampler: sampler.ask(prompt, SAMPLING, seed, chat=chat))


@pytest.mark.parametrize("chat", [True, False])
def test_an_answer_is_the_models_own(server: TinyServer, chat: bool) -> None:
    replies = [ask(server, seed=seed, chat=chat) for seed in range(6)]
    how = {"temperature": 0.8, "top_p": 0.9, "max_tokens": 12, "stop": ["e"]}
    for seed, reply in enumerate(replies):
        rollout = server.rollout("1+1=", {**how, "seed": seed})
        assert reply == Reply(rollout.text, len(rollout.response_ids), rollout.truncated, 4, MODEL)
    assert len({reply.text for reply in replies}) > 3
    assert {reply.truncated for reply in replies} == {True, False}


@pytest.mark.parametrize("fault", [429, 500, 503, 408, "drop", "garbage"])
def test_what_passes_by_itself_is_tried_again(server: TinyServer, fault: object) -> None:
    calm = ask(server)
    server.faults += [fault, fault]
    assert ask(server) == calm
    assert len(server.asked) == 4
    assert server.times[2] - server.times[1] >= 0.025
    assert server.times[3] - server.times[2] >= 0.05, "pauses grow"


def test_retry_after_is_waited_for(server: TinyServer) -> None:
    server.faults.append((429, 1))
    ask(server)
    assert server.times[1] - server.times[0] >= 1
    moment = (datetime.now(UTC) + timedelta(seconds=1)).replace(microsecond=0)
    behind = time.time() - time.monotonic()
    server.faults.append((503, format_datetime(moment, usegmt=True)))
    ask(server)
    assert server.times[3] + behind >= moment.timestamp() - 0.1  # however late the first was asked
    server.faults.append((429, 86_400))
    with pytest.raises(NoReply, match="the server asks to wait 86400 s"):
        ask(server)
    server.faults.append((429, "when it suits you"))
    ask(server)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (500, "HTTP 500: not this time, 2 times"),
        ("garbage", "the answer is not JSON, 2 times"),
        ("deep", "the answer is not JSON, 2 times"),
        ("endless", "the answer does not end"),
        ("drop", ", 2 times"),
        ("abort", "broke the answer off"),
    ],
)
def test_what_keeps_failing_is_no_answer(server: TinyServer, fault: object, told: str) -> None:
    server.always = fault
    with pytest.raises(NoReply, match=told) as failed:
        ask(server, tries=2)
    assert not failed.value.refused


@pytest.mark.parametrize("count", [10**30, -5, 1.5, "many", True, float("nan"), [3]])
def test_a_count_that_is_none_is_not_measured(server: TinyServer, count: object) -> None:
    server.always = {"completion_tokens": count, "prompt_tokens": count}
    reply = ask(server)
    assert (reply.tokens, reply.prompt_tokens) == (None, None)


@pytest.mark.parametrize("fault", [600.0, "drip"])
def test_a_slow_server_is_not_waited_for_for_ever(server: TinyServer, fault: object) -> None:
    server.faults.append(fault)
    place = ServerEndpoint(server.url, MODEL, tries=1, seconds=0.3)
    began = time.monotonic()
    with pytest.raises(NoReply):
        with_sampler(place, lambda sampler: sampler.ask("1", SAMPLING, 0, chat=True))
    assert time.monotonic() - began < 240, "long before the server's own end"


def test_no_more_are_in_flight_than_allowed(server: TinyServer) -> None:
    server.always = "wait"
    place = ServerEndpoint(server.url, MODEL, at_once=3)

    async def nine(sampler: ServerSampler) -> list[Reply]:
        return await asyncio.gather(
            *(sampler.ask("1+1=", SAMPLING, seed, chat=True) for seed in range(9))
        )

    def answer() -> None:
        try:
            until(lambda: server.waiting >= 3)
            time.sleep(0.2)  # room for one more than is allowed to show itself
        finally:
            server.go_on.set()

    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer)
        assert len(with_sampler(place, nine)) == 9
        answering.result()
    assert server.most_waiting == 3


def test_thinking_that_came_apart_is_put_back(server: TinyServer) -> None:
    plain = ask(server)
    server.faults.append("think")
    assert ask(server).text == f"<think>hm</think>{plain.text}"


def test_the_context_is_the_servers(server: TinyServer) -> None:
    place = ServerEndpoint(server.url, MODEL)
    assert with_sampler(place, ServerSampler.context) == 4096
    server.context = None
    assert with_sampler(place, ServerSampler.context) is None
    assert with_sampler(replace(place, url=server.url + "/"), ServerSampler.context) is None


def test_an_address_that_is_none_is_refused() -> None:
    hosts = (
        "localhost:8000",
        "ftp://localhost/v1",
        "http:///v1",
        "http://me:secret@localhost/v1",
        "http://h/v1?k=s",
    )
    for url in (*hosts, "http://h:99999/v1", "http://h:x/v1", "http://[::1/v1"):
        with pytest.raises(LabError) as refused:
            ServerEndpoint(url, MODEL)
        assert "secret" not in str(refused.value)


def test_the_key_is_sent_and_shown_nowhere() -> None:
    with serving(key="sk-very-secret") as server:
        place = ServerEndpoint(server.url, MODEL, key="sk-very-secret", tries=1)

        def asked(place: ServerEndpoint) -> Reply:
            return with_sampler(place, lambda sampler: sampler.ask("1", SAMPLING, 0, chat=True))

        assert asked(place).tokens
        assert "secret" not in repr(place)
        server.faults += ["echo", "echoed refusal"]
        assert asked(place).text == "you are Bearer [the key]"
        with pytest.raises(NoReply, match=r"you are Bearer .the key.$"):
            asked(place)
        wrong = replace(place, key="sk-wrong-secret")
        with lab_error("refuses the key") as refused:
            with_sampler(wrong, ServerSampler.context)
        assert "secret" not in str(refused.value)
        with pytest.raises(NoReply, match="HTTP 401") as failed:
            asked(wrong)
        assert "secret" not in str(failed.value)
