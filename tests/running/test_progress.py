"""What people see while work goes on.

The table at 80 and 120 columns, plain lines, warnings, and the time left.
"""

import io
import time

import pytest
from rich.console import Console

from gspo_lab.common.states import Phase, State
from gspo_lab.running.progress import (
    NONE_CORRECT,
    NONE_CORRECT_ADVICE,
    Progress,
    ProgressCell,
    ProgressView,
    counting,
    seconds_left,
)


def cell(
    row: str, column: str, step: int, state: State = State.RUNNING, phase: Phase | None = None
) -> ProgressCell:
    progress = Progress(60, step, state, phase)
    if step:
        progress.reward = step / 100
        progress.clip = 0.0058
    return ProgressCell("training", row, column, progress)


def board(seeds: int) -> list[ProgressCell]:
    """Two arms in every state; one step takes 2 s."""
    kinds = [
        (60, State.FINISHED, None),
        (12, State.RUNNING, Phase.SAMPLING),
        (30, State.RUNNING, Phase.EVALUATING),
        (0, State.RUNNING, Phase.STARTING),
        (20, State.FAILED, None),
        (0, State.QUEUED, None),
    ]
    cells = [
        cell(arm, f"s{seed}", *kinds[(seed + shift) % len(kinds)])
        for shift, arm in enumerate(("grpo", "gspo"))
        for seed in range(seeds)
    ]
    for entry in cells:
        entry.progress.spent = {
            ("step", entry.row): (2.0 * entry.progress.step, entry.progress.step)
        }
        entry.progress.left = {("step", entry.row): 60 - entry.progress.step}
    return cells


