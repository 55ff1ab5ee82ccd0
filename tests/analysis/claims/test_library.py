"""library.toml: the example that it opens with works, and every row says what the records and the
claim can give.
"""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from claim_lab import Fields, evidence, gives

from gspo_lab.analysis.claims import functions, library
from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.claims.library import LAST_EVALUATIONS, OF_RESPONSES, RISE, STATISTICS
from gspo_lab.analysis.claims.preconditions import NEEDS
from gspo_lab.analysis.readings import Source
from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.study import Run
from gspo_lab.study.claim_validation import CLAIM_ROLES, claim_names

TEXT = Path(library.__file__).with_name("library.toml").read_text(encoding="utf-8")
ENTRIES = {
    name: entry
    for name, entry in tomllib.loads(TEXT).items()
    if name not in ("counter", "untested")
}
BETWEEN_ARMS = ("first update", "first rollout batch")


EXAMPLE = "\n".join(line[6:] for line in TEXT.splitlines() if line.startswith("#     ")).replace(
    "C27-", "C00-"
)


def test_the_example_is_a_claim_that_can_be_read(tmp_path: Path) -> None:
    claims = library.read_library(f"{EXAMPLE}\n{TEXT}")
    assert set(claims) - set(library.LIBRARY) == {"C00-keeps-entropy"}
    claim = claims["C00-keeps-entropy"]
    assert claim.as_data()["needs"] == ["3 seeds"]
    assert claim.as_data()["counter_evidence"][0]["source"] == "ScaleRL, 2510.13786"

    def step(run: Run, step: int) -> Fields:
        return {"entropy": 2.0 + 0.02 * run.seed if run.arm == "gspo" else 1.0}

    with evidence(tmp_path, gives(step=step)) as opened:
        found = claim.evaluate(ClaimData(Source(opened, "toy")), {"grpo": "grpo", "gspo": "gspo"})
    (part,) = found.parts
    assert part.estimate == pytest.approx((2 * 2.02 * 2.04) ** (1 / 3))
    assert (part.side, part.resolved) == ("supported", True)


def test_an_installed_package_brings_a_library_and_functions(
    tmp_path: Path, add_entry_points: Callable[[str], None]
) -> None:
    theirs = EXAMPLE.replace('counter = ["diverged"]', 'code = "claims_of_theirs:always"')
    (tmp_path / "claims.toml").write_text(theirs[: theirs.index("rows = [")])
    code = f"PATH = {str(tmp_path / 'claims.toml')!r}\ndef always(data, roles): ...\n"
    (tmp_path / "claims_of_theirs.py").write_text(code)
    add_entry_points("[gspo_lab.claims]\ntheirs = claims_of_theirs:PATH\n")
    listed = [sys.executable, "-m", "gspo_lab.cli", "claims", "--json"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}"}
    done = subprocess.run(
        listed, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert [claim["id"] for claim in json.loads(done.stdout)] == [
        "C00-keeps-entropy",
        *library.LIBRARY,
    ]
    claim_names.cache_clear()
    assert "C00-keeps-entropy" in claim_names()
    claim_names.cache_clear()


def test_rows_name_statistics_recorded_metrics_and_roles_of_their_claim() -> None:
    metrics = {*UpdateRecord.__dataclass_fields__, *StepRecord.__dataclass_fields__}
    for name, entry in ENTRIES.items():
        assert len({"rows", "code"} & set(entry)) == 1, name
        assert {*entry["needs"], *entry.get("for_support", ())} <= NEEDS.keys()
        assert set(entry["roles"]) <= set(CLAIM_ROLES)
        assert entry["needs"]
        assert entry["source"]
        assert entry["value"]
        for row in (*entry.get("rows", ()), *entry.get("also", ())):
            if isinstance(row, str):
                assert callable(getattr(functions, row))
                continue
            pair = "at_most" in row and "against" in row
            bare = {*OF_RESPONSES, LAST_EVALUATIONS}
            assert row["statistic"] in (BETWEEN_ARMS if pair else {*STATISTICS, *bare, RISE}), name
            assert row.get("metric") in metrics or row["statistic"] in bare, name
            assert {row[key] for key in ("of", "against") if key in row} <= set(entry["roles"])
