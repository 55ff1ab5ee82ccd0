"""The sections of the page.

They are pairs, forest, noise, flips, transcripts, calibration, claims and several studies.
"""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assertions import assert_fields
from laboratory import rendered
from synthetic_lab import HOSTILE, TWO_ARMS, each, make_lab

from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings.answers import (
    PROBLEM,
    SAMPLING,
    GradedAnswers,
    flips,
    noise,
    sampling_variance,
)
from gspo_lab.analysis.readings.answers import SEED as TRAINING
from gspo_lab.analysis.stats.calibration import recorded_rates
from gspo_lab.analysis.stats.verdict import Rule, Scores, decide_all
from gspo_lab.common.plain_data import JsonObject, OptionalText
from gspo_lab.common.text import tenth_percent
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import AnswerRecord, GradeRecord, Record, UpdateRecord
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.report import Report, render
from gspo_lab.report.plotly_json import LIGHT
from gspo_lab.report.templating import HEAD, TAIL, marked, statement, statements, turns_text
from gspo_lab.report.views.calibration import stated_rates, uneven_rate
from gspo_lab.report.views.transcripts import BUDGET
from gspo_lab.report.views.updates import skipping
from gspo_lab.report.views.verdicts import verdict_view
from gspo_lab.report.views.view import to_json
from gspo_lab.study import Run, Study, load_study

NAMES = [one.name for one in fields(UpdateRecord)]


def section(report: Report, name: str, study: str = "toy") -> JsonObject:
    return json.loads(report.json)["studies"][study][name]


def exact(run: Run, record: Record) -> Record:
    """Of 20 problems the first 8 are correct.

    GSPO's runs get 4, 5 and 6 more, and lose the first one.
    """
    if not isinstance(record, AnswerRecord):
        return record
    number = int(record.problem.rpartition("-")[2])
    right = 8 + (4 + run.seed if run.arm == "gspo" and record.step > 0 else 0)
    lost = number == 0 and run.arm == "gspo" and record.step > 0
    return replace(record, correct=int(number < right and not lost), tokens=number + 5)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return rendered(make_lab(tmp_path_factory.mktemp("toy"), change=exact), "toy")


def test_every_declared_number_has_its_interval_drawn(toy: Report) -> None:
    """The primary score's d = .15, .20, .25 have a half-width of .1242.

    sd .05, t(2) = 4.3027: 4.3027 * .05 / sqrt(3). Its row shares a scale with nothing but the
    margin, and .3242 lies at 1/1.05 of it.
    """
    [score, *_] = section(toy, "pairs")["scalars"]
    assert_fields(score, number="addition, primary", arm="gspo", estimate=0.2)
    assert [score["low"], score["high"]] == pytest.approx([0.0758, 0.3242], abs=1e-4)
    _, _, behind = toy.html.partition('<details id="pairs"')
    row, _, rest = behind.partition("<tbody>")[2].partition("</tr>")
    assert re.findall(r'<circle cx="([\d.]+)%"[^>]* r="3"', row) == [
        f"{50 + 50 * d / (1.05 * score['high']):.2f}" for d in (0.15, 0.2, 0.25)
    ]
    ends = re.findall(r'<line x1="([\d.]+)%" x2="([\d.]+)%"[^>]*class="interval"', row)[0]
    assert [float(end) for end in ends] == pytest.approx(
        [50 + 50 * 0.0758 / 0.3404, 50 + 50 / 1.05], abs=0.02
    )
    assert "+0.20 (+0.08 to +0.32)" in row
    assert row.count('class="margin"') == 1
    assert 'class="margin"' not in rest.partition("</table>")[0], "rewards have no margin"


def test_the_secondaries_are_adjusted_and_the_primary_is_not(toy: Report) -> None:
    scalars = section(toy, "pairs")["scalars"]
    assert [one["primary"] for one in scalars] == [True, False, False]
    assert scalars[0]["p_adjusted"] is None
    plain = sorted(one["p"] for one in scalars[1:])
    assert sorted(one["p_adjusted"] for one in scalars[1:]) == pytest.approx(
        [min(1, 2 * plain[0]), max(min(1, 2 * plain[0]), plain[1])], rel=1e-5
    )


