"""Engines' environments: what is known of them, what is found in one, and what cannot be made."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from calling import lab_error

from gspo_lab.common.registry import read_description
from gspo_lab.running.launch import LAUNCHERS
from gspo_lab.running.plan.preflight import preflight
from gspo_lab.training.engines import ENGINES
from gspo_lab.training.engines.conformance import smoke_study
from gspo_lab.training.engines.virtualenvs import (
    _stub,
    environment_of,
    home_of,
    install,
    python_of,
    version_of,
    versions,
)

TRIED = ("summary", "ran", "loaded", "never")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GSPO_LAB_CACHE", str(tmp_path))
    return tmp_path


def test_every_engine_and_launcher_says_how_far_it_was_tried() -> None:
    for kind, table in (("engine", ENGINES), ("launcher", LAUNCHERS)):
        for name in table:
            assert read_description(kind, name, table).keys() >= set(TRIED), name
            assert read_description(kind, name, table)["ran"], (
                f"{name} never ran: it is no engine yet"
            )


@pytest.mark.parametrize("engine", ["native", "verl", "areal"])
def test_the_smoke_test_is_a_study_that_the_engine_takes(engine: str) -> None:
    study = smoke_study(engine, "cpu")
    preflight(study, on_this_machine=False)
    assert [(arm.settings.engine.name, arm.settings.steps) for arm in study.arms.values()] == [
        (engine, 3)
    ]


def test_an_engine_that_is_not_installed_says_what_to_type(cache: Path) -> None:
    assert home_of("verl") == cache / "engines" / "verl"
    assert version_of("verl") is None
    with lab_error("gspo-lab engines install verl"):
        python_of("verl")


@pytest.mark.parametrize(
    ("name", "why"),
    [("native", "'native' has no environment"), ("verll", r"did you mean 'verl'\?")],
)
def test_only_engines_with_an_environment_are_installed(cache: Path, name: str, why: str) -> None:
    with lab_error(why):
        install(name, False, print)
    assert not (cache / "engines").exists()


def test_what_is_installed_is_found_without_importing_it(cache: Path) -> None:
    python = home_of("verl") / "bin" / "python"
    venv.create(home_of("verl"), with_pip=False)
    assert versions(["verl", "vllm"], python) == {}
    _stub(python, "vllm", "0.32.0+cpu")
    _stub(python, "verl", "0.9.1")
    assert versions(["verl", "vllm"], python) == {"verl": "0.9.1", "vllm": "0.32.0+cpu"}
    assert version_of("verl") == "0.9.1"
    assert python_of("verl") == python
    assert (
        subprocess.run(
            [str(python), "-c", "import vllm"], capture_output=True, check=False
        ).returncode
        == 1
    )


def test_a_pip_that_fails_is_told_with_its_last_lines(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # nothing can be had
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    output: list[str] = []
    with lab_error("pip install failed") as error:
        install("verl", False, output.append)
    assert "No matching distribution found" in error.value.details[-1]
    assert any("verl" in line for line in output)


def test_an_environment_is_made_and_what_is_unwanted_goes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the packages that a new environment brings: `setuptools` goes."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    (cache / "tiny.toml").write_text(
        f"""[environment]
package = "pip"
python = ["{python}"]
packages = ["pip"]
[environment.cpu]
without_dependencies = ["pip"]
unwanted = ["setuptools"]
[environment.cpu.stubs]
vision = "2.0"
"""
    )
    monkeypatch.setitem(ENGINES, "tiny", f"{cache}/tiny.py:Engine")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    home = install("tiny", False, print)
    assert versions(["setuptools", "vision"], home / "bin" / "python") == {"vision": "2.0"}


def test_the_pins_name_one_version_of_what_was_tried() -> None:
    for on_gpu in (False, True):
        expected = environment_of("verl", on_gpu)
        areal = environment_of("areal", on_gpu)
        assert "verl==0.9.1" in expected["without_dependencies"]
        assert "areal==1.0.4" in areal["without_dependencies"]
        assert all(
            any(item.startswith("torch==") for item in table["packages"])
            for table in (expected, areal)
        )
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in {*expected["python"], "3.13"}


def test_the_page_says_of_every_engine_what_is_known() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/engines.md").read_text(encoding="utf-8")
    for name in ENGINES:
        description = read_description("engine", name, ENGINES)
        cells = (description["ran"], description["loaded"] or "–", description["never"] or "–")
        row = f"| `{name}` | {' | '.join(cells)} |"
        assert row in page, row
