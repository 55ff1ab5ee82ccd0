"""An engine whose training is another program, on a small one.

The program copies its model and has its answers ready.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lottery import MakeRun, Memory

from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.recording.records import StepRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Run, Settings
from gspo_lab.training.engines.base import Capabilities
from gspo_lab.training.engines.external.attempt import PreparedAttempt
from gspo_lab.training.engines.external.engine import ExternalEngine
from gspo_lab.training.engines.external.training import train
from gspo_lab.training.engines.virtualenvs import home_of

PROGRAM = """
import json, shutil, sys
answers, model = json.load(open("given.json"))
for step in range(4):
    with open("answers.jsonl", "a") as file:
        file.write("".join(json.dumps(one) + "\\n" for one in answers if one["step"] == step))
    with open("updates.jsonl", "a") as file:
        lines = [{"kind": "update", "step": step, "minibatch": k, "world": 1} for k in (0, 1)]
        file.write("".join(json.dumps(one) + "\\n" for one in lines))
    shutil.copytree(model, f"../saved/{step + 1}")
    with open("log.jsonl", "a") as file:
        file.write(json.dumps({"step": step + 1, "data": {}}) + "\\n")
    assert sys.stdin.readline() == "written\\n"
"""


class Copies(ExternalEngine):
    """Saves its start as the model of every step; benchmarks are the lab's to ask."""

    name = "copies"
    program = "Copies"
    starts = "nothing"
    packages = ()
    capabilities = Capabilities()
    world_size = 1
    asks_benchmarks = False

    def refusals(self, settings: Settings) -> Iterator[str]:
        yield from ()

    def configure(self, prepared: PreparedAttempt) -> tuple[list[str], dict[str, str]]:
        answers = [
            {
                "kind": "answer",
                "bench": "rollout",
                "text": "",
                "reward": 1.0,
                "tokens": 4,
                "truncated": 0,
            }
            | {
                "step": prompt.step,
                "place": prompt.place,
                "problem": prompt.problem.id,
                "sample": sample,
            }
            | {"ids": "i", "logprobs": "l"}
            for prompt in prepared.training
            for sample in range(prompt.samples)
        ]
        assert not prepared.benches
        (prepared.attempt.path / "given.json").write_text(json.dumps([answers, prepared.model]))
        return ["python", "-u", "-c", PROGRAM], {}

    def saved_steps(self, home: Path, run: Run, recorded: int) -> int:
        return 0

    def model_after(self, home: Path, run: Run, step: int) -> Path:
        return home / "saved" / str(step)

    def step_columns(self, data: JsonMapping) -> JsonMapping:
        return {"seconds_step": 1.0}


class Looked(Memory):
    """The models in the run's folder at every step.

    With every batch of records, also what the run is doing.
    """

    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self.home = folder
        self.saved: list[list[str]] = []
        self.doing: list[str] = []

    def write(self, records: Any) -> None:
        super().write(records)
        self.doing.append(" ".join(filter(None, self.home.phase())))
        steps = [record.step for record in records if isinstance(record, StepRecord)]
        self.saved += [
            sorted(path.name for path in self.home.path.glob("copies/saved/*")) for _ in steps
        ]


def test_the_lab_evaluates_the_models_that_a_program_saves(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GSPO_LAB_CACHE", str(tmp_path / "cache"))
    (home_of("copies") / "bin").mkdir(parents=True)
    (home_of("copies") / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    changes = (
        "steps=4",
        "bench.lottery.every=2",
        "bench.lottery.decisive_samples=3",
        "verdict.last=1",
    )
    run = make_run("gspo", *changes, "update.minibatches=2", "device=cpu")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    sink = Looked(folder)
    assert train(Copies(), run, sink, folder.path, lambda: False)
    bench_answers = [answer for answer in sink.answers if answer.bench == "lottery"]
    counts = {
        step: sum(answer.step == step for answer in bench_answers) for step in (0, 1, 2, 3, 4)
    }
    assert counts == {0: 5, 1: 0, 2: 5, 3: 0, 4: 15}, (
        "five problems; three samples each where it decides"
    )
    start = {answer.problem: answer.text for answer in bench_answers if answer.step == 0}
    assert start == {answer.problem: answer.text for answer in bench_answers if answer.step == 2}, (
        "one model, the same random numbers"
    )
    order = [
        (type(answer).__name__, answer.step)
        for answer in sink.records
        if getattr(answer, "bench", "") != "rollout"
    ]
    assert order.index(("AnswerRecord", 2)) < order.index(("StepRecord", 1)), (
        "a step is recorded when it is evaluated"
    )
    assert sink.saved == [["1"], ["2"], ["3"], ["4"]], (
        "one model at a time, which waits for its evaluation"
    )
    starting = "starting Copies (nothing)"
    assert [answer for answer in sink.doing if answer != "training"] == [
        "",
        "evaluating",
        starting,
        "evaluating",
        "evaluating",
    ]
    assert (folder.final / "config.json").is_file()
    assert not (folder.path / "copies" / "saved").exists()
