from pathlib import Path

import pytest
from run_folders import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    (tmp_path / "runs").mkdir()
    return Lab(tmp_path / "runs")
