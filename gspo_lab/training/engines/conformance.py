"""`gspo-lab engines check NAME`: a worker trains a small study, is stopped after its first step and
started again. What the engine cannot vary of it stands in the TOML file beside its code: `proof =
["bench=[]"]`."""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.common.registry import look_up, read_description
from gspo_lab.common.states import STARTED, Exit
from gspo_lab.recording.records import RECORDS, StepRecord, UpdateRecord
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import Run, Study, load_study
from gspo_lab.training.engines import ENGINES
from gspo_lab.training.engines.base import Capabilities
from gspo_lab.training.engines.check import check_engine, check_ready
from gspo_lab.training.objectives.conforming import LossFunction, assert_conforms
from gspo_lab.training.objectives.ratios import RULES

EVERYWHERE = ("kind", "step", "minibatch", "prompts", "responses", "chain")
"""What every step or update has, whatever the engine says that it records."""
POLL = 0.2
"""Seconds between looks at the journal."""


def smoke_study(engine: str, device: str, changes: Sequence[str] = ()) -> Study:
    """The study that the engine has to train, as far as it can run it.

    `engine` is a name, a module's or a file's.
    """
    where, colon, attribute = engine.rpartition(":")
    name = f"{Path(where).resolve()}:{attribute}" if colon and where.endswith(".py") else engine
    overrides = [
        f"engine={name}",
        f"device={device}",
        *read_description("engine", name, ENGINES).get("proof", ()),
        *changes,
    ]
    return load_study(Path(__file__).with_name("smoke_test.toml"), overrides=overrides)


def conform(engine: str, device: str, runs: Path, changes: Sequence[str] = ()) -> dict[str, int]:
    """Train the study below `runs`; how many steps, updates and answers were recorded. LabError, a
    line each, for what is not as `engines/base.py` says."""
    (run,) = smoke_study(engine, device, changes).runs()
    base = Path(run.base)
    try:
        check_engine(run.arm, run.settings, base)
    except LabError as error:
        hint = (
            "--set KEY=VALUE changes the study of this check, as does its `proof`:"
            " docs/reference/engines.md"
        )
        raise LabError(str(error), details=(*error.details, hint)) from error
    check_ready(run.settings, base)
    made_by = look_up("engine", run.settings.engine.name, ENGINES, base)
    _check_losses(engine, getattr(made_by, "losses", {}))
    folder = RunFolder(run.folder(runs))
    folder.path.mkdir(parents=True)
    folder.specify(run.to_json())
    code, ignored = _work(folder, stop=True)
    if ignored >= 2:
        why = f"trained {ignored} more steps after it was asked to stop"
        raise LabError(f"the engine '{engine}' {why}: ask `stop()` after each step")
    if code == Exit.STOPPED:
        code, _ = _work(folder, stop=False)
    if (
        not folder.status().finished
    ):  # whatever the exit code: the signal may have come behind the last word
        message = folder.status().message or f"exit code {code}; the end of its log:"
        end = folder.log.read_text(errors="replace").splitlines()[-5:]
        raise LabError(f"the engine '{engine}' does not train", details=(message, *end))
    able = getattr(made_by, "capabilities", Capabilities())
    if faults := tuple(_faults(run, folder, able)):
        raise LabError(f"the engine '{engine}' trains, and not as an engine should", details=faults)
    recorded = Counter(record["kind"] for record in folder.records("step", "update", "answer"))
    return {kind: recorded[kind] for kind in ("step", "update", "answer")}


def _check_losses(engine: str, losses: Mapping[str, LossFunction]) -> None:
    """LabError where a loss that the engine names is not its rule's."""
    for rule, loss in losses.items():
        if rule not in RULES:
            raise LabError(f"the engine '{engine}': losses: no rule '{rule}'; name {list(RULES)}")
        try:
            assert_conforms(loss, rule)
        except AssertionError as error:
            departure, *batches = (str(error) or f"its loss for {rule} asserts").splitlines()
            raise LabError(f"the engine '{engine}': {departure}", details=tuple(batches)) from error


def _work(folder: RunFolder, *, stop: bool) -> tuple[int, int]:
    """Have a worker train the run; its exit code, and its steps after it was asked to stop.

    With `stop` it is asked after its first step. The count is 0 where it ended within a second,
    perhaps before the signal arrived."""
    with folder.log.open("ab") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "gspo_lab.running.worker", str(folder.path)],
            stdout=log,
            stderr=log,
        )
    try:
        while worker.poll() is None and stop:
            time.sleep(POLL)
            if recorded := len(folder.records(StepRecord.kind)):
                worker.send_signal(signal.SIGTERM)
                sent = time.monotonic()
                code = worker.wait()
                heard = time.monotonic() - sent > 1
                return code, len(folder.records(StepRecord.kind)) - recorded if heard else 0
        return worker.wait(), 0
    finally:
        worker.kill()


def _filled(record: JsonMapping) -> set[str]:
    """The columns of a record that hold something."""
    return {key for key, value in record.items() if value is not None}


def _faults(run: Run, folder: RunFolder, able: Capabilities) -> Iterator[str]:
    settings = run.settings
    records = folder.records(*RECORDS)
    if not any(
        record["kind"] == "status" and record["state"] == STARTED and record.get("facts")
        for record in records
    ):
        yield (
            "it writes no RunStatus(state='started') with facts: two of its runs can never be shown"
            " to be matched"
        )
    steps = Counter(record["step"] for record in records if record["kind"] == "step")
    if steps != Counter(range(settings.steps)):
        yield (
            f"it records the steps {sorted(steps.elements())}, not each of 0 to"
            f" {settings.steps - 1} once"
        )
    declared = able.records
    if declared is None or declared.keys() & {field.name for field in fields(UpdateRecord)} - {
        "responses"
    }:
        minibatches = range(settings.update.per_rollout_batch)
        expected = Counter(product(range(settings.steps), minibatches))
        updates = Counter(
            (record["step"], record["minibatch"])
            for record in records
            if record["kind"] == "update"
        )
        if updates != expected:
            yield f"it records {updates.total()} updates, not each of {expected.total()} once"
    if declared is not None:
        rows = [record for record in records if record["kind"] in ("step", "update")]
        filled = set().union(*map(_filled, rows))
        if undeclared := sorted(filled - declared.keys() - {*EVERYWHERE}):
            yield f"it fills {', '.join(undeclared)}, which its capabilities.records do not name"
    for bench in settings.bench:
        moments = {
            record["step"]
            for record in records
            if record["kind"] == "answer" and record["bench"] == bench.name
        }
        if not moments >= {0, settings.steps}:
            yield (
                f"it asks the benchmark '{bench.name}' after {sorted(moments)} steps, not at the"
                " start and at the end"
            )
    if able.settings is None and not (folder.final / "config.json").is_file():
        yield "it leaves no trained model in the folder `final`"
