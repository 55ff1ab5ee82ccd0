"""`gspo-lab compare grpo=LOG... gspo=LOG...`: import and report in one line."""

from pathlib import Path

import pytest
from calling import Said, gspo_lab
from case_tables import cases
from logs import csv_of, json_lines, trainer_state, trl_rows

from gspo_lab.common.plain_data import Strings
from gspo_lab.exchange.importers.compared_logs import logs_by_arm


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compared(*words: object) -> Said:
    said = gspo_lab("compare", *words)
    assert said.code == 0, said
    return said


def scores(path: Path, final: float) -> Path:
    return csv_of(path, "step,reward,acc", f"10,0.4,{final - 0.1}", f"20,0.5,{final}")


def test_one_run_an_arm_gives_a_page_and_no_verdict() -> None:
    trainer_state(Path("a/trainer_state.json"), trl_rows(range(1, 9)))
    trainer_state(Path("b/checkpoint-8/trainer_state.json"), trl_rows(range(1, 9), 0.1))
    said = compared("grpo=a", "gspo=b")
    assert "one run each: no verdict; 19 seeds would find .05" in said.out
    assert said.out.count("  1/1  ") == 2, "a row of the table for each arm"
    assert "Next: name the score when you import or compare" in said.out
    page = Path("reports/grpo-vs-gspo.html").read_text()
    assert "m-reward" in page


def test_a_column_of_rewards_needs_no_map() -> None:
    rows = [{"step": step, "reward": 0.5} for step in range(1, 4)]
    log = json_lines(Path("a.jsonl"), rows)
    assert "not understood" not in compared(f"grpo={log}", f"gspo={log}").err
    assert "m-reward" in Path("reports/grpo-vs-gspo.html").read_text()


def test_seeds_are_the_runs_order_or_stand_in_the_path() -> None:
    Path("out").mkdir()
    for seed in (2, 3, 10):
        for arm in ("grpo", "gspo"):
            scores(Path(f"out/{arm}-{seed}.csv"), 0.5 + seed / 100 + (arm == "gspo") / 10)
    said = compared("grpo=out/grpo-{seed}.csv", "gspo=out/gspo-{seed}.csv", "--score-metric", "acc")
    assert "one run each" not in said.out
    assert "not imported" not in said.out + said.err
    assert sorted(path.name for path in Path("runs/grpo-vs-gspo/gspo").iterdir()) == [
        "s10",
        "s2",
        "s3",
    ]
    words = ["grpo=out/grpo-2.csv", "out/grpo-3.csv", "gspo=out/gspo-*.csv"]
    ordered = compared(*words, "--score-metric", "acc", "--json")
    assert "grpo-vs-gspo" in ordered.json["studies"]
    # An earlier comparison of these arms does not remain in it.
    assert [path.name for path in sorted(Path("runs/grpo-vs-gspo/gspo").iterdir())] == [
        "s0",
        "s1",
        "s2",
    ]


def test_a_comparison_that_cannot_be_imported_leaves_the_earlier_one() -> None:
    scores(Path("a.csv"), 0.5)
    compared("grpo=a.csv", "gspo=a.csv")
    refused = gspo_lab("compare", "grpo=a.csv", "gspo=missing.csv")
    assert refused.code == 2
    assert "missing.csv: no such file" in refused.err
    assert Path("runs/grpo-vs-gspo/study.json").is_file()


@pytest.mark.parametrize(
    ("words", "told"),
    cases(__file__, "what_is_missing_is_one_line"),
)
def test_what_is_missing_is_one_line(words: Strings, told: str) -> None:
    refused = gspo_lab("compare", *words)
    assert refused.code == 2
    assert told in refused.err
    assert len(refused.err.splitlines()) == 1


def test_arms_take_the_words_behind_them() -> None:
    assert logs_by_arm(["a=x", "y", "b=out/k=1/z"]) == {"a": ["x", "y"], "b": ["out/k=1/z"]}
    assert logs_by_arm(["a=x", "out/k=1", "b=z"])["a"] == ["x", "out/k=1"]
