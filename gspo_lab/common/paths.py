"""The names of everything under `runs/` (docs/development/architecture.md), and the folder of the
cache.
"""

import hashlib
import os
from pathlib import Path

DATABASE = "lab.db"
DATABASES = "GSPO_LAB_DATABASES"
"""Environment variable with a folder for databases, where they are not to lie beside the runs."""

SUBJECTS = "_subjects"
"""The folder under `runs/` of models and servers that were asked without a run: a folder each, with
SUBJECT.
"""
SUBJECT = "subject.json"
"""What a subject without a run is, in its folder."""
STARTS = "_starts"
"""Warm starts, made once and shared by all studies; GSPO_LAB_CACHE names another place.

It lies beside the runs because every machine that shares those needs it too.
"""
ARCHIVE = "_archive"

STUDY = "study.json"
ACCEPTED = "accepted.json"
BANDS = "bands.json"
CONDUCTOR_LOCK = ".conductor"
MIRROR = "_mirror"
"""Below a study: a folder per program of `[record] mirror`."""

RUN = "run.json"
"""A run to train: Run.to_json(), its folders relative to this one."""
JOURNAL = "journal.jsonl"
LOG = "log.txt"
LAUNCHES = "launches"
"""Below a folder that a worker is started on: what was asked for there of other hosts, and what
became of it.
"""
PHASE = "phase"
"""What a run's worker does, one of `states.Phase`; there while it works."""
LOCK = "lock"
"""Held by who writes the journal beside it; holds its process id."""
CHECKPOINTS = "checkpoints"
RESUME = "resume.pt"
FINAL = "final"
"""Below a run's checkpoints: what it goes on from, and the trained model as a Hugging Face folder.
"""
GRADES = "grades"
"""Below a run, a subject or an evaluation: later grades of its answers."""
EVALUATIONS = "evaluations"
"""Below a run or a subject: a folder per later evaluation, with EVALUATION, what it was declared to
be.
"""
EVALUATION = "evaluation.json"
SEALED_FILES = {BANDS, EVALUATION, SUBJECT}
"""The names of the files that hold their own digest."""

WARM_START = "warm_start.json"
"""A warm start to make: model, task, settings, seed, base and cache."""
PROGRESS = "progress.json"
"""How far a warm start is: {"step": done, "steps": of}."""
MADE = "made.json"
"""The warm start's result: {"path": the model's folder}."""


def cache_folder() -> Path:
    """`$GSPO_LAB_CACHE`, or `~/.cache/gspo-lab`. It need not exist."""
    return Path(os.environ.get("GSPO_LAB_CACHE") or "~/.cache/gspo-lab").expanduser()


def beside(base: Path | None, text: str) -> Path:
    """The file or folder that a study in the folder `base` names; `~` is the home folder."""
    return (base or Path()) / os.path.expanduser(text)  # noqa: PTH111 - it leaves ~nobody alone


def database_of(runs: Path) -> Path:
    """The database of a folder of runs: in that folder, or in `$GSPO_LAB_DATABASES`, by a name of
    its own there.

    SQLite wants a local disk, and runs may have to lie on a shared one.
    """
    folder = os.environ.get(DATABASES)
    if not folder:
        return runs / DATABASE
    where = runs.expanduser().resolve()
    return (
        Path(folder).expanduser()
        / f"{where.name}-{hashlib.sha256(str(where).encode()).hexdigest()[:12]}.db"
    )


def database_lock(database: Path) -> Path:
    """Held by whoever takes journals into the database: `.lab.lock`."""
    return database.with_name(f".{database.stem}.lock")
