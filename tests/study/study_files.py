"""Study files for tests: a small valid one, and what is said of one that is not."""

from pathlib import Path
from typing import Any

import pytest

from gspo_lab.common.errors import LabError
from gspo_lab.study import Study, load_study

SHARED = """\
# A comment that
# opens the file.

question = "Which is it?"
task = "addition"
seeds = 2
steps = 3

[rollout]
prompts_per_step = 8

[update]
minibatches = 2

[[bench]]
name = "sums"
problems = 4
"""

ARMS = """
[arm.grpo]
objective = "grpo"

[arm.gspo]
objective = "gspo"
"""


def load(folder: Path, text: str = SHARED + ARMS, **how: Any) -> Study:
    path = folder / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return load_study(path, **how)


def mistakes(folder: Path, text: str = SHARED + ARMS, **how: Any) -> list[str]:
    """The line of every mistake; fails where the study loads."""
    with pytest.raises(LabError) as caught:
        load(folder, text, **how)
    lines = caught.value.details
    assert all("\n" not in line for line in (str(caught.value), *lines))
    if lines:
        assert str(caught.value).endswith(f": {len(lines)} mistake{'s' * (len(lines) > 1)}")
    return list(lines or [str(caught.value)])
