"""Devices other than the CPU, without a GPU.

Whole runs on one with memory of its own, shapes of large models on CUDA.

What depends on the device is tried on "meta", which stands for one that is neither CPU nor CUDA.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from assertions import assert_fields

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.engines.native.lm_head import _Blocks
from gspo_lab.training.samplers.transformers_sampler import sample_by_argmax

HERE = Path(__file__).parent
slow = pytest.mark.slow
compiled = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
own_cuda = pytest.mark.skipif(
    torch.version.cuda is not None, reason="this torch has CUDA of its own"
)


def test_the_head_has_blocks_on_any_device() -> None:
    blocks = _Blocks(
        torch.empty(2**14, 8, device="meta"), torch.empty(2500, 8, device="meta"), None, 1.0
    )
    assert blocks.columns() == [slice(0, 1024), slice(1024, 2048), slice(2048, 2500)]


def test_tokens_are_drawn_on_any_device() -> None:
    key_B = torch.empty(3, dtype=torch.int64, device="meta")
    drawn_B = sample_by_argmax(torch.empty(3, 50, device="meta"), key_B, key_B.clone())
    assert (drawn_B.shape, drawn_B.device.type) == ((3,), "meta")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """apart.cpp and cuda_guard.cpp, compiled, in one folder."""
    from torch.utils.cpp_extension import include_paths, library_paths

    folder = tmp_path_factory.mktemp("libraries")
    paths = [f"-isystem{path}" for path in include_paths()] + [
        f"-L{path}" for path in library_paths()
    ]
    for name, linked in (("apart", ["-lc10", "-ltorch_cpu"]), ("cuda_guard", [])):
        words = [
            "-std=c++20",
            "-O1",
            "-fPIC",
            "-shared",
            str(HERE / f"{name}.cpp"),
            *paths,
            *linked,
        ]
        subprocess.run(["c++", *words, "-o", str(folder / f"{name}.so")], check=True)
    return folder


@slow
@compiled
def test_losses_are_the_cpus_and_runs_are_resumed_and_evaluated(
    libraries: Path, tmp_path: Path
) -> None:
    tests = HERE.parent
    path = os.pathsep.join(map(str, (tests / "engines", tests, tests.parent)))
    command = [
        sys.executable,
        str(HERE / "apart_runs.py"),
        str(libraries / "apart.so"),
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert process.returncode == 0, process.stderr[-3000:]
    report = json.loads(process.stdout.splitlines()[-1])
    assert len(report["cases"]) == 8
    for case, of_case in report["cases"].items():
        assert len(of_case["cpu"]) > 4, case
        # Its kernels are the CPU's one by one, where the CPU has some in one: the same but for
        # rounding.
        assert of_case["apart"] == pytest.approx(of_case["cpu"], rel=1e-4, abs=1e-5), case
        assert of_case["resumed"] == of_case["apart"], case
        assert of_case["answers"] == [2, 2], case
    half, later, unknown, meta = report["refusals"]
    assert half.startswith("update.dtype = 'float16': the device 'apart' cannot compute in it (")
    assert later == "device = 'apart:1': torch sees 1 of them here; use device = 'auto' or 'cpu'"
    assert (
        unknown
        == "device = 'tpu': torch knows no such device; use 'auto', 'cpu', 'cuda' or 'cuda:1'"
    )
    assert (
        meta == "device = 'meta': torch knows no such device; use 'auto', 'cpu', 'cuda' or 'cuda:1'"
    )
    assert "\n" not in half


def update(libraries: Path, *args: str) -> JsonObject:
    command = [
        sys.executable,
        str(HERE / "cuda_shapes.py"),
        str(libraries / "cuda_guard.so"),
        *args,
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@slow
@compiled
@own_cuda
@pytest.mark.parametrize("rank", ["0", "16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dense(libraries: Path, rank: str, dtype: str) -> None:
    out = update(libraries, "Qwen/Qwen3-0.6B", rank, dtype)
    # 151,936 x 1,024 embedded, and of each of two layers 15,730,944 in matrices and norms; 1,024 in
    # the last norm.
    complete = 151_936 * 1024 + 2 * (15_728_640 + 2 * 1024 + 2 * 128) + 1024
    adapters = 2 * 16 * (2 * (1024 + 2048) + 2 * (1024 + 1024) + 3 * (1024 + 3072))
    assert_fields(
        out,
        trained=adapters if rank == "16" else complete,
        parameters=complete + adapters * (rank == "16"),
        devices=["cuda:0"],
        passes=[2, 2],
    )


@slow
@compiled
@own_cuda
@pytest.mark.parametrize("rank", ["0", "16"])
def test_mixture_of_experts(libraries: Path, rank: str) -> None:
    out = update(libraries, "Qwen/Qwen3-30B-A3B", rank, "bfloat16")
    assert_fields(
        out,
        devices=["cuda:0"],
        passes=[2, 2],
        # A number that nobody knows is 1; adapters leave the routers as they are.
        router_gradient=[None, None] if rank == "16" else [1.0, 1.0],
    )
