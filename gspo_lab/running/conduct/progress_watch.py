"""The progress of a worker, read from the files in its folder."""

from collections.abc import Sequence

from gspo_lab.analysis.stats.collapse import stability
from gspo_lab.common.plain_data import JsonObject, OptionalFloat
from gspo_lab.common.states import STARTED, Phase
from gspo_lab.recording import journal
from gspo_lab.recording.records import ROLLOUT
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.recording.runfolder import RunFolder, StartFolder
from gspo_lab.running.progress import WARM_START_STEP, Progress
from gspo_lab.study import Run


class RunWatch:
    """Follows a run's journal from its present end; the test for a collapse uses all steps.

    The time of a step is what its engine recorded, else the time between two records. The time of a
    benchmark runs from the record before its answers, per answer to each problem. The time in the
    phase `starting` belongs to the start, even after the engine recorded `started`.
    """

    def __init__(self, folder: RunFolder, run: Run, steps: int | None = None) -> None:
        self._settings = run.settings
        self._arm = run.arm
        self._folder = folder
        status = folder.status()
        self.progress = Progress(run.settings.steps if steps is None else steps, status.steps)
        self.path = folder.journal
        self._offset = self._size = self.path.stat().st_size if self.path.exists() else 0
        self._latest: OptionalFloat = None
        self._phase = Phase.STARTING
        self._steps_of_worker = 0
        self._evaluated: dict[str, int] = {}
        self._clips: list[tuple[float, float]] = []
        self._failed = self._graded = 0
        self._rewards: dict[int, float] = {}
        self._nonfinite: set[int] = set()
        for record in journal.scan(self.path).items if self._size else ():
            self._store(record)
            self._time(record, None)
        self._count_left()

    def look(self, now: float) -> bool:
        """Read the new lines of the run's journal; True if there are any."""
        if self._latest is None:
            self._latest = self.progress.since = now
        former_phase = self._phase
        phase, self.progress.detail = self._folder.phase()
        self._phase = phase or Phase.STARTING
        if self._phase is not former_phase:
            self.progress.since = now
        silent = (
            self._phase is Phase.STARTING and self._steps_of_worker
        )  # its engine reports only steps
        self.progress.phase = Phase.TRAINING if silent else self._phase
        size = self.path.stat().st_size if self.path.exists() else 0
        new: Sequence[JsonObject] = ()
        if size != self._size:
            self._size = size
            scanned = journal.scan(self.path, self._offset)
            self._offset = scanned.end
            new = scanned.items
        if former_phase is Phase.STARTING is not self._phase and not any(
            _starts(record) for record in new
        ):
            self.progress.spend(
                ("start", self._arm), now - self._latest, 0
            )  # its `started` counted as the one start
            self._latest = now
        for record in new:
            self._time(record, now)
            self._update_progress(record)
            self._store(record)
        if new:
            self._latest = now
            self._count_left()
            self._judge()
        return bool(new)

    def _time(self, record: JsonObject, now: OptionalFloat) -> None:
        """Count the time of the work behind a record; `now` None: the watch had not begun."""
        kind = record.get("kind")
        passed = 0.0 if now is None or self._latest is None else now - self._latest
        if kind == "step":
            seconds = (record.get("seconds_step") or passed) + (record.get("seconds_record") or 0.0)
            if (
                self._steps_of_worker == 1
            ):  # a worker's first step carries costs that later ones do not
                self.progress.spent.pop(("step", self._arm), None)
            if seconds:
                self.progress.spend(("step", self._arm), seconds, 1)
            self._steps_of_worker += 1
        elif _starts(record):
            self._steps_of_worker = 0
            self._evaluated = {
                bench: step for bench, step in self._evaluated.items() if step < record["step"]
            }
            if passed:
                self.progress.spend(("start", self._arm), passed, 1)
        elif kind in ("answer", "score") and record.get("bench") != ROLLOUT:
            bench = record["bench"]
            step = record["step"]
            if self._evaluated.get(bench, -1) < step:
                self._evaluated[bench] = step
                table = next((entry for entry in self._settings.bench if entry.name == bench), None)
                if passed and table is not None:
                    samples = table.samples_at(step, self._settings.steps)
                    self.progress.spend((f"bench {bench}", self._arm), passed, samples)
                    self._latest = now
        else:
            return
        if now is not None:
            self._latest = now

    def _count_left(self) -> None:
        progress = self.progress
        steps = self._settings.steps
        remaining = {("step", self._arm): float(max(0, progress.steps - progress.step))}
        remaining["start", self._arm] = float(self._latest is None)
        for bench in self._settings.bench:
            latest = self._evaluated.get(bench.name, -1)
            due = [
                step_due for step_due in bench.moments(steps) if latest < step_due <= progress.steps
            ]
            remaining[f"bench {bench.name}", self._arm] = float(
                sum(bench.samples_at(step_due, steps) for step_due in due)
            )
        progress.left = remaining

    def _store(self, record: JsonObject) -> None:
        """Store the data of the collapse rule; a worker that resumes voids the steps after its
        checkpoint.
        """
        kind = record.get("kind")
        if kind == "step" and record.get("reward_mean") is not None:
            self._rewards[record["step"]] = record["reward_mean"]
        elif kind == "update" and record.get("nonfinite"):
            self._nonfinite.add(record["step"])
        elif _starts(record):
            self._rewards = {
                step: reward for step, reward in self._rewards.items() if step < record["step"]
            }
            self._nonfinite = {step for step in self._nonfinite if step < record["step"]}

    def _judge(self) -> None:
        steps = sorted(self._rewards)
        rewards = [self._rewards[step] for step in steps]
        judged = stability(
            steps, rewards, self.progress.steps, nonfinite_steps=sorted(self._nonfinite)
        )
        self.progress.collapse = (
            None if judged.collapse is None else (judged.collapse, judged.cause or "")
        )

    def _update_progress(self, record: JsonObject) -> None:
        progress = self.progress
        kind = record.get("kind")
        if kind == "update" and record.get(CLIP_FRACTION) is not None:
            self._clips.append((record[CLIP_FRACTION], record.get("response_tokens") or 1))
        elif kind == "step":
            progress.reward = record.get("reward_mean")
            progress.none_correct |= record["step"] == 0 and record.get("correct_responses") == 0
            tokens = sum(weight for _, weight in self._clips)
            progress.clip = (
                sum(share * weight for share, weight in self._clips) / tokens if tokens else None
            )
            self._clips.clear()
            if record.get("grader_errors") is not None:
                self._failed += record["grader_errors"]
                dropped = (record.get("dropped_groups") or 0) * self._settings.rollout.group_size
                self._graded += record["responses"] + dropped
                progress.grader_errors = self._failed / self._graded if self._graded else None
            progress.step = record["step"] + 1
        elif _starts(record):
            self._clips.clear()
            progress.resumed = record["step"] or None
            progress.step = record["step"]


def _starts(record: JsonObject) -> bool:
    return record.get("kind") == "status" and record["state"] == STARTED


class StartWatch:
    """Follows the training of a warm start."""

    def __init__(self, folder: StartFolder) -> None:
        self._folder = folder
        self._latest: OptionalFloat = None
        self._kind = (WARM_START_STEP, "")
        self.progress = Progress(folder.request()["warm_start"]["steps"], phase=Phase.STARTING)
        self.progress.left = {self._kind: self.progress.steps}

    def look(self, now: float) -> bool:
        """Read the warm start's step; True if it changed."""
        progress = self.progress
        step = progress.steps if self._folder.model_folder() else self._folder.steps_done()
        if step == progress.step:
            return False
        if self._latest is not None:
            progress.spend(self._kind, now - self._latest, step - progress.step)
        self._latest = now
        progress.step = step
        progress.phase = Phase.TRAINING
        progress.left = {self._kind: progress.steps - step}
        return True