def test_problems_that_changed_sides_are_counted_pair_by_pair(toy: Report) -> None:
    found = section(toy, "scores")["benches"]["addition"]["problems"]
    assert found["flips"] == [
        {
            "arm": "gspo",
            "seed": seed,
            "both": 7,
            "only_first": 1,
            "only_second": 4 + seed,
            "neither": 8 - seed,
        }
        for seed in (0, 1, 2)
    ]
    assert found["samples"] == 1
    assert sum(found["noise"]["gspo"].values()) == pytest.approx(1)


def test_the_interval_for_new_problems_stands_beside_that_for_these(toy: Report) -> None:
    """The column means of 20 problems sum to 4.

    Number 0 is lost (-1) on every seed, 1 to 7 and 14 to 19 do not change, 8 to 11 are won (+1) on
    every seed, 12 on two of three and 13 on one: column means -1, 0 x 13, 1 x 4, 2/3, 1/3.
    """
    verdict = section(toy, "answer")["comparisons"]["gspo"]
    compared = verdict["paired"]
    assert [compared["low"], compared["high"]] == pytest.approx([0.0758, 0.3242], abs=1e-4)
    # Vi = var of those 20 / 20 = (1 + 4 + 4/9 + 1/9 - 4**2 / 20) / 19 / 20; Vs = .05**2 / 3; Vr by
    # its definition
    columns = np.array([-1.0, *[0.0] * 13, *[1.0, 1.0, 1.0, 1.0], 2 / 3, 1 / 3])
    by_items = float(columns.var(ddof=1)) / 20
    assert by_items == pytest.approx((1 + 4 + 5 / 9 - 0.8) / 380)
    low = verdict["new_problems"]["low"]
    high = verdict["new_problems"]["high"]
    assert (low + high) / 2 == pytest.approx(0.2)
    assert high - low > 2 * 1.96 * by_items**0.5 > compared["high"] - compared["low"]
    found = section(toy, "scores")["benches"]["addition"]["problems"]["differences"]["gspo"]
    assert found["these_problems"] == [compared["low"], compared["high"]]
    assert found["new_problems_too"] == [low, high]
    assert "interval, new problems too" in toy.html
    assert f"new problems too {low:+.2f} to {high:+.2f}".replace("-", "−") in toy.markdown


def block(rates: list[list[float]], samples: int) -> GradedAnswers:
    right_SI = np.array(rates) * samples
    grade_SEIK = (np.arange(samples) < right_SI[:, None, :, None]).astype(float)
    return GradedAnswers(tuple(range(len(rates))), tuple("abcd"[: right_SI.shape[1]]), grade_SEIK)


def test_the_noise_is_put_down_to_its_source() -> None:
    zero = block([[0.0, 0.0, 0.0]] * 3, 4)
    by_seed = noise(zero, block([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0]], 4), "b", 0.05)
    assert by_seed.shares[TRAINING] == 1
    by_problem = noise(zero, block([[0.0, 0.0, 1.0]] * 3, 4), "b", 0.05)
    assert by_problem.shares[PROBLEM] == 1
    assert by_problem.shares[SAMPLING] == 0
    mixed = noise(
        zero, block([[0.5, 0.25, 0.75], [0.25, 0.75, 0.5], [0.75, 0.5, 0.25]], 4), "b", 0.05
    )
    # Rows and columns have equal means: nothing but what a cell does by itself. Sampling: mean
    # p(1-p)/3 / 9 cells.
    cells = np.array([0.25, 0.1875, 0.1875]).mean() / 3 / 9
    residual = 3 * 3 * ((0.25**2 + 0.25**2) / 3) / (2 * 2 * 3 * 3)
    assert mixed.shares[SAMPLING] == pytest.approx(cells / residual)
    # A seed that only one arm has says nothing of the difference, not even of its sampling.
    lone = block([[0.0, 0.0, 0.0]] * 9, 4)
    more = GradedAnswers((0, 1, 2, *range(10, 16)), lone.problems, lone.grade_SEIK)
    second = block(
        [[0.5, 0.25, 0.75], [0.25, 0.75, 0.5], [0.75, 0.5, 0.25], *([[0.0, 0.0, 0.0]] * 6)], 4
    )
    assert noise(more, second, "b", 0.05) == mixed


