"""What reports and claims read: every number here can be checked with a pencil."""

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error
from run_folders import Lab, answers, step_records

from gspo_lab.analysis.readings.spans import read_spans, span_width
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.records import RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.recording.store.answers import read_scores
from gspo_lab.recording.store.database import explained, writing
from gspo_lab.recording.store.records import (
    read_series,
    read_steps,
    read_updates,
)

RUN = "adding/grpo/s0"


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """A lab with one run, declared and not begun."""
    lab.declare("adding", ("grpo",), [0])
    return lab


@pytest.fixture
def recorded(lab: Lab) -> Lab:
    """Two studies; in `adding` the arms are declared in an order that is not the alphabet's."""
    for run in lab.declare("carrying", ("grpo",), [0]):
        lab.write(run, RunStatus(state="started", step=0, at=900.0))
    for run in lab.declare("adding", ("gspo", "grpo"), [1, 0]):
        lab.train(run)
    ingest(lab.runs)
    return lab


def test_studies_come_with_the_most_recent_activity_last(recorded: Lab) -> None:
    with Evidence.open(recorded.db) as evidence:
        assert evidence.studies() == ["adding", "carrying"]
    recorded.write(RUN, RunStatus(state="stopped", step=4, at=950.0))
    with recorded.opened() as evidence:
        assert evidence.studies() == ["carrying", "adding"]


def test_a_study_is_its_declaration(recorded: Lab) -> None:
    with Evidence.open(recorded.db) as evidence:
        study = evidence.study("adding")
        assert study["question"] == "what of adding?"
        assert list(study["arms"]) == ["gspo", "grpo"]
        with lab_error(r"no study 'ading' \(did you mean 'adding'\?\).*it has adding, carrying"):
            evidence.study("ading")
        assert evidence.study("adding") is study, "parsed once"


def test_runs_stand_in_the_order_of_the_study_then_seeds(recorded: Lab) -> None:
    with Evidence.open(recorded.db) as evidence:
        frame = evidence.runs("adding")
    assert list(frame.run_id) == [
        "adding/gspo/s0",
        "adding/gspo/s1",
        "adding/grpo/s0",
        "adding/grpo/s1",
    ]
    assert list(frame.columns[:7]) == [
        "run_id",
        "study",
        "arm",
        "seed",
        "state",
        "steps_done",
        "steps_planned",
    ]
    first_row = frame.iloc[0]
    assert_fields(first_row, state="finished", steps_done=4, started_at=100.0, finished_at=200.0)
    assert json.loads(first_row.settings) == {"steps": 4, "model": "tiny"}
    assert json.loads(first_row.facts) == {"device": "cpu"}
    assert frame.message.isna().all()


def test_steps_and_updates(recorded: Lab) -> None:
    with Evidence.open(recorded.db) as evidence:
        steps = read_steps(evidence, "adding", ["reward_mean", "entropy", "reward_mean", "step"])
        updates = read_updates(evidence, "adding", ["clipped_tokens", "log_ratio_quantiles_tokens"])
    assert list(steps.columns) == ["run_id", "arm", "seed", "step", "reward_mean", "entropy"]
    assert len(steps) == 4 * 4
    assert list(steps.reward_mean[:4]) == [0.0, 0.1, 0.2, 0.3]
    assert list(steps.arm.unique()) == ["gspo", "grpo"]
    assert steps.entropy.dtype == "float64"
    assert steps.entropy.isna().all()
    assert list(updates.columns[3:]) == [
        "step",
        "minibatch",
        "clipped_tokens",
        "log_ratio_quantiles_tokens",
    ]
    assert list(updates.clipped_tokens[:4]) == [0, 5, 0, 5]
    assert json.loads(updates.log_ratio_quantiles_tokens[0]) == [0.0, 0.5, 1.0]


def test_a_metric_nobody_records_is_named_with_its_nearest(recorded: Lab) -> None:
    with Evidence.open(recorded.db) as evidence:
        with lab_error(r"no metric 'reward_meen' in steps \(did you mean 'reward_mean'\?\)"):
            read_steps(evidence, "adding", ["reward_meen"])
        with lab_error("no metric 'reward_mean' in updates"):
            read_updates(evidence, "adding", ["reward_mean"])
        with lab_error("no metric 'x; DROP"):
            read_updates(evidence, "adding", ["x; DROP TABLE steps"])


