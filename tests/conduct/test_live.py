"""What people see while runs train: the phase, the time that is gone, and a collapse when it happens."""

import io
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from gspo_lab.conduct.live import LiveView, open_view
from gspo_lab.conduct.watch import RunWatch
from gspo_lab.conduct.work import Errand
from gspo_lab.journal import Journal
from gspo_lab.launch.base import Slot
from gspo_lab.records import RunStatus, StepRecord, UpdateRecord
from gspo_lab.runfolder import RunFolder
from gspo_lab.states import State

CORE = Slot("core", "0", {})


def rewarded(step: int, reward: float) -> StepRecord:
    return StepRecord(step=step, prompts=2, responses=4, reward_mean=reward)


def errand_of(folder: Path, steps: int = 100) -> Errand:
    folder.mkdir(parents=True, exist_ok=True)
    watch = RunWatch(RunFolder(folder), steps)
    watch.progress.state = State.RUNNING
    return Errand("gspo/s1", RunFolder(folder), watch)


def written(folder: Path, *records: StepRecord | UpdateRecord | RunStatus) -> None:
    with Journal(folder) as journal:
        journal.write(list(records))


def test_a_collapse_is_told_once_as_it_happens(tmp_path: Path) -> None:
    folder = tmp_path / "gspo/s1"
    errand = errand_of(folder)
    screen, told = io.StringIO(), io.StringIO()
    with ExitStack() as stack:
        slots = [CORE]
        began = time.monotonic() - 200
        lines = open_view(stack, Console(file=told, width=200), "toy: training", [errand], slots, True, began)
        terminal = Console(file=screen, width=200, force_terminal=True)
        table = stack.enter_context(LiveView(terminal, "toy: training", [errand], slots, began))
        lines.place(errand)
        for step in range(40):
            written(folder, rewarded(step, 0.5 if step < 20 else 0.0))
            errand.watch.look(float(step))
            now = time.monotonic()
            lines.tick(now)
            table._drawn = 0.0
            table.tick(now)
            # The sixth reward of 0 brings the moving average below half: (.9^6 - .9^26) / (1 - .9^26) = .499.
            assert ("collapsed" in told.getvalue()) == (step >= 34)
    assert told.getvalue().splitlines()[0] == "toy: training: 1 to do, 1 at once"
    assert told.getvalue().count("gspo/s1: collapsed at step 25 (reward)") == 1
    assert screen.getvalue().count("gspo/s1: collapsed at step 25 (reward)") == 1
    assert "3 min 20 s gone" in screen.getvalue()


def test_a_line_says_how_much_time_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "gspo/s1"
    errand = errand_of(folder, steps=4)
    told = io.StringIO()
    now = time.monotonic()
    with ExitStack() as stack:
        lines = open_view(stack, Console(file=told, width=200), "toy", [errand], [CORE], False, now - 85)
        lines.place(errand)
        written(folder, rewarded(0, 0.5), rewarded(1, 0.5))
        errand.watch.look(now)
        lines.tick(now + 10)
    assert "step 2/4, reward 0.500; all: 1 min 35 s gone" in told.getvalue()


def test_what_a_worker_takes_back_counts_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "gspo/s1"
    dead = UpdateRecord(step=3, minibatch=0, nonfinite=1)
    folder.mkdir(parents=True)
    written(folder, RunStatus(state="started", step=0, at=1.0), rewarded(0, 0.5), dead)
    errand = errand_of(folder)
    assert errand.watch.progress.collapse is None
    written(folder, rewarded(1, 0.5))
    errand.watch.look(1.0)
    assert errand.watch.progress.collapse == (3, "non-finite")
    written(folder, RunStatus(state="started", step=2, at=2.0))
    errand.watch.look(2.0)
    assert errand.watch.progress.collapse is None


def test_a_first_step_without_a_correct_answer_is_told_once(tmp_path: Path) -> None:
    folders = {share: tmp_path / f"gspo/s{place}" for place, share in enumerate((0.0, 0.25, None))}
    said = {}
    for share, folder in folders.items():
        errand, told = errand_of(folder), io.StringIO()
        with ExitStack() as stack:
            began = time.monotonic()
            view = open_view(stack, Console(file=told, width=300), "toy", [errand], [CORE], True, began)
            view.place(errand)
            for step in range(3):
                record = StepRecord(step=step, prompts=2, responses=4, reward_mean=0.4, correct_responses=share)
                written(folder, record)
                errand.watch.look(float(step))
                view.tick(time.monotonic())
        said[share] = told.getvalue().count("no answer of its first step was correct")
    assert said == {0.0: 1, 0.25: 0, None: 0}, "what is not recorded is not 0"