def page(cells: list[ProgressCell], width: int, height: int = 40) -> list[str]:
    """The table as a terminal of that width shows it, without its colours."""
    view = ProgressView(
        Console(file=io.StringIO(), width=width, height=height, force_terminal=True),
        "moe_stability",
    )
    view.begin("training", cells, 4)
    plain = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    plain.print(view._table(view._began + 250))
    return [line.rstrip() for line in plain.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_a_cell_names_its_phase_where_there_is_room() -> None:
    assert page(board(3), 120) == [
        "moe_stability",
        "      s0              s1                s2                reward  clipped",
        "grpo  finished 60/60  sampling 12/60    evaluating 30/60   0.340    0.58%",
        "gspo  sampling 12/60  evaluating 30/60  starting 0/60      0.210    0.58%",
        "━━━━━━━━━━━━━╸            1 of 6 finished, 4 min 10 s elapsed, about 3 min 00 s left",
    ]


def test_where_cells_have_no_room_each_has_a_letter() -> None:
    assert page(board(6), 80)[2].split() == ["grpo", "✓seo✗·", "1/6", "0.305", "0.58%"]
    assert page(board(6), 80)[-1].endswith(
        "2 of 12 finished, 4 min 10 s elapsed, about 4 min 00 s left"
    )


def test_twenty_seeds_at_80_columns_have_a_letter_each() -> None:
    lines = page(board(20), 80)
    assert lines[2].split() == ["grpo", "✓seo✗·✓seo✗·✓seo✗·✓s", "4/20", "0.313", "0.58%"]
    assert lines[4] == "o starting  s sampling  e evaluating  · queued  ✓ finished  ✗ failed"
    assert max(map(len, lines)) <= 80


def told(
    cells: list[ProgressCell], *, elapsed: float = 0.0, ticks: int = 1, by_reward: bool = False
) -> list[str]:
    """The plain lines of a view that began `elapsed` seconds ago, without the time of day."""
    console = Console(file=io.StringIO(), width=300)
    with ProgressView(console, "toy", by_reward=by_reward) as view:
        view._began -= elapsed
        view._line_time -= elapsed
        view.begin("training", cells, 2)
        for _ in range(ticks):
            view.refresh_view(time.monotonic())
    return [line[9:] for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_a_pipe_has_a_plain_line_now_and_then() -> None:
    lines = told(board(3), elapsed=85, ticks=5)
    assert lines == [
        "toy: training, 6 to do, 2 at a time",
        (
            "grpo/s1 sampling 12/60, reward 0.120, clipped 0.58%; grpo/s2 evaluating 30/60, reward"
            " 0.300, clipped 0.58%; gspo/s0 sampling 12/60, reward 0.120, clipped 0.58%; gspo/s1"
            " evaluating 30/60, reward 0.300, clipped 0.58%; 1 more running; 1 of 6 finished, 1 min"
            " 25 s elapsed, about 4 min 36 s left"
        ),
    ]
    assert len(told(board(3), elapsed=2, ticks=5)) == 1, "nothing in the first seconds"


def test_warnings_are_said_once() -> None:
    entry = cell("gspo", "s1", 25)
    entry.progress.collapse = (25, "reward")
    entry.progress.resumed = 2
    entry.progress.none_correct = True
    entry.progress.grader_errors = 0.125
    assert told([entry], ticks=3)[1:] == [
        "gspo/s1: resumes at step 2",
        f"gspo/s1: {NONE_CORRECT}",
        "gspo/s1: collapsed at step 25 (reward)",
        NONE_CORRECT_ADVICE,
    ]
    pair = [entry, cell("gspo", "s2", 25)]
    pair[1].progress.none_correct = True
    assert told(pair).count(NONE_CORRECT_ADVICE) == 1, "the advice is the same for all runs"
    assert "not graded 12.5%" in told([entry], elapsed=60)[-1]
    assert not any(NONE_CORRECT in line for line in told([entry], ticks=3, by_reward=True)), (
        "the reward decides already"
    )


def test_the_time_left_has_evaluations_starts_and_the_stage_that_is_not_measured() -> None:
    """The work of one slot.

    8 steps of 2 s, two evaluations of 2 answers a problem at 5 s, then a whole run with its start.
    """
    initial = cell("a", "s0", 2)
    repeated = cell("b", "s0", 0, State.QUEUED)
    initial.progress.spent = {
        ("step", "a"): (4.0, 2),
        ("bench sums", "a"): (5.0, 1),
        ("start", "a"): (3.0, 1),
    }
    initial.progress.left = {("step", "a"): 8, ("bench sums", "a"): 4}
    repeated.progress.left = {("step", "b"): 10, ("bench sums", "b"): 1, ("start", "b"): 1}
    assert seconds_left([initial, repeated], 1) == (16 + 20 + 20 + 5 + 3, True)
    assert seconds_left([initial, repeated], 2) == (36, True)
    start = ProgressCell("warm starts", "warm start", "", Progress(100, 50, State.RUNNING))
    start.progress.spent = {("step of a warm start", ""): (5.0, 50)}
    start.progress.left = {("step of a warm start", ""): 50}
    assert seconds_left([start, repeated], 2) == (5, False), "what follows is not measured yet"
    # The warm start takes .1 s a step and was expected to take .05: all is expected to take twice.
    expected = {
        ("step of a warm start", ""): 0.05,
        ("step", "b"): 3.0,
        ("bench sums", "b"): 4.0,
        ("start", "b"): 1.0,
    }
    assert seconds_left([start, repeated], 2, expected) == (5 + 2 * (30 + 4 + 1), True)
    later = {"warm starts": 90.0, "pilots": 7.0}
    assert seconds_left([start, repeated], 2, expected, later) == (75 + 2 * 7, True)
    start.progress.spent["start", "b"] = 20.0, 1
    slow_start = 5 + 2 * (30 + 4) + 20
    assert seconds_left([start, repeated], 2, expected) == (slow_start, True), "itself alone"
    start.progress.spent = {}
    assert seconds_left([start, repeated], 2, expected) == (2.5 + 35, True), "nothing is measured"
    trial = cell("b@0.1", "s0", 0)
    trial.progress.left = {("step", "b@0.1"): 2}
    assert seconds_left([trial], 1, expected) == (6, True), "a trial has its arm's pace"


def test_what_a_start_waits_for_is_told_with_its_time() -> None:
    """`since` is the table's own beginning: 250 s before the page, and as many as `told` says."""
    entry = cell("gspo", "s0", 0, phase=Phase.STARTING)
    entry.progress.detail = "verl (Ray, model, vLLM)"
    entry.progress.since = time.monotonic()
    assert page([entry], 80)[3] == "gspo/s0 starting verl (Ray, model, vLLM), 4 min 10 s"
    entry.progress.since -= 90
    assert (
        "gspo/s0 starting 0/60 verl (Ray, model, vLLM), 1 min 30 s; "
        in told([entry], elapsed=90)[1]
    )
    entry.progress.state = State.FINISHED
    assert len(page([entry], 80)) == 4


def test_a_count_says_what_it_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gspo_lab.running.progress.FIRST_LINE_SECONDS", 0.1)
    with counting("eval", {"aime": 4}, "waiting for http://localhost:1/v1") as advance:
        time.sleep(1.5)
        advance("aime", 4)
    lines = capsys.readouterr().err.splitlines()
    assert "aime running 0/4; waiting for http://localhost:1/v1; 0 of 1 finished" in lines[0]
