"""What the lab does that leaves files, each as a command in a folder.

Each states what must lie there when the command has ended well, however often it was killed before.
"""

import functools
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from synthetic_lab import make_lab

from gspo_lab.common.atomic_files import write_json
from gspo_lab.common.paths import RUN
from gspo_lab.common.plain_data import Strings
from gspo_lab.recording.journal import scan
from gspo_lab.recording.records import RunStatus, is_time
from gspo_lab.recording.runfolder import RunFolder, StartFolder
from gspo_lab.study import load_study
from gspo_lab.training.models.builtin_models import build, byte_tokenizer

GRADER = """
def grade(problem, answer):
    return float(sum(answer.encode()) % 3 == 0)
"""
LOTTERY = """
question = "Does it end as if nothing had happened?"
model = "tiny-qwen3"
steps = 3
seeds = [0]
[task]
name = "lottery.py:grade"
problems = "problems.jsonl"
max_tokens = 5
[rollout]
prompts_per_step = 2
group_size = 4
[update]
minibatches = 2
checkpoint_every = 1
[record]
rollouts = 1.0
[[bench]]
name = "lottery"
problems = 3
every = 1
[arm.gspo]
objective = "gspo"
"""
COUNTED = """
question = "Do both arms count?"
model = "model"
task = {{name = "addition", train = 100, held_out = 20}}
engine = "{engine}:CountingEngine"
device = "cpu"
steps = 4
seeds = [0]
[update]
checkpoint_every = 1
[[bench]]
name = "sums"
problems = 10
every = 4
[arm.a]
objective = "grpo"
[arm.b]
objective = "gspo"
"""
ENGINE = Path(__file__).parents[1] / "counting_engine.py"
KEYS = ("kind", "step", "minibatch", "bench", "problem", "sample")
RUN_HOME = "runs/lottery/gspo/s0"
START_HOME = "cache/jobs/wished"


@dataclass(frozen=True)
class Act:
    """A command, what it needs, and what it leaves."""

    command: Strings
    prepare: Callable[[Path], None]
    left: Callable[[Path], Any]


def tickets(folder: Path) -> None:
    """A task whose reward any text may win."""
    (folder / "lottery.py").write_text(GRADER)
    rows = (json.dumps({"prompt": f"ticket {i}:", "reference": ""}) for i in range(24))
    (folder / "problems.jsonl").write_text("\n".join(rows))


def a_run(folder: Path) -> None:
    tickets(folder)
    (folder / "lottery.toml").write_text(LOTTERY)
    [run] = load_study(folder / "lottery.toml").runs()
    write_json(folder / RUN_HOME / RUN, run.to_json())


def a_wish(folder: Path) -> None:
    StartFolder(folder / START_HOME).write_request(
        {
            "model": "tiny-qwen3",
            "task": {"name": "addition", "options": {}},
            "warm_start": {"steps": 4, "batch_size": 2, "learning_rate": 1e-3, "warmup_steps": 1},
            "seed": 0,
            "base": str(folder),
            "cache": str(folder / "cache"),
        }
    )


@functools.cache
def _recorded() -> "TemporaryDirectory[str]":
    """Made once: its declaration says when."""
    created = TemporaryDirectory()
    make_lab(Path(created.name), seeds=1, steps=2, every=2)
    return created


def a_lab(folder: Path) -> None:
    """A study with its database."""
    shutil.copytree(_recorded().name, folder, dirs_exist_ok=True)


def journals(folder: Path) -> None:
    """A study that was recorded and never read."""
    a_lab(folder)
    (folder / "runs" / "lab.db").unlink()


def a_study(folder: Path) -> None:
    """Of an engine that only counts; a model that is a folder needs no warm start."""
    build("tiny-qwen3", 0, {"layers": 1, "width": 16}).save_pretrained(folder / "model")
    byte_tokenizer().save_pretrained(folder / "model")
    (folder / "behaviour.json").write_text(
        '{"hold": {}, "deaf": false, "fail": {}, "right": {}, "bonus": {}}'
    )
    (folder / "count.toml").write_text(COUNTED.format(engine=ENGINE))


