"""The wheel alone, without the repository: what its commands need is in it."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = """
import sys
from gspo_lab.cli import main
for line in ("init mine", "plan mine", "import csv a.csv --study x", "report x"):
    sys.argv = ["gspo-lab", *line.split()]
    try:
        main()
    except SystemExit as left:
        assert not left.code, line
print(sys.modules["gspo_lab"].__file__)
"""


def test_a_wheel_writes_a_study_imports_and_reports(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    source = tmp_path / "source"
    shutil.copytree(
        ROOT / "gspo_lab", source / "gspo_lab", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools import build_meta; build_meta.build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    assert (tmp_path / "installed/gspo_lab/py.typed").is_file()
    (tmp_path / "a.csv").write_text("arm,seed,score\na,0,.5\nb,0,.6\n")
    completed = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines()[-1].startswith(str(tmp_path / "installed"))
    assert (tmp_path / "reports/x.html").is_file()