@pytest.mark.parametrize("coupled", [True, False])
def test_the_sampling_variance_is_that_of_the_difference_coupled_or_not(coupled: bool) -> None:
    rng = np.random.default_rng(3)
    seeds = 4
    evaluations = 3
    problems = 30
    samples = 8
    repeats = 400
    easy_SI1 = rng.uniform(0.1, 0.9, (seeds, problems, 1))
    estimates = []
    means = []
    for _ in range(repeats):
        # Answer k of a seed and problem: one uniform number for both arms and all evaluations, or
        # one each.
        drawn = rng.random((2, seeds, 1 if coupled else evaluations, problems, samples))
        drawn[1] = drawn[0] if coupled else drawn[1]
        grades = [drawn[arm] < (easy_SI1 + 0.1 * arm)[:, None] for arm in (0, 1)]
        shape = (seeds, evaluations, problems, samples)
        first, second = (
            GradedAnswers(
                (0, 1, 2, 3), ("p",) * problems, np.broadcast_to(one, shape).astype(float)
            )
            for one in grades
        )
        variance = sampling_variance(first, second)
        estimates.append(variance)
        means.append((second.rate_SI - first.rate_SI).mean())
    # The variance of 400 means is itself known to some 7 %.
    assert np.mean(estimates) / np.var(means, ddof=1) == pytest.approx(1, abs=0.2)


def test_answers_that_were_not_graded_leave_the_sampling_variance_defined() -> None:
    first = block([[0.0, 0.0]], 4)
    second = block([[0.5, 0.5]], 4)
    second.grade_SEIK[0, 0, 0, 2:] = np.nan  # both right, spread 0
    second.grade_SEIK[0, 0, 1, 3] = np.nan  # 1, 1, 0: variance 1/3, of 3 answers
    assert sampling_variance(first, second) == pytest.approx((0 + 1 / 9) / 2 / 2)
    assert second.samples == 2
    [one] = flips(block([[0.5, 0.25, 1.0]], 4), block([[0.25, 0.25, 0.75]], 4), "b")
    assert (one.both, one.only_first, one.only_second, one.neither) == (
        1,
        1,
        0,
        1,
    ), "half of the answers are enough"
    assert second.rate_SI.tolist() == [[1.0, pytest.approx(2 / 3)]]
    second.grade_SEIK[..., 1:] = np.nan
    assert sampling_variance(first, second) is None


def test_avg_and_pass_at_k_with_several_answers(tmp_path: Path) -> None:
    toml = TWO_ARMS.replace("problems = 20\n", "problems = 20\nsamples = 4\n")

    # One of four is right, and after step 8 three are.
    change = each(
        AnswerRecord,
        lambda _, one: {"correct": int(one.sample == 0 or (one.step == 8 and one.sample < 3))},
    )
    found = section(rendered(make_lab(tmp_path, toml, change=change), "toy"), "scores")
    level = found["benches"]["addition"]["problems"]["levels"]["grpo"]
    # pass@2 = 1 - C(3,2)/C(4,2) = 1/2 with one right, 1 with three; both scores are means of the
    # same evaluations.
    assert level["avg"] == pytest.approx((0.25 + 0.75 + 0.25) / 3, rel=1e-5)
    assert level["pass"] == {"2": pytest.approx((0.5 + 1 + 0.5) / 3, rel=1e-5), "4": 1}
    assert level["new_seeds"] is None
    assert level["new_seeds_and_problems"] is None


