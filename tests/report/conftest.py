"""One finished study of four arms for all tests that only read."""

from pathlib import Path

import pytest
import synthetic_lab
from laboratory import rendered

from gspo_lab.report import Report


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a finished mixture-of-experts study, 4 arms x 3 seeds."""
    return synthetic_lab.make_lab(tmp_path_factory.mktemp("lab"), synthetic_lab.FOUR_ARMS, name="moe")


@pytest.fixture(scope="session")
def report(finished: Path) -> Report:
    return rendered(finished, "moe")
