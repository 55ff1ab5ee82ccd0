"""Mirrors of a study while it runs hold the rows of an export, each once.

Kills in between change nothing of that.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from synthetic_lab import TWO_ARMS, history, make_lab

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.exchange.exporters import TARGETS, export, target
from gspo_lab.exchange.exporters.live_export import Mirror
from gspo_lab.exchange.importers.base import RunSpec
from gspo_lab.exchange.importers.tensorboard import read as read_events
from gspo_lab.exchange.importers.wandb import read
from gspo_lab.recording.journal import Journal
from gspo_lab.recording.records import Record, RunStatus
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.recording.store.records import read_steps
from gspo_lab.study import Run, Study, load_study

STEPS = 12
FIRST = 7


def held(folder: Path, format: str) -> JsonObject:
    """Everything that a program finds in a folder, in order, the step first.

    It is by run, and in TensorBoard also by metric.
    """
    if format == "trackio":
        with closing(sqlite3.connect(folder / "toy.db")) as database:
            found = database.execute(
                "SELECT run_name, step, metrics FROM metrics ORDER BY rowid"
            ).fetchall()
        return {run: [row[1:] for row in found if row[0] == run] for run, *_ in found}
    places = sorted(path for path in folder.glob("*/s*"))
    if format == "wandb-offline":
        return {
            f"{place.parent.name}-{place.name}": list(read(place, "", RunSpec()).rows)
            for place in places
        }
    return {
        f"{place.parent.name}-{place.name}-{tag}": rows
        for place in places
        for tag, rows in shown(place).items()
    }


def shown(place: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard makes of a folder."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    found = EventAccumulator(str(place), tensor_size_guidance={"scalars": 0}).Reload()
    return {tag: points(found, tag) for tag in found.Tags()["tensors"]}


def points(found: Any, tag: str) -> list[tuple[int, float]]:
    return [(one.step, one.tensor_proto.double_val[0]) for one in found.Tensors(tag)]


def at_last(rows: list[Any]) -> int:
    return max(row[0] for row in rows)


def write(runs: Path, run: Run, records: Iterable[Record]) -> None:
    with Journal(run.folder(runs)) as journal:
        journal.write(list(records))


def go_on(runs: Path, study: Study) -> None:
    """From step 7 to the end, with one killed worker.

    The worker of gspo/s1 was killed, and its next one is at step 4 again, with luck.
    """
    for run in study.runs():
        again = (run.arm, run.seed) == ("gspo", 1)
        later = history(run, STEPS, 0.3 if again else 0.1)
        if again:
            rest = [
                RunStatus(state="started", step=4),
                *(one for one in later[1:] if one.step >= 4 + (one.kind == "answer")),
            ]
        else:
            rest = later[len(history(run, FIRST, 0.1)) :]
        write(runs, run, [*rest, RunStatus(state="finished", step=STEPS)])
    ingest(runs)


def begun_study(folder: Path) -> tuple[Study, Path]:
    """A study after seven steps, and the folder of its runs."""
    make_lab(folder, seeds=2, steps=STEPS, every=5, until=lambda run: FIRST, end=lambda run: None)
    return load_study(folder / "studies" / "toy.toml"), folder / "runs"


@pytest.mark.parametrize("format", TARGETS)
def test_every_row_is_there_once(tmp_path: Path, format: str) -> None:
    """Seven steps of workers at work, then the rest, then another conductor.

    The last of the seven may still grow.
    """
    if find_spec({"wandb-offline": "wandb"}.get(format, format)) is None:
        pytest.skip(f"the package of {format} is not installed")
    study, runs = begun_study(tmp_path)
    mirrored = runs / "toy" / "_mirror" / format

    def exported() -> JsonObject:
        with Evidence.open(runs / "lab.db") as evidence:
            export(evidence, "toy", tmp_path / "out", format)
        return held(tmp_path / "out" / f"toy-{format}", format)

    with ExitStack() as stack:
        for run in study.runs():
            stack.enter_context(RunFolder(run.folder(runs)).exclusive_lock("somebody is at work"))
        ingest(runs)
        with Mirror(runs, "toy", {format: target(format)}) as mirror:
            mirror.follow(True)
            if format != "wandb-offline":  # which writes its files when a run is over
                whole = exported()
                assert max(map(at_last, whole.values())) == FIRST - 1
                expected = {
                    run: [row for row in rows if row[0] < FIRST - 1] for run, rows in whole.items()
                }
                assert held(mirrored, format) == {
                    run: rows for run, rows in expected.items() if rows
                }
            stack.pop_all().close()
            go_on(runs, study)
            mirror.finish()
    assert held(mirrored, format) == exported()
    with Mirror(runs, "toy", {format: target(format)}) as mirror:
        mirror.follow(True)
    assert held(mirrored, format) == exported()


def test_a_tensorboard_that_looks_on_shows_each_step_once(tmp_path: Path) -> None:
    """Its reader stays, the conductor is killed amid a record, and the next one goes on."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    study, runs = begun_study(tmp_path)
    file = runs / "toy" / "_mirror" / "tensorboard" / "gspo" / "s1" / "events.out.tfevents.0"
    looks_on = EventAccumulator(str(file.parent), tensor_size_guidance={"scalars": 0})
    with Mirror(runs, "toy", {"tensorboard": target("tensorboard")}) as mirror:
        mirror.follow(True)
        assert [step for step, _ in points(looks_on.Reload(), "reward_mean")] == list(range(FIRST))
    begun = file.read_bytes()[:20]  # a record's length, its checksum, and some of it
    with file.open("ab") as torn:
        torn.write(begun)
    go_on(runs, study)
    for _ in range(2):
        with Mirror(runs, "toy", {"tensorboard": target("tensorboard")}) as mirror:
            mirror.finish()
        size = file.stat().st_size
        with Evidence.open(runs / "lab.db") as evidence:
            rewards = read_steps(evidence, "toy", ["reward_mean"], run="toy/gspo/s1")["reward_mean"]
        assert points(looks_on.Reload(), "reward_mean") == list(enumerate(rewards))
    assert file.stat().st_size == size, "nothing is new to the last one"
    row = dict(read_events(file.parent, "", RunSpec()).rows)
    assert [row[step]["reward_mean"] for step in range(STEPS)] == rewards.tolist()


def test_a_mirror_is_no_part_of_what_is_declared(tmp_path: Path) -> None:
    toml = TWO_ARMS.format(seeds=2, steps=4, every=2)
    (tmp_path / "x.toml").write_text(
        toml + '[record]\nrollouts = 0.5\nmirror = ["tensorboard", "trackio"]\n'
    )
    (tmp_path / "y.toml").write_text(toml + "[record]\nrollouts = 0.5\n")
    mirrored, plain = (load_study(tmp_path / f"{name}.toml", name="x") for name in "xy")
    assert mirrored.mirror == ("tensorboard", "trackio")
    assert mirrored.locked() == plain.locked()
    said = load_study(tmp_path / "y.toml", overrides=['record.mirror=["trackio"]'])
    assert (said.mirror, said.command) == (("trackio",), load_study(tmp_path / "y.toml").command)