def test_transcripts_are_chosen_by_the_rule(toy: Report) -> None:
    shown = section(toy, "transcripts")["addition"]
    assert_fields(shown, step=12, seed=0)
    tags = {name: one["tags"] for name, one in shown["problems"].items()}
    assert tags["addition-0"] == ["flipped"]
    assert tags["addition-8"] == ["flipped"]
    assert tags["addition-19"] == ["wrong", "longest"]
    assert_fields(shown["problems"]["addition-0"], grpo=1, gspo=0)
    assert "addition-1" not in tags
    assert (
        '<details id="item-addition-addition-19" class="item" data-tags="wrong longest">'
        in toy.html
    )


def test_a_hostile_transcript_is_inert_marked_and_cut(tmp_path: Path) -> None:
    attack = dict.fromkeys(("extracted", "reason", "prompt"), HOSTILE) | {"tokens": 99}
    attack["text"] = HOSTILE + "x" * 100_000 + "THE END"
    change = each(
        AnswerRecord, lambda _, one: attack if (one.problem, one.step) == ("addition-3", 12) else {}
    )
    found = rendered(make_lab(tmp_path, seeds=1, change=change), "toy")
    page = found.html
    assert "item-addition-addition-3" in page
    assert "<img" not in page
    assert (
        marked('a\u202e<i class="unseen">')
        == 'a<i class="unseen">U+202E</i>&lt;i class=&quot;unseen&quot;&gt;'
    )
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page)
    for point in ("U+0000", "U+001B", "U+202E", "U+2066", "U+200F"):
        assert f'<i class="unseen">{point}</i>' in page
    left_out = len(HOSTILE) + 100_007 - HEAD - TAIL
    assert f"{left_out:,} of {len(HOSTILE) + 100_007:,} characters left out" in page
    assert "THE END" in page
    assert "x" * (HEAD + 1) not in page


def test_the_transcripts_keep_to_their_budget(tmp_path: Path) -> None:
    change = each(AnswerRecord, lambda *_: {"text": "y" * 5_000})
    toml = TWO_ARMS + "".join(
        f'[arm.more{i}]\nobjective = "gspo"\nupdate.learning_rate = {2 + i}e-4\n' for i in range(8)
    )
    found = rendered(make_lab(tmp_path, toml, seeds=1, change=change, steps=4), "toy")
    assert found.html.count("y") < BUDGET + 100_000
    shown, of = re.findall(r"seed 0; (\d+) of (\d+) problems", found.html)[0]
    assert 0 < int(shown) < int(of) == 20


def test_a_loss_without_a_clip_is_told_from_one_that_was_not_measured(tmp_path: Path) -> None:
    unmeasured = {name: None for name in NAMES if name.startswith("clip")}

    change = each(UpdateRecord, lambda run, _: {} if run.arm == "gspo" else unmeasured)
    found = rendered(
        make_lab(tmp_path, TWO_ARMS + '[arm.sapo]\nobjective = "sapo"\n', change=change), "toy"
    )
    page = re.sub(r"<[^>]+>", "|", found.html)
    rows = {
        arm: next(
            iter(
                re.findall(
                    rf"\|{arm}\|(?:\|[^|]*){{12}}", page[page.index("Share of tokens clipped") :]
                )
            )
        )
        for arm in ("grpo", "gspo", "sapo")
    }
    assert rows["grpo"].count("not measured") == 5
    assert rows["sapo"].count("no clip") == 6, "five shares, and the note"
    assert "not measured" not in rows["sapo"] + rows["gspo"]
    assert {arm: one["note"] for arm, one in section(found, "clipping")["arms"].items()} == {
        "grpo": "",
        "gspo": "",
        "sapo": "no clip",
    }
    table = page[: page.index("Method and numbers")]
    assert table.count("no clip") == 3, "once for each arm as the baseline"


