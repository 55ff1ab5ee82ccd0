"""What no log recorded: it equals nothing, it is not stored as a default, and readers show that it is unknown."""

from pathlib import Path

import pytest
from calling import gspo_lab
from laboratory import rendered
from logs import bring, csv_of, eight_seeds

from gspo_lab.claims import answer
from gspo_lab.errors import LabError
from gspo_lab.findings import Findings
from gspo_lab.findings.elsewhere import executions_at
from gspo_lab.lab import Study
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


def test_one_score_a_run_judges_no_collapse(tmp_path: Path) -> None:
    """16 runs with one final score each: no run shows a fall, because none has a score to fall from."""
    bring(tmp_path, "csv", eight_seeds(tmp_path / "first.csv"), "--study", "a", "--set", "verdict.margin=0.02")
    ingest(tmp_path / "runs")
    page = rendered(tmp_path / "runs" / "lab.db", "a").html
    with Evidence.open(tmp_path / "runs" / "lab.db") as evidence:
        found = Findings(evidence, "a")
        said = answer(found)
        frame = Study(found).runs()
        assert (found.regime.finished, found.regime.judged) == (16, 0)
    assert said.said.startswith("gspo and grpo are practically equivalent. Whether runs collapse is not judged.")
    assert said.rests_on.endswith("Whether runs fell is not judged: too few evaluations and training steps.")
    assert frame[["collapsed", "fell"]].isna().all(axis=None)
    assert "All 16 runs are finished. Whether they fell is not judged." in page
    assert 'data-head="fell">not judged<' in page


def test_a_stability_question_is_not_judged_by_one_score_a_run(tmp_path: Path) -> None:
    rule = ("--set", "verdict.margin=0.02", "--set", "verdict.question=stability")
    bring(tmp_path, "csv", eight_seeds(tmp_path / "first.csv"), "--study", "a", *rule)
    ingest(tmp_path / "runs")
    with Evidence.open(tmp_path / "runs" / "lab.db") as evidence:
        said = answer(Findings(evidence, "a"))
    assert (said.word, said.colour) == ("not judged", "grey")
    assert said.said == "Not answered: whether runs fell is not judged: too few evaluations and training steps."
