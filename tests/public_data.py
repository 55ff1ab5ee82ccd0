"""Public data that is not part of the project.

It is in shared/data beside the checkout, or where GSPO_LAB_TEST_DATA says.
"""

import os
from pathlib import Path

import pytest


def public(name: str) -> Path:
    """The path of a file or folder of it; the test is skipped where it is absent."""
    folder = Path(
        os.environ.get("GSPO_LAB_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data"
    )
    if not (folder / name).exists():
        pytest.skip(f"{name} is not in {folder}; GSPO_LAB_TEST_DATA names another folder")
    return (folder / name).resolve()