def test_the_wider_interval_of_several_arms_stands_beside_the_plain_one() -> None:
    # Three arms whose noise is one pattern: 2 MS = 2/3, s~^2 = 8/9 on 6 degrees of freedom. The
    # smaller p (t = 6) is held against .05 / 2.
    pattern = np.array([-2, -1, 0, 1, 2]) / 2.5**0.5
    arms = [
        Scores(np.zeros(5), pattern + t / 5**0.5, ("a", name))
        for name, t in (("b", 6.0), ("c", 4.0))
    ]
    first, second = decide_all(arms, Rule(1.0))
    # t(6) at .9875 is 2.9687: 6 / sqrt 5 -+ 2.9687 sqrt(8/9) / sqrt 5.
    assert (
        "(95 % interval +1.65 to +3.71), interval of the verdict +1.43 to +3.93 (97.5 %)"
        in statement("numbers", verdict_view(first))
    )
    assert "of the verdict" not in statement("numbers", verdict_view(second))
    data = to_json(verdict_view(first))
    assert data["interval"] == pytest.approx([1.4316, 3.9350], abs=1e-3)
    assert (data["rule"]["looks"], data["family"]) == ([], 2)


def rate(cell: str, n: int, method: str, count: str = "false_words") -> str:
    """A recorded rate as pages write it."""
    [row] = [row for row in recorded_rates() if (row.cell, row.n, row.method) == (cell, n, method)]
    return tenth_percent(getattr(row, count) / row.studies)


def test_each_word_quotes_its_own_row() -> None:
    tight = [
        Scores([0.5] * 5, [0.5, 0.501, 0.499, 0.5, 0.5], ("a", name)) for name in ("b", "c", "d")
    ]
    alone = decide_all(tight[:1], Rule(0.02))
    among = decide_all(tight, Rule(0.02, looks=(5, 8)))
    assert [one.word for one in (*alone, *among)] == [
        "equivalent within the margin",
        "equivalent within the margin",
        "equivalent within the margin",
        "equivalent within the margin",
    ]
    pair, equivalent = statements("calibration", stated_rates(alone))
    paired = "paired t over seeds"
    falls = "15 % of one arm's runs unstable"
    assert pair.startswith(
        f"A pair of arms: {rate('score, normal', 5, paired)} false words in 2,000 simulated studies"
        f" of 5 pairs without a difference; {rate(f'score, {falls}', 5, paired)} where {falls}"
        f" ({rate(f'score, {falls}', 5, paired, 'for_baseline')} favour that side)"
    )
    worst = rate("seed sd 0.8, answers' sd 0.5 margins", 5, "equivalent, truth: the margin")
    assert f"differ by the margin in at most {worst} of the studies of 5 pairs" in equivalent
    _, family, looks, _ = statements("calibration", stated_rates(among))
    holm = "any arm better or worse, Holm"
    assert family.startswith(f"Any of 3 arms: {rate('3 arms against one', 5, holm)} false words")
    noisy = "the baseline 4x as noisy"
    assert f"{rate(f'3 arms against one, {noisy}', 5, holm)} where {noisy};" in family
    every = "20 % of every treatment's runs unstable"
    favour = rate(f"3 arms against one, {every}", 5, holm, "for_treatment")
    assert f"where {every} ({favour} favour that side)" in family
    looked = rate("normal, looks after 5 and 8", 8, "better or worse, at any look")
    assert looks.startswith(f"A pair over all looks: {looked} false words")
    for arms, alpha in ((tight, 0.01), ([Scores([0.1, 0.2], [0.3, 0.4])], 0.05)):
        assert not stated_rates(decide_all(arms, Rule(0.02, alpha))).false_words
    (twelve,) = stated_rates(decide_all([Scores([0.1] * 12, range(12))], Rule(0.02))).false_words
    assert twelve.plain.n == 8
    contrast, _, _ = statements("calibration", stated_rates(alone, alone[0]))
    side = rate("2 x 2, 20 % of one side's runs unstable", 5, "contrast, better or worse")
    assert f"{side} where 20 % of one side's runs unstable" in contrast


