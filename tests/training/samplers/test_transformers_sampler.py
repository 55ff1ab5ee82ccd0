"""The sampler against the model it samples from."""

import dataclasses
from typing import Any

import pytest
import torch
from assertions import assert_fields
from followed import SMALL, TOKENIZER, gaps, move, requests

from gspo_lab.tasks.base import Problem
from gspo_lab.tasks.benchmarks.aime import Aime24
from gspo_lab.training.models.builtin_models import build, byte_tokenizer
from gspo_lab.training.samplers import (
    Request,
    Rollout,
    Sampling,
    joined,
    noise_key,
    transformers_sampler,
)
from gspo_lab.training.samplers.stopping import Stopping
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler, draw


@pytest.fixture(scope="module", params=["tiny-qwen3", "tiny-qwen3-moe"])
def model(request: pytest.FixtureRequest) -> object:
    return build(request.param, 1, SMALL)


SAMPLING = Sampling(temperature=0.7, max_tokens=12, stop=("e",))


def test_logprobs_are_the_models(model: torch.nn.Module) -> None:
    rollouts = TransformersSampler(model, TOKENIZER).sample(requests(), SAMPLING)
    assert gaps(model, rollouts, 0.7).max() < 2e-5
    assert all(1 <= len(rollout.response_ids) <= 12 for rollout in rollouts)


def test_what_is_drawn_does_not_depend_on_the_batch(model: torch.nn.Module) -> None:
    together = TransformersSampler(model, TOKENIZER).sample(requests(), SAMPLING)
    one_by_one = TransformersSampler(model, TOKENIZER, rows=1).sample(requests(), SAMPLING)
    some = TransformersSampler(model, TOKENIZER, rows=3).sample(requests()[::-1], SAMPLING)[::-1]
    assert (
        [r.response_ids for r in together]
        == [r.response_ids for r in one_by_one]
        == [r.response_ids for r in some]
    )
    assert len({tuple(r.response_ids) for r in together}) > 3


def test_stop_text_token_limit_and_end_of_sequence(model: torch.nn.Module) -> None:
    rollouts = TransformersSampler(model, TOKENIZER).sample(requests(samples=40), SAMPLING)
    stopped = [r for r in rollouts if not r.truncated]
    assert stopped
    for r in rollouts:
        ended = r.response_ids[-1] in (TOKENIZER.encode("e")[-1], TOKENIZER.eos_token_id)
        assert r.truncated == (not ended)
        assert "e" not in r.text
        if r.truncated:
            assert len(r.response_ids) == 12


def test_a_stop_text_of_several_tokens_ends_a_response() -> None:
    stopping = Stopping(TOKENIZER, ("end",))
    ids = TOKENIZER.encode("the end")
    assert [stopping.has_ended(ids[: n + 1]) for n in range(len(ids))] == [False] * 6 + [True]
    assert stopping.text(ids) == "the "
    assert Stopping(TOKENIZER, ()).has_ended([TOKENIZER.eos_token_id])
    assert stopping.end(TOKENIZER.encode("x" * 40 + "end of it, the end")) == 43
    assert stopping.end(TOKENIZER.encode("en d")) is None


def test_greedy_takes_the_likeliest(model: torch.nn.Module) -> None:
    greedy = Sampling(temperature=0, max_tokens=5)
    a, b = TransformersSampler(model, TOKENIZER).sample(requests(["q"], 2), greedy)
    assert a.response_ids == b.response_ids
    with torch.no_grad():
        logits = model(torch.tensor([TOKENIZER.encode("q")])).logits[0, -1]
    assert a.response_ids[0] == int(logits.argmax())


def test_draw_frequencies_are_the_probabilities() -> None:
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    keys = torch.tensor([noise_key("f", i) for i in range(20_000)])
    logits = p.log().expand(len(keys), 4)
    for top_p, expected in ((1.0, p), (0.7, torch.tensor([0.625, 0.375, 0.0, 0.0]))):
        chosen, logp = draw(logits, Sampling(top_p=top_p), keys, torch.zeros_like(keys))
        share = torch.bincount(chosen, minlength=4) / len(keys)
        assert (share - expected).abs().max() < 5 * (0.25 / len(keys)) ** 0.5
        assert torch.allclose(logp.exp(), expected[chosen], atol=1e-6)
    warm, _ = draw(logits, Sampling(temperature=2.0), keys, torch.zeros_like(keys))
    flatter = p.sqrt() / p.sqrt().sum()
    assert (torch.bincount(warm, minlength=4) / len(keys) - flatter).abs().max() < 5 * (
        0.25 / len(keys)
    ) ** 0.5


