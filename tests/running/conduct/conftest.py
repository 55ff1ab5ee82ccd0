"""The records of the smallest study that trains, made once.

Each test also has a study that only counts.
"""

from pathlib import Path

import pytest
from counting import bench, starts  # noqa: F401
from trained import recorded

from gspo_lab.common.plain_data import JsonObject


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory, starts: Path) -> dict[str, list[JsonObject]]:  # noqa: F811
    """What the smallest study that trains has recorded by local workers, undisturbed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GSPO_LAB_CACHE", str(starts))
        result = recorded(tmp_path_factory.mktemp("here"), "local")
    assert [record["kind"] for record in result["gspo"]].count("update") == 6
    return result
