"""Slots: what is there is found without torch, and every worker gets the same environment."""

import os
import shlex
from pathlib import Path

import pytest
from calling import lab_error

from gspo_lab.common.cpu_count import cores
from gspo_lab.running.launch.local import LocalPool, torch_knows_cuda, visible_gpus


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GSPO_LAB_JOBS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name in front of the PATH; it prints the file `gpus` beside it."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat {shlex.quote(str(tmp_path))}/gpus\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "gpus"


def test_one_slot_per_core_with_one_thread_each() -> None:
    result = LocalPool().slots("cpu")
    assert len(result) == cores() <= len(os.sched_getaffinity(0))
    for slot in result:
        assert slot.environment["OMP_NUM_THREADS"] == slot.environment["MKL_NUM_THREADS"] == "1"
        assert slot.environment["CUDA_VISIBLE_DEVICES"] == "", (
            "a CPU run must not find a GPU by itself"
        )
        assert slot.environment == result[0].environment
    assert len({slot.name for slot in result}) == len(result)


@pytest.mark.parametrize(
    ("quota", "lent"),
    [
        ("max 100000", 8),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("300000 100000", 3),
        ("1600000 100000", 8),
    ],
)
def test_the_affinity_and_a_container_s_quota_count(
    quota: str, lent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    file = tmp_path / "cpu.max"
    assert cores(file) == 8, "no such file: no quota"
    file.write_text(quota + "\n")
    assert cores(file) == lent


def test_jobs_by_argument_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(LocalPool(7).slots("cpu")) == 7
    monkeypatch.setenv("GSPO_LAB_JOBS", "3")
    assert len(LocalPool().slots("cpu")) == 3
    assert len(LocalPool(1).slots("cpu")) == 1, "the argument is nearer than the environment"
    monkeypatch.setenv("GSPO_LAB_JOBS", "many")
    with lab_error("GSPO_LAB_JOBS=many"):
        LocalPool().slots("cpu")
    with lab_error("jobs = 0"):
        LocalPool(0).slots("cpu")


TWO_GPUS = "GPU 0: NVIDIA H200 (UUID: GPU-aa)\nGPU 1: NVIDIA H200 (UUID: GPU-bb)\n"
SLICES = (
    TWO_GPUS + "  MIG 3g.71gb  Device 0: (UUID: MIG-11)\n  MIG 3g.71gb  Device 1: (UUID: MIG-22)\n"
)


@pytest.mark.parametrize(
    ("listed", "chosen", "seen"),
    [
        (TWO_GPUS, None, ["0", "1"]),
        (SLICES, None, ["MIG-11", "MIG-22"]),
        (TWO_GPUS, "1", ["1"]),
        (TWO_GPUS, "1, 0", ["1", "0"]),
        (TWO_GPUS, "", []),
        (TWO_GPUS, "-1", []),
    ],
)
def test_gpus_and_their_slices_are_found_by_their_list_and_the_environment(
    nvidia_smi: Path,
    monkeypatch: pytest.MonkeyPatch,
    listed: str,
    chosen: str | None,
    seen: list[str],
) -> None:
    nvidia_smi.write_text(listed)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert visible_gpus() == seen


def test_gpus_are_slots_and_other_devices_have_one_place(nvidia_smi: Path) -> None:
    nvidia_smi.write_text(TWO_GPUS)
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in LocalPool().slots("cuda")] == [
        "0",
        "1",
    ]
    assert [slot.name for slot in LocalPool(3).slots("cuda")] == ["gpu 0", "gpu 1", "gpu 0"], (
        "more jobs share them"
    )
    assert {(slot.kind, slot.host) for slot in LocalPool().slots("cuda")} == {("gpu", None)}
    (slot,) = LocalPool().slots("cuda:1")
    assert (slot.kind, slot.index) == ("gpu", "1")
    assert "CUDA_VISIBLE_DEVICES" not in slot.environment, (
        "the worker counts its GPUs as the study does"
    )
    slots = LocalPool(2).slots("xpu")
    assert [(slot.kind, slot.index) for slot in slots] == [("gpu", "xpu")] * 2
    with lab_error(r"device = 'cuda:2', but there are 2 GPUs here, which count from cuda:0"):
        LocalPool().slots("cuda:2")


def test_what_torch_was_built_for_is_read_right() -> None:
    torch = pytest.importorskip("torch")
    assert torch_knows_cuda() == (torch.version.cuda is not None)


def test_cuda_without_a_gpu_is_refused_and_auto_takes_the_cores(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("No devices were found\n")
    if Path("/proc/driver/nvidia/gpus").is_dir():
        pytest.skip("this machine has a GPU")
    for device in ("cuda", "cuda:1", "mps"):
        with lab_error("no GPU here"):
            LocalPool().slots(device)
    assert [slot.name for slot in LocalPool().slots("auto")] == [
        slot.name for slot in LocalPool().slots("cpu")
    ]
