"""Calling `gspo-lab` as a shell does."""

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from gspo_lab.cli import main


@dataclass(frozen=True)
class Said:
    """What a call wrote and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def gspo_lab(*arguments: object) -> Said:
    """`gspo-lab ARGUMENTS` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["gspo-lab", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return Said(code, out.getvalue(), err.getvalue())
