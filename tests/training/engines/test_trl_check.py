"""What is said of the engine trl before it begins, which takes no TRL: what it gives it, and what
it refuses.
"""

import importlib.metadata

import pytest
from lottery import MakeRun

from gspo_lab.common.errors import LabError
from gspo_lab.training.engines.check import check_engine, translated
from gspo_lab.training.engines.trl import VERSIONS, TrlEngine

TRL = "engine.name=trl"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the versions that it wants are installed."""
    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: VERSIONS.get(name) or real(name)
    )


def check(make_run: MakeRun, *overrides: str, arm: str = "gspo") -> None:
    check_engine(arm, make_run(arm, TRL, *overrides).settings)


def test_the_paper_s_objective_is_said_and_not_left_to_defaults(
    make_run: MakeRun, installed: None
) -> None:
    """4 x 4 responses in 4 mini-batches, two processes with two passes each: one response a
    pass.
    """
    options = ("engine.options={processes = 2, microbatches = 2}",)
    check(make_run, *options)
    inputs = translated(make_run("gspo", TRL, *options).settings)
    expected = {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "beta": 0.0,
        "vllm_importance_sampling_correction": False,
        "router_aux_loss_coef": 0.0,
        "num_generations": 4,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 8,
        "num_iterations": 1,
    }
    assert {key: inputs[key] for key in expected} == expected
    assert not translated(make_run("gspo").settings)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("objective.kl_coef=0.1",), "would ignore objective.kl_coef = 0.1"),
        (
            ("objective.aggregation=token-mean",),
            "would ignore objective.aggregation = 'token-mean'",
        ),
        (("objective.off_policy_mask=0.5",), "would ignore objective.off_policy_mask = 0.5"),
        (("objective.entropy_coef=0.1",), "would ignore objective.entropy_coef = 0.1"),
        (("objective.dual_clip=3.0",), "would ignore objective.dual_clip = 3.0"),
        (
            ("arm.gspo.advantage=gae", "critic.value_clip=0.2"),
            "would ignore critic.value_clip = 0.2",
        ),
        (("update.old_logprobs=sampler",), "would ignore update.old_logprobs = 'sampler'"),
        (("update.microbatch_tokens=512",), "would ignore update.microbatch_tokens = 512"),
        (("rollout.tokens_per_step=4",), "would ignore rollout.tokens_per_step = 4"),
        (("rollout.dynamic_sampling=2",), "would ignore rollout.dynamic_sampling = 2"),
        (("rollout.overlong_buffer=4",), "would ignore rollout.overlong_buffer = 4"),
        (("arm.gspo.policy_loss=kl-cov",), "would ignore objective.policy_loss = 'kl-cov'"),
        (
            ("arm.gspo.advantage=gae",),
            "has no trainer with a critic: advantage = 'gae' trains with the engines 'nati",
        ),
        (
            ("objective.advantage=batch-mean-std", "rollout.group_size=1"),
            "asks every prompt more than once",
        ),
        (("rollout.staleness=2",), "would ignore rollout.staleness = 2 (default: 0)"),
        (
            ("arm.gspo.importance_sampling_level=sequence-token",),
            "knows no importance_sampling_level = 'sequence-tok",
        ),
        (
            ("model=tiny-qwen3-moe", "routing_replay=rollout"),
            "replays the old policy's experts, not the sampler's",
        ),
        (
            ("update.dtype=float16",),
            "is given no scaled loss by the lab: use update.dtype = 'bfloat16'",
        ),
        (
            ("device=cuda:1",),
            "chooses its devices itself: device = 'cuda:1' is none of auto, cpu, cuda",
        ),
        (
            ("rollout.dtype=bfloat16", "rollout.float32_head=true"),
            "would ignore rollout.float32_head = True",
        ),
        (
            ("engine.options={processes = 3}",),
            "the 16 responses of a rollout batch equally; 4 mini-batches x 3 proc",
        ),
        (
            ("engine.options={processes = 0}",),
            "needs processes and microbatches of at least 1, not 0 and 1",
        ),
        (("engine.options={nodes = 2}",), "nodes"),
        (
            ("engine.options={sampling = 'tlr'}",),
            "has no sampling = 'tlr' (did you mean 'trl'?), only lab and trl",
        ),
        (
            ("engine.options={sampling = 'trl'}",),
            "the model that it trains: set rollout.coupled = False",
        ),
        (
            ("engine.options={sampling = 'trl'}", "rollout.coupled=false", "rollout.top_p=0.9"),
            "set rollout.top_p = 1.0",
        ),
    ],
)
def test_what_trl_cannot_do_is_refused(
    overrides: tuple[str, ...], message: str, make_run: MakeRun, installed: None
) -> None:
    with pytest.raises(LabError) as refused:
        check(make_run, *overrides)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("actual", "message"), [(None, "there is none"), ("1.17.0", "here is 1.17.0")]
)
def test_without_the_version_that_was_tested_one_line_says_what_to_install(
    actual: str | None, message: str, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if actual is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return actual

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(LabError) as refused:
        TrlEngine().check(make_run("gspo").settings)
    assert (
        str(refused.value)
        == f"the engine 'trl' needs trl 1.16.0, {message}: pip install 'gspo-lab[trl]'"
    )
