"""The laws of length, from a real database whose log-ratios follow a law that is known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from assertions import assert_fields
from laboratory import added_later, declare, leave, source, study_json

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.sweeps import (
    dose_response,
    lengths,
)
from gspo_lab.common.reason import sentences
from gspo_lab.recording.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.recording.store import DATABASE, ingest
from gspo_lab.report import render
from gspo_lab.report.templating import statements
from gspo_lab.study import Run, load_study

TOML = """
question = "What does length do?"
model = "tiny-qwen3"
seeds = [0, 1, 2]
steps = 4
[task]
name = "chain"
length = 256
[update]
warmup_updates = 0
[sweep]
rollout.max_tokens = [16, 64, 256]
[[bench]]
name = "chain"
max_tokens = 16
every = 4
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""
TOKEN_SPREAD = 0.04
DRIFT = 8e-4


def spread(run: Run) -> float:
    """log s of a run spreads as .01 L^-b, where b is .4, .5 and .6 on the three seeds."""
    return 0.01 * float(run.settings.rollout.max_tokens or 0) ** -(0.4 + run.seed / 10)


def update(run: Run, step: int, minibatch: int) -> UpdateRecord:
    """Four responses, two of each sign of A.

    Their log s are the drift plus and minus the spread. On mini-batch 0 all ratios are 1. GRPO's
    range clips .1, .01, .001, 1e-4, 1e-5 of the tokens of mini-batches >= 1 at its five scales.
    """
    length = run.settings.rollout.max_tokens or 0
    moves = float(minibatch > 0)
    log_s = [moves * (sign * spread(run) - DRIFT) for sign in (1, -1, 1, -1)]
    detail: dict[str, list[Any]] = {
        "length": [length] * 4,
        "advantage": [1.0, 1.0, -1.0, -1.0],
        "sum_log_ratio": [length * one for one in log_s],
        "sum_square_log_ratio": [moves * length * (TOKEN_SPREAD**2 + DRIFT**2)] * 4,
        "max_abs_log_ratio": [moves] * 4,
        "clipped_tokens": [0, 0, 0, 0],
    }
    counts = [int(minibatch > 0) * 4 * length * 10**-power for power in range(1, 6)]
    would_clip = {
        f"would_clip_fraction_tokens_{rule}": share * moves
        for rule, share in (("grpo", 0.001), ("gspo", 0.4))
    }
    return UpdateRecord(
        step=step,
        minibatch=minibatch,
        nonfinite=0,
        response_tokens=4 * length,
        active_tokens=4 * length,
        grad_norm=length**-0.25 * (1 + run.seed * 1e-9),  # no two seeds have the very same
        stale_k3=moves * DRIFT,
        response_detail=detail,
        band_counts={rule: {"low": counts, "high": [0] * 5} for rule in ("grpo", "gspo")},
        **would_clip,  # type: ignore[arg-type]
    )


def lab(tmp_path: Path, keep: Callable[[Run], bool] = lambda run: True, toml: str = TOML) -> Path:
    path = tmp_path / "long.toml"
    path.write_text(toml)
    study = load_study(path)
    runs = tmp_path / "runs"
    declare(study, runs)
    for run in filter(keep, study.runs()):
        records: list[Record] = [RunStatus(state="started", step=0, at=1.0)]
        for step in range(4):
            records += [update(run, step, minibatch) for minibatch in range(4)]
            records.append(
                StepRecord(step=step, prompts=1, responses=16, reward_mean=0.5 + step / 10)
            )
        for step, right in ((0, 0), (4, 1)):
            records.append(
                AnswerRecord(step=step, bench="chain", problem="p", sample=0, correct=right)
            )
        leave(run, runs, [*records, RunStatus(state="finished", step=4, at=2.0)])
    ingest(runs)
    return runs / DATABASE


