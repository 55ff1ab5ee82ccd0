"""Tests that need isolated programs skip where this machine cannot isolate.

They fail where it can and the sandbox does not start.
"""

import os
import subprocess

import pytest

from gspo_lab.common.errors import LabError
from gspo_lab.tasks.sandbox import Sandbox
from gspo_lab.tasks.sandbox.bubblewrap import why_missing

NAMESPACES = "unshare --user --map-root-user --mount --pid --net --ipc --uts --fork"
"""util-linux's program tells whether the kernel gives an ordinary user what bubblewrap asks for."""
ORDINARY_USER = "setpriv --reuid=65534 --regid=65534 --clear-groups"


def opened(slots: int) -> Sandbox:
    absent = why_missing()
    if absent is not None:
        pytest.skip(absent)
    command = f"{NAMESPACES} mount -t proc proc /proc"
    if os.geteuid() == 0:
        command = f"{ORDINARY_USER} {command}"
    tried = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no user namespaces here: {tried.stderr}")
    try:
        return Sandbox.open(slots=slots)
    except LabError as error:
        pytest.fail("; ".join((str(error), *error.details)))