def test_a_better_on_arms_with_unstable_runs_states_the_rate_of_its_direction() -> None:
    """The rates of a row are its own: of two arms, of several, of looks.

    They stand beside no other verdict. Without unstable runs they are nowhere.
    """
    low = [0.1, 0.12, 0.11, 0.1, 0.13]
    high = [0.5, 0.52, 0.5, 0.53, 0.52]

    def line(
        scores: list[float],
        unstable: tuple[int, int],
        arms: int = 1,
        **rule: Any,
    ) -> OptionalText:
        counts = (unstable[0], 5), (unstable[1], 5)
        arm = Scores(low, scores, ("a", "b"), unstable=counts)
        found = uneven_rate(decide_all([arm] * arms, Rule(0.02, **rule))[0])
        return None if found is None else statement("uneven", found)

    assert line(high, (0, 0)) is None
    assert line(low, (1, 0)) is None
    falls = "15 % of one arm's runs unstable"
    holm = "any arm better or worse, Holm"
    pair = (f"score, {falls}", 5, "paired t over seeds")
    baseline = "4 arms against one, 15 % of the baseline's runs unstable"
    treatments = "3 arms against one, 20 % of every treatment's runs unstable"
    looks = (f"{falls}, looks after 5 and 8", 8, "better or worse, at any look")
    order = (f"2 x 2, {falls}", 5, "any arm better or worse, in order")
    for said, share, side in (
        (line(high, (0, 1)), rate(*pair, "for_baseline"), "with"),
        (line(high, (1, 0)), rate(*pair, "for_treatment"), "without"),
        (line(high, (1, 1)), rate(*pair, "for_baseline"), "with"),
        (line(high, (1, 0), arms=4), rate(baseline, 5, holm, "for_treatment"), "without"),
        (line(high, (0, 1), arms=4), rate(treatments, 5, holm, "for_treatment"), "with"),
        (line(high, (0, 2), looks=(5, 8)), rate(*looks, "for_baseline"), "with"),
        (line(high, (0, 2), order=("b",)), rate(*order, "for_baseline"), "with"),
    ):
        assert said is not None
        assert f"the side {side} unstable runs is called better in {share} of simulated" in said


def test_arms_of_several_databases_line_up_by_name(tmp_path: Path) -> None:
    one = make_lab(tmp_path / "one", change=exact)
    turned = (
        TWO_ARMS.replace("[arm.grpo]", "[arm.other]\nupdate.learning_rate = 3e-5", 1).replace(
            '[arm.gspo]\nobjective = "gspo"', ""
        )
        + '[arm.gspo]\nobjective = "gspo"\n[arm.grpo]\nobjective = "grpo"\n'
    )
    two = make_lab(tmp_path / "two", turned, change=exact)
    with Evidence.open(one) as first, Evidence.open(two) as second:
        found = render(
            [Source(first, "toy", "here"), Source(second, "toy", "there")], watch_seconds=5
        )
    assert '<html lang="en" data-watch="5">' in found.html
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in found.html
    ids = re.findall(r'(?<= )id="([^"]+)"', found.html)
    assert len(ids) == len(set(ids)), "studies share no id"
    assert {"here.m-reward", "there.m-reward"} < set(ids)
    assert found.name == "here+there"
    data = json.loads(found.json)
    assert list(data["studies"]) == ["here", "there"]
    assert_fields(
        data["together"]["scores"], gspo={"here": 0.6, "there": 0.6}, other={"there": 0.4}
    )
    block = re.search(r'<script type="application/json" id="figures">(.*?)</script>', found.html)
    figures = json.loads(block[1])["figures"]
    colours = {
        study: {
            one["name"]: one["line"]["color"]
            for one in figures[f"{study}.m-reward"]["data"]
            if one["meta"]["seed"] is None and "role" not in one["meta"]
        }
        for study in ("here", "there")
    }
    assert colours["here"] == {"grpo": LIGHT["a0"], "gspo": LIGHT["a1"]}
    assert colours["there"] == {
        "other": LIGHT["a2"],
        "gspo": LIGHT["a1"],
        "grpo": LIGHT["n2"],
    }, "not of its pair: grey"
    assert "\n- here: gspo is better than grpo" in found.markdown


