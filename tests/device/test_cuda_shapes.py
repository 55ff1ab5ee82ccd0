"""The native engine's update on the shapes of large models, as CUDA tensors: mixed devices raise, without a GPU."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler"),
    pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA of its own"),
]


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """cuda_guard.cpp, compiled."""
    from torch.utils.cpp_extension import include_paths

    library = tmp_path_factory.mktemp("guard") / "guard.so"
    includes = [f"-isystem{path}" for path in include_paths()]
    source = str(HERE / "cuda_guard.cpp")
    subprocess.run(["c++", "-std=c++20", "-fPIC", "-shared", *includes, source, "-o", str(library)], check=True)
    return library


def update(guard: Path, *how: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "cuda_shapes.py"), str(guard), *how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("rank", ["0", "16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dense(guard: Path, rank: str, dtype: str) -> None:
    out = update(guard, "Qwen/Qwen3-0.6B", rank, dtype)
    # 151,936 x 1,024 embedded, and of each of two layers 15,730,944 in matrices and norms; 1,024 in the last norm.
    whole = 151_936 * 1024 + 2 * (15_728_640 + 2 * 1024 + 2 * 128) + 1024
    adapters = 2 * 16 * (2 * (1024 + 2048) + 2 * (1024 + 1024) + 3 * (1024 + 3072))
    assert out["trained"] == (adapters if rank == "16" else whole)
    assert out["parameters"] == whole + adapters * (rank == "16")
    assert out["devices"] == ["cuda:0"]
    assert out["passes"] == [2, 2]


@pytest.mark.parametrize("rank", ["0", "16"])
def test_mixture_of_experts(guard: Path, rank: str) -> None:
    out = update(guard, "Qwen/Qwen3-30B-A3B", rank, "bfloat16")
    assert out["devices"] == ["cuda:0"]
    assert out["passes"] == [2, 2]
    # A number that nobody knows is 1; adapters leave the routers as they are.
    assert out["router_gradient"] == ([None, None] if rank == "16" else [1.0, 1.0])
