"""Rollouts of older policies.

They are drawn from older weights, or in pieces under one policy after the other.
"""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from assertions import assert_fields
from calling import lab_error
from lottery import MakeRun, Memory, Trained, components, final, recorded, train

from gspo_lab.common.plain_data import OptionalInt, Strings
from gspo_lab.tasks.base import Problem
from gspo_lab.training.engines.check import check_tasks
from gspo_lab.training.engines.native.asynchrony import Asked, PendingGroups
from gspo_lab.training.engines.native.loop import Loop
from gspo_lab.training.samplers import Request, Rollout

MOE = ("model=tiny-qwen3-moe", "routing_replay=rollout")


@pytest.mark.parametrize(
    ("arm", "settings"), [("grpo", ()), ("gspo", MOE), ("gspo", ("update.old_logprobs=sampler",))]
)
def test_staleness_0_and_a_budget_without_end_are_the_synchronous_run(
    arm: str, settings: Strings, make_run: MakeRun, tmp_path: Path, trained: Trained
) -> None:
    plain = make_run(arm, "steps=3", *settings)
    uninterrupted = train(plain, tmp_path / "plain")
    wide = trained(arm, "steps=3", "rollout.staleness=0", "rollout.tokens_per_step=10", *settings)
    assert recorded(wide) == recorded(uninterrupted)
    assert [
        (s.version_lag_mean, s.version_lag_max, s.waiting_responses) for s in uninterrupted.steps
    ] == [(0.0, 0, 0)] * 3

    # The synchronous run in its own words: sample, grade, update, with nothing between a step and
    # the next.
    setting = components(plain)
    loop = Loop(plain, setting, Memory(), tmp_path / "own")
    for step in range(3):
        table = [record for record in loop.prompts.step(step) for _ in range(4)]
        rollouts = loop.sample(loop.requests(step), table)
        rewards = loop.rewards(loop.grade(table, rollouts))
        experience = loop.experience(rollouts, rewards)
        minibatches = loop._minibatches(step, experience)
        loop._old_policy(experience, minibatches)
        for minibatch in minibatches:
            setting.updater.update(experience, minibatch)
        setting.sampler.refresh()
    loop.end()
    assert final(tmp_path / "plain") == final(wide.folder) == final(tmp_path / "own")


def test_a_stale_batch_is_drawn_from_the_weights_of_its_version(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("gspo", "steps=5", "rollout.staleness=2", "bench.lottery.every=1")
    setting = components(run)
    loop = Loop(run, setting, Memory(), tmp_path)
    assert setting.lag.model is not setting.policy.model

    def weights(model: Any) -> torch.Tensor:
        return torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])

    recorded: list[
        tuple[int, torch.Tensor]
    ] = []  # the limit of what was asked, and the weights that answered
    trained: list[torch.Tensor] = []  # after so many steps
    inner = setting.sampler.sample
    training = dataclasses.replace(setting.sampling)

    def watched(requests: Any, sampling: Any, **args: Any) -> Any:
        recorded.append((sampling is setting.sampling, weights(setting.lag.model)))
        if sampling is not setting.sampling:
            trained.append(weights(setting.policy.model))
        return inner(requests, sampling, **args)

    setting.sampler.sample = watched  # type: ignore[method-assign]
    loop.run(lambda: False)
    assert training == setting.sampling
    rollouts = [item for is_rollout, item in recorded if is_rollout]
    benches = [item for is_rollout, item in recorded if not is_rollout]
    assert (len(rollouts), len(benches), len(trained)) == (5, 6, 6)
    for step, version in enumerate([0, 0, 0, 1, 2]):
        assert torch.equal(rollouts[step], trained[version])
    assert all(
        torch.equal(bench_answers, present)
        for bench_answers, present in zip(benches, trained, strict=True)
    )
    assert not torch.equal(trained[1], trained[2])
    memory: Any = loop.sink
    assert [step.version_lag_max for step in memory.steps] == [0, 1, 2, 2, 2]
    assert [step.version_lag_mean for step in memory.steps] == [0.0, 1.0, 2.0, 2.0, 2.0]
    assert all(step.mixed_version_share == 0 for step in memory.steps)
    # The proximal policy is the step's own: mini-batch 0 has ratio 1, and the lag is what the
    # sampler is behind.
    assert all(
        item.log_ratio_max_abs in (0.0, None) for item in memory.updates if item.minibatch == 0
    )
    assert memory.steps[0].mismatch_abs_max < 1e-4 < 1e-2 < memory.steps[4].mismatch_abs_max