def test_scores_are_means_over_problems_and_errors_are_not_wrong_answers(lab: Lab) -> None:
    """The mean over problems is (1/2 + 1) / 2.

    p0: right, wrong -> 1/2. p1: right, failed grader -> 1. p2: both graders failed -> no part.
    """
    lab.write(
        RUN, *answers(4, [1, 0, 1, None, None, None], samples=2), *answers(4, [1, 1], "rollout")
    )
    lab.write(RUN, *answers(5, [None]))
    with lab.opened() as evidence:
        frame = read_scores(evidence, "adding")
    assert list(frame.columns[:10]) == [
        "run_id",
        "arm",
        "seed",
        "bench",
        "step",
        "problems",
        "answers",
        "score",
        "errors",
        "truncated",
    ]
    assert list(frame.bench) == ["addition", "addition"]
    assert list(frame.iloc[0][["problems", "answers", "score", "errors", "truncated"]]) == [
        3,
        6,
        0.75,
        3,
        0,
    ]
    assert frame.iloc[1].answers == 1
    assert math.isnan(frame.iloc[1].score)
    assert lab.query("SELECT step, score FROM latest_scores") == [(5, None)]


def test_scores_of_later_evaluations_are_asked_for(lab: Lab) -> None:
    lab.write(RUN, *answers(4, [1, 0]))
    lab.write(RUN, *answers(4, [1, 1]), evaluation="greedy")
    with lab.opened() as evidence:
        assert list(read_scores(evidence, "adding").score) == [0.5]
        assert list(read_scores(evidence, "adding", "greedy").score) == [1.0]
        assert list(read_scores(evidence, "adding", None).score) == [0.5, 1.0]


def test_spans_of_few_steps_are_the_steps(recorded: Lab) -> None:
    with Evidence.open(recorded.db) as evidence:
        of_steps = read_spans(
            evidence, "adding", "steps", ["reward_mean"], extremes=["reward_mean"]
        )
        of_updates = read_spans(
            evidence, "adding", "updates", ["loss", "clipped_tokens"], extremes=["loss"]
        )
    assert [run.id for run in of_steps] == [
        "adding/gspo/s0",
        "adding/gspo/s1",
        "adding/grpo/s0",
        "adding/grpo/s1",
    ]
    step_spans = {name: list(values) for name, values in next(iter(of_steps.values())).items()}
    rewards = [0.0, 0.1, 0.2, 0.3]
    assert step_spans == {
        "x": [0.0, 1.0, 2.0, 3.0],
        **dict.fromkeys(("reward_mean", "reward_mean.low", "reward_mean.high"), rewards),
    }
    entry = {name: values[2] for name, values in next(iter(of_updates.values())).items()}
    # Two updates: losses 2.0 and 2.1, 0 and 5 clipped tokens.
    assert entry == {
        "x": 2.0,
        "loss": pytest.approx(2.05),
        "clipped_tokens": 2.5,
        "loss.low": 2.0,
        "loss.high": 2.1,
    }


def test_many_steps_share_their_spans_between_runs(lab: Lab) -> None:
    """7 steps in at most 3 spans of 3 steps. The other run has only 5 steps, the same spans."""
    for run, steps in zip(lab.declare("adding", ("grpo", "gspo"), [0]), (7, 5), strict=True):
        rewards = [float(step) if step != 4 else None for step in range(steps)]
        lab.write(
            run,
            *(
                StepRecord(step=i, prompts=1, responses=2, reward_mean=r)
                for i, r in enumerate(rewards)
            ),
        )
    with lab.opened() as evidence:
        assert span_width(evidence, "adding", 3) == 3
        metrics = ["reward_mean", "entropy"]
        grpo, gspo = read_spans(
            evidence, "adding", "steps", metrics, buckets=3, extremes=["reward_mean"]
        ).values()
        with lab_error("JSON, not a number"):
            read_spans(evidence, "adding", "updates", ["band_counts"])
        with lab_error("text, not a number"):
            read_spans(evidence, "adding", "steps", ["entropy"], extremes=["prompt_digest"])
        with lab_error("from steps or updates"):
            read_spans(evidence, "adding", "runs", ["seed"])
        with lab_error("at least 1"):
            read_spans(evidence, "adding", "steps", ["entropy"], buckets=0)
    names = ("x", "reward_mean", "reward_mean.low", "reward_mean.high")
    nan = pytest.approx(math.nan, nan_ok=True)
    assert [list(grpo[name]) for name in names] == [
        [1.0, 4.0, 6.0],
        [1.0, 4.0, 6.0],
        [0.0, 3.0, 6.0],
        [2.0, 5.0, 6.0],
    ]
    assert [list(gspo[name]) for name in names] == [
        [1.0, 3.5, nan],
        [1.0, 3.0, nan],
        [0.0, 3.0, nan],
        [2.0, 3.0, nan],
    ]
    assert [list(run["entropy"]) for run in (grpo, gspo)] == [[nan, nan, nan]] * 2


