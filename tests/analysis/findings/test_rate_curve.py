"""`[verdict] over`: score against a swept setting, from a real database."""

from pathlib import Path

import pytest
from case_tables import cases
from laboratory import json_of, rendered, source, study_json
from synthetic_lab import make_lab, right

from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.rate_curve import RateCurve, rate_curve
from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.errors import LabError
from gspo_lab.recording.store import ingest
from gspo_lab.report.templating import statement
from gspo_lab.study import Run, load_study
from gspo_lab.study.declaration import locked_of

TOML = """
question = "Which rule gets further at its own best rate?"
model = "tiny-qwen3"
task = "addition"
seeds = [0, 1, 2]
steps = 4
[sweep]
update.learning_rate = [1e-4, 1e-3, 1e-2]
[verdict]
over = "update.learning_rate"
margin = 0.05
[[bench]]
name = "addition"
every = 4
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""

# Of 20 answers so many are right: by arm and rate, one number a seed.
BySeed = dict[str, list[int]]
RIGHT: BySeed = cases(__file__, "right")


def lab(folder: Path, scores: BySeed = RIGHT, toml: str = TOML) -> Path:
    def share(run: Run, step: int) -> float:
        return scores[run.arm][run.seed] / 20 if step else 0.0

    return make_lab(folder, toml, name="rates", steps=4, change=right(share))


def curve_of(database: Path) -> RateCurve:
    with source(database, "rates") as study:
        curve = rate_curve(study)
    assert curve is not None
    return curve


def test_each_arm_is_judged_at_its_own_best_value(tmp_path: Path) -> None:
    curve = curve_of(lab(tmp_path))
    grpo, gspo = curve.curves
    assert (grpo.best, gspo.best) == ((1e-4, 1e-4, 1e-4), (1e-3, 1e-3, 1e-3))
    assert grpo.height == pytest.approx((16 + 17 + 18) / 60)
    assert gspo.height == pytest.approx((16 + 17 + 17) / 60)
    assert [point.score for point in grpo.points] == pytest.approx([0.85, 43 / 60, 0.15])
    (comparison,) = curve.comparisons
    # Heights differ by 0, 0 and -1 of 20 answers.
    assert comparison.verdict.paired.differences == pytest.approx((0.0, 0.0, -0.05))
    assert [value for value, _ in comparison.differences] == [1e-4, 1e-3, 1e-2]
    assert comparison.differences[0][1].estimate == pytest.approx(-0.25)
    assert comparison.differences[2][1].estimate == pytest.approx(0.15)


def test_the_place_of_the_peaks_and_what_is_near_them(tmp_path: Path) -> None:
    curve = curve_of(lab(tmp_path))
    grpo, gspo = curve.curves
    assert (grpo.inside, gspo.inside) == (False, True)
    # GRPO falls from .8, .85, .9 to .7, .7, .75: .05 below its peak after 1/2, 1/3, 1/3 of it.
    grpo_above = (1 / 2 + 1 / 3 + 1 / 3) / 3
    assert grpo.near == pytest.approx((1e-4, 1e-4 * 10**grpo_above))
    (comparison,) = curve.comparisons
    # Each seed's parabola over log10: (11, 16, 6), (12, 17, 5), (13, 17, 7) of 20.
    vertices = [
        slope / (2 * curvature) for slope, curvature in ((-2.5, 7.5), (-3.5, 8.5), (-3.0, 7.0))
    ]
    wanted = 10 ** (1 + sum(vertices) / 3)
    assert comparison.place.estimate == pytest.approx(wanted)
    # Near the peak: from -1/5, -1/5, -1/4 to 1/10, 1/12, 1/10 around GSPO's at .001.
    above = (1 / 10 + 1 / 12 + 1 / 10) / 3
    assert comparison.upper.estimate == pytest.approx(10 ** (1 + above - grpo_above))
    below = (1 / 5 + 1 / 5 + 1 / 4) / 3
    assert comparison.width.estimate == pytest.approx(10 ** (above + below - grpo_above))


LOST: BySeed = cases(__file__, "lost")


def test_at_the_own_best_values_better_is_loses_less_where_both_end_below_their_start(
    tmp_path: Path,
) -> None:
    """Start .5, best evaluation .8 and .7; both curves end below .5 at every rate.

    On seed 0 gspo ends highest at .01, but the other seeds choose .001.
    """

    def share(run: Run, step: int) -> float:
        early = {0: 0.5, 2: 0.8 if run.arm.startswith("grpo") else 0.7}
        return early.get(step, LOST[run.arm][run.seed] / 20)

    toml = TOML.replace("every = 4", "every = 2").replace("over =", "last = 1\nover =")
    database = make_lab(tmp_path, toml, name="rates", steps=4, change=right(share))
    with source(database, "rates") as study:
        text = statement("answer", answer(study))
        ground = statement("grounds", answer(study))
    assert text.startswith("gspo loses less than grpo with each at its own best learning rate")
    assert "Both end below their start. At each run's best evaluation the sign is the opp" in text
    assert ground.startswith(
        "Start, best evaluation, end, with each at its own best learning rate, on this one starting"
        " model: grpo 0.500, 0.800, 0.317 (keeps less than nothing of its best gain); gspo 0.500,"
        " 0.700, 0.483 (keeps less"
    )
    report = rendered(database, "rates")
    assert ground in report.markdown
    assert "Each arm at its own best value: 1.9 % false words" in report.markdown
    (compared,) = study_json(report, "rates")["answer"]["curve"]["comparisons"]
    # (29 / 60 - .5) / .2, and (19 / 60 - .5) / .3
    assert compared["levels"]["subject"]["kept"] == pytest.approx(-1 / 12, abs=1e-6)
    assert compared["levels"]["baseline"]["kept"] == pytest.approx(-11 / 18, abs=1e-6)


def test_the_answer_says_where_the_peaks_lie_and_where_the_sign_is_the_same(
    tmp_path: Path,
) -> None:
    with source(lab(tmp_path), "rates") as study:
        said = answer(study)
    assert "gspo differs from grpo with each at its own best learning rate" in statement(
        "answer", said
    )
    ground = statement("grounds", said)
    assert "grpo 0.850 at 0.0001; gspo 0.833 at 0.001" in ground
    assert "same sign on every seed: at 0.0001 −0.250, at 0.001 +0.117, at 0.01 +0.150" in ground
    assert "The peak of grpo lies at an end of the values that were tried" in ground


def test_a_rate_that_was_added_after_looking_does_not_count(tmp_path: Path) -> None:
    """At .1, where every answer of grpo is right."""
    four = TOML.replace("1e-2]", "1e-2, 1e-1]")
    database = lab(tmp_path, RIGHT | {"grpo@0.1": [20, 20, 20], "gspo@0.1": [1, 2, 3]}, four)
    path = database.parent / "rates" / "study.json"
    content = json_of(path)
    first = locked_of(content) | {"arms": {arm: content["arms"][arm] for arm in RIGHT}}
    write_json(path, content | {"superseded": [first]})
    ingest(database.parent)
    grpo, _ = curve_of(database).curves
    assert len(grpo.points) == 3
    assert grpo.height == pytest.approx((16 + 17 + 18) / 60)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    cases(__file__, "refused"),
)
def test_a_study_that_cannot_be_judged_over_a_key_is_refused(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    path = tmp_path / "wrong.toml"
    assert old in TOML
    path.write_text(TOML.replace(old, new))
    with pytest.raises(LabError) as refusal:
        load_study(path)
    assert told in " ".join(refusal.value.details)


def test_recorded_curves_of_the_main_study_s_model() -> None:
    """The published reading of a recorded execution: .802 and .794 at 1e-4 and 2e-4."""
    import numpy as np
    import pandas as pd
    from public_data import public

    from gspo_lab.analysis.stats.peaks import best_without_seed, peak_heights

    frame = pd.read_csv(public("rate_curve/rate_curve.csv"))
    late = frame[frame["step"] >= 14]
    scores = late.groupby(["rule", "seed", "learning_rate"])["score"].mean().unstack()
    values = np.array(scores.columns)
    for rule, height, place in (("grpo", 0.802, 1e-4), ("gspo", 0.794, 2e-4)):
        table = scores.loc[rule].to_numpy()
        assert peak_heights(table).mean() == pytest.approx(height, abs=5e-4)
        assert values[best_without_seed(table)].tolist() == [place] * 3
        assert np.isfinite(table).all()
