"""The six records: what crosses the wall, and how."""

import json
from dataclasses import fields

import pytest

from gspo_lab.recording.journal import from_dict, to_dict
from gspo_lab.recording.records import (
    RECORDS,
    AnswerRecord,
    GradeRecord,
    Record,
    RunStatus,
    ScoreRecord,
    StepRecord,
    UpdateRecord,
    is_time,
)
from gspo_lab.recording.records.update import EVALUATED_TOKENS

EXAMPLES: list[Record] = [
    StepRecord(step=3, prompts=32, responses=256, reward_mean=0.1 + 0.2, entropy=0.0),
    UpdateRecord(
        step=3, minibatch=1, band_counts={"grpo": {"low": [1, 2], "high": [3, 4]}}, nonfinite=0
    ),
    AnswerRecord(
        step=40, bench="addition", problem="p", sample=0, text="12\n", correct=0, reward=0.0
    ),
    RunStatus(state="started", step=20, facts={"versions": {"torch": "2"}}),
    ScoreRecord(step=40, bench="gsm8k", score=0.71),
    GradeRecord(
        step=40,
        bench="addition",
        problem="p",
        sample=0,
        correct=1,
        reward=1.0,
        grader="addition/2",
        at=1.5,
    ),
]


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: record.kind)
def test_a_record_survives_its_json(record: Record) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(record)))) == record


def test_zero_is_kept_and_what_was_not_measured_is_left_out() -> None:
    data = to_dict(EXAMPLES[0])
    assert data == {
        "kind": "step",
        "step": 3,
        "prompts": 32,
        "responses": 256,
        "reward_mean": 0.30000000000000004,
        "entropy": 0.0,
    }
    assert to_dict(EXAMPLES[1])["nonfinite"] == 0
    for value in (float("nan"), float("inf"), float("-inf")):
        assert "loss" not in to_dict(UpdateRecord(step=0, minibatch=0, loss=value))
    later = {"kind": "status", "state": "stopped", "step": 1, "mood": "fine"}
    assert from_dict(later) == RunStatus(state="stopped", step=1), (
        "fields of a later version are ignored"
    )


def test_every_field_has_a_unit_and_a_meaning() -> None:
    for record in RECORDS.values():
        for entry in fields(record):
            assert entry.metadata["unit"].strip(), entry.name
            assert len(entry.metadata["meaning"]) > 5, entry.name
            assert "\n" not in entry.metadata["meaning"], entry.name


def test_a_weight_is_a_recorded_count_of_the_same_record() -> None:
    """Each metric is pooled by its own weight.

    A mean over tokens is pooled by tokens, one over evaluated responses by these responses' tokens.
    A norm, a loss and a duration have no weight.
    """
    for record in RECORDS.values():
        counts = {
            entry.name
            for entry in fields(record)
            if entry.metadata["unit"] in ("tokens", "responses", "prompts")
        }
        assert {entry.metadata["per"] for entry in fields(record)} <= {
            *counts,
            EVALUATED_TOKENS,
            None,
        }
    weights = {entry.name: entry.metadata["per"] for entry in fields(RECORDS["update"])}
    assert weights["clip_fraction_tokens"] == "response_tokens"
    assert weights["expert_change"] == weights["stale_k3"] == EVALUATED_TOKENS
    assert weights["clip_fraction_active_tokens"] == "active_tokens"
    assert weights["grad_norm"] is weights["seconds"] is None


def test_times_are_what_twins_may_differ_in() -> None:
    times = {
        entry.name for record in RECORDS.values() for entry in fields(record) if is_time(entry.name)
    }
    assert {"seconds", "seconds_step", "device_seconds_total", "at", "peak_memory_bytes"} <= times
    assert not times & {
        "step",
        "loss",
        "reward_mean",
        "rollout_digest",
        "tokens_sampled_total",
        "replay_bytes",
        "text",
    }
    for record in RECORDS.values():
        for entry in fields(record):
            if entry.metadata["unit"] in ("s", "s since 1970"):
                assert is_time(entry.name), entry.name