def test_the_exponents_are_the_seeds_own_with_their_t_interval(tmp_path: Path) -> None:
    with source(lab(tmp_path), "long") as found:
        laws = lengths(found)
        assert dose_response(found) is None
        exponent = {(law.family, law.quantity): law.exponent for law in laws.laws}
        sentences = statements("decision", decision(found))
        report = render([found])
    own = exponent["gspo", "spread"]
    assert own.differences == pytest.approx((-0.4, -0.5, -0.6))
    # sd .1, t(2) = 4.3027: half-width 4.3027 * .1 / sqrt(3) = .2484
    assert (own.low, own.high) == pytest.approx((-0.7484, -0.2516), abs=1e-4)
    for quantity, slope in [
        ("spread_tokens", 0),
        ("averaging", -0.5),
        ("drift", 0),
        ("grad_norm", -0.25),
    ]:
        assert exponent["grpo", quantity].estimate == pytest.approx(slope, abs=1e-9)
    run = laws.runs["gspo"][64.0][1]
    assert_fields(
        run,
        spread=pytest.approx(0.01 / 8),
        spread_tokens=pytest.approx(TOKEN_SPREAD),
        averaging=pytest.approx(1 / 32),
        drift=pytest.approx(DRIFT),
        reward_first=0.5,
        gain=1.0,
        length=64.0,
    )
    # Three of four mini-batches clip; three quarters of .001 and of .4.
    assert (run.clipped_grpo, run.clipped_gspo) == pytest.approx((0.00075, 0.3))
    assert sentences[2] == "gspo: spread of log s ~ L^-0.5 [-0.748, -0.252]."
    told = study_json(report, "long")["lengths"]
    assert told["exponents"]["gspo"]["spread"]["estimate"] == pytest.approx(-0.5)
    assert told["runs"]["grpo"]["16"]["2"]["spread"] == pytest.approx(0.01 * 16**-0.6, rel=1e-5)
    # Mean of 16^-.4, 16^-.5, 16^-.6 is .2565, of 256 to the same .0691.
    drawn = {(row[0], row[1]): row[2] for row in told["figures"]["m-spread-by-length"]["rows"]}
    assert drawn["256", "gspo"] / drawn["16", "gspo"] == pytest.approx(0.0691 / 0.2565, rel=2e-3)
    clipped = {(row[0], row[1]): row[2] for row in told["figures"]["m-clip-by-length"]["rows"]}
    assert (clipped["16", "GRPO's range"], clipped["256", "GSPO's range"]) == (0.00075, 0.3)


def test_a_seed_that_was_added_bends_no_law(tmp_path: Path) -> None:
    database = lab(tmp_path)
    added_later(database.parent, "long", 2)
    with source(database, "long") as found:
        laws = lengths(found)
        described = decision(found).described
    exponent = {(law.family, law.quantity): law.exponent for law in laws.laws}
    assert exponent["gspo", "spread"].differences == pytest.approx((-0.4, -0.5))
    assert sorted(laws.runs["grpo"][16.0]) == [0, 1]
    assert sentences(described) == ["Not counted: 6 runs of other seeds (2)."]


def test_a_seed_without_a_length_has_no_law(tmp_path: Path) -> None:
    def finished(run: Run) -> bool:
        return run.settings.rollout.max_tokens != 256

    with source(lab(tmp_path, finished), "long") as studied:
        laws = lengths(studied)
        only = statements("decision", decision(studied))
    assert list(laws.runs["gspo"]) == [16.0, 64.0]
    assert only
    with_all = {law.quantity: law.exponent.n for law in laws.laws if law.family == "gspo"}
    assert with_all["spread"] == 3


def test_a_sweep_of_something_else_has_none(tmp_path: Path) -> None:
    toml = TOML.replace("rollout.max_tokens = [16, 64, 256]", "update.learning_rate = [1e-4, 2e-4]")
    with source(lab(tmp_path, lambda run: False, toml), "long") as found:
        assert lengths(found) is None
        assert dose_response(found) is not None