def test_a_claim_leads_to_its_figure(tmp_path: Path) -> None:
    toml = TWO_ARMS + '[[claim]]\nname = "C04-clip-gap"\n[[claim]]\nname = "C09-expert-change"\n'
    found = rendered(make_lab(tmp_path, toml), "toy")
    _, _, behind = found.html.partition('<details id="claims"')
    table, _, _ = behind.partition("<section")
    assert '<a href="#m-clip">figure</a>' in table
    assert "m-expert" not in table


def test_a_later_evaluation_has_its_own_scores_and_transcripts(tmp_path: Path) -> None:
    database = make_lab(tmp_path, change=exact)
    for home in sorted((tmp_path / "runs" / "toy").glob("*/s*")):
        gspo = home.parent.name == "gspo"
        (home / "evaluations" / "hard-n4").mkdir(parents=True)
        with Journal(home / "evaluations" / "hard-n4") as journal:
            journal.write(
                AnswerRecord(
                    step=step,
                    bench="hard",
                    problem=f"p{i}",
                    sample=0,
                    text="#",
                    correct=int(right(i)),
                    tokens=3,
                )
                for step, right in ((0, lambda i: False), (12, lambda i, gspo=gspo: i < 2 + gspo))
                for i in range(4)
            )
    ingest(tmp_path / "runs")
    found = rendered(database, "toy")
    later = section(found, "scores")["later"]["hard-n4-hard"]
    assert {arm: level["avg"] for arm, level in later["levels"].items()} == {
        "grpo": 0.5,
        "gspo": 0.75,
    }
    assert later["flips"][0] == {
        "arm": "gspo",
        "seed": 0,
        "both": 2,
        "only_first": 0,
        "only_second": 1,
        "neither": 1,
    }
    assert 'id="item-hard-n4-hard-p2"' in found.html
    assert section(found, "answer")["comparisons"]["gspo"]["estimate"] == 0.2, (
        "the verdict is that of training's end"
    )


def test_a_later_grade_is_the_one_that_is_shown(tmp_path: Path) -> None:
    database = make_lab(tmp_path, change=exact)
    for home in sorted((tmp_path / "runs" / "toy").glob("gspo/s*")):
        (home / "grades").mkdir()
        with Journal(home / "grades") as journal:
            journal.write(
                [
                    GradeRecord(
                        bench="addition", step=12, problem="addition-0", sample=0, correct=1, at=1.0
                    )
                ]
            )
    ingest(tmp_path / "runs")
    found = rendered(database, "toy")
    [first, *_] = section(found, "scores")["benches"]["addition"]["problems"]["flips"]
    assert (first["both"], first["only_first"]) == (8, 0), "nothing is lost any more"
    assert "addition-0" not in section(found, "transcripts")["addition"]["problems"]


def test_what_the_curves_cover_is_said_beside_them(toy: Report, tmp_path: Path) -> None:
    def study(kl_coef: float) -> Study:
        path = tmp_path / "kl.toml"
        path.write_text(
            f'question = "?"\ntask = "addition"\n[arm.a]\nobjective = "gspo"\nkl_coef = {kl_coef}\n'
        )
        return load_study(path)

    assert skipping(study(0.0))
    assert not skipping(study(0.1))
    assert "cover the responses that the trainer evaluated" in toy.html


def test_the_turns_of_an_answer_stand_apart_from_the_replies() -> None:
    told = '[{"text": "27", "reply": ">28-42:", "reward": -0.1}, {"text": "35", "reward": 1.0}]'
    assert turns_text(told) == "27 (-0.1) · 35 (1)"
    assert turns_text('[{"text": "47*36", "reply": "=1692"}, {"text": "#1692"}]') == "47*36 · #1692"
