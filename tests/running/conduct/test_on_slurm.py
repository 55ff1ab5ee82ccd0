"""Studies on a real Slurm of one node on this machine.

They are queued, requeued, lost, resumed and stopped.
"""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from calling import lab_error
from counting import Bench
from slurm_daemons import SlurmDaemons, missing
from trained import recorded, tiny
from waiting import alive, ended, until, until_said

from gspo_lab.common.errors import LabError
from gspo_lab.running.launch import make_launcher

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmDaemons]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    daemons = SlurmDaemons(tmp_path_factory.mktemp("slurm"), port)
    yield daemons
    daemons.close()


@pytest.fixture
def slurm(daemons: SlurmDaemons, monkeypatch: pytest.MonkeyPatch) -> SlurmDaemons:
    for name, value in daemons.environment.items():
        monkeypatch.setenv(name, value)
    daemons.whole()
    return daemons


def test_at_its_time_limit_a_run_is_requeued_and_goes_on(bench: Bench, slurm: SlurmDaemons) -> None:
    bench.seeds = [0]
    bench.hold = {"a/s0": 1}
    bench.launch = '[launch.slurm]\ntime = "1"\ngrace = 58\npartition = "short"'
    _, output = bench.finish(on="slurm")
    assert re.search(
        r"a/s0: queued at step 2 on .* \(job \d+, \w+\), requeued at its time limit", output
    )
    assert bench.states_of("a/s0") == [
        ("started", 0),
        ("stopped", 2),
        ("started", 2),
        ("finished", 4),
    ]
    assert bench.states_of("b/s0") == [("started", 0), ("finished", 4)]
    assert bench.steps_of("a/s0") == [0, 1, 2, 3]
    assert not list(bench.home.glob("*/*/launches/*"))


def job_of(bench: Bench, run: str) -> str:
    (record,) = (bench.home / run / "launches").glob("slurm-*[0-9].json")
    return record.stem.removeprefix("slurm-")


def held_at_step_3(bench: Bench, steps: int) -> "subprocess.Popen[str]":
    bench.steps = steps
    bench.seeds = [0]
    bench.hold = {"a/s0": 3}
    conductor = bench.start(on="slurm", jobs=1)
    bench.until_held()
    until_said(conductor, "a/s0: started")
    return conductor


def held_alone(bench: Bench) -> "tuple[subprocess.Popen[str], str]":
    """A study whose first run is held during its step 3; that run's job.

    Its checkpoint at step 2 is written.
    """
    conductor = held_at_step_3(bench, steps=6)
    bench.hold_anew({})
    return conductor, job_of(bench, "a/s0")


URGENT = ("sbatch", "--partition=urgent", "--ntasks=2", "--output=/dev/null", "--wrap=sleep 3")


@pytest.mark.parametrize("preempted", [False, True])
def test_a_run_that_is_requeued_is_followed_and_goes_on_from_its_checkpoint(
    bench: Bench, slurm: SlurmDaemons, preempted: bool
) -> None:
    conductor, job = held_alone(bench)
    slurm.ask(*(URGENT if preempted else ("scontrol", "requeue", job)))
    output = ended(conductor, 0)
    why = r"requeued by Slurm \(scontrol requeue or preemption\)"
    # Slurm asks it to end and kills it. In between it may finish the step amid which it is held,
    # and may save its checkpoint at step 4.
    queued = re.search(
        rf"a/s0: queued at step ([34]) on Slurm, partition main \(job \d+.*\), {why}\n", output
    )
    assert queued, output
    resumed = re.search(r"a/s0: resumes at step ([24])\n", output)
    assert resumed, output
    saved = int(resumed[1])
    starts = [entry for entry in bench.states_of("a/s0") if entry[0] != "stopped"]
    assert starts == [("started", 0), ("started", saved), ("finished", 6)]
    assert bench.steps_of("a/s0") == [*range(max(saved, int(queued[1]))), *range(saved, 6)]
    assert not list(bench.home.glob("*/*/launches/*"))


