"""Whole runs on a device that is neither CPU nor CUDA and has memory of its own: their losses are the CPU's."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """apart.cpp, compiled."""
    from torch.utils.cpp_extension import include_paths, library_paths

    library = tmp_path_factory.mktemp("apart") / "apart.so"
    paths = [f"-isystem{path}" for path in include_paths()] + [f"-L{path}" for path in library_paths()]
    words = ["-std=c++20", "-O1", "-fPIC", "-shared", str(HERE / "apart.cpp"), *paths, "-lc10", "-ltorch_cpu"]
    subprocess.run(["c++", *words, "-o", str(library)], check=True)
    return library


def test_losses_are_the_cpus_and_runs_are_resumed_and_evaluated(library: Path, tmp_path: Path) -> None:
    tests = HERE.parent
    path = os.pathsep.join(map(str, (tests / "engines", tests, tests.parent)))
    command = [sys.executable, str(HERE / "apart_runs.py"), str(library), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told["cases"]) == 8
    for case, of_case in told["cases"].items():
        assert len(of_case["cpu"]) > 4, case
        # Its kernels are the CPU's one by one, where the CPU has some in one: the same but for rounding.
        assert of_case["apart"] == pytest.approx(of_case["cpu"], rel=1e-4, abs=1e-5), case
        assert of_case["resumed"] == of_case["apart"], case
        assert of_case["answers"] == [2, 2], case
    half, second, unknown, meta = told["refusals"]
    assert half.startswith("update.dtype = 'float16': the device 'apart' cannot compute in it (")
    assert second == "device = 'apart:1': torch sees 1 of them here; use device = 'auto' or 'cpu'"
    assert unknown == "device = 'tpu': torch knows no such device; use 'auto', 'cpu', 'cuda' or 'cuda:1'"
    assert meta == "device = 'meta': torch knows no such device; use 'auto', 'cpu', 'cuda' or 'cuda:1'"
    assert "\n" not in half
