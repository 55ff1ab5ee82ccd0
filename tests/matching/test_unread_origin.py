"""A journal whose origin was damaged: one line from every command that would name it."""

from pathlib import Path

import pytest
from calling import gspo_lab
from matched_lab import FACTS, Lab


@pytest.mark.parametrize("origin", [3, {"program": 3}, {"source": "logs"}])
def test_an_origin_that_cannot_be_read_is_one_line(tmp_path: Path, origin: object) -> None:
    lab = Lab(tmp_path)
    lab.set_facts("grpo/s0", **FACTS, origin=origin)
    for command in (("show", "toy"), ("certify", "toy"), ("report", "toy", "--output-dir", str(tmp_path))):
        said = gspo_lab(*command, "--runs", str(lab.runs))
        assert said.code == 2, command
        assert "toy/grpo/s0: its journal names an origin that cannot be read" in said.err
