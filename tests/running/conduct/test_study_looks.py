"""Declared looks: a study stops at the first one that resolves it.

Seeds added later change no verdict.
"""

from pathlib import Path

import pytest
from calling import lab_error
from counting import Bench, answer_in

from gspo_lab.analysis.findings.decision import Decision
from gspo_lab.analysis.findings.decision import decision as decision_of
from gspo_lab.analysis.readings import Source
from gspo_lab.common.reason import sentences
from gspo_lab.recording.store import Evidence
from gspo_lab.report.templating import statement

FAR = {"a/s0": 1, "a/s1": 1, "a/s2": 1, "b/s0": 8, "b/s1": 9, "b/s2": 8}
"""Differences of .7, .8, .7 on the first three seeds pass any look's level.

t = .733 / (.0577 / sqrt 3) = 22.
"""
NEAR = {"a/s0": 5, "a/s1": 5, "a/s2": 5, "b/s0": 6, "b/s1": 4, "b/s2": 5}
LOOKS = "\n[verdict]\nlooks = [3, 5]\n"


@pytest.fixture
def looked(bench: Bench) -> Bench:
    bench.seeds = [0, 1, 2, 3, 4]
    bench.steps = 2
    bench.verdict = LOOKS
    bench.right = FAR
    return bench


def begun(bench: Bench) -> list[str]:
    return sorted(
        str(entry.parent.relative_to(bench.home))
        for entry in bench.home.glob("[ab]/s*/journal.jsonl")
    )


def decision(runs: Path) -> Decision:
    with Evidence.open(runs / "lab.db", runs) as evidence:
        return decision_of(Source(evidence, "count"))


def test_the_first_look_that_resolves_ends_the_study_and_a_resumed_one_honours_it(
    looked: Bench,
) -> None:
    result, output = looked.conduct()
    initial = ["a/s0", "a/s1", "a/s2", "b/s0", "b/s1", "b/s2"]
    assert begun(looked) == initial
    assert "resolved at the look after 3 of 5 seeds; saved: 4 declared runs not begun" in output
    assert result.exit_code == 0
    answer = answer_in(looked.runs)
    assert "b is better than a" in answer.answer.said
    assert "Resolved at the declared look after 3 of 5 seeds." in answer.details
    again, output = looked.conduct()
    assert (begun(looked), again.exit_code, "resolved at the look" in output) == (initial, 0, True)
    looked.verdict = "\n[verdict]\nlooks = [3, 4]\n"  # they are part of what is locked
    with lab_error(r"other settings \(verdict.looks"):
        looked.conduct()


def test_later_seeds_wait_for_a_look_that_lacks_runs_or_resolves_nothing(looked: Bench) -> None:
    looked.right = NEAR
    looked.fail = {"b/s1": "lab"}
    result, output = looked.conduct()
    assert [name for name in begun(looked) if name.endswith(("s3", "s4"))] == []
    assert (
        "the look after 3 seeds cannot be taken yet (b seed 1 failed); later seeds wait for it"
        in output
    )
    assert result.exit_code == 2
    looked.fail = {}
    result, output = looked.conduct()
    assert (result.exit_code, len(begun(looked))) == (0, 10)
    assert "resolved at the look" not in output
    assert decision(looked.runs).seeds == (0, 1, 2, 3, 4)


def test_seeds_added_later_are_description(bench: Bench) -> None:
    bench.seeds = [0, 1, 2]
    bench.steps = 2
    bench.right = FAR
    bench.conduct()
    original = decision(bench.runs).verdicts["b"]
    # Two more pairs that turn the sign: were they counted, nothing would be resolved.
    bench.seeds = [0, 1, 2, 3, 4]
    bench.right = {**FAR, "a/s3": 9, "b/s3": 1, "a/s4": 9, "b/s4": 0}
    _result, output = bench.conduct()
    assert "noted in study.json: seeds added: 3, 4; seeds that are added after" in output
    changed = decision(bench.runs)
    assert len(begun(bench)) == 10
    assert (changed.seeds, statement("sentence", changed.verdicts["b"])) == (
        (0, 1, 2),
        statement("sentence", original),
    )
    described = sentences(changed.described)
    assert described[0] == "Not counted: 2 pairs of other seeds (3, 4), b − a −0.850."
    assert described[0] in answer_in(bench.runs).details
