"""What is said of the engine trl before it begins, which needs no TRL.

The settings that it gives to TRL, and what it refuses.
"""

import importlib.metadata

import pytest
from case_tables import cases
from lottery import MakeRun

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalText, Strings
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
    """4 x 4 responses in 4 mini-batches: one response a pass.

    There are two processes with two passes each.
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
    cases(__file__, "what_trl_cannot_do_is_refused"),
)
def test_what_trl_cannot_do_is_refused(
    overrides: Strings, message: str, make_run: MakeRun, installed: None
) -> None:
    with pytest.raises(LabError) as refused:
        check(make_run, *overrides)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("actual", "message"), [(None, "there is none"), ("1.17.0", "here is 1.17.0")]
)
def test_without_the_version_that_was_tested_one_line_says_what_to_install(
    actual: OptionalText, message: str, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
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
