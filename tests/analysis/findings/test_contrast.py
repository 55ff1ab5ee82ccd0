"""Of three arms and more: a declared contrast, a declared order, and which arm may be the best."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assertions import assert_fields
from laboratory import rendered, source, study_json
from synthetic_lab import FOUR_ARMS, TWO_ARMS, make_lab, right

from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.executions import all_executions
from gspo_lab.analysis.findings.paired_comparisons import ranked
from gspo_lab.analysis.findings.stability import verdicts
from gspo_lab.analysis.stats import Rule, Scores, decide_all
from gspo_lab.analysis.stats.levels import fixed_sequence
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records import Record, StepRecord
from gspo_lab.report import Report
from gspo_lab.report.templating import statement
from gspo_lab.running.plan.detectable_effect import detectable
from gspo_lab.study import Run, Study, load_study
from gspo_lab.study.contrast import formula, sides

RULE = "contrast = {gspo = 0.5, gspo-replay = 0.5, grpo = -0.5, grpo-replay = -0.5}\n"
NOISE = {"grpo": (0.0, 0.1, 0.0, 0.1, 0.0), "grpo-replay": (0.1, 0.0, 0.1, 0.0, 0.1)}


def scored(run: Run, step: int) -> float:
    """Rules differ by .2.

    Seeds move grpo and grpo-replay to opposite sides by .1, so that a pair is noisy.
    """
    level = (0.6 if run.arm.startswith("gspo") else 0.35) + NOISE.get(run.arm, (0.0,) * 5)[run.seed]
    return level if step else 0.3


def test_the_contrast_answers_the_study_and_stands_in_every_surface(tmp_path: Path) -> None:
    """The contrast is .2 on every seed, without a spread; each pair has one of .05.

    (gspo + gspo-replay) / 2 is .6; (grpo + grpo-replay) / 2 is .35 + .05.
    """
    escaped = RULE.replace("{", "{{").replace("}", "}}")
    database = make_lab(
        tmp_path, FOUR_ARMS + f"[verdict]\n{escaped}", seeds=5, change=right(scored)
    )
    with source(database) as found:
        (verdict,) = verdicts(found).values()
        said = answer(found)
        pair = decision(found).verdicts["gspo"]
    assert_fields(
        verdict,
        question="contrast",
        subject="(gspo + gspo-replay) / 2",
        baseline="(grpo + grpo-replay) / 2",
    )
    assert verdict.paired.differences == pytest.approx([0.2] * 5)
    assert pair.paired.differences == pytest.approx([0.25, 0.15, 0.25, 0.15, 0.25])
    assert said.verdicts == (verdict,)
    report = rendered(database, "toy")
    data = study_json(report)["answer"]["verdicts"]
    assert list(data) == [verdict.subject]
    assert statement("sentence", verdict) in report.html
    assert statement("sentence", verdict) in report.markdown
    assert "The last row is the declared contrast" in report.html
    assert "Errors</a> <span>alpha 0.05</span>" in report.html, "the contrast has all of it"


NAMES = ("GSPO over replay", "GRPO over replay")


def test_its_names_stand_in_every_surface_of_runs_that_were_made_without_them(
    tmp_path: Path,
) -> None:
    """.7 and .75 less .4 are .3 on three seeds and .35 on two.

    Only the later of two executions has names. Its report states both executions under them, and
    takes the former for the same study. The former's report keeps its formulas. A third one with
    the names exchanged says the opposite of the same scores: it is another study.
    """

    def higher(run: Run, step: int) -> float:
        return scored(run, step) + (0.1 + 0.05 * (run.seed % 2)) * (
            run.arm.startswith("gspo") and step > 0
        )

    escaped = RULE.replace("{", "{{").replace("}", "}}")
    toml = FOUR_ARMS + f"[verdict]\n{escaped}"
    make_lab(tmp_path, toml, name="first", seeds=5, change=right(scored))
    named = f'{toml}names = ["{NAMES[0]}", "{NAMES[1]}"]\n'
    database = make_lab(tmp_path, named, name="second", seeds=5, change=right(higher))
    exchanged = f'{toml}names = ["{NAMES[1]}", "{NAMES[0]}"]\n'
    make_lab(tmp_path, exchanged, name="third", seeds=5, change=right(higher))
    with source(database, "third") as third:
        assert verdicts(third).keys() == {NAMES[1]}
        assert [one.name for one in all_executions(third).executions] == ["first", "third"]
    report = rendered(database, "second")
    sentence = f"{NAMES[0]} is better than {NAMES[1]} by more than the margin"
    for text in (report.html, report.markdown, " ".join(report.lines), report.json):
        assert sentence in text
    data = study_json(report, "second")
    assert list(data["answer"]["verdicts"]) == [NAMES[0]]
    compared = data["answer"]["comparisons"][NAMES[0]]
    wider = compared["new_problems"]
    low = wider["low"]
    high = wider["high"]
    assert wider["estimate"] == pytest.approx(0.32)
    assert low < compared["paired"]["low"] < compared["paired"]["high"] < high
    assert f"new problems too {low:+.2f} to {high:+.2f}" in report.markdown.replace("−", "-")
    badge = f"New problems</a> <span>{low:+.2f} to {high:+.2f}</span>"
    assert badge in report.html.replace("−", "-"), "the contrast's, not an arm's"
    assert [list(execution["comparisons"]) for execution in data["replications"]["executions"]] == [
        [NAMES[0]]
    ] * 2
    assert "It compares (gspo + gspo-replay) / 2 with (grpo + grpo-replay) / 2." in report.html
    columns = data["curves"]["figures"]["m-score-addition"]["columns"]
    rows = data["curves"]["figures"]["m-score-addition"]["rows"]
    assert columns[-2:] == [NAMES[1], NAMES[0]]
    last = dict(zip(columns, rows[-1], strict=True))
    assert last[NAMES[0]] == pytest.approx((last["gspo"] + last["gspo-replay"]) / 2)
    assert last[NAMES[1]] == pytest.approx((last["grpo"] + last["grpo-replay"]) / 2)
    shown = data["curves"]["figures"]["m-score-addition-difference"]
    assert shown["columns"] == ["step", NAMES[0]]
    assert shown["rows"][-1][1] == pytest.approx(0.32)
    assert f"{NAMES[0]} − {NAMES[1]}, final score: +0.32" in report.html
    arms = report.markdown.partition("## Answer")[2].partition("\n## ")[0]
    assert [line.split(" | ")[0] for line in arms.splitlines() if line.startswith("| g")] == [
        f"| {arm}" for arm in ("grpo", "grpo-replay", "gspo", "gspo-replay")
    ]
    assert f"| {NAMES[0]} against {NAMES[1]} | – | +0.3" in arms
    former = json.loads(rendered(database, "first").json)["studies"]["first"]
    assert [
        list(execution["comparisons"]) for execution in former["replications"]["executions"]
    ] == [["(gspo + gspo-replay) / 2"]] * 3


def test_weights_are_normalised_and_named() -> None:
    assert sides({"a": 1, "b": 1, "c": -1, "d": -1}) == ({"c": 0.5, "d": 0.5}, {"a": 0.5, "b": 0.5})
    assert formula({"a": 0.5, "b": 0.5}) == "(a + b) / 2"
    assert formula({"a": 1.0}) == "a"
    assert formula({"a": 0.75, "b": 0.25}) == "0.75 a + 0.25 b"


def declared(folder: Path, verdict: str = "", **how: Any) -> Study:
    """The study of four arms with this rule."""
    path = folder / "toy.toml"
    path.write_text(
        FOUR_ARMS.format(seeds=5, steps=12, every=4) + (f"[verdict]\n{verdict}" if verdict else "")
    )
    return load_study(path, **how)


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (
            RULE.replace("gspo-replay", "gspo-reply"),
            "verdict.contrast: no arm 'gspo-reply' (did you mean 'gspo-replay'?)",
        ),
        (
            RULE.replace("-0.5}", "-0.4}"),
            "verdict.contrast: the weights sum to 0.1; let them sum to 0",
        ),
        (
            "contrast = {gspo = 0.5, gspo-replay = 0.5, grpo = -1}\n",
            "verdict.contrast: unbalanced, it compares",
        ),
        (f'{RULE}names = ["gspo", "b"]\n', "verdict.names: 'gspo' is an arm"),
        (f'{RULE}names = ["a", "a"]\n', "verdict.names: two different names"),
        ('names = ["a", "b"]\n', "verdict.names: two different names"),
        (
            f'question = "stability"\n{RULE}',
            "verdict.contrast: a contrast is of final scores and answers",
        ),
        ('order = ["gspo", "gspo-replay", "grpo-reply"]\n', "verdict.order: no arm 'grpo-reply'"),
        ('order = ["gspo", "gspo-replay"]\n', "verdict.order: 'grpo-replay' is missing"),
        ('order = ["grpo", "gspo"]\n', "verdict.order: 'grpo' is the baseline"),
        (
            f'order = ["gspo", "gspo-replay", "grpo-replay"]\n{RULE}',
            "verdict.order: a contrast is one comparison",
        ),
    ],
)
def test_bad_declarations_are_one_line_each(tmp_path: Path, verdict: str, line: str) -> None:
    with pytest.raises(LabError) as raised:
        declared(tmp_path, verdict)
    assert len(raised.value.details) == 1
    assert raised.value.details[0].startswith(line)


def test_a_contrast_over_an_arm_that_is_left_out_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LabError) as raised:
        declared(tmp_path, RULE, arms=["grpo", "gspo", "grpo-replay"])
    (line,) = raised.value.details
    assert line.startswith(
        "verdict.contrast: arm 'gspo-replay' is declared and not run; add it to --arms"
    )


def test_an_interaction_is_balanced(tmp_path: Path) -> None:
    study = declared(
        tmp_path, "contrast = {gspo-replay = 0.5, gspo = -0.5, grpo-replay = -0.5, grpo = 0.5}\n"
    )
    assert study.verdict.contrast is not None


def test_the_plan_of_a_declared_contrast_is_of_the_contrast(tmp_path: Path) -> None:
    """A given sd is the contrast's.

    The factor is 1.365 of .1 at the whole alpha, on 12 degrees of freedom.
    """
    found = detectable(declared(tmp_path, RULE), tmp_path / "runs", 0.1)
    assert found.effect == pytest.approx(0.1365, abs=5e-4)
    assert "sd of the contrast: 0.100, assumed" in found.line()


def test_the_plan_of_a_contrast_rests_on_earlier_runs_of_its_arms(tmp_path: Path) -> None:
    """The contrast's spread is that of gspo and gspo-replay; a pair's differs from it.

    grpo and grpo-replay lie .1 apart on each seed and their mean does not move. So the spread is
    the seed's: 0, .1, .2, .3, .4, sd .1581.
    """
    escaped = RULE.replace("{", "{{").replace("}", "}}")

    def score(run: Run, step: int) -> float:
        level = 0.5 + run.seed / 10 if run.arm.startswith("gspo") else 0.35
        return level + NOISE.get(run.arm, (0.0,) * 5)[run.seed] if step else 0.3

    database = make_lab(tmp_path, FOUR_ARMS + f"[verdict]\n{escaped}", seeds=5, change=right(score))
    found = detectable(load_study(tmp_path / "studies" / "toy.toml"), database.parent)
    assert found.sd == pytest.approx(0.1581, abs=1e-4)
    assert found.basis.endswith("of these very arms")


def test_a_declared_order_spends_alpha_once_at_a_time() -> None:
    # .04 and .03 pass .05 in order; Holm asks .05 / 3 of the smallest. The fourth stands behind .2.
    p = [0.03, 0.04, 0.2, 0.001]
    assert [step.rejected for step in fixed_sequence(p, [1, 0, 2, 3], 0.05)] == [
        True,
        True,
        False,
        False,
    ]
    pattern = np.array([-2, -1, 0, 1, 2]) / np.sqrt(2.5)
    t = {"first": 2.6, "second": 0.5, "third": 6.0}  # p .029, .60, .0006 on 6 degrees of freedom
    arms = [
        Scores(np.zeros(5), pattern + value / np.sqrt(5), ("base", name))
        for name, value in t.items()
    ]
    first, second, third = decide_all(arms, Rule(0.01, order=("first", "second", "third")))
    assert first.resolved
    assert not second.resolved
    assert_fields(
        third,
        word="inconclusive",
        because="second, which the declared order tests before it, is inconclusive",
    )
    assert [one.resolved for one in decide_all(arms, Rule(0.01))] == [False, False, True]


THREE = TWO_ARMS + '[arm.third]\nobjective = "gspo-token"\n'


def answer_in(report: Report) -> Any:
    return study_json(report)["answer"]


@pytest.mark.parametrize(
    ("third", "said"),
    [
        (14, "The best of the 3 arms is third: 2 of 3 pairs of arms differ over 3 seeds."),
        (8, "Any of the 3 arms may be the best: none of 3 pairs of arms differ over 3 seeds."),
    ],
)
def test_report_terminal_and_json_say_the_same_of_three_arms(
    tmp_path: Path, third: int, said: str
) -> None:
    """6 more problems on every seed exceed the sampling spread.

    8 like the others are equal scores.
    """
    ends = {"grpo": 8, "gspo": 8, "third": third}
    change = right(lambda run, step: (ends[run.arm] + run.seed if step else 5) / 20)
    report = rendered(make_lab(tmp_path, THREE, change=change), "toy")
    data = answer_in(report)["ranking"]
    assert data["sentence"] == said
    assert said in answer_in(report)["answer"]["rests_on"]
    assert said in report.markdown
    assert said in report.lines[1]
    assert "rank interval" in report.html
    places = {one["arm"]: (one["place"], one["by_seed"]) for one in data["places"]}
    assert places["third"] == (1, [1, 1, 1])
    assert places["grpo"] == places["gspo"] == ((2, [2, 2, 2]) if third > 8 else (1, [1, 1, 1]))


def other_prompts(run: Run, record: Record) -> Record:
    if isinstance(record, StepRecord) and run.arm == "third":
        return replace(record, prompt_digest="others")
    return record


@pytest.mark.parametrize(
    ("toml", "made"),
    [
        (TWO_ARMS, {}),
        (THREE, {"change": other_prompts}),
        (THREE, {"end": lambda run: "stopped" if run.arm == "third" else "finished"}),
    ],
    ids=["two arms have a verdict", "runs that are no pairs", "runs that have not finished"],
)
def test_nothing_else_is_ranked(tmp_path: Path, toml: str, made: JsonObject) -> None:
    with source(make_lab(tmp_path, toml, **made)) as studied:
        assert ranked(studied) is None


def test_stability_is_not_answered_by_places(tmp_path: Path) -> None:
    report = rendered(make_lab(tmp_path, FOUR_ARMS + '[verdict]\nquestion = "stability"\n'), "toy")
    assert len(answer_in(report)["ranking"]["places"]) == 4
    assert "the best" not in report.lines[1]