def test_a_large_batch_is_drawn_in_parts_without_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits = torch.randn(7, 50, generator=torch.Generator().manual_seed(0))
    arguments = (logits, SAMPLING, torch.arange(7) * 977, torch.arange(7) + 3)
    complete = draw(*arguments)
    monkeypatch.setattr(transformers_sampler, "LOGITS_AT_ONCE", 120)  # two rows at once
    assert all(torch.equal(a, b) for a, b in zip(draw(*arguments), complete, strict=True))


def test_routes_line_up_with_the_tokens_fed() -> None:
    from gspo_lab.training.models.routing import Routers

    model = build("tiny-qwen3-moe", 1, SMALL)
    routers = Routers.of(model)
    assert routers is not None
    rollouts: list[Rollout] = TransformersSampler(model, TOKENIZER).sample(
        requests(), SAMPLING, routes=True
    )
    for r in rollouts:
        ids = torch.tensor([[*r.request.prompt_ids, *r.response_ids[:-1]]])
        with torch.no_grad(), routers.tap(*ids.shape) as tap:
            model(ids)
        assert r.routes.shape == (ids.shape[1], routers.layers, routers.top_k)
        mine = torch.from_numpy(r.routes).long().sort(-1).values
        assert torch.equal(mine, tap.natural_BSLK[0].long().sort(-1).values)
    plain = TransformersSampler(model, TOKENIZER).sample(requests(), SAMPLING)
    assert [dataclasses.replace(r, routes=None) for r in rollouts] == plain


def test_a_copy_in_another_precision_follows_the_model_when_refreshed() -> None:
    model = build("tiny-qwen3", 1, SMALL)
    same = TransformersSampler(model, TOKENIZER, "float32")
    copy = TransformersSampler(model, TOKENIZER, "bfloat16")
    assert (same.separate, copy.separate) == (False, True)
    initial = copy.sample(requests(), SAMPLING)
    move(model, 1.3)
    assert copy.sample(requests(), SAMPLING) == initial
    copy.refresh()
    final = copy.sample(requests(), SAMPLING)
    assert [r.response_ids for r in final] != [r.response_ids for r in initial]
    assert final == TransformersSampler(model, TOKENIZER, "bfloat16").sample(requests(), SAMPLING)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_response_drawn_in_pieces_is_the_one_drawn_at_once(model: Any) -> None:
    """With unchanged weights the tokens are equal bit for bit.

    Log-probs are equal up to rounding, because the given tokens are fed in one pass.
    """
    sampler = TransformersSampler(model, TOKENIZER)
    routed = model.config.model_type != "qwen3"
    complete = sampler.sample(requests(), SAMPLING, routes=routed)
    assert {len(r.response_ids) for r in complete} > {12}
    for cut in (1, 5):
        pieces = sampler.sample(
            [dataclasses.replace(item, max_tokens=cut) for item in requests()],
            SAMPLING,
            routes=routed,
        )
        actual = [
            dataclasses.replace(piece, request=request)
            for piece, request in zip(pieces, requests(), strict=True)
        ]
        going = [row for row, piece in enumerate(pieces) if piece.truncated]
        # A response with its prompt again beside those that go on: what is drawn does not depend on
        # who shares a batch.
        requested = [
            dataclasses.replace(
                requests()[row], given_ids=tuple(pieces[row].response_ids), max_tokens=12 - cut
            )
            for row in going
        ]
        for row, later in zip(
            going, sampler.sample([*requested, *requests()], SAMPLING, routes=routed), strict=False
        ):
            assert len(later.response_ids) == len(later.logprobs) <= 12 - cut
            if later.routes is not None:
                assert len(later.routes) == len(later.request.fed_ids) + len(later.response_ids) - 1
            actual[row] = joined(actual[row], later)
        assert len(going) > 5
        for item, other in zip(actual, complete, strict=True):
            assert_fields(
                item,
                response_ids=other.response_ids,
                text=other.text,
                truncated=other.truncated,
                logprobs=pytest.approx(other.logprobs, abs=2e-5),
                loss_mask=None,
            )
            if other.routes is not None:
                assert item.routes.shape == other.routes.shape


