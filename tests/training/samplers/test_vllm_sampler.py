"""vLLM against the model whose weights it is given; in one process, as a worker has it."""

import dataclasses
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from calling import lab_error
from followed import TOKENIZER, gaps, make_room, move, requests

from gspo_lab.training.models.builtin_models import build
from gspo_lab.training.samplers import Sampling
from gspo_lab.training.samplers.stopping import Stopping
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler
from gspo_lab.training.samplers.vllm_sampler import VllmSampler
from gspo_lab.training.samplers.vllm_weight_sync import WAYS, check_sync, push

if find_spec("vllm") is None:
    pytest.skip("vLLM is not installed; nox -s vllm installs it", allow_module_level=True)

# The warnings are those of vLLM's packages.
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

SAMPLING = Sampling(temperature=0.7, max_tokens=12, stop=("e",))


@pytest.fixture(scope="module", params=["tiny-qwen3", "tiny-qwen3-moe", "tiny-olmoe"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Any, VllmSampler]]:
    """A model with livelier weights than fresh ones, and the sampler that follows it."""
    model = build(request.param, seed=1)
    move(model, 1.3)
    yield model, VllmSampler(model, TOKENIZER, rows=5000)  # more than vLLM takes
    make_room()


def test_logprobs_are_the_trainers(pair: tuple[Any, VllmSampler]) -> None:
    model, sampler = pair
    rollouts = sampler.sample(requests(), SAMPLING)
    assert [rollout.request for rollout in rollouts] == requests()
    gap = gaps(model, rollouts, 0.7)
    assert len(gap) > 100
    assert gap.max() <= 1e-5
    assert sampler.check.largest <= 1e-5


def test_a_response_depends_on_its_request_alone(pair: tuple[Any, VllmSampler]) -> None:
    _, sampler = pair
    together = [rollout.response_ids for rollout in sampler.sample(requests(), SAMPLING)]
    backwards = [rollout.response_ids for rollout in sampler.sample(requests()[::-1], SAMPLING)][
        ::-1
    ]
    alone = [sampler.sample([request], SAMPLING)[0].response_ids for request in requests()[:3]]
    assert together == backwards
    assert together[:3] == alone
    assert len(set(map(tuple, together))) > 15
    again = sampler.sample(requests(), SAMPLING)
    assert [(r.response_ids, r.logprobs) for r in again] == [
        (r.response_ids, r.logprobs) for r in sampler.sample(requests(), SAMPLING)
    ]


def test_a_push_brings_every_weight_and_changes_what_is_sampled(
    pair: tuple[Any, VllmSampler],
) -> None:
    model, sampler = pair
    initial = sampler.sample(requests(), SAMPLING)
    move(model, 1.2)
    late = sampler.sample(requests(), SAMPLING)
    assert [r.response_ids for r in late] == [r.response_ids for r in initial]
    assert gaps(model, late, 0.7).max() > 0.1
    sampler.refresh()
    final = sampler.sample(requests(), SAMPLING)
    assert [r.response_ids for r in final] != [r.response_ids for r in initial]
    assert gaps(model, final, 0.7).max() <= 1e-5
    # One tensor at a time: none may be left behind, however small its part in what is sampled.
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            parameter.copy_(
                parameter.flip(0) if "norm" not in name else parameter * torch.rand_like(parameter)
            )
        assert not check_sync(sampler._engine, model, "float32").holds, (
            f"{name}: an old one went unnoticed"
        )
        sampler.refresh()


def test_vllms_own_reload_is_right_for_a_dense_model_and_caught_where_it_leaves_experts_behind(
    pair: tuple[Any, VllmSampler],
) -> None:
    model, sampler = pair
    engine = sampler._running()
    native, packed = WAYS
    assert sampler.facts()["vllm"].startswith("0.32.")
    if model.config.model_type == "qwen3":
        assert sampler.facts()["push"] == native
        assert push(engine, model, "float32", packed).holds
        return
    assert sampler.facts()["push"] == packed
    message = (
        r"after a push \(reload\): log-probs of 128 sampled tokens are off by 0\.\d+ nats in the"
        r" mean, 0\.\d+ in"
    )
    with lab_error(message):
        push(engine, model, "float32", native)
    sampler.refresh()
    assert sampler.check.holds


