"""Commands in children of one warm process.

It has imported what they import, so a start costs next to nothing.
"""

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from disk import Disk, Fault

from gspo_lab.common.plain_data import OptionalFloat, Strings

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "gspo_lab.training.engines.native.loop",
        "gspo_lab.training.models.warm_start",
        "gspo_lab.tasks.evaluation.local_model",
        "gspo_lab.report",
        "gspo_lab.analysis.findings",
        "gspo_lab.running.conduct.run_study",
        "sqlite_utils",
        "gspo_lab.cli",
    ]
)
MOST_SECONDS = 900.0


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Its exit code (-9: killed), what it wrote, the operations on files that it came to, and how long
    it took.
    """

    code: int
    said: str
    met: Strings
    seconds: float


NO_FAULT = Fault()


def run(
    folder: Path, command: Sequence[str], fault: Fault = NO_FAULT, kill_after: OptionalFloat = None
) -> Ended:
    """Run `gspo-lab COMMAND`, or a worker, in `folder`; SIGKILL after so many seconds.

    It is a worker if the command begins with "worker".
    """
    environment = {
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "GSPO_LAB_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }
    with TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        log = Path(scratch) / "log"
        process = CONTEXT.Process(
            target=_act, args=(folder, tuple(command), fault, environment, out, log)
        )
        began = time.monotonic()
        process.start()
        process.join(MOST_SECONDS if kill_after is None else kill_after)
        if kill_after is not None or process.exitcode is None:
            process.kill()
            process.join()
        seconds = time.monotonic() - began
        assert seconds < MOST_SECONDS, f"{command} did not end"
        assert process.exitcode is not None
        output = out.read_text(errors="replace") if out.exists() else ""
        met = log.read_text(errors="replace") if log.exists() else ""
        return Ended(process.exitcode, output, tuple(met.splitlines()), seconds)


def _act(
    folder: Path,
    command: Strings,
    fault: Fault,
    environment: Mapping[str, str],
    out: Path,
    log: Path,
) -> None:
    os.chdir(folder)
    os.environ.update(environment)
    for descriptor in (1, 2):
        os.dup2(os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT), descriptor)
    Disk(folder, fault, os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)).install()
    if command[0] == "worker":
        from gspo_lab.running import worker

        sys.exit(worker.main(command[1:]))
    from gspo_lab.cli import main

    sys.argv = ["gspo-lab", *command]
    main()


LENGTH = int(os.environ.get("GSPO_LAB_FAULTS", "1"))
"""1 within every run of the tests; `nox -s faults` sets more."""


def rounds(name: str, short: int) -> Iterator[random.Random]:
    """Dice for each of `short` rounds, and for as many times that as the length says."""
    return (random.Random(f"{name} {entry}") for entry in range(short * LENGTH))