def test_the_samplers_logprobs_are_the_behaviour_policys(trained: Trained) -> None:
    """With the sampler's log-probs as the old ones, mini-batch 0 has a ratio.

    It is the present policy over the one that sampled.
    """
    settings = (
        "steps=3",
        "rollout.staleness=1",
        "update.old_logprobs=sampler",
        "update.skip_zero_advantage=false",
    )
    memory = trained("grpo", *settings)
    start = [record.log_ratio_max_abs for record in memory.updates if record.minibatch == 0]
    assert start[0] < 1e-4 < 1e-2 < min(start[1:])


def waiting(budget: OptionalInt, limit: int = 5) -> PendingGroups:
    """One problem a step, two responses each."""

    def asked(step: int) -> list[Asked]:
        name = f"p{step}"
        return [
            (
                Problem(name, name, ""),
                [Request(name, (step,), sample, 10 * step + sample) for sample in (0, 1)],
            )
        ]

    return PendingGroups(asked, budget, limit)


def requests(lab: PendingGroups, step: int) -> list[Request]:
    requested = lab.requests_of_step(step)
    assert all(problem.id == request.problem for problem, request in requested)
    return [request for _, request in requested]


def answered(requests: list[Request], *pieces: tuple[list[int], bool]) -> list[Rollout]:
    return [
        Rollout(request, ids, [-1.0] * len(ids), "", cut, routes=None)
        for request, (ids, cut) in zip(requests, pieces, strict=True)
    ]


def test_a_group_trains_when_its_last_response_is_over() -> None:
    """Two tokens a step, five at most.

    p0: [1, 2, 3, 4, 5] cut at the limit, and [6]; p1: [7, 8] and [9, 9].
    """
    lab = waiting(2)
    item = requests(lab, 0)
    assert [(r.given_ids, r.max_tokens) for r in item] == [((), 2), ((), 2)]
    assert lab.take(answered(item, ([1, 2], True), ([6], False)), 0) == []
    two = requests(lab, 1)
    assert [(r.problem, r.sample, r.given_ids, r.max_tokens, r.noise_key) for r in two] == [
        ("p0", 0, (1, 2), 2, 0),
        ("p1", 0, (), 2, 10),
        ("p1", 1, (), 2, 11),
    ]
    (group,) = lab.take(answered(two, ([3, 4], True), ([7, 8], False), ([9, 9], False)), 1)
    assert (group.problem.id, [r.versions for r in group.responses]) == ("p1", [[1, 1], [1, 1]])
    assert lab.responses() == 1

    # Another worker takes the run up here.
    other = waiting(2)
    other.load(lab.state())
    for mine in (lab, other):
        three = requests(mine, 2)
        assert_fields(three[0], given_ids=(1, 2, 3, 4), max_tokens=1)
        (group,) = mine.take(answered(three, ([5], True), ([0, 0], True), ([0, 0], True)), 2)
        assert [(r.response_ids, r.versions, r.truncated) for r in group.responses] == [
            ([1, 2, 3, 4, 5], [0, 0, 1, 1, 2], True),
            ([6], [0], False),
        ]
        assert [r.request for r in group.responses] == waiting(2)._asked(0)[0][1]
        assert mine.responses() == 2


def test_without_a_budget_all_is_over_in_its_step() -> None:
    lab = waiting(None)
    (group,) = lab.take(answered(requests(lab, 0), ([1, 2], True), ([6], False)), 0)
    assert (len(group.responses), lab.responses(), lab.state()) == (2, 0, {"groups": []})