def test_stop_texts_and_limits_are_those_of_the_transformers_sampler(
    pair: tuple[Any, VllmSampler],
) -> None:
    model, sampler = pair
    rollouts = sampler.sample(requests(samples=40), SAMPLING)
    assert any(not rollout.truncated for rollout in rollouts)
    for r in rollouts:
        ended = r.response_ids[-1] in (TOKENIZER.encode("e")[-1], TOKENIZER.eos_token_id)
        assert r.truncated == (not ended)
        assert "e" not in r.text
        assert len(r.response_ids) == len(r.logprobs) <= 12
        assert len(r.response_ids) == 12 or not r.truncated
    exact = Sampling(temperature=0.0, max_tokens=12, stop=("e",))
    lab = TransformersSampler(model, TOKENIZER).sample(requests(samples=1), exact)
    peer = sampler.sample(requests(samples=1), exact)
    for item, other in zip(lab, peer, strict=True):
        assert dataclasses.replace(item, logprobs=[]) == dataclasses.replace(other, logprobs=[])
        assert item.logprobs == pytest.approx(other.logprobs, abs=2e-5)


def test_a_stop_text_of_several_tokens_is_part_of_the_tokens(pair: tuple[Any, VllmSampler]) -> None:
    _, sampler = pair
    free = sampler.sample(requests(), Sampling(max_tokens=12))
    # Any two characters that were drawn one after the other will do.
    complete = next(
        r
        for r in free
        if TOKENIZER.decode(r.response_ids[4:6]).isascii() and len(set(r.response_ids)) == 12
    )
    stop = TOKENIZER.decode(complete.response_ids[4:6])
    sampling = Sampling(max_tokens=12, stop=(stop,))
    (cut,) = sampler.sample([complete.request], sampling)
    assert cut.response_ids == complete.response_ids[:6]
    assert cut.logprobs == pytest.approx(complete.logprobs[:6], abs=1e-5)
    assert not cut.truncated
    assert stop not in cut.text
    assert cut.text == TOKENIZER.decode(complete.response_ids[:4])
    assert Stopping(TOKENIZER, (stop,)).end(complete.response_ids) == 6


def test_a_response_is_continued(pair: tuple[Any, VllmSampler]) -> None:
    """Greedily the pieces are the response sampled at once.

    Drawn, a continuation has a seed of its own.
    """
    model, sampler = pair
    sampled = Sampling(max_tokens=12)
    for method in (Sampling(temperature=0.0, max_tokens=12), sampled):
        complete = sampler.sample(requests(samples=1), method)
        going = [item for item in complete if item.truncated]
        requested = [
            dataclasses.replace(item.request, given_ids=tuple(item.response_ids[:5]), max_tokens=7)
            for item in going
        ]
        remainder = sampler.sample(requested, method)
        assert len(going) > 2
        same = [
            item.response_ids[5:] == later.response_ids
            for item, later in zip(going, remainder, strict=True)
        ]
        assert not any(same) if method is sampled else all(same)
        for item, later in zip(going, remainder, strict=True):
            assert later.text == TOKENIZER.decode(
                [*item.response_ids[:5], *later.response_ids], skip_special_tokens=True
            )
            fed = dataclasses.replace(later.request, prompt_ids=later.request.fed_ids, given_ids=())
            assert gaps(model, [dataclasses.replace(later, request=fed)], 1.0).max() <= 1e-5


def test_top_p_logprobs_are_renormalised_over_the_nucleus(pair: tuple[Any, VllmSampler]) -> None:
    model, sampler = pair
    nucleus = Sampling(temperature=1.0, top_p=0.6, max_tokens=1)
    for rollout in sampler.sample(requests(samples=20), nucleus):
        with torch.no_grad():
            p = (
                model(torch.tensor([rollout.request.prompt_ids]))
                .logits[0, -1]
                .double()
                .softmax(-1)
                .sort(descending=True)
            )
        retained = p.values[: int((p.values.cumsum(0) < 0.6).sum()) + 1]
        place = int((p.indices == rollout.response_ids[0]).nonzero())
        assert place < len(retained)
        assert rollout.logprobs[0] == pytest.approx(
            float((retained[place] / retained.sum()).log()), abs=1e-5
        )


def test_tokens_are_drawn_as_often_as_they_are_likely(pair: tuple[Any, VllmSampler]) -> None:
    model, sampler = pair
    count = 1500  # whose 9,000 prompt tokens are more than vLLM computes at once
    drawn = sampler.sample(requests(["12+34="], count), Sampling(max_tokens=1))
    with torch.no_grad():
        p = model(torch.tensor([TOKENIZER.encode("12+34=")])).logits[0, -1].double().softmax(-1)
    share = (
        torch.bincount(torch.tensor([r.response_ids[0] for r in drawn]), minlength=len(p)) / count
    )
    assert ((share - p).abs() < 5 * (p * (1 - p) / count).sqrt() + 1e-12).all()


def test_what_has_no_room_is_refused(pair: tuple[Any, VllmSampler]) -> None:
    _, sampler = pair
    with lab_error(
        r"a prompt of 1 tokens and max_tokens = 5000 are more than the 4096 that vLLM",
    ):
        sampler.sample(requests(["x"], 1), Sampling(max_tokens=5000))
