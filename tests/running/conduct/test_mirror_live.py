"""`[record] mirror` of a study that runs.

What it shows meanwhile, and after its conductor was killed.
"""

from pathlib import Path

import pytest
from counting import Bench
from waiting import until

from gspo_lab.common import errors
from gspo_lab.common.errors import LabError
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.records import read_steps

MIRROR = '\n[record]\nmirror = ["tensorboard"]\n'


def rewards(home: Path, run: str) -> dict[int, list[float]]:
    """The rewards by their steps that whole records hold."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    result: dict[int, list[float]] = {}
    for file in (home / "_mirror" / "tensorboard" / run).glob("*"):
        for event in LegacyEventFileLoader(str(file)).Load():
            for entry in event.summary.value:
                if entry.tag == "reward_mean":
                    result.setdefault(event.step, []).append(entry.tensor.double_val[0])
    return result


def test_a_mirror_follows_and_is_whole_after_a_kill(bench: Bench) -> None:
    """During step 3, steps 0 and 1 are known to be whole.

    The next conductor goes on at step 2, its last checkpoint.
    """
    pytest.importorskip("tensorboard")
    bench.steps = 6
    bench.seeds = [0]
    bench.hold = {"a/s0": 3}
    bench.deaf = True
    bench.launch = MIRROR
    conductor = bench.start()
    bench.until_held()
    until(lambda: list(rewards(bench.home, "a/s0")) == [0, 1])
    conductor.kill()
    conductor.communicate()
    bench.hold = {}
    bench.finish()
    with Evidence.open(bench.runs / "lab.db") as evidence:
        frame = read_steps(evidence, "count", ["reward_mean"])
    for run in ("a/s0", "b/s0"):
        recorded = frame[frame["run_id"] == f"count/{run}"]["reward_mean"].tolist()
        assert rewards(bench.home, run) == {step: [reward] for step, reward in enumerate(recorded)}
        assert len(recorded) == 6


def test_a_mirror_that_cannot_be_written_stops_no_study(bench: Bench) -> None:
    pytest.importorskip("tensorboard")
    bench.seeds = [0]
    bench.launch = MIRROR
    bench.home.mkdir(parents=True)
    (bench.home / "_mirror").write_text("in the way")
    _, output = bench.finish()
    assert output.count("the mirror is behind: ") == 1
    assert f"{bench.home / '_mirror' / 'tensorboard'}: cannot be made" in output


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "tensorboard",
            "writing for TensorBoard needs the package tensorboard: pip install 'gspo-lab[import]'",
        ),
        (
            "tensorbord",
            (
                "no program 'tensorbord' to write for (did you mean 'tensorboard'?); known:"
                " tensorboard, "
            ),
        ),
    ],
)
def test_a_mirror_that_cannot_be_made_is_told_before_anything_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, line: str
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda package: None)
    bench.launch = MIRROR.replace("tensorboard", name)
    with pytest.raises(LabError) as refusal:
        bench.conduct()
    assert line in str(refusal.value)
    assert not bench.runs.exists()