def test_a_spans_share_of_tokens_is_that_of_all_its_tokens(lab: Lab) -> None:
    (run, *_) = lab.declare("adding", ("grpo",), [0])
    counted = [(0.1, 100, 0.5, 10), (0.4, 300, None, 90), (None, 600, 0.2, 20)]
    for minibatch, (share, tokens, of_active, active) in enumerate(counted):
        clipped: JsonObject = {
            "clip_fraction_tokens": share,
            "clip_fraction_active_tokens": of_active,
            "loss": float(minibatch),
        }
        lab.write(
            run,
            UpdateRecord(
                step=0, minibatch=minibatch, response_tokens=tokens, active_tokens=active, **clipped
            ),
        )
        # Nobody counted the tokens of step 1: its updates are alike.
        lab.write(run, UpdateRecord(step=1, minibatch=minibatch, **clipped))
    ingest(lab.runs)
    names = ["clip_fraction_tokens", "clip_fraction_active_tokens", "loss"]
    with Evidence.open(lab.db) as evidence:
        [result] = read_spans(evidence, "adding", "updates", names, extremes=names[:1]).values()
    assert list(result["clip_fraction_tokens"]) == pytest.approx(
        [(0.1 * 100 + 0.4 * 300) / 400, 0.25]
    )
    assert list(result["clip_fraction_active_tokens"]) == pytest.approx(
        [(0.5 * 10 + 0.2 * 20) / 30, 0.35]
    )
    assert list(result["loss"]) == [1.0, 1.0]
    assert list(result["clip_fraction_tokens.high"]) == [0.4, 0.4]


def test_steps_and_updates_share_their_spans(lab: Lab) -> None:
    """A run that died between its last update and the step's own record.

    Both tables still count the same spans.
    """
    (run, *_) = lab.declare("adding", ("grpo",), [0])
    lab.write(run, *(StepRecord(step=i, prompts=1, responses=2, entropy=1.0) for i in range(8)))
    lab.write(run, *(UpdateRecord(step=i, minibatch=0, loss=0.0) for i in range(9)))
    with lab.opened() as evidence:
        [steps] = read_spans(evidence, "adding", "steps", ["entropy"], buckets=4).values()
        [updates] = read_spans(evidence, "adding", "updates", ["loss"], buckets=4).values()
    assert [list(steps["x"]), list(updates["x"])] == [[1.0, 4.0, 6.5], [1.0, 4.0, 7.0]]


def test_records_of_some_steps_and_of_some_kind(lab: Lab) -> None:
    (run, *_) = lab.declare("adding", ("grpo",), [0])
    lab.write(
        run,
        *(
            UpdateRecord(step=i, minibatch=0, loss=float(i), nonfinite=int(i == 3))
            for i in range(5)
        ),
    )
    lab.write(
        run, *(StepRecord(step=i, prompts=1, responses=2, entropy=float(i)) for i in range(5))
    )
    with lab.opened() as evidence:
        assert list(read_steps(evidence, "adding", ["entropy"], at_steps=[1, 4, 9]).entropy) == [
            1.0,
            4.0,
        ]
        assert list(read_updates(evidence, "adding", [], nonfinite=1).step) == [3]
        assert read_updates(evidence, "adding", ["loss"], run="another").empty
        steps, losses = read_series(evidence, "adding", "updates", "loss")[RUN]
        assert (list(steps), list(losses)) == ([0, 1, 2, 3, 4], [0.0, 1.0, 2.0, 3.0, 4.0])
        assert [
            len(part) for part in read_series(evidence, "adding", "updates", "grad_norm")[RUN]
        ] == [0, 0]


