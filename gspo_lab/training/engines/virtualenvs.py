"""Engines' own environments, below `GSPO_LAB_CACHE/engines/<name>`, for engines that pin other
packages than the lab. `about.toml` in an engine's package says what makes one."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from importlib.metadata import distributions
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import cache_folder
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.registry import names_of, read_description, require_known
from gspo_lab.training.engines import ENGINES

Tell = Callable[[str], None]


def environment_of(engine: str, on_gpu: bool) -> JsonObject:
    """What makes an engine's environment, of its about.toml. LabError where it has none.

    `packages` are in the order in which they are installed. Then come those `without_dependencies`,
    whose own pins exclude the others. `unwanted` ones come along, and go. `stubs` are asked for by
    a name that the installed build does not have."""
    require_known("engine", engine, ENGINES)
    table = read_description("engine", engine, ENGINES).get("environment")
    if table is None:
        engines = [
            name
            for name in names_of("engine", ENGINES)
            if "environment" in read_description("engine", name, ENGINES)
        ]
        raise LabError(
            f"the engine '{engine}' has no environment of its own; these have: {', '.join(engines)}"
        )
    build = {"unwanted": (), "stubs": {}, **table, **table["cuda" if on_gpu else "cpu"]}
    return build | {"packages": (*table["packages"], *build.get("build_packages", ()))}


def home_of(engine: str) -> Path:
    """The folder of an engine's environment. It need not exist."""
    return cache_folder() / "engines" / engine


def python_of(engine: str) -> Path:
    """The interpreter of an engine's environment. LabError where there is none."""
    python = home_of(engine) / "bin" / "python"
    if not python.exists():
        raise LabError(
            f"the engine '{engine}' is not installed in {home_of(engine)}: gspo-lab engines install"
            f" {engine}"
        )
    return python


def version_of(engine: str) -> str | None:
    """The version of the engine's package: in its own environment, or in the lab's; None where it
    is not installed.
    """
    entry = read_description("engine", engine, ENGINES)
    if "environment" not in entry:
        package = entry.get("package", "")
        return versions([package]).get(package)
    python = home_of(engine) / "bin" / "python"
    package = entry["environment"]["package"]
    return versions([package], python).get(package) if python.exists() else None


def versions(packages: Sequence[str], python: Path | None = None) -> dict[str, str]:
    """The installed ones' versions, as the metadata of an environment has them; nothing is
    imported.
    """
    path = sys.path if python is None else list(map(str, _site_packages(python)))
    installed = {name: next(iter(distributions(name=name, path=path)), None) for name in packages}
    return {name: package.version for name, package in installed.items() if package is not None}


def _site_packages(python: Path) -> list[Path]:
    return list(python.parent.parent.glob("lib/python*/site-packages"))


def install(engine: str, on_gpu: bool, tell: Tell) -> Path:
    """Make the environment of an engine, or complete it; its folder. LabError where pip cannot."""
    description = environment_of(engine, on_gpu)
    home = home_of(engine)
    python_version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if python_version not in description["python"]:
        raise LabError(
            f"the engine '{engine}' needs Python {' or '.join(description['python'])}; this is"
            f" {python_version}"
        )
    if not (home / "bin" / "python").exists():
        tell(f"a virtual environment in {home}")
        home.parent.mkdir(parents=True, exist_ok=True)
        venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    _pip(python, tell, "install", *description["packages"])
    _pip(python, tell, "install", "--no-deps", *description["without_dependencies"])
    if description["unwanted"]:
        _pip(python, tell, "uninstall", "--yes", *description["unwanted"])
    for name, version in description["stubs"].items():
        _stub(python, name, version)
    if version_of(engine) is None:
        raise LabError(f"{home} was made, and has no {description['package']}")
    return home


def _pip(python: Path, tell: Tell, *words: str) -> None:
    tell("pip " + " ".join(words))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-m", "pip", "--quiet", "--no-input", *words]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if process.returncode:
        last = [line for line in process.stderr.splitlines() if line.strip()][-5:]
        raise LabError(f"pip {words[0]} failed in {python.parent.parent}", details=tuple(last))


def _stub(python: Path, name: str, version: str) -> None:
    """A distribution that says its name and version and holds nothing."""
    (packages,) = _site_packages(python)
    folder = packages / f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
