from functools import cache
from pathlib import Path

import pytest
from lottery import MakeRun, Memory, Trained, run_of, train, write_study

from gspo_lab.study import Run


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """`make_run("gspo", "model=tiny-qwen3-moe")`: that arm's run, with settings overridden."""
    study = write_study(tmp_path)

    def make(arm: str = "gspo", *overrides: str, seed: int = 0) -> Run:
        return run_of(study, arm, overrides, seed)

    return make


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """`trained("gspo")`: what that whole run records.

    A run is trained once for all tests that ask for it, and makes no checkpoint on its way.
    """
    study = write_study(tmp_path_factory.mktemp("trained"))

    @cache
    def once(arm: str, *overrides: str, seed: int = 0) -> Memory:
        whole = ("update.checkpoint_every=99", *overrides)
        return train(run_of(study, arm, whole, seed), tmp_path_factory.mktemp("run"))

    return once