def trained(folder: Path) -> Any:
    """The records in force without times, the trained weights, every file's name."""
    home = RunFolder(folder / RUN_HOME)
    assert not scan(home.journal).damaged
    records = {  # of what was recorded twice the last counts
        tuple(entry.get(key) for key in KEYS): {
            key: value for key, value in entry.items() if not is_time(key)
        }
        for entry in home.records()
        if entry["kind"] != RunStatus.kind
    }
    return home.status().state, records, contents(home.final), names(home.path)


def started(folder: Path) -> Any:
    """The start's weights, every file's name."""
    created = StartFolder(folder / START_HOME).model_folder()
    return contents(created), names(folder / "cache")


def asked(folder: Path) -> Any:
    query = (
        "SELECT problem, sample, sample_seed, text, tokens, correct, grader FROM answers ORDER BY"
        " 1, 2"
    )
    return table(folder, query), names(folder / "runs")


def read(folder: Path) -> Any:
    """All that the database holds, but when files were read."""
    assert table(folder, "PRAGMA integrity_check") == [("ok",)]
    return rows(folder / "runs" / "lab.db")


def rows(database: Path) -> list[str]:
    """All that the database holds, but how far and when files were read."""
    with closing(sqlite3.connect(database)) as connection:
        return sorted(line for line in connection.iterdump() if 'INTO "files"' not in line)


def reported(folder: Path) -> Any:
    """A killed writer of a report leaves what it had begun beside it: several may write at once."""
    complete = {
        name: digest
        for name, digest in contents(folder / "reports").items()
        if not name.endswith(".partial")
    }
    return read(folder), complete, names(folder / "runs")


def exported(folder: Path) -> Any:
    return contents(folder / "export")


def conducted(folder: Path) -> Any:
    """What runs are, and their steps and answers; the folder holds nothing that is half made."""
    steps = table(folder, "SELECT run_id, step, reward_mean FROM steps ORDER BY 1, 2")
    answers = table(folder, "SELECT run_id, step, problem, correct FROM answers ORDER BY 1, 2, 3")
    runs = table(folder, "SELECT run_id, state, steps_done FROM runs ORDER BY 1")
    return (
        runs,
        steps,
        answers,
        sorted({name for name in names(folder / "runs") if "partial" in name}),
    )


def table(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "runs" / "lab.db")) as connection:
        return connection.execute(query).fetchall()


def contents(folder: Path) -> dict[str, str]:
    return {
        entry.name: hashlib.sha256(entry.read_bytes()).hexdigest() for entry in folder.iterdir()
    }


def names(folder: Path) -> list[str]:
    """Every file below; what SQLite keeps beside a database comes and goes."""
    result = (
        entry.relative_to(folder).as_posix() for entry in folder.rglob("*") if entry.is_file()
    )
    return sorted(
        name
        for name in result
        if not name.endswith(("-wal", "-shm", "log.txt")) and "__pycache__" not in name
    )


ASKING = (
    "--data",
    "problems.jsonl",
    "--model",
    "tiny-qwen3",
    "--samples",
    "3",
    "--max-tokens",
    "4",
)
ACTS = {
    "train": Act(("worker", RUN_HOME), a_run, trained),
    "warm start": Act(("worker", START_HOME), a_wish, started),
    "eval": Act(("eval", "--bench", "lottery.py:grade", *ASKING), tickets, asked),
    "report": Act(("report", "toy"), journals, reported),
    "rebuild": Act(
        (
            "records",
            "rebuild",
        ),
        a_lab,
        read,
    ),
    "export": Act(("export", "toy"), journals, exported),
    "run": Act(("run", "count.toml", "--jobs", "2"), a_study, conducted),
}
