"""The figures' data: what is averaged, paired and marked.

Also the texts where nothing was measured.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assertions import assert_fields
from first_screens import ONE_ARM
from laboratory import source
from synthetic_lab import FOUR_ARMS, each, make_lab

from gspo_lab.analysis.findings.paired_comparisons import scalars
from gspo_lab.analysis.findings.training_curves import course
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import JsonObject, OptionalInt
from gspo_lab.recording.records import Record, StepRecord, UpdateRecord
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.records import read_steps, read_updates
from gspo_lab.report import render
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.page import section_markdown
from gspo_lab.report.series import Points, curve, lines
from gspo_lab.report.views.curves import curves_view
from gspo_lab.report.views.stability import collapse_view
from gspo_lab.report.views.updates import (
    clipping_view,
    diagnostics_view,
    experts_view,
    replayed,
)
from gspo_lab.report.views.view import View, ViewWriter, figures_of, to_json
from gspo_lab.study import Run, load_study

AXES = ["prompts", "response tokens", "FLOPs", "device seconds"]


def written(database: Path, write: ViewWriter) -> View:
    """One section of the study `toy`."""
    with source(database) as studied:
        return write(studied)


def charts(view: View) -> dict[str, Chart]:
    return dict(figures_of(view))


def of(chart: Chart, label: str, seed: OptionalInt = None) -> Series:
    (found,) = [one for one in chart.series if one.label == label and one.seed == seed]
    return found


def totals(run: Run, record: StepRecord) -> JsonObject:
    """Totals that differ from run to run: the arm gspo spends twice the tokens per step."""
    of_a_step = 200 if run.arm.startswith("gspo") else 100
    done = record.step + 1
    return {
        "prompts_total": 32 * done,
        "tokens_trained_total": of_a_step * done + run.seed,
        "flops_total": 1e6 * of_a_step * done,
        "device_seconds_total": 1.5 * done,
    }


def test_training_curves_know_their_place_on_every_axis(tmp_path: Path) -> None:
    found = charts(written(make_lab(tmp_path, change=each(StepRecord, totals)), curves_view))
    gspo = of(found["m-reward"], "gspo")
    assert list(gspo.positions) == AXES
    assert gspo.x[:3] == (0.0, 1.0, 2.0)
    assert gspo.positions["prompts"][:3] == (32.0, 64.0, 96.0)
    assert gspo.positions["response tokens"][:2] == (
        201.0,
        401.0,
    )  # seeds 0, 1, 2: the mean of 200, 201, 202
    assert of(found["m-reward"], "gspo", 2).positions["response tokens"][:2] == (202.0, 402.0)
    assert gspo.positions["device seconds"][-1] == 18.0
    score = of(found["m-score-addition"], "grpo")
    assert score.x == (0.0, 4.0, 8.0, 12.0)
    assert_fields(score.positions, prompts=(0.0, 128.0, 256.0, 384.0), FLOPs=(0.0, 4e8, 8e8, 12e8))


def test_an_axis_that_was_not_measured_is_left_out(tmp_path: Path) -> None:
    change = each(StepRecord, lambda run, one: totals(run, one) | {"flops_total": None})
    found = charts(written(make_lab(tmp_path, change=change), curves_view))
    wanted = [axis for axis in AXES if axis != "FLOPs"]
    assert {
        tuple(one.positions)
        for chart in ("m-reward", "m-score-addition")
        for one in found[chart].series
    } == {tuple(wanted)}


rewards = each(
    StepRecord,
    lambda run, _: {"reward_mean": 0.5 if run.arm == "grpo" else (0.6, 0.7, 0.9)[run.seed]},
)
"""grpo: 0.5 everywhere; gspo: 0.6, 0.7, 0.9 by seed.