def test_a_stop_text_is_looked_for_in_what_is_new_and_across_the_seam() -> None:
    stopping = Stopping(TOKENIZER, ("end",))
    ids = TOKENIZER.encode("the end of the end")
    # Given "the end of": its own stop text ends nothing, the second one does, and is cut.
    assert [stopping.has_ended(ids[:n], given_tokens=10) for n in range(11, 19)] == [False] * 7 + [
        True
    ]
    assert stopping.end(ids, given_tokens=10) == 18
    assert stopping.text(ids, given_tokens=10) == "the end of the "
    assert (
        stopping.end(ids, given_tokens=7),
        stopping.end(ids, given_tokens=6),
        stopping.end(ids),
    ) == (18, 7, 7)
    # Given "the e", "the en": it lies across the seam.
    assert [stopping.text(ids, given_tokens=n) for n in (5, 6)] == ["the ", "the "]
    # The seam lies far behind what is looked at.
    late = TOKENIZER.encode("end" + "x" * 40 + "end")
    assert (stopping.end(late, given_tokens=3), stopping.text(late, given_tokens=3)) == (
        46,
        "end" + "x" * 40,
    )
    # The seam lies inside a letter of two bytes, which the stop text ends with.
    letter = TOKENIZER.encode("né, né")
    assert len(letter) == 8
    assert (
        Stopping(TOKENIZER, ("né",)).end(letter, given_tokens=2),
        Stopping(TOKENIZER, ("né",)).end(letter, given_tokens=3),
    ) == (
        3,
        8,
    )


def test_joining_keeps_versions_masks_and_others_tokens() -> None:
    requested = Request("p", (1, 2), 0, 7)
    earlier = Rollout(requested, [10, 11], [-1.0, -2.0], "ab", True, versions=[3, 3])
    later = Rollout(
        dataclasses.replace(requested, given_ids=(10, 11, 99)),
        [12],
        [-3.0],
        "ab!c",
        False,
        versions=[4],
    )
    settings = joined(earlier, later)
    assert_fields(
        settings,
        request=requested,
        response_ids=[10, 11, 99, 12],
        logprobs=[-1.0, -2.0, 0.0, -3.0],
        loss_mask=[True, True, False, True],
        versions=[3, 3, 4, 4],
        text="ab!c",
        truncated=False,
    )
    third = Rollout(
        dataclasses.replace(requested, given_ids=(10, 11, 99, 12)), [13], [-4.0], "ab!cd", False
    )
    assert_fields(joined(settings, third), loss_mask=[True, True, False, True, True], versions=None)
    with pytest.raises(
        ValueError, match="p: the given tokens do not begin with the earlier response"
    ):
        joined(
            earlier,
            dataclasses.replace(later, request=dataclasses.replace(requested, given_ids=(10, 12))),
        )


@pytest.mark.parametrize(
    "marks",
    [
        ("<think>", "</think>"),
        ("[THINK]", "[/THINK]"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("◁think▷", "◁/think▷"),
    ],
)
def test_marks_of_thinking_stay_in_the_text_where_they_are_special_tokens(
    marks: tuple[str, str],
) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [*marks, "<|turn|>"]})
    opening, closing = tokenizer.convert_tokens_to_ids(list(marks))
    turn = tokenizer.convert_tokens_to_ids("<|turn|>")
    thought = [opening, *tokenizer.encode(r"so \boxed{25}"), closing]
    ids = [turn, *thought, *tokenizer.encode(" It is unclear."), tokenizer.eos_token_id]
    text = Stopping(tokenizer, ()).text(ids)
    assert text == rf"{marks[0]}so \boxed{{25}}{marks[1]} It is unclear."
    assert Aime24().grade(Problem("x", "?", "25"), text).correct is False
    assert Stopping(tokenizer, ("unc",)).text(ids) == text[: text.index("unc")]
