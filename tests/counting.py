"""Studies whose runs are real processes with a real engine that only counts."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from calling import python_path
from counting_engine import held_mark
from rich.console import Console
from waiting import until

from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.journal import scan
from gspo_lab.recording.store import Evidence
from gspo_lab.report.views.answer import AnswerView, answer_view
from gspo_lab.running.conduct import StudyOutcome, conduct, outcome
from gspo_lab.study import Study, load_study

ENGINE = Path(__file__).with_name("counting_engine.py")

TOML = """
question = "Do both arms count?"
model = "tiny-qwen3"
task = {{name = "addition", train = 100, held_out = 20}}
engine = "{engine}:CountingEngine"
device = "cpu"
steps = {steps}
seeds = {seeds}

[rollout]
prompts_per_step = 4
group_size = 2

[update]
minibatches = 2
checkpoint_every = 2

[[bench]]
name = "sums"
problems = 10
every = 4

[arm.a]
objective = "grpo"
{a}

[arm.b]
objective = "gspo"
{b}
"""


@dataclass
class Bench:
    """A study file, its runs folder and ways to run it."""

    folder: Path
    steps: int = 4
    seeds: list[int] = field(default_factory=lambda: [0, 1])
    a: str = ""
    b: str = ""
    launch: str = ""
    hold: dict[str, int] = field(default_factory=dict)
    deaf: bool = False
    fail: dict[str, str] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)
    bonus: dict[str, float] = field(default_factory=dict)
    flat: bool = False
    verdict: str = ""
    conductors: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def home(self) -> Path:
        return self.runs / "count"

    @property
    def toml(self) -> Path:
        return self.folder / "count.toml"

    def study(self, **how: Any) -> Study:
        self.folder.mkdir(exist_ok=True)
        toml = TOML.format(engine=ENGINE, steps=self.steps, seeds=self.seeds, a=self.a, b=self.b)
        self.toml.write_text(toml + self.verdict + self.launch)
        (self.folder / "behaviour.json").write_text(
            json.dumps(
                {
                    one: getattr(self, one)
                    for one in ("hold", "deaf", "fail", "right", "bonus", "flat")
                }
            )
        )
        return load_study(self.toml, **how)

    def conduct(self, jobs: int = 2, **how: Any) -> tuple[StudyOutcome, str]:
        """The outcome and what the console showed."""
        return conducted(self.study(), self.runs, jobs=jobs, **how)

    def finish(self, jobs: int = 2, **how: Any) -> tuple[StudyOutcome, str]:
        """The same of a study that comes to its end."""
        found, shown = self.conduct(jobs, **how)
        assert found.exit_code == 0, shown
        return found, shown

    def start(self, jobs: int = 2, on: str = "local") -> "subprocess.Popen[str]":
        """`gspo-lab run`, to be interrupted or killed."""
        self.study()
        where = ["--runs", str(self.runs), "--output-dir", str(self.folder / "reports")]
        words = ["run", str(self.toml), "--on", on, "--jobs", str(jobs), *where]
        command = [sys.executable, "-m", "gspo_lab.cli", *words]
        conductor = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.conductors.append(conductor)
        return conductor

    def until_held(self) -> None:
        """Wait until every run that is to be held is amid its step."""
        until(lambda: all(held_mark(self.folder, run).exists() for run in self.hold))

    def hold_anew(self, hold: dict[str, int]) -> None:
        """Hold these, of the workers that start from now on, and no others."""
        self.hold = hold
        for run in hold:
            held_mark(self.folder, run).unlink(missing_ok=True)
        self.study()

    def end(self) -> None:
        """End what a failed test left running; workers follow their conductor."""
        for conductor in self.conductors:
            if conductor.poll() is None:
                conductor.kill()
                conductor.communicate()

    def journal(self, run: str) -> list[JsonObject]:
        return scan(self.home / run / "journal.jsonl").items

    def steps_of(self, run: str) -> list[int]:
        return [record["step"] for record in self.journal(run) if record["kind"] == "step"]

    def states_of(self, run: str) -> list[tuple[str, int]]:
        return [
            (record["state"], record["step"])
            for record in self.journal(run)
            if record["kind"] == "status"
        ]

    def worker_of(self, run: str) -> int:
        return int((self.home / run / "lock").read_text().split()[0])


def conducted(study: Study, runs: Path, **how: Any) -> tuple[StudyOutcome, str]:
    """The outcome and what the console showed."""
    console = Console(file=io.StringIO(), width=200)
    done = conduct(study, runs, console=console, **how)
    with Evidence.open(runs / "lab.db", runs) as evidence:
        source = Source(evidence, study.name)
        found = outcome(study, source, done.results, interrupted=done.interrupted)
    return found, console.file.getvalue()  # type: ignore[attr-defined]


def answer_in(runs: Path, study: str = "count") -> AnswerView:
    """The answer of a study whose journals are in the database."""
    with Evidence.open(runs / "lab.db", runs) as evidence:
        return answer_view(Source(evidence, study))


@pytest.fixture(scope="session")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of warm starts, which pytest's own workers share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "starts"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def bench(tmp_path: Path, starts: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A study folder of the test's own.

    The warm start is made once for all. Workers are looked after ten times as often as usual.
    """
    monkeypatch.setattr("gspo_lab.running.conduct.worker_pool.TICK_SECONDS", 0.02)
    monkeypatch.setenv("GSPO_LAB_CACHE", str(starts))
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.delenv("GSPO_LAB_JOBS", raising=False)
    bench = Bench(tmp_path)
    yield bench
    bench.end()
