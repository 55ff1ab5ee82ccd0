"""Engines whose training is another program, in an environment of its own: what they have in
common.

    run ── prompts, configuration ──> NAME/attempt-n/ ── the program's command ──> its log, answers,
    updates ──> records

The lab talks to the program through that folder, that command and that log. The package `plugin/`
of each engine is what the program's own processes import of the lab. An engine of this kind is a
subclass of `ExternalEngine`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.common.registry import look_up, nearest
from gspo_lab.study import Run, Settings
from gspo_lab.training.engines.base import Capabilities, Sink, Stop
from gspo_lab.training.engines.external.attempt import PreparedAttempt
from gspo_lab.training.engines.virtualenvs import python_of

NEED_TORCH = {
    "prepare": "gspo_lab.training.engines.external.training:prepare",
    "train": "gspo_lab.training.engines.external.training:train",
}
"""The functions that need torch: a missing package is one line that says what to install."""


def check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """LabError where an option's value is none of those known."""
    if value not in choices:
        raise LabError(
            f"engine.options.{option} = {value!r}{nearest(str(value), choices)}:"
            f" {', '.join(choices)}"
        )


def check_count(option: str, value: object) -> None:
    """LabError where an option's value is no whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise LabError(f"engine.options.{option} = {value!r}: a whole number from 1 on")


class ExternalEngine(ABC):
    """One program as an engine. `name` is the engine's, `program` what its makers call it."""

    capabilities: Capabilities
    name: ClassVar[str]
    program: ClassVar[str]
    packages: ClassVar[Sequence[str]]
    """Packages of its environment whose versions are facts of a run."""
    starts: ClassVar[str]
    """What it starts before its first response, for people."""
    asks_benchmarks: ClassVar[bool] = True
    """Whether the program evaluates; else the lab evaluates the models that it saves, and the
    program waits for that.
    """

    @property
    @abstractmethod
    def world_size(self) -> int:
        """Training processes of one run, on all machines."""

    @abstractmethod
    def refusals(self, settings: Settings) -> Iterator[str]:
        """What the program would refuse, ignore or change, each as the end of a sentence; options
        are checked first.
        """

    def check(self, settings: Settings) -> None:
        """LabError for what the program would refuse, ignore or change."""
        for why in self.refusals(settings):
            raise LabError(f"the engine '{self.name}' {why}")

    @abstractmethod
    def configure(self, prepared: PreparedAttempt) -> tuple[list[str], dict[str, str]]:
        """Write the program's configuration into the attempt's folder; its command, whose first
        word is a Python, and environment."""

    @abstractmethod
    def saved_steps(self, home: Path, run: Run, recorded: int) -> int:
        """How many steps the last whole checkpoint has of the `recorded` ones, 0 without one; all
        other checkpoints are deleted."""

    @abstractmethod
    def model_after(self, home: Path, run: Run, step: int) -> Path:
        """The Hugging Face folder that the program leaves after so many steps: after the last, and
        after all at which a benchmark is due where the program does not evaluate."""

    @abstractmethod
    def step_columns(self, data: JsonMapping) -> JsonMapping:
        """What the program's log says of a rollout batch, by columns of steps; `seconds_step` is
        always among them.
        """

    def ready(self) -> None:
        """LabError where the program's environment was not made."""
        python_of(self.name)

    def check_here(self, *, on_gpu: bool) -> None:  # noqa: B027
        """LabError where this machine lacks what the options ask for."""

    def write(self, run: Run, folder: Path) -> list[str]:
        """Write what the program would be given to train the run from its beginning; its command.
        With `device = "cuda"` it is what a machine with GPUs would be given."""
        on_gpu = run.settings.device == "cuda"
        return self.configure(
            look_up("engine", "prepare", NEED_TORCH)(self, run, folder.resolve(), on_gpu=on_gpu)
        )[0]

    def train(self, run: Run, sink: Sink, folder: Path, stop: Stop) -> bool:
        """Train the run from where its folder stands; whether it came to its end."""
        return bool(look_up("engine", "train", NEED_TORCH)(self, run, sink, folder.resolve(), stop))