def test_a_step_without_a_complete_group_makes_no_update(make_run: MakeRun, tmp_path: Path) -> None:
    """One token a step, and no stop text.

    After ten steps the first step's 16 responses are over, all at once.
    """
    run = make_run(
        "gspo", "steps=11", "task.stop=[]", "rollout.tokens_per_step=1", "update.epochs=2"
    )
    memory = train(run, tmp_path / "run")
    earlier = memory.steps[0]
    initial = memory.steps[8]
    ten = memory.steps[9]
    assert (earlier.waiting_responses, earlier.tokens_sampled_total) == (16, 16)
    for step, record in ((0, earlier), (8, initial)):
        assert_fields(
            record,
            prompts=4,
            responses=0,
            prompts_total=4 * (step + 1),
            reward_mean=None,
            response_tokens_mean=None,
            truncated_responses=None,
            version_lag_mean=None,
            entropy=None,
            grader_errors=None,
            updates_total=0,
            tokens_trained_total=0,
        )
    assert 0 < earlier.flops_total < initial.flops_total
    assert memory.updates[0].step == 9
    assert (ten.responses, ten.updates_total, len([u for u in memory.updates if u.step == 9])) == (
        16,
        8,
        8,
    )
    # A token a step from step 0 on: those of a response of n tokens lag by 9, 8, ..., 10 - n.
    lengths = [
        answer.tokens for answer in memory.answers if answer.bench == "rollout" and answer.step == 9
    ]
    assert (len(lengths), max(lengths)) == (16, 10)
    lags = [9 - place for length in lengths for place in range(length)]
    assert_fields(
        ten,
        version_lag_mean=pytest.approx(sum(lags) / len(lags)),
        version_lag_max=9,
        mixed_version_share=sum(length > 1 for length in lengths) / 16,
        tokens_trained_total=2 * sum(lengths),
    )


def test_a_step_of_few_groups_makes_an_update_of_each(trained: Trained) -> None:
    settings = (
        "steps=5",
        "rollout.tokens_per_step=4",
        "rollout.group_size=2",
        "rollout.prompts_per_step=8",
    )
    memory = trained("gspo", *settings)
    updates = 0
    for step in memory.steps:
        outputs = [update.minibatch for update in memory.updates if update.step == step.step]
        groups = step.responses // 2
        assert outputs == list(range(min(4, groups)))
        updates += len(outputs)
        assert step.updates_total == updates
        sizes = [update.responses for update in memory.updates if update.step == step.step]
        assert sum(sizes) == step.responses
        assert all(size % 2 == 0 for size in sizes)
        assert not sizes or max(sizes) - min(sizes) in (0, 2)
    # Fewer groups than mini-batches, and more than a step asks for.
    assert min(step.responses for step in memory.steps) < 8
    assert max(step.responses for step in memory.steps) > 16
    first_sampled = memory.steps[0].tokens_sampled_total
    tokens = memory.steps[-1].tokens_trained_total
    assert first_sampled <= 64
    assert tokens == sum(update.response_tokens for update in memory.updates)
    assert tokens < memory.steps[-1].tokens_sampled_total


def test_pieces_need_a_sampler_that_goes_on_and_responses_of_one_turn(
    make_run: MakeRun, tmp_path: Path
) -> None:
    (tmp_path / "forgetful.py").write_text(
        "class Forgetful:\n"
        "    def __init__(self, model, tokenizer, dtype, rows): ...\n"
        "    def sample(self, requests, sampling, *, routes=False): ...\n"
        "    def refresh(self): ...\n"
        "    def pause(self): ...\n"
        "    def facts(self): ...\n"
    )
    task: Any = SimpleNamespace(name="guess", max_turns=1, max_tokens=10, reward_names=())
    complete = make_run("gspo", "rollout.sampler=forgetful.py:Forgetful").settings
    check_tasks("gspo", complete, [task], tmp_path)
    pieces = make_run(
        "gspo", "rollout.sampler=forgetful.py:Forgetful", "rollout.tokens_per_step=3"
    ).settings
    with lab_error(
        r"'forgetful.py:Forgetful' does not go on .* rollout.tokens_per_step wants it",
    ):
        check_tasks("gspo", pieces, [task], tmp_path)
    native = make_run("gspo", "rollout.tokens_per_step=3").settings
    check_tasks("gspo", native, [task], tmp_path)
    several: Any = SimpleNamespace(name="guess", max_turns=3, max_tokens=10, reward_names=())
    with lab_error(
        (
            r"rollout\.tokens_per_step with 'guess', whose responses have several turns; leave"
            r" it out"
        ),
    ):
        check_tasks("gspo", native, [several], tmp_path)
    check_tasks("gspo", native, [task, several], tmp_path)  # a benchmark may have them
