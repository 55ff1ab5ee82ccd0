"""Imported scores: which seeds are compared."""

from pathlib import Path

import pytest
from case_tables import cases
from laboratory import rendered
from logs import brought, csv_of, opened

from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import Strings
from gspo_lab.recording.store import ingest
from gspo_lab.report.templating import statement
from gspo_lab.report.terminal import arms_table
from gspo_lab.report.views.answer import answer_view


def imported(folder: Path, *rows: str, columns: str = "arm,seed,score") -> Path:
    brought(folder, "csv", csv_of(folder / "scores.csv", columns, *rows), "--study", "mine")
    ingest(folder / "runs")
    return folder / "runs" / "lab.db"


@pytest.mark.parametrize(
    ("rows", "runs", "said"),
    cases(__file__, "arms_are_compared_on_the_seeds_that_all_have"),
)
def test_arms_are_compared_on_the_seeds_that_all_have(
    tmp_path: Path, rows: Strings, runs: str, said: list[str]
) -> None:
    page = rendered(imported(tmp_path, *rows), "mine")
    with opened(tmp_path) as evidence:
        found = Source(evidence, "mine")
        decided = decision(found)
        stated = answer(found)
        counted = arms_table(answer_view(found)).columns[1]
    assert " ".join(map(str, counted.cells)) == runs
    assert decided.seeds == (1, 2, 3)
    assert decided.verdicts["b"].estimate == pytest.approx(0.08)
    for sentence in said:
        assert sentence in statement("grounds", stated)
        assert sentence[1:] in page.html
    assert "missing" not in statement("answer", stated) + statement("grounds", stated)
    assert "not imported" not in page.html
    levels = stated.levels["b"]
    assert levels.subject.final is not None
    assert levels.baseline.final is not None
    assert levels.subject.final - levels.baseline.final == pytest.approx(0.08)


def test_without_a_common_seed_nothing_is_compared_and_nothing_is_missing(tmp_path: Path) -> None:
    imported(tmp_path, "a,1,.5", "a,2,.5", "b,3,.6", "b,4,.6")
    with opened(tmp_path) as evidence:
        stated = answer(Source(evidence, "mine"))
    assert (
        statement("answer", stated)
        == "No verdict: no seed has a run of every arm, so that no pair can be made."
    )
    assert statement("grounds", stated).split(" Not compared: ") == [
        "Not compared: seeds 1, 2 of a, which not every arm has.",
        "seeds 3, 4 of b, which not every arm has.",
    ]
    assert "give runs that belong together the same seed" in stated.command