def test_a_run_that_is_told_of_its_preemption_finishes_its_step_and_saves(
    bench: Bench, slurm: SlurmDaemons
) -> None:
    bench.launch = '[launch.slurm]\npartition = "polite"'
    conductor, _ = held_alone(bench)
    slurm.ask(*URGENT)
    output = ended(conductor, 0)
    assert re.search(r"a/s0: queued at step 4 on .*, requeued because it is preempted\n", output), (
        output
    )
    assert bench.states_of("a/s0") == [
        ("started", 0),
        ("stopped", 4),
        ("started", 4),
        ("finished", 6),
    ]
    assert bench.steps_of("a/s0") == [0, 1, 2, 3, 4, 5]


def test_a_run_whose_job_is_cancelled_stays_cancelled_until_the_same_command(
    bench: Bench, slurm: SlurmDaemons
) -> None:
    bench.seeds = [0, 1]
    bench.hold = {"a/s0": 1, "b/s0": 1}
    conductor = bench.start(on="slurm", jobs=3)
    bench.until_held()
    output = until_said(
        conductor, "a/s0: started", "b/s0: started", "/s1: queued on Slurm (job "
    )  # the third
    (queued,) = re.findall(r"(\w/s1): queued on Slurm \(", output)
    slurm.ask("scancel", job_of(bench, queued))
    slurm.ask("scancel", job_of(bench, "a/s0"))
    slurm.ask(
        "scancel", "--signal=TERM", "--batch", job_of(bench, "b/s0")
    )  # nobody's time limit is near
    output = ended(conductor, 1, output)
    was = r"its job was cancelled on .* \(job \d+.*\); the same command resumes the run"
    assert re.search(rf"a/s0: stopped at step 1/4: {was}\n", output), output
    assert re.search(rf"{queued}: stopped at step 0/4: {was}\n", output), output
    assert re.search(r"b/s0: stopped at step 2/4\n", output), output
    assert "requeued" not in output
    assert bench.states_of("a/s0") == [("started", 0)]
    assert bench.states_of("b/s0") == [("started", 0), ("stopped", 2)]
    assert not (bench.home / queued / "journal.jsonl").exists()
    assert slurm.ask("squeue", "--noheader", "--states=PENDING,RUNNING") == "", "cancelled for good"
    bench.hold_anew({})
    bench.finish(on="slurm")
    assert bench.steps_of("a/s0") == [0, 0, 1, 2, 3], "from its beginning: no checkpoint was due"


def test_a_lost_node_s_run_is_queued_again_and_goes_on(bench: Bench, slurm: SlurmDaemons) -> None:
    conductor = held_at_step_3(bench, steps=8)
    worker = bench.worker_of("a/s0")
    slurm.lose_node(worker)
    bench.hold_anew({"a/s0": 5})  # which would let the first worker go on
    output = until_said(conductor, "a/s0: lost at step 3 on ")
    slurm.node()
    bench.until_held()
    output += until_said(conductor, "a/s0: running again on ", "a/s0: resumes at step 2")
    conductor.send_signal(signal.SIGINT)
    output = ended(conductor, 130, output)
    assert re.search(r"a/s0: (running again|started) on \S+ \(job \d+\), retry 1", output)
    assert bench.states_of("a/s0") == [("started", 0), ("started", 2), ("stopped", 6)]
    assert slurm.ask("squeue", "--noheader", "--states=PENDING,RUNNING") == "", (
        "a stop that stays stopped"
    )


def test_a_second_conductor_finds_the_jobs_and_a_stop_reaches_them(
    bench: Bench, slurm: SlurmDaemons
) -> None:
    bench.seeds = [0, 1]
    bench.hold = {"a/s0": 1, "b/s0": 2}
    initial = bench.start(on="slurm", jobs=3)
    bench.until_held()
    until_said(
        initial, "a/s0: started", "b/s0: started", "b/s1: queued on Slurm (job "
    )  # two places for three
    initial.kill()
    initial.communicate()
    for words, answer in (
        (["show", "count"], ("queued", "running", "(job ")),
        (["show"], ("2 running, 1 queued",)),
    ):
        output = subprocess.run(
            [sys.executable, "-m", "gspo_lab.cli", *words, "--runs", str(bench.runs)],
            capture_output=True,
            text=True,
        ).stdout
        assert all(word in output for word in answer), output
    repeated = bench.start(on="slurm", jobs=3)
    taken_up = until_said(repeated, "a/s0: started on", "b/s0: started on", "b/s1: queued")
    repeated.send_signal(signal.SIGINT)
    output = ended(repeated, 130, taken_up)
    assert bench.states_of("a/s0") == [
        ("started", 0),
        ("stopped", 2),
    ], "one worker, whoever conducts"
    assert bench.states_of("b/s0") == [("started", 0), ("stopped", 3)]
    assert "b/s1: stopped at step 0/4" in output
    assert not (bench.home / "b/s1/journal.jsonl").exists(), "out of the queue"
    bench.hold_anew({})
    bench.finish(on="slurm")


