"""What a worker's folder tells of it.

Its phase, the time of its work, and a collapse when it happens.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from assertions import assert_fields
from counting import Bench

from gspo_lab.common.states import Phase, State
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import Record, RunStatus, ScoreRecord, StepRecord, UpdateRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running.conduct.progress_watch import RunWatch


def rewarded(step: int, reward: float = 0.5, seconds: float | None = None) -> StepRecord:
    return StepRecord(step=step, prompts=2, responses=4, reward_mean=reward, seconds_step=seconds)


def write(folder: RunFolder, *records: Record) -> None:
    with Journal(folder.path) as journal:
        journal.write(list(records))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "gspo/s1").mkdir(parents=True)
    return RunFolder(tmp_path / "gspo/s1")


def watch_of(bench: Bench, folder: RunFolder, steps: int = 100) -> RunWatch:
    bench.steps = steps
    bench.seeds = [0]
    watch = RunWatch(folder, bench.study().runs()[0])
    watch.progress.state = State.RUNNING
    return watch


def test_a_collapse_is_seen_as_it_happens(bench: Bench, folder: RunFolder) -> None:
    watch = watch_of(bench, folder)
    for step in range(40):
        write(folder, rewarded(step, 0.5 if step < 20 else 0.0))
        watch.look(float(step))
        # The sixth reward of 0 brings the moving average below half: (.9^6 - .9^26) / (1 - .9^26) =
        # .499.
        assert watch.progress.collapse == ((25, "reward") if step >= 34 else None)


def test_what_a_worker_takes_back_counts_no_more(bench: Bench, folder: RunFolder) -> None:
    dead = UpdateRecord(step=3, minibatch=0, nonfinite=1)
    write(folder, RunStatus(state="started", step=0, at=1.0), rewarded(0), dead)
    watch = watch_of(bench, folder)
    write(folder, rewarded(1))
    watch.look(1.0)
    assert watch.progress.collapse == (3, "non-finite")
    write(folder, RunStatus(state="started", step=2, at=2.0))
    watch.look(2.0)
    assert_fields(watch.progress, collapse=None, resumed=2, step=2)


def test_a_first_step_without_a_correct_answer_and_what_was_not_graded_are_seen(
    bench: Bench, tmp_path: Path
) -> None:
    observed = {}
    for place, share in enumerate((0.0, 0.25, None)):
        folder = RunFolder(tmp_path / f"gspo/s{place}")
        folder.path.mkdir(parents=True)
        watch = watch_of(bench, folder)
        initial = replace(
            rewarded(0), correct_responses=share, responses=256, grader_errors=64, dropped_groups=32
        )
        write(folder, initial, replace(rewarded(1), correct_responses=1))
        watch.look(1.0)
        observed[share] = watch.progress.none_correct
        assert watch.progress.grader_errors == 64 / (256 + 32 * 2), "with the dropped groups"
    assert observed == {0.0: True, 0.25: False, None: False}, "what is not recorded is not 0"


def test_phases_and_what_each_kind_of_work_takes(bench: Bench, folder: RunFolder) -> None:
    """A start of 4 s, the first evaluation of 6 s, and a slow first step.

    The later steps take 2 s.
    """
    watch = watch_of(bench, folder, steps=8)
    progress = watch.progress
    assert progress.left == {
        ("step", "a"): 8,
        ("start", "a"): 1,
        ("bench sums", "a"): 3,
    }  # at 0, 4 and 8
    watch.look(10.0)
    assert progress.doing == Phase.STARTING
    folder.enter(Phase.EVALUATING)
    write(folder, RunStatus(state="started", step=0, at=1.0))
    watch.look(14.0)
    assert progress.doing == Phase.EVALUATING
    write(folder, ScoreRecord(step=0, bench="sums", score=0.5))
    watch.look(20.0)
    write(folder, rewarded(0, seconds=9.0), rewarded(1, seconds=2.0), rewarded(2, seconds=2.0))
    folder.enter(None)
    watch.look(33.0)
    assert_fields(
        progress,
        doing=Phase.STARTING,
        spent={
            ("start", "a"): (4.0, 1),
            ("bench sums", "a"): (6.0, 1),
            ("step", "a"): (4.0, 2),
        },
        left={("step", "a"): 5, ("start", "a"): 0, ("bench sums", "a"): 2},
    )


@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_program_needs_to_start_is_no_time_of_its_steps(
    bench: Bench, folder: RunFolder, at_once: bool
) -> None:
    """`started` comes after 4 s; the first record ten minutes and 5 s later.

    The ten minutes are a program's start, the 5 s answers. With `at_once` the start's end is seen
    with that record.
    """
    watch = watch_of(bench, folder, steps=8)
    progress = watch.progress
    folder.enter(Phase.STARTING, "verl (Ray, model, vLLM)")
    watch.look(10.0)
    assert_fields(progress, doing=Phase.STARTING, detail="verl (Ray, model, vLLM)", since=10.0)
    write(folder, RunStatus(state="started", step=0, at=1.0))
    watch.look(14.0)
    folder.enter(Phase.TRAINING)
    if not at_once:
        watch.look(614.0)
        assert_fields(progress, doing=Phase.TRAINING, detail="", since=614.0)
    write(folder, ScoreRecord(step=0, bench="sums", score=0.5))
    watch.look(614.0 if at_once else 619.0)
    assert progress.spent == {("start", "a"): (604.0, 1)} | (
        {} if at_once else {("bench sums", "a"): (5.0, 1)}
    )
