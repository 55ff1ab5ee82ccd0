"""The states of runs and the exit codes of processes, the same in the whole package."""

from enum import IntEnum, StrEnum

STARTED = "started"
"""The status that a worker writes first.

Its lock tells whether the run is RUNNING or INTERRUPTED since.
"""


class State(StrEnum):
    """The state of a run, by one name in journals, database, plans and reports.

    Only launchers use QUEUED and LOST, never a journal or the database.
    """

    PLANNED = "planned"
    """Nothing is recorded."""
    QUEUED = "queued"
    """It waits for a slot, here or at its launcher."""
    RUNNING = "running"
    """A worker trains it."""
    LOST = "lost"
    """Its launcher has lost its worker, which may come back or be started elsewhere."""
    INTERRUPTED = "interrupted"
    """Its worker died without a last status."""
    STOPPED = "stopped"
    """It stopped on request, after finishing its step and saving."""
    FAILED = "failed"
    FINISHED = "finished"
    MISSING = "missing"
    """Its folder is gone; only in the database."""


class Phase(StrEnum):
    """The phase of a running worker, which it writes into its folder."""

    STARTING = "starting"
    """It loads the model, or resumes."""
    SAMPLING = "sampling"
    UPDATING = "updating"
    EVALUATING = "evaluating"
    TRAINING = "training"
    """It samples or updates: its engine does not say which."""


LAST_WORDS = (State.STOPPED, State.FAILED, State.FINISHED)
"""The last status of a worker."""


class Exit(IntEnum):
    """A worker's exit code, and a command's."""

    FINISHED = 0
    CRASHED = 1
    INCOMPLETE = 1
    """A command ended, but some work is missing."""
    REFUSED = 2
    """A mistake that the user can correct: a LabError."""
    STOPPED = 3
    """On request: the step is finished and saved."""
    OCCUPIED = 74
    """Another worker holds the folder: this one has done nothing."""
    LOST = 75
    """Set by a launcher for a worker that it has given up."""
    CANCELLED = 76
    """Set by a launcher for a worker whose job was cancelled."""
    INTERRUPTED = 130
    """Ctrl-C ended a command, or a second signal a worker."""


def state_of_exit(code: int) -> State:
    """The state of a run after its worker's exit code."""
    states: dict[int, State] = {
        Exit.FINISHED: State.FINISHED,
        Exit.STOPPED: State.STOPPED,
        Exit.CANCELLED: State.STOPPED,
        Exit.OCCUPIED: State.STOPPED,
        Exit.LOST: State.LOST,
    }
    return states.get(code, State.FAILED)
