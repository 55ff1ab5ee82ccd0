"""What docstrings name exists: files, dotted names, and the parameters of a function."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from gspo_lab.study.schema import KEYS
from gspo_lab.study.verdict_tables import VerdictTable

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gspo_lab"
FILE_NAME = re.compile(r"[\w/-]+\.(?:py|toml|md|j2)\b")
DOTTED_NAME = re.compile(r"`(\w+)((?:\.\w+)+)(?<!\.py)(?<!\.toml)`")
PARAMETER = re.compile(r"(?:^|[.;]\s+|\n)`(\w+)`:")
OF_OTHERS = {
    "train.py",  # the script that an engine is started with
    "solution.py",  # a candidate's program in the sandbox
    "x.toml",  # any study
    "x.py",  # any file of a package
    "file.py",  # any file of a user
    "testing_util.py",  # of LiveCodeBench's own checker
    "grpo_trainer.py",  # of TRL
    "core_algos.py",  # of verl
    "NAME.j2",
    "NAME.md",
}
"""Files that a docstring may name though the repository does not hold them."""
OTHER_DOTTED_NAMES = {
    "gspo_lab.losses",  # groups of entry points
    "gspo_lab.claims",
    "areal.infra.rpc.rpc_server",  # another program's module
    "data.reward",  # a key of a log
    "log.csv",  # files that an export writes
    "log.parquet",
}
STUDY_KEYS = ROOT / "docs/reference/study-keys.md"

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}


@cache
def docstrings() -> list[tuple[str, Documented, str]]:
    """(where, the documented node, its text) of every docstring of the package."""
    texts = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                name = getattr(node, "name", "")
                texts.append((f"{path.relative_to(PACKAGE)} {name}".rstrip(), node, text))
    return texts


@cache
def names_by_module() -> dict[str, set[str]]:
    """Module or class name -> every name that its code defines or uses."""
    names: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        module = path.parent.name if path.name == "__init__.py" else path.stem
        own = names_in(tree)
        names[module] |= own
        names[path.parent.name] |= {path.stem, *own}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names[node.name] |= names_in(node)
    return names


def names_in(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    return names


def test_files_that_docstrings_name_exist() -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for path in ROOT.glob("[!.]*/**/*.*"):
        files[path.name].append(path.relative_to(ROOT).as_posix())
    wrong = [
        f"{where}: {name}"
        for where, _, text in docstrings()
        for name in FILE_NAME.findall(text)
        if not Path(name).name.startswith("my_")
        and Path(name).name not in OF_OTHERS
        and not any(f"/{file}".endswith(f"/{name}") for file in files[Path(name).name])
    ]
    assert wrong == []


def test_tests_that_the_sessions_run_exist() -> None:
    sessions = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    named = re.findall(r'"(tests/[^"]*)"', sessions)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_dotted_names_of_the_package_exist() -> None:
    names = names_by_module()
    keys = set(re.findall(r"`(\w+\.\w+)`", STUDY_KEYS.read_text(encoding="utf-8")))
    keys |= {f"verdict.{key}" for key in VerdictTable.model_fields}
    keys |= set(KEYS)
    wrong = [
        f"{where}: {owner}{rest}"
        for where, _, text in docstrings()
        for owner, rest in DOTTED_NAME.findall(text)
        if owner in names
        and rest.rpartition(".")[2] not in names[owner]
        and not list(ROOT.glob((owner + rest).replace(".", "/") + "*"))
        and f"{owner}{rest}" not in keys | OTHER_DOTTED_NAMES
    ]
    assert wrong == []


def test_parameters_that_a_docstring_explains_are_the_function_s() -> None:
    wrong = []
    for where, node, text in docstrings():
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        parameters = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
        parameters |= set(re.findall(r'"(\w+)"', ast.get_docstring(node) or ""))  # keys of a result
        wrong += [f"{where}: {name}" for name in PARAMETER.findall(text) if name not in parameters]
    assert wrong == []
