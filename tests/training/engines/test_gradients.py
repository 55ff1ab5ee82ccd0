"""Gradients on real models.

Splits change nothing, GRPO and GSPO agree on the first mini-batch, and replay replays.
"""

import pytest
import torch
from assertions import assert_fields
from lottery import MakeRun, components, experience_of

from gspo_lab.common.plain_data import Strings
from gspo_lab.training.engines.native.build_run import (
    RunComponents,
    disable_dropout,
    thread_count,
)
from gspo_lab.training.engines.native.experience import Experience, microbatches
from gspo_lab.training.engines.native.optimizer_update import MinibatchRows, update_record


def gradient(
    parts_: RunComponents, experience: Experience, *, fresh: bool, tokens: int = 10**9
) -> torch.Tensor:
    """The gradient of one mini-batch of all rows, as one vector; the optimizer's step is undone."""
    updater = parts_.updater
    model = parts_.policy.model
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    caught: dict[str, torch.Tensor] = {}
    updater.trained.optimizer.register_step_pre_hook(
        lambda *_: caught.update(
            grad=torch.cat([p.grad.flatten().clone() for p in model.parameters()])
        )
    )
    parts_.policy.microbatch_tokens = tokens
    updater.trained.max_grad_norm = float("inf")
    minibatch = MinibatchRows(0, 0, torch.arange(len(experience.mask_NT)), fresh)
    updater.update(experience, minibatch)
    assert all(p.grad is None for p in model.parameters()), "their memory is sampling's"
    model.load_state_dict(initial)
    return caught["grad"]


