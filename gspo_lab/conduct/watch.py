"""How far a worker is, read from what it leaves in its folder: nothing is asked of the worker itself."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from gspo_lab import journal
from gspo_lab.runfolder import RunFolder, StartFolder
from gspo_lab.states import STARTED, State


@dataclass
class Progress:
    """What is known of one errand. `reward` and `clip`, the share of the step's tokens, are those of its last step.

    `grader_errors` is the share of the responses of all steps seen on which the grader failed; `collapse` the step at
    which the run collapsed and by what; `none_correct` that no response of its first step was correct; `place` where
    its launcher says that its worker is; `resumed` the step at which its worker has just gone on, until that was shown.
    Times are of a monotonic clock.
    """

    steps: int
    step: int = 0
    reward: float | None = None
    clip: float | None = None
    grader_errors: float | None = None
    collapse: tuple[int, str] | None = None
    none_correct: bool = False
    state: State = State.QUEUED
    place: str = ""
    resumed: int | None = None
    first: tuple[float, int] | None = field(default=None, repr=False)
    last: tuple[float, int] | None = field(default=None, repr=False)

    def mark(self, now: float, step: int) -> None:
        """Note that `step` was reached at `now`, in seconds of a clock that never goes back."""
        self.step = step
        self.last = (now, step)
        if self.first is None or step < self.first[1]:
            self.first = self.last

    @property
    def seconds_per_step(self) -> float | None:
        """Wall clock between the steps seen, evaluations and checkpoints included; None before the second."""
        if self.first is None or self.last is None or self.last[1] <= self.first[1]:
            return None
        return (self.last[0] - self.first[0]) / (self.last[1] - self.first[1])


class Watch(Protocol):
    """Looks how far an errand is, in `progress`."""

    progress: Progress

    def look(self, now: float) -> bool:
        """Read what is new; whether anything was."""
        ...


class RunWatch:
    """Follows a run's journal from its present end; whether the run collapses is judged from its first step on."""

    def __init__(self, folder: RunFolder, steps: int, group_size: int = 1) -> None:
        self.path = folder.journal
        self.progress = Progress(steps, folder.standing().steps)
        self._offset = self._size = self.path.stat().st_size if self.path.exists() else 0
        self._clips: list[tuple[float, float]] = []
        self._failed = self._graded = 0
        self._group_size = group_size
        self._rewards: dict[int, float] = {}
        self._dead: set[int] = set()
        for record in journal.scan(self.path).items if self._size else ():
            self._keep(record)

    def look(self, now: float) -> bool:
        """Read what the run's journal has got since; whether that was anything."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size == self._size:
            return False
        self._size = size
        found = journal.scan(self.path, self._offset)
        self._offset = found.end
        for record in found.items:
            self._take(record, now)
            self._keep(record)
        if found.items:
            self._judge()
        return bool(found.items)

    def _keep(self, record: dict[str, Any]) -> None:
        """What the rule of collapse needs; a worker that starts again voids what lies behind its step."""
        kind = record.get("kind")
        if kind == "step" and record.get("reward_mean") is not None:
            self._rewards[record["step"]] = record["reward_mean"]
        elif kind == "update" and record.get("nonfinite"):
            self._dead.add(record["step"])
        elif kind == "status" and record["state"] == STARTED:
            self._rewards = {step: reward for step, reward in self._rewards.items() if step < record["step"]}
            self._dead = {step for step in self._dead if step < record["step"]}

    def _judge(self) -> None:
        """By the rule that the report judges by, on the steps so far."""
        from gspo_lab.stats.collapse import stability  # numpy: not where only a duration is told

        steps = sorted(self._rewards)
        found = stability(
            steps, [self._rewards[step] for step in steps], self.progress.steps, nonfinite_steps=sorted(self._dead)
        )
        self.progress.collapse = None if found.collapse is None else (found.collapse, found.cause or "")

    def _take(self, record: dict[str, Any], now: float) -> None:
        if record.get("kind") == "update" and record.get("clip_fraction_tokens") is not None:
            self._clips.append((record["clip_fraction_tokens"], record.get("response_tokens") or 1))
        elif record.get("kind") == "step":
            self.progress.reward = record.get("reward_mean")
            self.progress.none_correct |= record["step"] == 0 and record.get("correct_responses") == 0
            self.progress.clip = _pooled(self._clips)
            self._clips.clear()
            if record.get("grader_errors") is not None:
                self._failed += record["grader_errors"]
                self._graded += record["responses"] + (record.get("dropped_groups") or 0) * self._group_size
                self.progress.grader_errors = self._failed / self._graded if self._graded else None
            self.progress.mark(now, record["step"] + 1)
        elif record.get("kind") == "status" and record["state"] == STARTED:
            self._clips.clear()
            self.progress.resumed = record["step"] or None
            self.progress.mark(now, record["step"])


def _pooled(rows: list[tuple[float, float]]) -> float | None:
    """The mean of (value, weight), as the report pools the updates of a step."""
    import numpy as np

    from gspo_lab.readings import pooled

    values, weights = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    return pooled(values, weights).value


class StartWatch:
    """Follows the making of a warm start."""

    def __init__(self, folder: StartFolder) -> None:
        self.folder = folder
        self.progress = Progress(folder.wish()["warm_start"]["steps"])

    def look(self, now: float) -> bool:
        """Read how far the warm start is; whether that has changed."""
        step = self.progress.steps if self.folder.made() else self.folder.steps_done()
        if step == self.progress.step:
            return False
        self.progress.mark(now, step)
        return True
