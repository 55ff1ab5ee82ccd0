"""`gspo-lab engines check NAME`: the lab's own engine passes.

Each rule that an engine breaks is one line.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from calling import Said, gspo_lab, lab_error
from torch import Tensor

from gspo_lab.common.registry import names_of
from gspo_lab.training.engines.conformance import _check_losses

ENGINE = """
from pathlib import Path

from gspo_lab.training.engines.base import Capabilities
from gspo_lab.recording.records import RunStatus, StepRecord


class Engine:
    capabilities = Capabilities(
        settings=("model", "steps", "device", "rollout", "update", "record", "objective"), records={"reward_mean": ""}
    )

    def train(self, run, sink, folder, stop):
        sink.write([RunStatus(state="started", step=0, FACTS)])
        for step in range(run.settings.steps):
            sink.write([StepRecord(step=step, prompts=4, responses=32, reward_mean=0.5 MORE)])
        return True
"""  # noqa: E501
GOOD = ENGINE.replace("FACTS", "facts={'python': '3'}").replace(" MORE", "")


def test_the_native_engine_does_what_an_engine_should() -> None:
    process = gspo_lab("engines", "check", "native", "--device", "cpu")
    assert process.code == 0, process.err
    # Three steps of two mini-batches; five problems at the start and at the end; a group of four
    # responses kept whole.
    assert process.out == "native works: 3 steps, 6 updates, 14 answers\n"


def check(name: str, text: str) -> Said:
    Path(f"{name}.py").write_text(text)
    Path(f"{name}.toml").write_text('proof = ["bench=[]"]')  # what it cannot do
    return gspo_lab("engines", "check", f"{name}.py:Engine", "--device", "cpu")


def test_an_engine_of_your_own_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    process = check("mine", GOOD)
    assert (process.code, "mine.py:Engine works: 3 steps" in process.out) == (0, True), process
    Path("mine.toml").unlink()
    process = gspo_lab("engines", "check", "mine.py:Engine", "--device", "cpu")
    assert "would ignore [[bench]]; it can vary" in process.err
    assert "`proof`: docs/reference/engines.md" in process.err
    process = check("bad", ENGINE.replace("FACTS", "facts=None").replace(" MORE", ", entropy=1.0"))
    assert process.code == 2
    assert "it writes no RunStatus(state='started') with facts" in process.err
    assert "it fills entropy, which its capabilities.records do not name" in process.err
    losses = "    losses = {'gspo': lambda *tensors: tensors[0].mean()}\n\n    def train"
    process = check("unlike", GOOD.replace("    def train", losses))
    assert (
        "the engine 'unlike.py:Engine': the loss is not gspo's: old_logp is ignored" in process.err
    )


def test_a_loss_that_cannot_be_tested_is_one_line() -> None:
    def asserts(*tensors: Tensor) -> Tensor:
        raise AssertionError

    with lab_error("the engine 'own': its loss for gspo asserts$"):
        _check_losses("own", {"gspo": asserts})
    with lab_error("the engine 'own': losses: no rule 'dapo'; name "):
        _check_losses("own", {"dapo": asserts})


def test_an_engine_that_never_stops_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write = "sink.write([StepRecord("
    process = check(
        "deaf", GOOD.replace(write, f"__import__('time').sleep(1.3)\n            {write}")
    )
    assert (process.code, "trained 2 more steps after it was asked to stop" in process.err) == (
        2,
        True,
    ), process.out + process.err


def test_an_installed_package_adds_an_engine_by_an_entry_point(
    add_entry_points: Callable[[str], None],
) -> None:
    add_entry_points("[gspo_lab.engines]\ntheirs = theirs:Engine\nnative = theirs:Engine\n")
    table = {"native": "gspo_lab.training.engines.native:NativeEngine"}
    assert names_of("engine", table) == {
        "theirs": "theirs:Engine",
        **table,
    }, "the lab's own names stay"
