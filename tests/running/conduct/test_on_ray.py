"""Studies on a real Ray cluster of two nodes on this machine.

They are placed, lost, retried, resumed and stopped.
"""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from counting import Bench
from ray_nodes import RayNodes
from trained import recorded
from waiting import alive, ended, parent_of, until, until_said

from gspo_lab.common.errors import LabError
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.running.launch import make_launcher
from gspo_lab.running.launch.remote_workers import latest_record

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("ray") is None, reason="Ray is not installed: pip install 'gspo-lab[ray]'"
    ),
]


FOLLOW = """
import sys, time
from pathlib import Path
from gspo_lab.running.launch import make_launcher

process = make_launcher(sys.argv[1]).find_worker(Path(sys.argv[2]))
while process.poll() is None:
    if process.state == "running":
        print("followed", flush=True)
    time.sleep(0.1)
"""
"""What a conductor does that takes up a run: it follows the actor, until it is killed."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    nodes = RayNodes()
    yield nodes
    nodes.close()


def place_of(bench: Bench, run: str) -> str:
    """Where a run is at work, as its folder says."""

    def told() -> str | None:
        result = latest_record(RunFolder(bench.home / run))
        return result["place"] if result is not None and result["state"] == "running" else None

    return str(until(told))


def driver_of(conductor: "subprocess.Popen[str]") -> int:
    """The process by which a conductor speaks to Ray."""
    question = b"gspo_lab.running.launch.ray_driver"
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                question in (entry / "cmdline").read_bytes()
                and parent_of(int(entry.name)) == conductor.pid
            ):
                return int(entry.name)
    raise AssertionError("it has no driver")


def test_a_lost_node_s_run_is_retried_on_another_and_goes_on(bench: Bench, nodes: RayNodes) -> None:
    bench.steps = 8
    bench.seeds = [0]
    bench.hold = {"a/s0": 3, "b/s0": 3}
    conductor = bench.start(on=nodes.on)
    bench.until_held()
    initial = place_of(bench, "a/s0")
    worker = bench.worker_of("a/s0")
    nodes.lose(initial.partition("Ray node ")[2].rstrip(")"), parent_of(worker), worker)
    bench.hold_anew({"a/s0": 5})  # which would let the first worker go on
    nodes.add()
    bench.until_held()
    output = until_said(conductor, "a/s0: running again on ", "a/s0: resumes at step 2")
    conductor.send_signal(signal.SIGINT)  # both are held
    output = ended(conductor, 130, output)
    assert f"a/s0: lost at step 3 on {initial}" in output
    (retried,) = re.findall(r"a/s0: running again on (.*), retry 1", output)
    assert retried != initial
    assert "b/s0: stopped at step 4/8" in output
    assert bench.states_of("a/s0") == [("started", 0), ("started", 2), ("stopped", 6)]
    bench.hold_anew({})
    bench.finish(on=nodes.on)
    assert bench.steps_of("a/s0") == [0, 1, 2, 2, 3, 4, 5, 6, 7], "the lost step is made again"


def test_a_second_conductor_takes_up_what_still_runs_and_a_stop_reaches_it(
    bench: Bench, nodes: RayNodes
) -> None:
    bench.seeds = [0]
    bench.hold = {"a/s0": 1, "b/s0": 2}
    initial = bench.start(on=nodes.on)
    bench.until_held()
    initial.kill()
    initial.communicate()
    repeated = bench.start(on=nodes.on)
    taken_up = until_said(repeated, "a/s0: started on", "b/s0: started on")
    repeated.send_signal(signal.SIGINT)
    ended(repeated, 130, taken_up)
    assert bench.states_of("a/s0") == [("started", 0), ("stopped", 2)], (
        "one worker, whoever conducts"
    )
    assert bench.states_of("b/s0") == [("started", 0), ("stopped", 3)]
    bench.hold_anew({})
    bench.finish(on=nodes.on)
    assert bench.steps_of("a/s0") == [0, 1, 2, 3]


def test_a_kill_reaches_the_worker(bench: Bench, nodes: RayNodes) -> None:
    bench.seeds = [0]
    bench.hold = {"a/s0": 1}
    bench.deaf = True
    conductor = bench.start(on=nodes.on)
    bench.until_held()
    worker = bench.worker_of("a/s0")
    conductor.send_signal(signal.SIGINT)
    until_said(conductor, "stopping: ")
    conductor.send_signal(signal.SIGINT)
    output = ended(conductor, 130)
    assert "a/s0: failed at step 1/4: killed by SIGKILL" in output
    assert not alive(worker)


def test_two_studies_share_a_cluster_that_goes_away_and_comes_back(
    bench: Bench, nodes: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command waits for the study, as long as it takes.

    The other one is told twice, does not wait, and is typed again.
    """
    monkeypatch.setenv(
        "RAY_gcs_rpc_server_reconnect_timeout_s", "5"
    )  # Ray's own patience with its head, a minute
    bench.seeds = [0]
    pair = [bench, Bench(bench.folder / "another")]
    for entry in pair:
        entry.steps = 8
        entry.hold = {"b/s0": 3}
    first_conductor = pair[0].start(on=nodes.on, jobs=1)
    second_conductor = pair[1].start(on=nodes.on, jobs=1)
    for entry in pair:
        entry.until_held()
    assert len({place_of(entry, "b/s0") for entry in pair}) == 2, "both at work, each on its node"
    names = [path.name for entry in pair for path in entry.home.glob("b/s0/launches/*.json")]
    assert len(set(names)) == len(names) == 4, "of each what was asked for, and what is there"
    workers = [entry.worker_of("b/s0") for entry in pair]
    with monkeypatch.context() as patience:
        patience.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3600")
        words = [sys.executable, "-c", FOLLOW, nodes.on, str(bench.home / "b/s0")]
        third = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    bench.conductors.append(third)
    until_said(third, "followed")
    driver = driver_of(third)
    nodes.lose_all()
    away = f"b/s0: lost at step 3 on the Ray cluster at {nodes.address}, which does not answer"
    until_said(first_conductor, away)
    until_said(second_conductor, away)
    third.kill()
    third.communicate()
    until(lambda: not alive(driver))  # by itself: Ray would wait an hour for its head
    second_conductor.send_signal(signal.SIGINT)
    until_said(second_conductor, "stopping: ")
    second_conductor.send_signal(signal.SIGINT)
    output = ended(second_conductor, 130)
    assert re.search(
        r"b/s0: lost at step [34]/8: its launcher has given it up on .*, which does not answer",
        output,
    )
    until(lambda: not any(map(alive, workers)))  # each finishes its step, and saves
    for entry in pair:
        entry.hold_anew({})
    nodes.begin_anew()
    output = until_said(first_conductor, "b/s0: finished at step 8/8")
    ended(first_conductor, 0, output)
    _, output = pair[1].finish(jobs=4, on=nodes.on)
    for run in ("b/s0", "a/s1", "b/s1"):
        assert f"{run}: queued" in output, "three for two places"
        assert f"on the Ray cluster at {nodes.address}" in output
    for entry in pair:
        assert entry.states_of("a/s0") == [("started", 0), ("finished", 8)], "not begun again"
        assert entry.states_of("b/s0") == [
            ("started", 0),
            ("stopped", 4),
            ("started", 4),
            ("finished", 8),
        ]
        assert not list(entry.home.glob("*/*/launches/*"))


def test_the_records_are_those_of_local_workers_bit_for_bit(
    bench: Bench, nodes: RayNodes, here: dict[str, list[Any]]
) -> None:
    assert recorded(bench.folder, nodes.on) == here


def test_what_can_never_be_placed_is_refused(nodes: RayNodes) -> None:
    def refusal(device: str = "cpu", **options: object) -> str:
        with pytest.raises(LabError) as refused:
            make_launcher(nodes.on, None, {"ray": options}).slots(device)
        return str(refused.value).replace(nodes.address, "HERE")

    never = "no node of the Ray cluster at HERE can hold a run, which asks for "
    assert refusal(cpus=2) == never + "2 CPU: it has 0 CPU; 1 CPU"
    assert refusal(resources={"TPU": 1}).startswith(never + "1 CPU, 1 TPU: it has 0 CPU, 0 TPU; ")
    assert refusal("cuda", gpus=1).startswith(never + "1 CPU, 1 GPU: ")
    assert refusal("cuda").startswith(
        "device = 'cuda', but no node of the Ray cluster at HERE has a GPU"
    )
    assert len(make_launcher(nodes.on).slots("auto")) == 2
