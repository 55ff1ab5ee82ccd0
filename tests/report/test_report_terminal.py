"""What `gspo-lab run` says at its end is what the report says: the same sentence on the same evidence."""

from pathlib import Path
from typing import Any

import pytest
from first_screens import NO_BENCH, ONE_ARM, SWEEP, one_failed, other_torch
from synthetic_lab import TWO_ARMS, make_lab

from gspo_lab import words
from gspo_lab.claims import answer as answer_to
from gspo_lab.conduct.study_outcome import outcome
from gspo_lab.readings import Source
from gspo_lab.report.sections.answer import answer
from gspo_lab.store import Evidence
from gspo_lab.study import Run, load_study

THREE_ARMS = TWO_ARMS + '[arm.other]\nobjective = "gspo-token"\n'


def still_at_it(run: Run) -> str | None:
    return "finished" if run.seed == 0 else None


BETTER = "gspo is better than grpo by more than the margin on this one starting model."
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "far apart": (TWO_ARMS, {"gain": 0.35}, BETTER),
    "two treatments": (
        THREE_ARMS,
        {"gain": 0.35, "seeds": 5},
        f"{BETTER} Whether other",
    ),
    "one seed": (TWO_ARMS, {"seeds": 1}, "No verdict on gspo against grpo: 1 pair of runs; an interval needs 3."),
    "a run failed": (TWO_ARMS, {"end": one_failed}, "runs are missing, 2 of 3 pairs are complete"),
    "not over": (TWO_ARMS, {"end": still_at_it}, "1 of 3 pairs are complete"),
    "not matched": (TWO_ARMS, {"change": other_torch}, "undeclared difference in packages: torch (seeds 0, 1, 2)"),
    "one arm": (ONE_ARM, {}, "No verdict: grpo is the only arm, so there is nothing to compare it with."),
    "no benchmark": (NO_BENCH, {}, "No verdict: the study declares no benchmark"),
    "a sweep": (SWEEP, {"steps": 20}, "grpo: inconclusive (0 of 9 runs collapsed)"),
}
"""The study, what became of its runs, and what its verdict says."""


@pytest.mark.parametrize("case", CASES)
def test_terminal_and_report_say_the_same(tmp_path: Path, case: str) -> None:
    toml, how, wanted = CASES[case]
    database = make_lab(tmp_path, toml, **how)
    seen = outcome(load_study(tmp_path / "studies" / "toy.toml"), database.parent, [], interrupted=False).verdict_text
    with Evidence.open(database) as evidence:
        found = Source(evidence, "toy")
        written, answered = answer(found), words.lines(answer_to(found))
    assert tuple(seen.splitlines()[:3]) == written.lines[:3] == answered
    compared = written.data.get("comparisons")
    sentences = [one["sentence"] for one in compared.values()] if compared else [written.lines[0]]
    assert wanted in " ".join(sentences)
    terminal = " ".join(seen.splitlines())
    for sentence in sentences:
        assert sentence.rstrip(".") in terminal