def drift(parts_: RunComponents, scale: float = 0.02) -> None:
    """Move the weights, so that ratios and routes differ from the old policy's."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in parts_.policy.model.parameters():
            p.add_(scale * p.std() * torch.randn(p.shape, generator=generator))


ROWS = torch.arange(16)


def drifted(
    make_run: MakeRun, arm: str, *overrides: str, routes: bool = False, scale: float = 0.02
) -> tuple[RunComponents, Experience]:
    """The parts of a run and a batch of it, from which its policy has moved."""
    setting = components(make_run(arm, *overrides))
    experience = experience_of(setting, routes=routes)
    setting.policy.fill_old_policy(experience, ROWS)
    drift(setting, scale)
    return setting, experience


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.linalg.norm(a - b) / torch.linalg.norm(b))


def test_the_gradient_does_not_depend_on_the_split(make_run: MakeRun) -> None:
    for overrides in (
        (),
        ("model=tiny-qwen3-moe", "routing_replay=rollout"),
        ("objective.aggregation=token-mean",),
        ("arm.gspo.policy_loss=bapo", "arm.gspo.bapo_share=0.7"),
        ("arm.gspo.policy_loss=kl-cov", "arm.gspo.kl_cov_share=0.2"),
        (
            "arm.gspo.policy_loss=clip-cov",
            *(f"arm.gspo.clip_cov_{end}" for end in ("low=-1e3", "high=1e3", "share=0.3")),
        ),
        ("objective.entropy_coef=0.1",),
    ):
        wide = ("arm.gspo.clip_low=0.5", "arm.gspo.clip_high=0.5", *overrides)
        routes = "rollout" in str(overrides)
        setting, experience = drifted(make_run, "gspo", *wide, routes=routes)
        complete = gradient(setting, experience, fresh=False)
        for tokens in (1, 60, 120):
            assert len(list(microbatches(experience, ROWS, tokens))) > 1
            assert (
                relative(gradient(setting, experience, fresh=False, tokens=tokens), complete) < 1e-6
            )


def test_bapo_s_range_is_that_of_the_whole_minibatch(make_run: MakeRun) -> None:
    """The result does not depend on the number of passes.

    On a fresh mini-batch, whose ratios are 1, no pass is spent on it.
    """
    expected = (
        "policy_loss=bapo",
        "importance_sampling_level=token",
        "clip_low=0.01",
        "clip_high=0.01",
    )
    ends = ("bapo_clip_low=0.001", "bapo_clip_high=0.3", "bapo_share=0.7")
    settings = [f"arm.gspo.{item}" for item in (*expected, *ends)]
    setting, experience = drifted(make_run, "gspo", *settings)
    fresh = setting.updater.prepared(experience, MinibatchRows(0, 0, ROWS, True))[0]
    assert fresh is setting.updater.objective
    actual = []
    for tokens in (10**9, 60):
        setting.policy.microbatch_tokens = tokens
        actual.append(setting.updater.prepared(experience, MinibatchRows(0, 1, ROWS, False))[0])
    assert actual[0] == actual[1] != fresh
    result = setting.updater.update(experience, MinibatchRows(0, 1, ROWS, False))
    measured = update_record(setting.updater, experience, result)
    assert_fields(measured, bapo_clip_low=actual[0].clip_low, bapo_clip_high=actual[0].clip_high)
    assert (
        measured.clip_fraction_tokens
        == int(result.metrics["clip_fraction_tokens"].sum()) / int(experience.mask_NT.sum())
        > 0
    )


def test_the_dual_clip_of_all_parts_is_recorded(make_run: MakeRun) -> None:
    """Also of a mini-batch that takes no pass: 0 is measured there."""
    setting, experience = drifted(make_run, "grpo", "objective.dual_clip=1.001")
    setting.policy.microbatch_tokens = 60
    result = setting.updater.update(experience, MinibatchRows(0, 1, ROWS, False))
    above_MT = (result.log_ratio_MT.exp() > 1.001) & (experience.adv_NT < 0) & experience.mask_NT
    record = update_record(setting.updater, experience, result)
    assert (
        record.dual_clip_fraction_tokens == int(above_MT.sum()) / int(experience.mask_NT.sum()) > 0
    )
    experience.evaluated_N = torch.zeros(16, dtype=torch.bool)
    idle = setting.updater.update(experience, MinibatchRows(0, 2, ROWS, False))
    record = update_record(setting.updater, experience, idle)
    assert record.dual_clip_fraction_tokens == 0.0


def test_first_minibatch_gradients_of_grpo_and_gspo_are_equal(make_run: MakeRun) -> None:
    for model in ("tiny-qwen3", "tiny-qwen3-moe"):
        gradients = []
        for arm in ("grpo", "gspo"):
            setting = components(make_run(arm, f"model={model}"))
            gradients.append(gradient(setting, experience_of(setting), fresh=True))
        assert relative(gradients[1], gradients[0]) < 1e-5
        assert torch.nn.functional.cosine_similarity(gradients[0], gradients[1], dim=0) > 1 - 1e-6


def test_gradient_checkpointing_changes_nothing_with_replayed_routes(make_run: MakeRun) -> None:
    gradients = []
    for checkpointing in ("false", "true"):
        settings = (
            "model=tiny-qwen3-moe",
            "routing_replay=old-policy",
            f"update.gradient_checkpointing={checkpointing}",
        )
        setting, experience = drifted(make_run, "grpo", *settings, scale=0.1)
        gradients.append(gradient(setting, experience, fresh=False, tokens=100))
    assert relative(gradients[1], gradients[0]) < 1e-6


def test_replay_feeds_the_recorded_experts_into_training(make_run: MakeRun) -> None:
    """The experts are the old policy's choice.

    Their inputs are caught while a drifted policy trains in several parts.
    """
    for replay in ("old-policy", "rollout"):
        setting = components(make_run("gspo", "model=tiny-qwen3-moe", f"routing_replay={replay}"))
        experience = experience_of(setting, routes=replay == "rollout")
        setting.policy.fill_old_policy(experience, ROWS)
        recorded = (
            experience.natural_NSLK if replay == "old-policy" else experience.rollout_routes_NSLK
        )
        assert recorded is not None
        drift(setting, 0.1)
        fed: list[list[torch.Tensor]] = [[] for _ in setting.policy.model.model.layers]
        for layer, catch in zip(setting.policy.model.model.layers, fed, strict=True):
            layer.mlp.experts.register_forward_pre_hook(
                lambda _, arguments, catch=catch: catch.append(arguments[1].clone())
            )
        gradient(setting, experience, fresh=False, tokens=100)
        split = list(microbatches(experience, ROWS, 100))
        assert len(split) > 1
        for index, part in enumerate(split):
            rows, positions = part.input_BS.shape
            want = recorded[part.rows, part.first_column : part.first_column + positions]
            for layer, catch in enumerate(fed):
                got = catch[index].view(rows, positions, -1)[part.attention_BS].long()
                assert torch.equal(got, want[:, :, layer][part.attention_BS].long())
        with setting.policy.routers.tap(*split[0].input_BS.shape) as tap, torch.no_grad():
            setting.policy.model(
                input_ids=split[0].input_BS, attention_mask=split[0].attention_BS.long()
            )
        native = tap.natural_BSLK[split[0].attention_BS].long().sort(-1).values
        want = recorded[
            split[0].rows,
            split[0].first_column : split[0].first_column + split[0].input_BS.shape[1],
        ]
        assert not torch.equal(native, want[split[0].attention_BS].long().sort(-1).values)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_equal_weights_give_equal_logprobs_however_a_minibatch_is_split(
    make_run: MakeRun, dtype: str
) -> None:
    """In bfloat16 another grouping of rows moves log-probs.

    The old policy's passes must have the updates' grouping.
    """
    run = make_run(
        "gspo", f"update.dtype={dtype}", "update.microbatch_tokens=60", "update.learning_rate=1e-30"
    )
    setting = components(run)
    experience = experience_of(setting)
    minibatches = ROWS.chunk(4)
    for rows in minibatches[1:]:
        setting.policy.fill_old_policy(experience, rows)
    for index, rows in enumerate(minibatches[1:], start=1):
        result = setting.updater.update(experience, MinibatchRows(0, index, rows, False))
        assert result.log_ratio_MT.abs().max() == 0.0


def test_dropout_is_off_while_training() -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        vocab_size=50,
        attention_dropout=0.5,
    )
    model = Qwen3ForCausalLM(config).train()
    ids = torch.arange(20)[None]
    assert not torch.equal(model(ids).logits, model(ids).logits)
    disable_dropout(model)
    assert model.training
    assert torch.equal(model(ids).logits, model(ids).logits)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("objective.aggregation=token-mean",),
        ("model=tiny-qwen3-moe", "routing_replay=old-policy"),
    ],
)
@pytest.mark.parametrize("fresh", [True, False])
def test_leaving_out_what_has_no_advantage_changes_no_gradient(
    make_run: MakeRun, overrides: Strings, fresh: bool
) -> None:
    """Half of the responses have A = 0; the same update with and without passes over them."""
    actual = []
    for skip in (False, True):
        setting = components(
            make_run("gspo", "arm.gspo.clip_low=0.5", "arm.gspo.clip_high=0.5", *overrides)
        )
        experience = experience_of(setting)
        experience.adv_NT[::2] = 0.0
        if skip:
            experience.evaluated_N = (experience.adv_NT != 0).any(dim=1)
        if not fresh:
            setting.policy.fill_old_policy(experience, ROWS)
            drift(setting)
        actual.append(gradient(setting, experience, fresh=fresh, tokens=100))
    assert relative(actual[1], actual[0]) < 1e-5
    assert torch.linalg.norm(actual[0]) > 0


def test_a_minibatch_without_any_advantage_still_steps_the_optimizer(make_run: MakeRun) -> None:
    """Momentum and decay of earlier updates go on.

    They do exactly as after passes over responses with A = 0.
    """
    ends = []
    for skip in (False, True):
        setting = components(
            make_run("gspo", "update.weight_decay=0.1", "update.learning_rate=0.01")
        )
        experience = experience_of(setting)
        setting.updater.update(experience, MinibatchRows(0, 0, ROWS, True))
        experience.adv_NT = torch.zeros_like(experience.adv_NT)
        if skip:
            experience.evaluated_N = torch.zeros(16, dtype=torch.bool)
        result = setting.updater.update(experience, MinibatchRows(0, 1, ROWS, False))
        assert (result.columns["loss"], result.columns["grad_norm"], result.finite) == (
            0.0,
            0.0,
            True,
        )
        measured = update_record(setting.updater, experience, result)
        assert_fields(measured, evaluated_responses=0 if skip else 16, clip_fraction_tokens=0.0)
        assert (measured.stale_k3 is None) == skip
        ends.append(torch.cat([p.detach().flatten() for p in setting.policy.model.parameters()]))
    assert torch.equal(*ends)


def test_later_minibatches_tell_the_rules_apart(make_run: MakeRun) -> None:
    gradients = []
    for arm in ("grpo", "gspo"):
        setting, experience = drifted(make_run, arm)
        gradients.append(gradient(setting, experience, fresh=False))
    assert relative(gradients[1], gradients[0]) > 1e-3


@pytest.mark.parametrize(
    ("value", "threads"), {"3": 3, "4,2": 4, "": 1, " 2": 2, "0": 1, "many": 1}.items()
)
def test_threads_are_those_that_the_environment_asks_for(
    monkeypatch: pytest.MonkeyPatch, value: str, threads: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert thread_count() == threads
