"""One verdict, one statement: every surface says the same of a subject.

No label stands without it.
"""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from assertions import assert_fields
from laboratory import rendered, source, study_json
from synthetic_lab import TWO_ARMS, make_lab, right

import gspo_lab
from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.stability import verdicts
from gspo_lab.analysis.stats import (
    Rule,
    Scores,
    decide_all,
)
from gspo_lab.analysis.stats.ranking import ranking
from gspo_lab.analysis.stats.verdict import Verdict, VerdictLabel
from gspo_lab.common.reason import Reason
from gspo_lab.common.text import signed
from gspo_lab.report.page import section_html
from gspo_lab.report.templating import between, statement
from gspo_lab.report.views.answer import answer_view
from gspo_lab.report.views.grounds import grounds_view
from gspo_lab.report.views.verdicts import tone
from gspo_lab.study import Run

ARMS = ("gspo", *(f"gspo-{width}" for width in range(5, 9)))
FIVE = TWO_ARMS + "".join(
    f'[arm.{arm}]\nobjective = "gspo"\nclip_low = {arm[-1]}e-4\nclip_high = {arm[-1]}e-4\n'
    for arm in ARMS[1:]
)
STABILITY = '[verdict]\nquestion = "stability"\nlast = 1\n'
BEST = {"grpo": 0.6, "gspo": 0.7}
END = {"grpo": 0.2, "gspo": 0.6}


def course(run: Run, step: int) -> float:
    """grpo rises to .6 and ends at .2, gspo rises to .7 and ends at .6; all others end at .05.

    Odd seeds: .05 more.
    """
    odd = 0.05 * (run.seed % 2)
    if not step:
        return 0.3
    if step < 12:
        return BEST.get(run.arm, 0.7) + odd
    return END.get(run.arm, 0.05) + odd * (run.arm == "gspo")


def test_a_study_of_stability_states_the_drop_from_best_everywhere(tmp_path: Path) -> None:
    """Of gains .4 and .3 (odd seeds .45 and .35) gspo drops .1, grpo .4 (.45).

    Its final score is .4 (.45) higher.
    """
    stability = make_lab(tmp_path, FIVE + STABILITY, seeds=5, change=right(course))
    with source(stability) as found:
        verdict = verdicts(found)["gspo"]
        score = decision(found).verdicts["gspo"]
        terminal = "\n".join(answer_view(found).lines)
        fold = section_html(grounds_view(found))
        ground = statement("grounds", answer(found))
        tones = {arm: (verdict.word, tone(verdict)) for arm, verdict in verdicts(found).items()}
    counts = ", ".join(["grpo 5", "gspo 0", *(f"{arm} 5" for arm in ARMS[1:])])
    assert f"Unstable, of 5: {counts}." in ground
    assert tones == {"gspo": ("more stable", "decided")} | dict.fromkeys(
        ARMS[1:], ("less stable", "worse")
    )
    assert_fields(verdict, question="stability", word="more stable", direction=1)
    even = 0.4 / 0.3 - 0.1 / 0.4
    odd = 0.45 / 0.35 - 0.1 / 0.45
    assert (verdict.estimate, score.estimate) == (
        pytest.approx((3 * even + 2 * odd) / 5),
        pytest.approx(0.42),
    )
    report = rendered(stability, "toy")
    assert 'class="word worse">less stable' in report.html
    assert 'class="word decided">less stable' not in report.html
    data = study_json(report)["answer"]
    with gspo_lab.open(stability.parent) as lab:
        frame = lab.study("toy").verdicts().set_index("arm")
    assert frame.loc["gspo", "estimate"] == verdict.estimate
    assert data["verdicts"]["gspo"]["estimate"] == pytest.approx(verdict.estimate, abs=1e-4)
    label = "gspo more stable than grpo"
    assert data["verdicts"]["gspo"]["label"] == frame.loc["gspo", "label"] == label
    for text in (fold, terminal, report.html, report.markdown):
        assert statement("sentence", verdict) in text
        assert statement("sentence", score) not in text, "the score is not the question"
        assert signed(verdict.estimate, 0.1) in text
    assert "gspo − grpo: +0.420" not in terminal


