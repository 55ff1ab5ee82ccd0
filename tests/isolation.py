"""Tests that need programs to be isolated skip, with the sandbox's own reason, where this machine
cannot.
"""

import pytest

from gspo_lab.common.errors import LabError
from gspo_lab.tasks.sandbox import Sandbox


def opened(slots: int) -> Sandbox:
    try:
        return Sandbox.open(slots=slots)
    except LabError as error:
        pytest.skip("; ".join((str(error), *error.details)))
