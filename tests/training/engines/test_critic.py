"""The native engine with a critic.

Its start, what it learns, what is recorded, and that it resumes bit for bit.
"""

import pytest
import torch
from lottery import MakeRun, Memory, Trained, components, experience_of, rollouts

from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.training.engines.native.critic import Critic
from gspo_lab.training.engines.native.experience import Experience, pad_rollouts
from gspo_lab.training.engines.native.optimizer_update import MinibatchRows

GAE = "objective.advantage=gae"
OF_UPDATES = (
    "value_loss",
    "value_mean",
    "value_clip_fraction",
    "critic_grad_norm",
    "critic_seconds",
)
OF_STEPS = ("value_explained_variance", "seconds_values")


def critic_of(make_run: MakeRun, arm: str, *overrides: str) -> tuple[Critic, Experience]:
    """A critic at its start, and sixteen responses to four prompts."""
    setting = components(make_run(arm, GAE, *overrides))
    return setting.critic, experience_of(setting)


def test_the_first_values_are_0_and_every_token_has_the_reward(make_run: MakeRun) -> None:
    reward_N = torch.arange(16) / 10
    critic, experience = critic_of(make_run, "grpo", "objective.whiten_advantages=false")
    adv_NT = critic.advantages(experience, reward_N)
    assert torch.equal(adv_NT, reward_N[:, None] * experience.mask_NT)
    assert not experience.value_NT.any()
    assert torch.equal(experience.return_NT, adv_NT)
    whitened_NT = critic_of(make_run, "grpo")[0].advantages(experience, reward_N)
    assert float(whitened_NT[experience.mask_NT].mean()) == pytest.approx(0, abs=1e-6)
    assert float(whitened_NT[experience.mask_NT].std()) == pytest.approx(1, abs=1e-5)


def test_it_learns_who_is_asked(make_run: MakeRun) -> None:
    """The prompt alone decides the reward, and the critic reads it.

    So the critic learns more than the mean, token by token.
    """
    critic, experience = critic_of(
        make_run, "gspo", "critic.learning_rate=1e-2", "objective.whiten_advantages=false"
    )
    reward_N = torch.tensor([0.0, 1.0, 0.3, 0.7]).repeat_interleave(4)
    rows = torch.arange(16)
    losses = []
    for _ in range(30):
        critic.advantages(experience, reward_N)
        losses.append(critic.update(experience, rows)[0]["value_loss"])
    adv_NT = critic.advantages(experience, reward_N)
    by_token = experience.return_NT - experience.value_NT
    spread = float(experience.return_NT[experience.mask_NT].var(correction=0)) / 2
    assert losses[0] == pytest.approx(
        float((experience.return_NT**2).sum()) / 2 / int(experience.mask_NT.sum())
    )
    assert losses[-1] < 0.2 * spread < losses[0]
    # Level sequence: one advantage for a response, the mean of what its tokens would have had.
    for row, mask in enumerate(experience.mask_NT):
        mean = float(by_token[row][mask].mean())
        assert adv_NT[row][mask].tolist() == pytest.approx([mean] * int(mask.sum()), abs=1e-6)
        assert not adv_NT[row][~mask].any()


def test_levels_and_the_sum(make_run: MakeRun) -> None:
    """With a critic that has moved, tokens' advantages differ within a response.

    The sequence's are their mean or sum.
    """
    actual = {}
    for name, arm, *changes in (
        ("token", "grpo"),
        ("sequence-token", "gspo", "arm.gspo.importance_sampling_level=sequence-token"),
        ("mean", "gspo"),
        ("sum", "gspo", "arm.gspo.sequence_advantage=sum"),
    ):
        critic, experience = critic_of(make_run, arm, "objective.gae_lambda=0.5", *changes)
        reward_N = torch.arange(16.0) % 3
        critic.advantages(experience, reward_N)
        critic.update(experience, torch.arange(16))
        actual[name] = critic.advantages(experience, reward_N)
    mask_NT = experience.mask_NT
    adv_NT = actual["token"]
    assert torch.equal(actual["sequence-token"], adv_NT)
    assert (adv_NT.amax(dim=1) - adv_NT.where(mask_NT, adv_NT.amax()).amin(dim=1)).max() > 1e-3
    total_N1 = adv_NT.sum(dim=1, keepdim=True)
    assert torch.allclose(actual["sum"], total_N1 * mask_NT, atol=1e-5)
    assert torch.allclose(
        actual["mean"], total_N1 / mask_NT.sum(dim=1, keepdim=True) * mask_NT, atol=1e-5
    )


def test_the_critics_gradient_does_not_depend_on_the_split_or_on_who_has_an_advantage(
    make_run: MakeRun,
) -> None:
    ends = []
    for tokens, evaluated in ((10**6, True), (60, True), (60, False)):
        critic, experience = critic_of(make_run, "grpo", f"update.microbatch_tokens={tokens}")
        experience.evaluated_N[:] = evaluated
        reward_N = torch.arange(16.0) % 2
        for _ in range(2):  # the head's zeros let no gradient into the body at first
            critic.advantages(experience, reward_N)
            learnt, _ = critic.update(experience, torch.arange(16))
        ends.append((learnt["value_loss"], learnt["critic_grad_norm"]))
    assert ends[1] == ends[2]
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)


