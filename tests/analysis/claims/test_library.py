"""The library: the example that it opens with works, and every entry says what it rests on."""

import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from assertions import assert_fields
from claim_lab import Fields, evidence, gives

from gspo_lab.analysis.claims import LIBRARY, Claim, library
from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.study import Run
from gspo_lab.study.claim_validation import CLAIM_ROLES, claim_names

NAME = "C0-example"
EXAMPLE = (inspect.getdoc(library) or "").split("For instance\n\n")[1]
EXAMPLE = textwrap.dedent(EXAMPLE[: EXAMPLE.index("\nA claim needs all")])


def test_the_example_is_a_claim_that_can_be_read(tmp_path: Path) -> None:
    """It needs one function in the library's own words, and no other line."""
    written: JsonObject = dict(vars(library))
    exec(EXAMPLE, written)
    claim: Claim = written["keeps_entropy"]
    assert_fields(
        claim,
        id=NAME,
        roles=("grpo", "gspo"),
        presupposed=["3 seeds"],
        statement="GSPO keeps more entropy than GRPO.",
    )
    assert claim.counter == (), "published.toml holds nothing against it"

    def step(run: Run, step: int) -> Fields:
        return {"entropy": 2.0 + 0.02 * run.seed if run.arm == "gspo" else 1.0}

    with evidence(tmp_path, gives(step=step)) as opened:
        roles = {"grpo": "grpo", "gspo": "gspo"}
        (part,) = claim.read(ClaimData(Source(opened, "toy"), roles)).parts
    assert_fields(
        part, estimate=pytest.approx((2 * 2.02 * 2.04) ** (1 / 3)), side="supported", resolved=True
    )


def test_an_installed_package_brings_claims(
    tmp_path: Path, add_entry_points: Callable[[str], None]
) -> None:
    lines = inspect.getsource(library).split('"""', 2)[2]
    imports = lines[: lines.index("\nLEVEL =")]
    (tmp_path / "claims_of_theirs.py").write_text(imports + EXAMPLE)
    add_entry_points("[gspo_lab.claims]\ntheirs = claims_of_theirs:keeps_entropy\n")
    done = subprocess.run(
        [sys.executable, "-m", "gspo_lab.cli", "claims", "--json"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stderr == ""
    assert [claim["id"] for claim in json.loads(done.stdout)] == sorted([*LIBRARY, NAME])


def test_every_entry_states_what_it_rests_on() -> None:
    for name, claim in LIBRARY.items():
        assert name == claim.id
        assert name in claim_names()
        assert set(claim.roles) <= set(CLAIM_ROLES)
        assert claim.needs
        for text in (claim.statement, claim.source, claim.published, claim.criterion):
            assert text, name
