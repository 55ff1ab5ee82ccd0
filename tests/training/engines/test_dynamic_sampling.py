"""What a step trains on when groups without a signal are dropped.

Also when length costs reward.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from assertions import assert_fields
from calling import lab_error
from lottery import MakeRun, Memory, components, train

from gspo_lab.training.engines.check import check_tasks
from gspo_lab.training.engines.native.loop import Loop
from gspo_lab.training.samplers import Rollout

GROUP = 4
RARE = "def grade(problem, answer):\n    return float(sum(answer.encode()) % 7 == 1)\n"
SURE = "def grade(problem, answer):\n    return 1.0\n"


NEARLY = "def grade(problem, answer):\n    return 0.3 if sum(answer.encode()) % 2 else 0.1 + 0.2\n"
RESTING = """
from gspo_lab.training.samplers.transformers_sampler import TransformersSampler

class Resting(TransformersSampler):
    rests = False

    def sample(self, requests, sampling, *, routes=False):
        assert not self.rests
        return super().sample(requests, sampling, routes=routes)

    def refresh(self):
        super().refresh()
        self.rests = False

    def pause(self):
        self.rests = True
"""


def groups(memory: Memory, step: int) -> list[list[float]]:
    """The rewards of the groups that a step trained on."""
    rewards = [
        answer.reward
        for answer in memory.answers
        if answer.bench == "rollout" and answer.step == step
    ]
    return [rewards[start : start + GROUP] for start in range(0, len(rewards), GROUP)]


def test_groups_that_earned_the_same_are_dropped_and_others_asked(
    make_run: MakeRun, tmp_path: Path
) -> None:
    plain_run = make_run("gspo", "steps=3")
    (Path(plain_run.base) / "lottery.py").write_text(RARE)
    plain = train(plain_run, tmp_path / "plain")
    once = train(make_run("gspo", "steps=3", "rollout.dynamic_sampling=1"), tmp_path / "once")
    often = train(make_run("gspo", "steps=3", "rollout.dynamic_sampling=20"), tmp_path / "often")
    alike = [group for group in groups(plain, 0) if len(set(group)) == 1]
    spread = [group for group in groups(plain, 0) if len(set(group)) > 1]
    assert alike
    assert spread
    # One round: what the plain run would have trained on, without the groups that have no gradient.
    assert groups(once, 0) == spread
    earlier = once.steps[0]
    assert_fields(earlier, prompts=4, responses=GROUP * len(spread), dropped_groups=len(alike))
    assert [
        earlier.reward_mean,
        earlier.zero_variance_groups,
        earlier.rollout_digest,
        earlier.prompt_digest,
    ] == [
        plain.steps[0].reward_mean,
        plain.steps[0].zero_variance_groups,
        plain.steps[0].rollout_digest,
        plain.steps[0].prompt_digest,
    ]
    # Many rounds: until as many groups as ever have a signal.
    assert groups(often, 0)[: len(spread)] == spread
    for step in often.steps:
        rewards = groups(often, step.step)
        assert len(rewards) == 4
        assert all(len(set(group)) > 1 for group in rewards)
        assert step.dropped_groups is not None
        assert step.prompts == 4 + step.dropped_groups
        assert step.zero_variance_groups * 4 <= step.dropped_groups
    # Rewards are of the step's own prompts, as in the plain run, however many others were asked.
    assert often.steps[0].dropped_groups > len(alike)
    assert [often.steps[0].reward_mean, often.steps[0].zero_variance_groups] == [
        plain.steps[0].reward_mean,
        plain.steps[0].zero_variance_groups,
    ]
    assert_fields(
        often.steps[-1],
        prompts_total=sum(step.prompts for step in often.steps),
        prompt_digest=plain.steps[-1].prompt_digest,
    )
    assert plain.steps[0].dropped_groups is None


def test_a_sampler_rests_when_the_last_round_is_over(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(
        "gspo",
        "rollout.dynamic_sampling=3",
        "rollout.sampler=resting.py:Resting",
        "rollout.staleness=1",
    )
    (Path(run.base) / "lottery.py").write_text(SURE)
    (Path(run.base) / "resting.py").write_text(RESTING)
    assert [step.prompts for step in train(run, tmp_path / "run").steps] == [12, 12]


def test_which_others_are_asked_does_not_follow_from_how_many_may_be(
    make_run: MakeRun, tmp_path: Path
) -> None:
    requested = []
    for rounds in (2, 20):
        run = make_run("gspo", f"rollout.dynamic_sampling={rounds}")
        loop = Loop(run, components(run), Memory(), tmp_path)
        requested.append(
            [
                *loop._replacement_groups(5, 1, 3),
                *loop._replacement_groups(5, 3, 4),
                *loop._replacement_groups(6, 1, 3),
            ]
        )
        native = [request.noise_key for step in (5, 6) for request in loop.requests(step)]
        replacements = [request.noise_key for _, requests in requested[-1] for request in requests]
        assert len(set(native + replacements)) == 8 * GROUP + 7 * GROUP
        names = [problem.id for problem, _ in requested[-1]]
        assert len(set(names[:4])) == 4
        assert names[:3] != names[4:]
    assert requested[0] == requested[1]


def test_rewards_that_single_precision_cannot_tell_apart_are_the_same(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("gspo", "steps=1", "rollout.dynamic_sampling=1")
    (Path(run.base) / "lottery.py").write_text(NEARLY)
    (step,) = train(run, tmp_path / "run").steps
    assert_fields(step, dropped_groups=4, responses=0, zero_variance_groups=1.0)


def test_a_step_without_any_signal_makes_no_update(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("gspo", "steps=2", "rollout.dynamic_sampling=3")
    (Path(run.base) / "lottery.py").write_text(SURE)
    memory = train(run, tmp_path / "run")
    assert [(s.prompts, s.responses, s.dropped_groups, s.updates_total) for s in memory.steps] == [
        (12, 0, 12, 0)
    ] * 2
    assert [
        (s.reward_mean, s.zero_variance_groups, s.response_tokens_mean) for s in memory.steps
    ] == [(1, 1, None)] * 2
    assert not memory.updates


@pytest.mark.parametrize(
    "key", ["rollout.dynamic_sampling=1", "rollout.tokens_per_step=10", "rollout.group_size=4"]
)
def test_a_problem_that_is_asked_twice_in_a_step_has_twice_as_many_answers(
    make_run: MakeRun, tmp_path: Path, key: str
) -> None:
    """A step with more prompts than problems restarts the stream within the step.

    No answer stands for another.
    """
    memory = train(
        make_run("grpo", "steps=1", "rollout.prompts_per_step=40", key), tmp_path / "run"
    )
    train_answers = [
        (answer.problem, answer.sample) for answer in memory.answers if answer.bench == "rollout"
    ]
    assert len(train_answers) == len(set(train_answers)) == memory.steps[0].responses
    problems = [problem for problem, _ in train_answers[::GROUP]]
    assert len(set(problems)) < len(problems)
    for problem in set(problems):
        assert [sample for answer, sample in train_answers if answer == problem] == list(
            range(GROUP * problems.count(problem))
        )


def test_length_costs_reward_and_gives_an_equal_group_a_signal(
    make_run: MakeRun, tmp_path: Path
) -> None:
    """A limit of ten tokens: of its last four each costs a quarter of .4."""
    settings = ("steps=1", "rollout.overlong_buffer=4", "rollout.overlong_penalty=0.4")
    run = make_run("grpo", *settings)
    (Path(run.base) / "lottery.py").write_text(SURE)
    memory = train(run, tmp_path / "run")
    train_answers = [answer for answer in memory.answers if answer.bench == "rollout"]
    costs = torch.tensor(
        [0.1 * max(answer.tokens - 6, 0) for answer in train_answers], dtype=torch.float64
    )
    step = memory.steps[0]
    assert step.overlong_penalty == pytest.approx(costs.mean().item())
    assert step.reward_mean == 1.0
    for start in range(0, len(train_answers), GROUP):
        native = costs[start : start + GROUP]
        advantage = (
            (native.mean() - native) / (native.std() + 1e-6)
            if native.max() > native.min()
            else native * 0
        )
        assert [
            answer.advantage for answer in train_answers[start : start + GROUP]
        ] == pytest.approx(advantage.tolist(), abs=1e-4)
    assert any(answer.advantage for answer in train_answers)
    assert train(make_run("grpo", "steps=1"), tmp_path / "plain").steps[0].overlong_penalty is None


def test_replies_of_an_environment_count_as_the_limit_counts_them(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("grpo", "rollout.overlong_buffer=4")
    loop = Loop(run, components(run), Memory(), tmp_path)
    nine = Rollout(
        loop.requests(0)[0],
        [1] * 9,
        [0.0] * 9,
        "",
        False,
        loss_mask=[True, True, True] + [False] * 6,
    )
    assert loop.penalties([nine] * GROUP).tolist() == [
        [0.75] * GROUP
    ]  # the third of four before a limit of ten


def test_a_buffer_longer_than_a_response_is_refused(make_run: MakeRun) -> None:
    task: Any = SimpleNamespace(name="lottery", max_turns=1, max_tokens=10, reward_names=())
    check_tasks("gspo", make_run("gspo", "rollout.overlong_buffer=10").settings, [task])
    with lab_error(r"overlong_buffer = 11 is more than the token limit of 'lottery', 10"):
        check_tasks("gspo", make_run("gspo", "rollout.overlong_buffer=11").settings, [task])