def test_slurm_may_go_away_and_come_back(bench: Bench, slurm: SlurmDaemons) -> None:
    bench.seeds = [0]
    bench.hold = {"a/s0": 1}
    bench.deaf = True
    conductor = bench.start(on="slurm")
    bench.until_held()
    output = until_said(conductor, "a/s0: started")
    worker = bench.worker_of("a/s0")
    slurm.end("slurmctld")
    output += until_said(conductor, "; squeue: Unable to contact slurm controller")
    slurm.control()
    output += until_said(conductor, "a/s0: running again on ")
    assert alive(worker)
    conductor.send_signal(signal.SIGINT)
    output += until_said(conductor, "stopping: ")
    conductor.send_signal(signal.SIGINT)
    output = ended(conductor, 130, output)
    assert re.search(r"a/s0: failed at step \d/4: killed by SIGKILL", output)
    until(lambda: not alive(worker))


def test_stopped_after_a_step_it_stays_stopped_and_goes_on_to_the_records_of_local_workers_bit_for_bit(  # noqa: E501
    bench: Bench, slurm: SlurmDaemons, here: dict[str, list[Any]]
) -> None:
    words = ["run", str(tiny(bench.folder)), "--on", "slurm", "--runs", str(bench.folder / "slurm")]
    hold = bench.folder / "hold"
    hold.touch()
    conductor = subprocess.Popen(
        [sys.executable, "-m", "gspo_lab.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    bench.conductors.append(conductor)
    until(
        lambda: len(list(bench.folder.glob("held-[0-9]*"))) == 2
    )  # amid the second of three steps
    output = until_said(conductor, "grpo/s0: started", "gspo/s0: started")
    conductor.send_signal(signal.SIGINT)
    output += until_said(conductor, "stopping: ")
    hold.unlink()
    output = ended(conductor, 130, output)
    assert "grpo/s0: stopped at step 2/3" in output
    assert "gspo/s0: stopped at step 2/3" in output
    assert slurm.ask("squeue", "--noheader", "--states=PENDING,RUNNING") == "", (
        "a stop that stays stopped"
    )

    remote = recorded(bench.folder, "slurm")
    for arm, records in remote.items():
        states = [(entry["state"], entry["step"]) for entry in records if entry["kind"] == "status"]
        assert states == [("started", 0), ("stopped", 2), ("started", 2), ("finished", 3)]
        disturbed = [entry for entry in remote[arm] if entry["kind"] != "status"]
        undisturbed = [entry for entry in here[arm] if entry["kind"] != "status"]
        assert disturbed == undisturbed


def test_what_sbatch_refuses_is_refused_before_anything_is_done(
    bench: Bench, slurm: SlurmDaemons
) -> None:
    def refusal(device: str = "cpu", **options: object) -> str:
        with pytest.raises(LabError) as refused:
            make_launcher("slurm", None, {"slurm": options}).slots(device)
        return str(refused.value)

    assert "--partition=nosuch" in refusal(partition="nosuch")
    assert refusal(partition="nosuch").endswith("Invalid partition name specified")
    assert refusal(cpus=64).endswith("Requested node configuration is not available")
    assert refusal(gres="gpu:1").startswith("--on slurm: sbatch refuses --gres=gpu:1")
    assert refusal("cuda").endswith("set [launch.slurm] gres = 'gpu:1'")
    assert refusal(options=["--nonsense"]).startswith("--on slurm: sbatch refuses")
    assert len(make_launcher("slurm").slots("auto")) == 2, "two cores"
    assert [slot.name for slot in make_launcher("slurm", 1).slots("cpu")] == ["core 0 of Slurm"]
    bench.launch = '[launch.slurm]\npartition = "nosuch"'
    with lab_error("Invalid partition"):
        bench.conduct(on="slurm")
    assert not bench.runs.exists()