@pytest.mark.parametrize(
    ("harm", "query"),
    [
        ("DROP TABLE damaged", "SELECT line FROM chosen JOIN damaged USING (run_id)"),
        (
            "ALTER TABLE answers DROP COLUMN answered_by",
            "SELECT answered_by FROM chosen JOIN answers USING (run_id)",
        ),
    ],
)
def test_a_database_that_lacks_a_table_or_a_column_is_told(
    recorded: Lab, harm: str, query: str
) -> None:
    with closing(sqlite3.connect(recorded.db)) as connection:
        connection.execute(harm)
        connection.commit()
    with (
        Evidence.open(recorded.db) as evidence,
        lab_error(r"is not whole .*: gspo-lab records rebuild"),
    ):
        evidence.select("adding", query)


def test_frames_of_a_study_without_records_are_empty(lab: Lab) -> None:
    lab.declare("adding")
    with lab.opened() as evidence:
        assert list(evidence.runs("adding").state) == ["planned", "planned", "planned", "planned"]
        for frame in (
            read_steps(evidence, "adding", ["entropy"]),
            read_updates(evidence, "adding", ["loss"]),
            read_scores(evidence, "adding"),
        ):
            assert frame.empty
            assert list(frame.columns[:3]) == ["run_id", "arm", "seed"]
        spans = read_spans(evidence, "adding", "steps", ["entropy"])
        assert [(list(run), len(run["x"])) for run in spans.values()] == [(["x", "entropy"], 0)] * 4


def test_all_frames_show_the_moment_of_opening(recorded: Lab) -> None:
    with Evidence.open(recorded.db) as evidence:
        recorded.write(RUN, *step_records(4))
        ingest(recorded.runs)
        assert len(read_steps(evidence, "adding", ["entropy"])) == 16
        with lab_error("cannot be written"):
            evidence.rows("DELETE FROM steps")
    with Evidence.open(recorded.db) as evidence:
        assert len(read_steps(evidence, "adding", ["entropy"])) == 17


def test_where_no_study_is_none_is_guessed(tmp_path: Path) -> None:
    ingest(tmp_path)
    with (
        Evidence.open(tmp_path / "lab.db") as evidence,
        lab_error("it has none"),
    ):
        evidence.study("adding")


def test_what_is_no_database_of_ours_is_refused_in_one_line(lab: Lab, tmp_path: Path) -> None:
    with lab_error(r"no database .*gspo-lab records rebuild"):
        Evidence.open(lab.db)
    lab.db.write_bytes(b"")
    with lab_error("is empty: gspo-lab records rebuild"):
        Evidence.open(lab.db)
    lab.db.write_bytes(b"no database at all" * 100)
    with lab_error(r"damaged.*gspo-lab records rebuild"):
        Evidence.open(lab.db)


def test_damage_found_while_reading_is_told_as_damage(recorded: Lab) -> None:
    with writing(recorded.db) as connection:
        connection.execute("UPDATE steps SET prompt_digest = hex(randomblob(2000))")
        root = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'steps'"
        ).fetchone()[0]
    data = bytearray(recorded.db.read_bytes())
    data[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
    recorded.db.write_bytes(bytes(data))
    with Evidence.open(recorded.db) as evidence:
        assert evidence.studies() == ["adding", "carrying"]
        with lab_error(r"is damaged.*gspo-lab records rebuild"):
            read_steps(evidence, "adding", ["prompt_digest"])


def test_damage_in_the_words_of_sqlite_is_told_as_damage(recorded: Lab) -> None:
    """SQLite quotes what it cannot parse, and bytes that are no text in it."""
    with (
        lab_error(r"is damaged.*gspo-lab records rebuild"),
        explained(recorded.db),
    ):
        b"\xb3".decode()
