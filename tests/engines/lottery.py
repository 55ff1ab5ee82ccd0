"""A real run small enough for a test: an untrained embedded model and a reward that any text can win."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gspo_lab.engines.native.loop import Loop
from gspo_lab.engines.native.setup import set_up
from gspo_lab.records import AnswerRecord, Record, RunStatus, StepRecord, UpdateRecord
from gspo_lab.study import Run

STUDY = """
question = "does the engine do what it says?"
model = "tiny-qwen3"
steps = 2
seeds = [0]
[task]
name = "lottery.py:grade"
problems = "problems.jsonl"
held_out = 0.25
max_tokens = 10
stop = [
  "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m",
  "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z"
]
[rollout]
prompts_per_step = 4
group_size = 4
[update]
minibatches = 4
learning_rate = 1e-3
warmup_updates = 1
checkpoint_every = 1
[record]
rollouts = 1.0
detail_every = 1
[[bench]]
name = "lottery"
problems = 5
every = 1
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""

GRADER = """
def grade(problem, answer):
    return float(sum(answer.encode()) % 3 == 0)
"""


class Memory:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, records: Sequence[Record]) -> None:
        self.records += records

    def of(self, kind: type[Any]) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def updates(self) -> list[UpdateRecord]:
        return self.of(UpdateRecord)

    @property
    def steps(self) -> list[StepRecord]:
        return self.of(StepRecord)

    @property
    def answers(self) -> list[AnswerRecord]:
        return self.of(AnswerRecord)

    @property
    def statuses(self) -> list[RunStatus]:
        return self.of(RunStatus)


MakeRun = Callable[..., Run]


def train(run: Run, folder: Path, stop: Callable[[], bool] = lambda: False) -> Memory:
    """Train from where the folder stands; what was recorded."""
    folder.mkdir(parents=True, exist_ok=True)
    memory = Memory()
    Loop(run, set_up(run, None), memory, folder).run(stop)
    return memory
