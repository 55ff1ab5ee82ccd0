"""Where a run stands, and with what number a process ends: one list of words and one of numbers, for every room."""

from enum import IntEnum, StrEnum

STARTED = "started"
"""A journal's word at a worker's beginning. Whether that is RUNNING or INTERRUPTED by now, only its lock can tell."""


class State(StrEnum):
    """Where a run stands by one name in journals, the database, plans and what people see.

    QUEUED and LOST are a launcher's words: neither a journal nor the database ever says them.
    """

    PLANNED = "planned"
    """Nothing is recorded."""
    QUEUED = "queued"
    """It waits for a place: here, or where its launcher has put it."""
    RUNNING = "running"
    """A worker is at it."""
    LOST = "lost"
    """Its launcher does not know what became of its worker; it may come back, or be started elsewhere."""
    INTERRUPTED = "interrupted"
    """Its worker has gone without a word."""
    STOPPED = "stopped"
    """It was asked to stop, and has finished its step and saved."""
    FAILED = "failed"
    FINISHED = "finished"
    MISSING = "missing"
    """Its folder has gone; of the database alone."""


class Phase(StrEnum):
    """What a running worker does, as it says in its folder."""

    STARTING = "starting"
    """It loads the model, or resumes."""
    SAMPLING = "sampling"
    UPDATING = "updating"
    EVALUATING = "evaluating"
    TRAINING = "training"
    """It samples or updates: its engine does not say which."""


LAST_WORDS = (State.STOPPED, State.FAILED, State.FINISHED)
"""What a worker says of itself when it leaves."""


class Exit(IntEnum):
    """A worker's exit code, and a command's."""

    FINISHED = 0
    CRASHED = 1
    INCOMPLETE = 1
    """Of a command: it came to its end, and not all is done."""
    REFUSED = 2
    """What the user can mend: a LabError."""
    STOPPED = 3
    """On request: the step is finished and saved."""
    OCCUPIED = 74
    """Another worker is at work in the folder: this one has done nothing."""
    LOST = 75
    """A launcher's word for a worker that it has given up, never a worker's own."""
    CANCELLED = 76
    """A launcher's word for a worker whose job somebody cancelled, never a worker's own."""
    INTERRUPTED = 130
    """By Ctrl-C: of a command, or of a worker that was told twice."""


def state_of_exit(code: int) -> State:
    """What a worker's exit code makes of its run."""
    known: dict[int, State] = {
        Exit.FINISHED: State.FINISHED,
        Exit.STOPPED: State.STOPPED,
        Exit.CANCELLED: State.STOPPED,
        Exit.OCCUPIED: State.STOPPED,
        Exit.LOST: State.LOST,
    }
    return known.get(code, State.FAILED)
