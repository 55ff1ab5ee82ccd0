"""The plan's counts can be checked with a pencil."""

import sqlite3
from contextlib import closing

import pytest
from assertions import assert_fields
from counting import ENGINE, Bench

from gspo_lab.running.plan import plan
from gspo_lab.running.plan.plan import GUESSED
from gspo_lab.running.plan.time_estimate import active_parameters, guessed_pace, measured_paces
from gspo_lab.study.schema import BenchTable


def test_the_plan_of_a_new_study(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSPO_LAB_CACHE", str(bench.folder / "empty"))
    bench.steps = 6
    bench.b = 'clip = "calibrated"'
    result = plan(bench.study(), bench.runs, jobs=2)
    assert [(run.id, run.state, run.steps) for run in result.runs] == [
        (f"count/{run}", "planned", 6) for run in ("a/s0", "b/s0", "b/s1", "a/s1")
    ]
    assert_fields(
        result,
        updates_per_step={"a": 2, "b": 2},
        # runs x steps x prompts x group
        responses=4 * 6 * 4 * 2,
        # 31 bytes of 9+9=18 9+9+1=19 9+9+1=19 #1998, and 8
        response_tokens_max=result.responses * 39,
        # steps 0, 4, 6
        evaluations=4 * 3,
        evaluation_answers=4 * 3 * 10,
        warm_starts=1,
        pilots=("b",),
    )
    assert result.seconds > 0
    assert result.basis.startswith("guess:")
    assert not bench.runs.exists(), "a plan leaves nothing behind"
    assert result.to_json()["finished"] == 0
    assert result.headline == (
        "count: 2 arms x 2 seeds: 4 runs, 1 warm start to make, 1 pilot to make; about 5 s on"
        f" 2 workers ({GUESSED})"
    )


def test_dropped_groups_may_cost_as_many_prompts_as_there_are_rounds(bench: Bench) -> None:
    bench.steps = 6
    bench.b = "rollout = {dynamic_sampling = 3}"
    bench.verdict = '[waive]\nfilter-one-arm = "what it asks for is counted"\n'
    result = plan(bench.study(), bench.runs, jobs=2)
    of_an_arm = 2 * 6 * 4 * 2  # seeds x steps x prompts x group
    assert_fields(
        result,
        responses=2 * of_an_arm,
        responses_max=of_an_arm + 3 * of_an_arm,
        response_tokens_max=result.responses_max * 39,
    )
    assert (
        "rollouts: 192 responses (up to 384 where groups are dropped), at most 14,976 tokens"
        in result.lines()
    )


def test_the_plan_of_what_is_left_and_its_measured_time(bench: Bench) -> None:
    bench.fail = {"b/s1": "crash"}
    bench.conduct()
    bench.steps = 4
    result = plan(bench.study(), bench.runs, jobs=1)
    assert result.finished == 3
    assert [run.state for run in result.runs] == ["finished", "finished", "failed", "finished"]
    assert result.warm_starts == 0
    failed = result.runs[2]
    assert (failed.steps_done, result.responses) == (2, 2 * 4 * 2)
    assert_fields(
        result,
        # the end
        evaluations=1,
        # 3 runs x 3 and 1 of the failed one, first steps left out
        basis="measured on 10 steps of count",
    )
    # 1 s a start, 2 steps of 2 s, 10 answers at 1 s / 8 responses
    assert result.seconds == failed.seconds == pytest.approx(1 + 2 * 2 + 10 / 8)
    # A step that trained on nothing was sampled all the same.
    with closing(sqlite3.connect(bench.runs / "lab.db")) as database, database:
        database.execute("UPDATE steps SET responses = 0 WHERE step = 1")
    assert plan(bench.study(), bench.runs, jobs=1).seconds == pytest.approx(1 + 2 * 2 + 10 / 8)


@pytest.mark.parametrize(
    ("steps", "every", "at"), [(10, 4, [0, 4, 8, 10]), (8, 4, [0, 4, 8]), (3, 10, [0, 3])]
)
def test_evaluations_at_the_start_every_so_often_and_at_the_end(
    steps: int, every: int, at: list[int]
) -> None:
    assert BenchTable(name="sums", every=every).moments(steps) == at


@pytest.mark.parametrize(("per_seed", "starts"), [("false", 1), ("true", 3)])
def test_a_pilot_has_a_start_of_its_own_where_every_seed_has(
    bench: Bench, per_seed: str, starts: int
) -> None:
    """Two seeds and a pilot, whose seed no run has.

    Its steps make a start that no other test has asked for.
    """
    bench.b = 'clip = "calibrated"'
    overrides = [f"warm_start.per_seed={per_seed}", "warm_start.steps=7"]
    result = plan(bench.study(overrides=overrides), bench.runs, jobs=1)
    assert_fields(result, pilots=("b",), warm_starts=starts)


def test_what_decides_is_asked_more_often_and_planned_for(bench: Bench) -> None:
    table = BenchTable(name="sums", every=4, decisive_samples=8, decisive_evaluations=2)
    assert [(step, table.samples_at(step, 10)) for step in table.moments(10)] == [
        (0, 1),
        (4, 1),
        (8, 8),
        (10, 8),
    ]
    assert table.samples_at(0, 0) == 1, "the start never decides"
    original = plan(bench.study(), bench.runs, jobs=1)
    study = bench.study(overrides=["bench.sums.decisive_samples=8", "verdict.last=1"])
    assert study.arms["a"].settings.bench[0].decisive_evaluations == 1, "the verdict's own number"
    # four runs of 4 steps, asked at 0 and 4: 10 problems x (1 + 1), then x (1 + 8)
    assert (original.evaluation_answers, plan(study, bench.runs, jobs=1).evaluation_answers) == (
        80,
        360,
    )


def test_a_guess_knows_that_each_turn_reads_all_before_it_again(bench: Bench) -> None:
    """16 tokens of prompt and 24 of a response are 1 pass.

    Three turns have 16 + 8, 16 + 16 and 16 + 24, together 2.4 passes.
    """
    settings = (
        bench.study(overrides=["rollout.max_tokens=24", "update.epochs=1"]).arms["a"].settings
    )
    entry = guessed_pace(settings, settings.model, on_gpu=False)
    three = guessed_pace(settings, settings.model, on_gpu=False, turns=3)
    assert entry.seconds_per_answer == 2 * 6e5 * 40 / 4e10
    assert_fields(
        three,
        seconds_per_answer=pytest.approx(2.4 * entry.seconds_per_answer),
        seconds_per_step=pytest.approx((2.4 + 4) / (1 + 4) * entry.seconds_per_step),
    )
    assert "sampling 1, " in entry.basis
    assert "sampling 2.4 of 3 turns, " in three.basis
    study = bench.study(overrides=["task.name=guess", "task.max_turns=3", "rollout.max_tokens=24"])
    assert "of 3 turns" in plan(study, bench.runs, jobs=1).basis
    # Sampling 1, old policy 1, an update 3; with a KL term the starting model's 1.
    overrides = ["rollout.max_tokens=24", "update.epochs=1", "objective.kl_coef=0.1"]
    settings = bench.study(overrides=overrides).arms["a"].settings
    result = guessed_pace(settings, settings.model, on_gpu=False)
    assert result.seconds_per_step == pytest.approx(6 / 5 * entry.seconds_per_step)
    assert "old policy 1, starting model 1, update 3)" in result.basis
    assert "starting model" not in entry.basis
    assert active_parameters("somebody/Model-30B-A3B") == 3e9
    assert active_parameters("somebody/Model-0.6B") == 6e8
    assert active_parameters("Qwen/Qwen3-0.6B") == pytest.approx(6e8, rel=0.01), (
        "a published shape is counted"
    )
    assert active_parameters("tiny-qwen3") == 6e5


def test_runs_that_make_other_passes_are_no_measure(bench: Bench) -> None:
    _, output = bench.conduct()
    assert "count: 2 arms x 2 seeds: 4 runs" in output.splitlines()[0], "run begins with its plan"
    finished = plan(bench.study(), bench.runs, jobs=2)
    assert_fields(
        finished,
        headline="count: 2 arms x 2 seeds: 4 runs, 4 finished; nothing is left to train",
        certainty="measured on 12 steps of count",
    )

    def measured(*overrides: str) -> bool:
        arm = bench.study(overrides=overrides).arms["a"]
        return "a" in measured_paces([arm], bench.runs)

    different = [
        "objective.kl_coef=0.1",
        "arm.a.policy_loss=bapo",
        "update.lora_rank=8",
        "objective.advantage=gae",
    ]
    different += [
        "update.skip_zero_advantage=false",
        f"engine={{name='{ENGINE}:CountingEngine', options={{slow=true}}}}",
    ]
    assert {entry: measured(entry) for entry in different} == dict.fromkeys(different, False)
    alike = [
        "objective.advantage=leave-one-out",
        "arm.a.policy_loss=cispo",
        "update.learning_rate=1e-3",
    ]
    assert {entry: measured(entry) for entry in alike} == dict.fromkeys(alike, True)