def test_a_worse_arm_is_never_called_better(tmp_path: Path) -> None:
    """gspo ends .4 below grpo: in Python, in the table of executions, on the page."""
    change = right(
        lambda run, step: (
            (0.7 if run.arm == "grpo" else 0.3) + 0.05 * (run.seed % 2) if step else 0.3
        )
    )
    database = make_lab(tmp_path, seeds=5, change=change)
    make_lab(tmp_path, TWO_ARMS.replace("{seeds}", "[5, 6, 7, 8, 9]"), name="again", change=change)
    said = "gspo worse than grpo by more than the margin"
    with gspo_lab.open(database.parent) as lab:
        row = lab.study("toy").verdicts().iloc[0]
    assert_fields(
        row,
        label=said,
        direction=-1,
        word="worse by more than the margin",
        estimate=pytest.approx(-0.4),
    )
    report = rendered(database, "toy")
    data = study_json(report)["replications"]
    assert [one["label"] for one in data["words"]] == [said]
    rows = [
        line for line in report.markdown.splitlines() if line.startswith(("| toy ", "| again "))
    ]
    assert len(rows) == 2
    assert all(f"| {said} |" in line for line in rows)
    for wrong in ("gspo better than", "gspo is better than"):
        assert wrong not in report.html + report.markdown


def test_an_adjusted_interval_is_stated_where_it_decides() -> None:
    """p = .0293 alone excludes 0 and does not pass .05 / 3.

    t = 2.6 / sqrt(5/6) on 6 degrees. So the stored interval must be the wider one.
    """
    pattern = np.array([-2, -1, 0, 1, 2]) / np.sqrt(2.5)
    shifted = [pattern + 2.6 / np.sqrt(5), pattern, pattern + 0.1]
    arms = [Scores(np.zeros(5), one, ("grpo", f"arm{i}")) for i, one in enumerate(shifted)]
    first, *rest = decide_all(arms, Rule(0.02))
    assert (first.word, first.paired.low is not None and first.paired.low > 0) == (
        "inconclusive",
        True,
    )
    shown = between(*first.interval, None, first.margin)
    assert statement("adjusted", first) == f"{shown} (98.3 %)"
    assert not any(statement("adjusted", one) for one in rest if one.level == one.alpha)


def test_a_verdict_moves_both_of_its_arms_ranks() -> None:
    """Three arms with one score each seed and no test among them.

    The verdict alone distinguishes a from c.
    """
    scores = {"a": [0.5, 0.4, 0.6], "b": [0.5, 0.6, 0.4], "c": [0.4, 0.5, 0.6]}
    found = ranking(scores, 0.05, lambda first, second: None, [("a", "c")])
    assert {one.arm: (one.best_rank, one.worst_rank) for one in found.places} == {
        "a": (1, 2),
        "b": (1, 3),
        "c": (2, 3),
    }
    assert (
        statement("ranking", found)
        == "Any of a or b may be the best of the 3 arms: 1 of 3 pairs of arms differ over 3 seeds."
    )


@pytest.mark.parametrize("word", get_args(VerdictLabel))
@pytest.mark.parametrize("baseline", ["grpo", None])
def test_every_label_and_sentence_names_its_subject(
    word: VerdictLabel, baseline: str | None
) -> None:
    favourable = word.startswith(("better", "more", "supported"))
    direction = favourable - word.startswith(("worse", "less", "contradicted"))
    of_claims = word in ("supported", "contradicted")
    verdict = Verdict(
        question="score",
        subject="gspo",
        baseline=baseline,
        word=word,
        estimate=None,
        interval=None,
        level=0.05,
        reasons=(Reason("not-matched", "other weights"),),
    )
    for name, told in (("label", verdict), ("sentence", verdict), ("headline", [verdict, verdict])):
        text = statement(name, told)
        assert "gspo" in text
        assert verdict.direction == direction
        assert baseline is None or of_claims or baseline in text
        assert "{" not in text
        assert ("better" in text) <= (direction > 0)
