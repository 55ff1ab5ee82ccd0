"""What no log recorded equals nothing and is not stored as a default.

Readers show that it is unknown.
"""

import json
from pathlib import Path

from calling import gspo_lab, lab_error
from laboratory import json_of, rendered
from logs import bring, brought, csv_of, eight_seeds, opened

from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.clip_fractions import rule_arms
from gspo_lab.analysis.findings.executions import all_executions, executions_at
from gspo_lab.analysis.findings.stability import count_unstable_runs
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings.runs import first_settled
from gspo_lab.recording.store import ingest
from gspo_lab.report.lab import Study
from gspo_lab.report.templating import statement


def test_imports_are_never_executions_of_one_study(tmp_path: Path) -> None:
    """Two files with other models, seeds and questions.

    No declaration says that they are the same study.
    """
    first = eight_seeds(tmp_path / "first.csv")
    rows = [
        f"{arm},{seed},{0.5 + (arm == 'gspo') * 0.004:.3f}"
        for seed in range(20, 28)
        for arm in ("grpo", "gspo")
    ]
    second = csv_of(tmp_path / "second.csv", "arm,seed,score", *rows)
    for name, path, model in (
        ("a", first, "Qwen/Qwen3-8B"),
        ("b", second, "meta-llama/Llama-3.1-8B"),
    ):
        options = ("--set", f"model={model}", "--question", f"What of {name}?")
        brought(tmp_path, "csv", path, "--study", name, *options)
    with opened(tmp_path) as evidence:
        found = all_executions(Source(evidence, "a"))
        assert [study.name for study in found.executions] == ["a"]
        assert found.replications == ()
        with lab_error("a was imported, and logs do not record enough to call two studies"):
            executions_at(tmp_path / "runs" / "b", Source(evidence, "a"))


def test_an_import_is_not_replicated(tmp_path: Path) -> None:
    bring(tmp_path, "csv", eight_seeds(tmp_path / "first.csv"), "--study", "a")
    said = gspo_lab("replicate", "a", "--runs", tmp_path / "runs")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "a was imported: its logs do not record enough to train it again" in said.err


def test_one_score_a_run_judges_no_collapse(tmp_path: Path) -> None:
    """16 runs have one final score each.

    No run shows a drop, because none has an earlier score.
    """
    bring(
        tmp_path,
        "csv",
        eight_seeds(tmp_path / "first.csv"),
        "--study",
        "a",
        "--set",
        "verdict.margin=0.02",
    )
    ingest(tmp_path / "runs")
    page = rendered(tmp_path / "runs" / "lab.db", "a").html
    with opened(tmp_path) as evidence:
        found = Source(evidence, "a")
        said = answer(found)
        frame = Study(found).runs()
        assert (count_unstable_runs(found).finished, count_unstable_runs(found).judged) == (16, 0)
    sentence = statement("answer", said)
    verdict = "gspo and grpo are equivalent within the margin: +0.005"
    assert sentence.startswith(verdict)
    assert "Whether runs collapse is not judged." in sentence
    assert statement("grounds", said).endswith(
        "Whether runs were unstable is not judged: too few evaluations and training steps."
        " Regime: the clipped share of the gradient is not measured."
    )
    assert frame[["collapsed", "unstable"]].isna().all(axis=None)
    assert (
        "All 16 runs are finished. Whether runs were unstable is not judged: too few evaluations"
        in page
    )
    assert 'data-head="unstable">not judged<' in page


def test_a_stability_question_is_not_judged_by_one_score_a_run(tmp_path: Path) -> None:
    rule = ("--set", "verdict.margin=0.02", "--set", "verdict.question=stability")
    bring(tmp_path, "csv", eight_seeds(tmp_path / "first.csv"), "--study", "a", *rule)
    with opened(tmp_path) as evidence:
        said = answer(Source(evidence, "a"))
    assert (said.word, said.colour) == ("not judged", "grey")
    assert (
        statement("answer", said)
        == "Not answered: whether runs were unstable is not judged: too few evaluations and"
        " training steps."
    )


def test_only_what_was_recorded_is_stored(tmp_path: Path) -> None:
    """objective=gspo tells a preset and its level.

    Nothing else of the arm is known, and nothing else is written.
    """
    options = (
        "--study",
        "a",
        "--arm",
        "gspo",
        "--seed",
        0,
        "--set",
        "objective=gspo",
        "--set",
        "rollout.group_size=16",
    )
    bring(
        tmp_path,
        "csv",
        csv_of(tmp_path / "log.csv", "step,r", "1,.5", "2,.6"),
        *options,
        "--map",
        "reward=r",
    )
    ingest(tmp_path / "runs")
    known = {
        "objective": {"preset": "gspo", "importance_sampling_level": "sequence"},
        "rollout": {"group_size": 16},
    }
    home = tmp_path / "runs" / "a"
    assert json_of(home / "study.json")["arms"]["gspo"]["settings"] == known
    assert json_of(home / "gspo" / "s0" / "run.json")["settings"] == known
    with opened(tmp_path) as evidence:
        assert json.loads(evidence.runs("a")["settings"].item()) == known
        found = Source(evidence, "a")
        assert first_settled(found) == {"a/gspo/s0": 0}, (
            "no warm-up is known, so no row is left out"
        )
        assert rule_arms(found) is None
    shown = gspo_lab("show", "a/gspo/s0", "--runs", tmp_path / "runs").out
    assert "step: 3\n" in shown
    assert "learning_rate" not in shown
    assert bring(
        tmp_path, "csv", tmp_path / "log.csv", *options, "--map", "reward=r"
    ).out.startswith("a/gspo/s0: unch")