def test_a_tools_tokens_have_no_value(make_run: MakeRun) -> None:
    """A tool wrote the middle two of the first response's four tokens.

    They have no value, no return, no advantage and no count.
    """
    setting = components(
        make_run("grpo", GAE, "objective.whiten_advantages=false", "objective.gae_lambda=0.5")
    )
    experience = pad_rollouts(rollouts(tool=True), 0, setting.device)
    reward_N = torch.tensor([1.0, 0.5])
    mask_NT = experience.mask_NT
    assert torch.equal(
        setting.critic.advantages(experience, reward_N)[0], torch.tensor([0.5, 0.0, 0.0, 1.0])
    )
    learnt, _ = setting.critic.update(experience, torch.arange(2))
    # Returns 0.5, 1 and 0.125, 0.25, 0.5 against values of 0, half the mean square over five
    # tokens.
    assert learnt["value_loss"] == pytest.approx((0.25 + 1 + 0.125**2 + 0.0625 + 0.25) / 10)
    setting.critic.advantages(experience, reward_N)
    for x_NT in (experience.value_NT, experience.return_NT):
        assert x_NT[mask_NT].all()
        assert not x_NT[~mask_NT].any()


def test_what_a_critic_learns_is_recorded(trained: Trained) -> None:
    memory = trained("gspo", GAE, "objective.gae_lambda=0.9", "update.epochs=2")
    assert len(memory.updates) == 2 * 8
    assert all(
        getattr(update, name) is not None for update in memory.updates for name in OF_UPDATES
    )
    assert all(getattr(step, name) is not None for step in memory.steps for name in OF_STEPS[1:])
    assert memory.steps[0].value_explained_variance == 0.0
    assert memory.updates[0].value_mean == 0.0
    assert memory.updates[1].value_mean != 0.0
    assert all(update.critic_seconds < update.seconds for update in memory.updates)
    assert all(update.nonfinite == 0 for update in memory.updates)


def test_arms_of_a_seed_have_one_critic_at_their_start(trained: Trained) -> None:
    grpo = trained("grpo", GAE, "steps=1")
    gspo = trained("gspo", GAE, "steps=1")
    assert grpo.statuses[0].facts["critic"] == gspo.statuses[0].facts["critic"]
    assert grpo.steps[0].rollout_digest == gspo.steps[0].rollout_digest
    # Ratios are 1 on the first mini-batch, so that the levels differ by nothing but the spreading
    # of advantages; the critic learns the same in both.
    assert grpo.updates[0].value_loss == gspo.updates[0].value_loss
    of_tokens = [update.active_tokens for update in grpo.updates]
    assert of_tokens == [update.response_tokens for update in grpo.updates]


def test_it_is_counted_and_without_one_nothing_is_recorded(trained: Trained) -> None:
    skips = "update.skip_zero_advantage=false"
    plain = trained("grpo", skips, *())
    with_critic = trained("grpo", skips, *(GAE,))
    for records, names, kind in (
        (plain.updates, OF_UPDATES, UpdateRecord),
        (plain.steps, OF_STEPS, StepRecord),
    ):
        assert all(
            isinstance(record, kind) and getattr(record, name) is None
            for record in records
            for name in names
        )
    assert "critic" not in plain.statuses[0].facts
    # Passes over every position: sampling 1, old policy 3/4 (4 mini-batches), update 3; the critic
    # 1 and 3.
    initial = plain.steps[0].flops_total
    final = with_critic.steps[0].flops_total
    assert final / initial == pytest.approx((4.75 + 4) / 4.75)
    answers = [a for a in with_critic.answers if a.bench == "rollout" and a.step == 0]
    tokens = sum(a.tokens for a in answers)
    assert sum(a.advantage * a.tokens for a in answers) / tokens == pytest.approx(0, abs=1e-6)


def test_one_response_to_a_prompt_is_enough(trained: Trained) -> None:
    memory: Memory = trained("gspo", GAE, "rollout.group_size=1", "rollout.prompts_per_step=16")
    assert [step.responses for step in memory.steps] == [16, 16]
    assert [step.zero_variance_groups for step in memory.steps] == [None, None]
    assert sum(update.evaluated_responses for update in memory.updates) == 32


def test_a_dead_critic_is_told(make_run: MakeRun) -> None:
    setting = components(make_run("grpo", GAE))
    experience = experience_of(setting)
    with torch.no_grad():
        setting.critic.trained.model.head.weight.fill_(float("nan"))
    experience.credit(setting.critic.advantages(experience, torch.ones(16)))
    result = setting.updater.update(experience, MinibatchRows(0, 0, torch.arange(16), fresh=True))
    assert not result.finite