Differences .1, .2, .4: mean .2333, sd .1528.
"""


def test_pairs_are_subtracted_seed_by_seed_with_a_pointwise_band(tmp_path: Path) -> None:
    chart = charts(written(make_lab(tmp_path, change=rewards), curves_view))["m-reward-difference"]
    assert chart.title == "Training reward: arm − grpo"
    assert "It is not a test" in chart.note
    assert [one.label for one in chart.means] == ["gspo"]
    assert [round(of(chart, "gspo", seed).y[3] or 0, 9) for seed in range(3)] == [0.1, 0.2, 0.4]
    mean = of(chart, "gspo")
    half = 4.302653 * 0.1527525 / math.sqrt(3)
    assert (mean.y[5], mean.low[5], mean.high[5]) == pytest.approx(
        (0.23333, 0.23333 - half, 0.23333 + half), abs=1e-4
    )


def test_two_pairs_have_no_band_and_one_arm_no_difference(tmp_path: Path) -> None:
    found = charts(written(make_lab(tmp_path, seeds=2, change=rewards), curves_view))
    assert of(found["m-reward-difference"], "gspo").low == ()
    assert "m-score-addition-difference" in found
    assert "m-reward-difference" not in charts(
        written(make_lab(tmp_path / "one", ONE_ARM), curves_view)
    )


def test_pairs_of_a_running_study_are_compared_as_far_as_both_went(tmp_path: Path) -> None:
    def until(run: Run) -> int:
        return 5 if (run.arm, run.seed) == ("gspo", 1) else 0 if run.seed == 2 else 12

    database = make_lab(tmp_path, change=rewards, until=until, end=lambda run: None)
    chart = charts(written(database, curves_view))["m-reward-difference"]
    assert of(chart, "gspo").x == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert sorted(one.seed for one in chart.seeds if one.seed is not None) == [0, 1]
    assert of(chart, "gspo").low == ()


def test_seeds_with_other_steps_share_positions_and_the_mean_needs_all() -> None:
    nan = math.nan
    one = Points(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    other = Points(np.array([0.0, 1.0, 1.5]), np.array([3.0, nan, 5.0]))
    first, second, mean = lines("a", {0: one, 1: other})
    assert first.x == second.x == mean.x == (0.0, 1.0, 1.5, 2.0)
    assert first.y == (1.0, 2.0, None, 3.0)
    assert second.y == (3.0, None, 5.0, None)
    assert mean.y == (2.0, None, None, None)


def test_many_runs_are_a_mean_and_a_range_and_the_note_says_so(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path, seeds=20, steps=3, every=3)) as evidence:
        found = charts(curves_view(Source(evidence, "toy")))
        measured = read_steps(evidence, "toy", ["reward_mean"])
    chart = found["m-reward"]
    assert not chart.seeds
    grpo = measured[(measured["arm"] == "grpo") & (measured["step"] == 1)]["reward_mean"]
    line = of(chart, "grpo")
    assert (line.low[1], line.y[1], line.high[1]) == pytest.approx(
        (grpo.min(), grpo.mean(), grpo.max())
    )
    assert "Shaded: from the lowest seed to the highest" in chart.note
    assert not found["m-score-addition"].seeds


def test_long_series_are_means_and_say_over_how_many_steps(tmp_path: Path) -> None:
    def change(run: Run, record: Record) -> Record | None:
        if isinstance(record, UpdateRecord) and record.minibatch > 0:
            return None
        return (
            replace(record, reward_mean=float(record.step))
            if isinstance(record, StepRecord)
            else record
        )

    with source(make_lab(tmp_path, seeds=1, steps=600, every=600, change=change)) as studied:
        chart = charts(curves_view(studied))["m-reward"]
        sampled = course(studied).sampled
    line = of(chart, "grpo")
    assert len(line.x) == 200
    assert (line.x[0], line.y[0]) == (1.0, 1.0)  # steps 0, 1, 2
    assert "Each point is the mean over 3 steps." in chart.note
    assert list(sampled[:3]) == [1, 4, 7]


def test_the_declared_numbers_are_of_every_step_however_coarse_the_chart(tmp_path: Path) -> None:
    def change(run: Run, record: Record) -> Record | None:
        if isinstance(record, UpdateRecord) and record.minibatch > 0:
            return None
        if isinstance(record, StepRecord):
            # gspo is ahead by 1 in its last 50 steps alone: a fifth of 251, which a chart shows two
            # by two
            ahead = 1.0 if run.arm == "gspo" and record.step >= 201 else 0.0
            return replace(record, reward_mean=ahead)
        return record

    with source(make_lab(tmp_path, seeds=1, steps=251, every=251, change=change)) as studied:
        assert course(studied).width == 2
        *_, tail = scalars(studied)
    assert tail.values == {("grpo", 0): 0.0, ("gspo", 0): 1.0}


def test_clipping_by_the_sign_of_the_advantage(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path)) as evidence:
        section = clipping_view(Source(evidence, "toy"))
        rows = read_updates(evidence, "toy", ["clip_fraction_tokens"]).query("minibatch == 3")
    whole = (
        rows[(rows["arm"] == "gspo") & (rows["step"] >= 1)]
        .groupby("seed")["clip_fraction_tokens"]
        .mean()
        .mean()
    )
    assert of(charts(section)["m-clip-minibatch"], "gspo").y[3] == pytest.approx(whole, rel=0.05)
    shares = [
        section.arms["gspo"][f"clip_fraction_tokens{sign}_later"] for sign in ("", "_high", "_low")
    ]
    assert shares[1:] == pytest.approx([0.6 * shares[0], 0.4 * shares[0]])


def lengths(run: Run, record: Record) -> Record:
    """log s spreads by 1/sqrt(length)."""
    if not isinstance(record, UpdateRecord):
        return record
    rng = np.random.default_rng([run.seed, record.step, record.minibatch])
    length = rng.integers(4, 64, 200)
    log_s = rng.normal(0, 1 / np.sqrt(length)) * (record.minibatch > 0)
    detail = (
        {"length": length.tolist(), "sum_log_ratio": (log_s * length).tolist()}
        if record.step % 5 == 0
        else None
    )
    return replace(record, response_detail=detail)


def test_the_spread_by_length(tmp_path: Path) -> None:
    chart = charts(written(make_lab(tmp_path, change=lengths), diagnostics_view))[
        "m-log-ratio-length"
    ]
    line = of(chart, "grpo")
    assert len(line.x) == 8
    x = np.array(line.x, dtype=float)
    y = np.array(line.y, dtype=float)
    assert np.polyfit(np.log(x), np.log(y), 1)[0] == pytest.approx(-0.5, abs=0.05)
    assert "every 5th step" in chart.note


def test_responses_without_a_signal_leave_the_spread_by_length_empty(tmp_path: Path) -> None:
    """No response of an untrained model's first steps had an advantage.

    So no ratio was measured.
    """

    change = each(UpdateRecord, lambda *_: {"response_detail": {"length": [], "sum_log_ratio": []}})
    assert not charts(written(make_lab(tmp_path, change=change), diagnostics_view))[
        "m-log-ratio-length"
    ].series


def test_replay_is_compared_between_arms_that_differ_in_nothing_else(finished: Path) -> None:
    with Evidence.open(finished) as evidence:
        declared = Source(evidence, "moe").declaration
        found = charts(experts_view(Source(evidence, "moe")))
        change = read_updates(evidence, "moe", ["expert_change"])
    assert replayed(declared.arms) == {
        "grpo": {"old-policy": "grpo-replay"},
        "gspo": {"old-policy": "gspo-replay"},
    }
    chart = found["m-replay-experts"]
    with_replay = of(chart, "replay: old-policy")
    assert with_replay.x == ("grpo", "gspo")
    first = declared.arms["gspo-replay"].settings.update.first_settled
    own = change[
        (change["arm"] == "gspo-replay") & (change["minibatch"] > 0) & (change["step"] >= first)
    ]
    assert with_replay.y[1] == pytest.approx(own.groupby("seed")["expert_change"].mean().mean())
    assert of(found["m-replay-clip"], "without replay").y[1] == pytest.approx(0.2, abs=0.05)


def test_arms_with_another_difference_are_no_replay_pair(tmp_path: Path) -> None:
    def twins(more: str = "", plain: str = "") -> dict[str, dict[str, str]]:
        path = tmp_path / "twins.toml"
        a = f'[arm.a]\nobjective = "gspo"\n{plain}'
        b = f'[arm.b]\nobjective = "gspo"\nrouting_replay = "rollout"\n{more}'
        path.write_text('question = "?"\nmodel = "tiny-qwen3-moe"\ntask = "addition"\n' + a + b)
        return replayed(load_study(path).arms)

    assert twins() == {"a": {"rollout": "b"}}
    assert twins("update = {epochs = 2}\n") == {}
    assert twins("clip_low = 0.1\n") == {}
    calibrated = 'clip = "calibrated"\n'
    assert twins(f"{calibrated}clip_low = 0.1\n", calibrated) == {"a": {"rollout": "b"}}, (
        "a pilot finds each its own"
    )


def falling(run: Run, record: Record) -> Record:
    """grpo seed 0: drift leaves its range at step 80, the reward falls at 100.

    gspo seed 1 has a false alarm.
    """
    rng = np.random.default_rng([run.seed, record.step])
    if isinstance(record, StepRecord):
        fell = (run.arm, run.seed) == ("grpo", 0) and record.step >= 100
        return replace(record, reward_mean=0.0 if fell else 0.5 + float(rng.normal(0, 0.01)))
    if isinstance(record, UpdateRecord):
        odd = (run.arm, run.seed, record.step >= 80) in {("grpo", 0, True), ("gspo", 1, True)}
        return replace(
            record,
            stale_k3=1.0 if odd else 0.1 + 0.01 * float(rng.random()),
            grad_norm=0.5,
            clip_fraction_tokens=None,
        )
    return record


def test_the_collapse_timeline_has_its_precursors_and_their_false_alarms(tmp_path: Path) -> None:
    section = written(
        make_lab(tmp_path, seeds=2, steps=160, every=160, change=falling), collapse_view
    )
    text = section_markdown(section)
    assert text.startswith("1 of 4 runs were unstable: 1 collapsed. ")
    run = to_json(section)["runs"]["grpo s0"]
    assert run["collapse"] == pytest.approx(106, abs=3)
    assert run["crossed_before"] == {"stale_k3": 80}
    assert to_json(section)["false_alarms"]["stale_k3"] == [1, 3]
    fell = min(run["collapse"], run["regression"])
    assert f"drift k3 at 80 ({fell - 80} before)" in text
    assert "What left its range first, in 1 unstable runs: drift k3 in 1." in text


def entropy_gone(run: Run, record: StepRecord) -> JsonObject:
    gone = (run.arm, run.seed) == ("grpo", 0) and record.step >= 30
    return {"reward_mean": 0.5, "entropy": 0.0 if gone else 1.0}


not_finite = each(UpdateRecord, lambda _, one: {"nonfinite": int(one.step == 3)})


@pytest.mark.parametrize(
    ("how", "begins", "runs", "said"),
    [
        (
            {"seeds": 2, "steps": 70, "every": 70, "change": each(StepRecord, entropy_gone)},
            "0 of 4 runs were unstable. The entropy collapsed in 1 of 4 runs.",
            [(None, None, None, 51)],
            "| grpo s0 |  |  |  | 51 |",
        ),
        ({"steps": 20}, "0 of 6 runs were unstable.", [], ""),
        (
            {"steps": 4},
            "0 of 6 runs were unstable. 6 too short to be judged by the reward.",
            [],
            "",
        ),
        (
            {"change": not_finite},
            "6 of 6 runs",
            [(3, "non-finite", None, None)] * 6,
            "too few steps to judge",
        ),
    ],
    ids=["an entropy", "stable", "too short", "all"],
)
def test_what_collapsed_is_counted_dated_and_put_down_to_a_cause(
    tmp_path: Path, how: JsonObject, begins: str, runs: list[tuple[Any, ...]], said: str
) -> None:
    """An entropy's collapse is an event beside the reward's.

    The signals of a stable study are not read.
    """
    section = written(make_lab(tmp_path, **how), collapse_view)
    text = section_markdown(section)
    assert text.startswith(begins)
    assert runs or text == begins
    assert said in text
    assert "What left its range first" not in text
    names = ("collapse", "cause", "regression", "entropy_collapse")
    assert [tuple(run[name] for name in names) for run in to_json(section)["runs"].values()] == runs


def test_where_nothing_was_measured_every_figure_says_so(tmp_path: Path) -> None:
    def change(run: Run, record: Record) -> Record | None:
        if isinstance(record, StepRecord):
            return StepRecord(step=record.step, prompts=32, responses=256)
        if isinstance(record, UpdateRecord):
            return UpdateRecord(step=record.step, minibatch=record.minibatch)
        return None

    with source(make_lab(tmp_path, FOUR_ARMS, name="moe", change=change), "moe") as studied:
        found: dict[str, Chart] = {}
        for writer in (curves_view, clipping_view, diagnostics_view):
            found |= charts(writer(studied))
        assert experts_view(studied) is None
        assert collapse_view(studied) is None
        page = render([studied])
    assert len(found) > 12
    assert not [chart.id for chart in found.values() if chart.values()]
    assert page.html.count('class="missing"') >= len(found)


@pytest.mark.parametrize("metric", ["ratio_max_negative", "grad_norm"])
def test_envelopes_hold_every_single_value(tmp_path: Path, metric: str) -> None:
    with Evidence.open(make_lab(tmp_path, seeds=2)) as evidence:
        chart = curve(Source(evidence, "toy"), metric, "", envelope=True)
        frame = read_updates(evidence, "toy", [metric])
    own = frame[(frame["arm"] == "grpo") & (frame["step"] == 7)][metric]
    line = of(chart, "grpo")
    assert (line.low[7], line.high[7]) == pytest.approx((own.min(), own.max()))
