"""What a difference of final scores is between: start, best evaluation and end of both sides."""

import io
import re
from pathlib import Path

import pytest
from assertions import assert_fields
from case_tables import cases
from laboratory import rendered, source
from rich.console import Console
from synthetic_lab import FOUR_ARMS, TWO_ARMS, Change, each, make_lab, right

from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.reference_levels import (
    ReferenceLevels,
    ScoreLevels,
    reference_levels,
    score_levels,
)
from gspo_lab.analysis.stats import paired_t
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records import UpdateRecord
from gspo_lab.report.templating import statement
from gspo_lab.report.terminal import print_answer
from gspo_lab.report.views.answer import answer_view
from gspo_lab.study import Run

LAST = "[verdict]\nlast = 1\n"


def levels(**scores: tuple[float, float, float]) -> Change:
    """Scores of each arm at the start, at step 4 and at the end; odd seeds lie .05 higher."""

    def share(run: object, step: int) -> float:
        start, best, final = scores[run.arm]  # type: ignore[attr-defined]
        score: float = {0: start, 4: best}.get(step, final)
        return score + 0.05 * (run.seed % 2)  # type: ignore[attr-defined]

    return right(share)


def test_better_is_loses_less_where_both_end_below_their_start(tmp_path: Path) -> None:
    """grpo: .5, .7, .2; gspo: .5, .6, .45 (odd seeds + .05).

    gspo keeps (.45 - .5) / .1, and is .1 behind at the best evaluation.
    """
    change = levels(grpo=(0.5, 0.7, 0.2), gspo=(0.5, 0.6, 0.45))
    chosen = 'chosen = "at the rate where both lose"'
    database = make_lab(tmp_path, TWO_ARMS + LAST + chosen, seeds=5, change=change)
    with source(database) as study:
        said = answer(study)
        found = reference_levels(study)["gspo"]
    assert found.both_lose
    assert found.opposite_at_best
    assert found.at_best.estimate == pytest.approx(-0.1)
    assert_fields(
        found.subject,
        start=pytest.approx(0.52),
        best=pytest.approx(0.62),
        final=pytest.approx(0.47),
        kept=pytest.approx(-0.5),
    )
    assert found.baseline.kept == pytest.approx(-1.5)
    assert statement("answer_label", said) == "gspo loses less than grpo, by more than the margin"
    text = statement("answer", said)
    assert text.startswith("gspo loses less than grpo on this one starting model, by more than")
    assert "Both end below their start." in text
    assert "At each run's best evaluation the sign is the opposite: gspo − grpo −0.1" in text
    assert statement("grounds", said).startswith(
        "Start, best evaluation, end: grpo 0.520, 0.720, 0.220 (keeps less than nothing of its best"
        " gain); gspo 0.520, 0.620, 0.470"
    )
    screen = rendered(database).html.partition('<p class="next">')[0].replace("\u00a0", " ")
    for told in (
        "gspo loses less than grpo",
        "Score: the share of right answers on addition, from 0 to 1",
        "Unstable: a run that collapsed, regressed, or ended below half of its best score",
        "How the settings were chosen: at the rate where both lose",
    ):
        assert told in screen


def test_a_gain_that_is_kept_changes_no_headline(tmp_path: Path) -> None:
    change = levels(grpo=(0.2, 0.5, 0.4), gspo=(0.2, 0.8, 0.75))
    database = make_lab(tmp_path, TWO_ARMS + LAST, seeds=5, change=change)
    with source(database) as study:
        said = answer(study)
        arms = score_levels(study)
    assert arms["gspo"].kept == pytest.approx(0.55 / 0.6)
    assert arms["grpo"].kept == pytest.approx(2 / 3)
    assert statement("answer_label", said) == "gspo better than grpo by more than the margin"
    text = statement("answer", said)
    assert "below their start" not in text
    assert "sign is the opposite" not in text
    assert "gspo 0.220, 0.820, 0.770 (keeps 92 % of its best gain)" in statement("grounds", said)
    assert "How the settings were chosen: not declared." in rendered(database).markdown


def test_without_a_score_of_the_start_no_level_is_invented(tmp_path: Path) -> None:
    """An import whose log begins after the first step."""
    drop = right(lambda run, step: 0.5)
    database = make_lab(
        tmp_path,
        TWO_ARMS + LAST,
        seeds=3,
        change=lambda run, one: (
            None if getattr(one, "bench", "") and one.step == 0 else drop(run, one)
        ),
    )
    with source(database) as study:
        found = reference_levels(study)["gspo"]
        assert statement("grounds", answer(study)).startswith("Margin")
    assert_fields(found.subject, start=None, kept=None)
    assert not found.both_lose


def test_the_sides_of_a_contrast_are_weighed(tmp_path: Path) -> None:
    contrast = (
        "contrast = {{gspo = 1, gspo-replay = 1, grpo = -1, grpo-replay = -1}}\n"
        'names = ["sequence", "token"]\n'
    )
    scores = {"grpo": 0.4, "grpo-replay": 0.5, "gspo": 0.6, "gspo-replay": 0.7}
    change = levels(**{arm: (0.2, 0.9, end) for arm, end in scores.items()})
    with source(make_lab(tmp_path, FOUR_ARMS + LAST + contrast, seeds=3, change=change)) as study:
        found = reference_levels(study)["sequence"]
    assert (found.baseline.name, found.subject.name) == ("token", "sequence")
    assert found.baseline.final == pytest.approx(0.45 + 0.05 / 3)
    assert found.subject.final == pytest.approx(0.65 + 0.05 / 3)


def test_the_regime_is_said_and_the_table_shows_the_clipped_share_of_the_gradient(
    tmp_path: Path,
) -> None:
    def clipped(run: Run, record: UpdateRecord) -> JsonObject:
        return {"clip_fraction_gradient": {"grpo": 0.1, "gspo": 0.63}[run.arm]}

    database = make_lab(tmp_path, change=each(UpdateRecord, clipped))
    terminal = Console(file=(printed := io.StringIO()), width=1000)
    with source(database) as study:
        print_answer(answer_view(study), terminal)
    for output in (printed.getvalue(), rendered(database).html.replace("\u00a0", " ")):
        assert "Regime: grpo clips 10 % of the gradient and gspo 63 %" in output
        assert "so at one learning rate their effective steps differ." in output
        assert re.search(r"\d %, 10 %.*\d %, 63 %", output, re.S)


def test_the_regime_by_pencil() -> None:
    """The larger share that is kept over the smaller: .999 / .979 and .61 / .5 are below 1.25."""
    for grpo, gspo, regime in cases(__file__, "regimes"):
        sides = [ScoreLevels("", 0, 0, 0, share, None) for share in (grpo, gspo)]
        assert ReferenceLevels(sides[0], sides[1], paired_t([]), 0).regime == regime
