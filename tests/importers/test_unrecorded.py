"""What no log recorded: it equals nothing, it is not stored as a default, and readers show that it is unknown."""

from pathlib import Path

import pytest
from calling import gspo_lab
from logs import bring, csv_of, eight_seeds

from gspo_lab.errors import LabError
from gspo_lab.findings import Findings
from gspo_lab.findings.elsewhere import executions_at
from gspo_lab.store import Evidence, ingest


def test_imports_are_never_executions_of_one_study(tmp_path: Path) -> None:
    """Other models, other seeds, other questions: nobody declared these two files to be the same study."""
    first = eight_seeds(tmp_path / "first.csv")
    rows = [f"{arm},{seed},{0.5 + (arm == 'gspo') * 0.004:.3f}" for seed in range(20, 28) for arm in ("grpo", "gspo")]
    second = csv_of(tmp_path / "second.csv", "arm,seed,score", *rows)
    for name, path, model in (("a", first, "Qwen/Qwen3-8B"), ("b", second, "meta-llama/Llama-3.1-8B")):
        options = ("--set", f"model={model}", "--question", f"What of {name}?")
        said = bring(tmp_path, "csv", path, "--study", name, *options)
        assert said.code == 0, said.err
    ingest(tmp_path / "runs")
    with Evidence.open(tmp_path / "runs" / "lab.db") as evidence:
        found = Findings(evidence, "a").executions
        assert [study.name for study in found.every] == ["a"]
        assert found.words == ()
        with pytest.raises(LabError, match="a was imported, and logs do not record enough to call two studies"):
            executions_at(tmp_path / "runs" / "b", Findings(evidence, "a"))


def test_an_import_is_not_replicated(tmp_path: Path) -> None:
    bring(tmp_path, "csv", eight_seeds(tmp_path / "first.csv"), "--study", "a")
    said = gspo_lab("replicate", "a", "--runs", tmp_path / "runs")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "a was imported: its logs do not record enough to train it again" in said.err
