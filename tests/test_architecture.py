"""docs/development/architecture.md against the code.

Imports, lengths of files, and what no file may say.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gspo_lab"

FLOORS: dict[str, int] = {
    **dict.fromkeys(
        (
            "common.errors",
            "common.paths",
            "common.cpu_count",
            "common.user_code",
            "common.states",
            "common.text",
            "common.plain_data",
        ),
        0,
    ),
    **dict.fromkeys(
        (
            "common.atomic_files",
            "common.keys",
            "common.reason",
            "running.progress",
            "common.registry",
            "recording.records",
            "tasks.sandbox",
        ),
        1,
    ),
    **dict.fromkeys(("recording.journal", "training.objectives", "tasks", "analysis.stats"), 2),
    "study": 3,
    **dict.fromkeys(("recording.runfolder", "training.models"), 4),
    **dict.fromkeys(("recording.store", "running.launch", "training.samplers"), 5),
    **dict.fromkeys(("analysis.readings", "tasks.evaluation", "exchange.importers"), 6),
    "analysis.matching": 7,
    **dict.fromkeys(
        ("analysis.findings", "analysis.diagnosis", "training.engines", "exchange.exporters"), 8
    ),
    **dict.fromkeys(("analysis.claims", "running.worker", "running.plan"), 9),
    **dict.fromkeys(("report", "running.conduct", "running.forkserver"), 11),
    "report.lab": 12,
    "cli": 12,
}
"""Room -> floor: a file imports from its own room and from lower floors."""

WALLS: dict[str, set[str]] = {
    "recording.store": {"training.objectives", "tasks", "analysis.stats", "training.models"},
    "analysis.stats": {"recording.records"},
    "running.launch": {
        "training.objectives",
        "tasks",
        "analysis.stats",
        "training.models",
        "study",
    },
    "recording.runfolder": {"training.objectives", "tasks", "analysis.stats"},
    "exchange.importers": {
        "tasks",
        "analysis.stats",
        "training.models",
        "training.samplers",
        "recording.store",
        "running.launch",
    },
    "analysis.readings": {
        "training.objectives",
        "tasks",
        "training.models",
        "training.samplers",
        "running.launch",
        "recording.journal",
        "recording.runfolder",
    },
    "analysis.matching": {
        "training.objectives",
        "tasks",
        "training.models",
        "training.samplers",
        "running.launch",
        "recording.runfolder",
    },
    "training.models": {"analysis.stats"},
    "training.samplers": {"analysis.stats"},
    "analysis.findings": {
        "training.models",
        "training.samplers",
        "tasks.evaluation",
        "running.launch",
        "tasks",
        "recording.journal",
        "recording.runfolder",
    },
    "analysis.diagnosis": {
        "training.models",
        "training.samplers",
        "tasks.evaluation",
        "running.launch",
        "tasks",
        "recording.store",
    },
    "analysis.claims": {
        "training.models",
        "training.samplers",
        "tasks.evaluation",
        "training.engines",
        "running.launch",
        "tasks",
        "recording.journal",
        "recording.runfolder",
    },
    "tasks.evaluation": {"recording.store", "analysis.stats", "running.launch"},
    "training.engines": {
        "recording.store",
        "analysis.stats",
        "running.launch",
        "analysis.matching",
    },
    "report": {
        "training.models",
        "training.samplers",
        "training.engines",
        "tasks.evaluation",
        "tasks",
        "running.launch",
        "recording.journal",
        "recording.runfolder",
    },
    "running.worker": {
        "recording.store",
        "analysis.stats",
        "analysis.claims",
        "analysis.matching",
        "report",
    },
    "running.forkserver": {
        "recording.store",
        "analysis.stats",
        "analysis.claims",
        "analysis.matching",
    },
    "running.plan": {"tasks.evaluation"},
    "running.conduct": {"report", "running.worker", "tasks.evaluation"},
}
"""Room -> rooms that lie lower and are none of its business all the same."""

LIGHT = (
    "common.errors",
    "common.paths",
    "common.cpu_count",
    "common.user_code",
    "common.states",
    "common.plain_data",
    "common.atomic_files",
    "common.keys",
    "tasks.sandbox",
    "common.registry",
    "recording.records",
    "recording.journal",
    "recording.runfolder",
    "exchange.importers",
    "study",
    "tasks",
    "running.launch",
    "cli",
    "running.worker",
    "running.forkserver",
)
HEAVY = {
    *(
        "torch",
        "transformers",
        "tokenizers",
        "pandas",
        "numpy",
        "scipy",
        "plotly",
        "sqlite_utils",
        "ray",
        "vllm",
    ),
    *("tensorboard", "wandb", "trackio", "pyarrow"),
}


FOLDERS = {"analysis", "common", "exchange", "recording", "running", "training"}
"""What only groups rooms: it has no code of its own."""


def room_of(module: str) -> str:
    """The layer of a dotted name inside the package.

    It is the name's longest part that has a floor; "" if none has.
    """
    while module and module not in FLOORS:
        module = module.rpartition(".")[0]
    return module


def room(path: Path) -> str:
    return room_of(".".join(path.relative_to(PACKAGE).with_suffix("").parts))


@cache
def trees() -> dict[Path, ast.Module]:
    """Every Python file of the package, parsed, except its own `__init__.py`.

    That file holds the version and `open`.
    """
    empty = {PACKAGE / folder / "__init__.py" for folder in ("", *FOLDERS)}
    paths = sorted(path for path in PACKAGE.rglob("*.py") if path not in empty)
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def shown(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def imports(tree: ast.AST) -> list[tuple[str, int]]:
    """(dotted module, line) of every import.

    `from a import b` counts as a.b, which may be a module.
    """
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            lines += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the room"
            lines += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return lines


def imported_rooms(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for module, line in imports(tree):
        if other := room_of(module.removeprefix("gspo_lab.")):
            yield other, line


def at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements that run when the module is imported.

    Function bodies and `if TYPE_CHECKING` are left out.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from at_import(node)


def test_the_plan_names_every_room() -> None:
    assert {room(path) for path in trees()} == set(FLOORS)
    plan = (ROOT / "docs/development/architecture.md").read_text(encoding="utf-8")
    for name, floor in FLOORS.items():
        path = PACKAGE / name.replace(".", "/")
        written = path.relative_to(PACKAGE).as_posix() + ("/" if path.is_dir() else ".py")
        assert re.search(rf"^\| {floor} \|.*`{re.escape(written)}`", plan, re.M), (
            f"{written} on floor {floor}"
        )


def test_imports_go_down_and_through_no_wall() -> None:
    wrong = [
        f"{shown(path)}:{line} imports {other}"
        for path, tree in trees().items()
        for other, line in imported_rooms(tree)
        if other != room(path)
        and (FLOORS[other] >= FLOORS[room(path)] or other in WALLS.get(room(path), ()))
    ]
    assert wrong == []


def test_light_rooms_import_no_heavy_package_at_the_top() -> None:
    wrong = [
        f"{shown(path)}:{line} imports {module}"
        for path, tree in trees().items()
        if room(path) in LIGHT
        for node in at_import(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module, line in imports(node)
        if module.partition(".")[0] in HEAVY
    ]
    assert wrong == []


def test_torch_training_code_lives_in_the_native_engine_alone() -> None:
    """Only the engine and its models' warm start train.

    Code trains if it calls backward() or makes an optimizer.
    """
    homes = set()
    for path, tree in trees().items():
        if {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & {
            "backward",
            "optim",
            "AdamW",
        }:
            homes.add(shown(path))
    assert {home for home in homes if not home.startswith("training/engines/native/")} == {
        "training/models/warm_start.py"
    }
    assert len(homes) > 1


def test_light_rooms_are_light_when_imported() -> None:
    names = ", ".join(f"gspo_lab.{name}" for name in (*LIGHT, "analysis.matching"))
    code = (
        f"import sys, {names}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert not HEAVY & set(done.stdout.split())


IN_A_RUN = {
    *(
        "RUN",
        "JOURNAL",
        "LOG",
        "LOCK",
        "CHECKPOINTS",
        "RESUME",
        "FINAL",
        "GRADES",
        "EVALUATIONS",
        "EVALUATION",
    ),
    *("WARM_START", "PROGRESS", "MADE"),
}
"""The names in `paths` of what lies in a run's folder, or in that of a warm start."""


def test_names_in_a_run_s_folder_are_joined_in_one_place() -> None:
    """Only the store and a worker name files of a run folder.

    The store follows files by their names; a worker says which one is missing. All others use a
    RunFolder.
    """
    by_hand = {
        shown(path)
        for path, tree in trees().items()
        for module, _ in imports(tree)
        if module.removeprefix("gspo_lab.common.paths.") in IN_A_RUN
    }
    assert {name for name in by_hand if not name.startswith("recording/")} <= {"running/worker.py"}


def test_no_file_is_two_rooms() -> None:
    assert [
        shown(path) for path in trees() if len(path.read_text(encoding="utf-8").splitlines()) > 650
    ] == []


def tracked() -> list[Path]:
    """The files of the checkout under version control now or with the next commit."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    # whoever the checkout belongs to: git lists nothing of another user's without leave
    listed = subprocess.run(
        [
            "git",
            "-c",
            f"safe.directory={ROOT}",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    places = ["/" + place + "/" for place in ("work", "root", "tmp/w")]
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="ignore")
        assert not [place for place in places if place in text], path


def test_records_and_runs_are_not_under_version_control() -> None:
    assert not [
        path for path in tracked() if path.suffix in {".db", ".jsonl", ".pt", ".safetensors"}
    ]
    assert not [path for path in tracked() if path.relative_to(ROOT).parts[0] == "runs"]


def imported_modules() -> dict[str, set[str]]:
    """The package's import graph: module -> modules that it names in any import.

    An import for types alone counts too.
    """
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): tree
        for path, tree in trees().items()
    }
    graph: dict[str, set[str]] = {}
    for module, tree in modules.items():
        named = {name for name, _ in imports(tree)}
        # `from a.b import c` names module a.b.c, or something of module a.b.
        targets = {name if name in modules else name.rpartition(".")[0] for name in named}
        graph[module] = targets & set(modules) - {module}
    return graph


MOST_METHODS = 15


def test_the_import_graph_has_no_cycle() -> None:
    TopologicalSorter(imported_modules()).prepare()  # CycleError names the modules of a cycle


def test_no_class_is_a_room_of_its_own() -> None:
    """What grows beyond fifteen methods is functions of a thing, and not the thing."""
    large = [
        f"{shown(path)}: {node.name}"
        for path, tree in trees().items()
        if room(path)
        in ("analysis.readings", "analysis.findings", "recording.store", "analysis.claims")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(entry, ast.FunctionDef) for entry in node.body) > MOST_METHODS
    ]
    assert large == []


POOLING = {
    "mean",
    "sum",
    "median",
    "std",
    "var",
    "quantile",
    "groupby",
    "nanmean",
    "nanmedian",
    "average",
    "fmean",
}
"""Calls that make one number of many."""
THEIRS = (
    "report",
    "analysis.claims",
    "analysis.findings",
    "cli",
    "running.conduct",
    "running.plan",
    "exchange.exporters",
    "report.lab",
)
"""The rooms that take such numbers from `readings`, `stats` and `store`."""


def pooled_in(tree: ast.AST) -> int:
    """How often a file pools numbers itself.

    By a method of that name, a function of numpy or statistics, or `sum / len`.
    """
    count = 0
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in POOLING
        ):
            count += 1
        elif isinstance(node, ast.ImportFrom) and node.module == "statistics":
            count += len(node.names)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            calls = [side.func for side in (node.left, node.right) if isinstance(side, ast.Call)]
            count += [call.id for call in calls if isinstance(call, ast.Name)] == ["sum", "len"]
    return count


def test_numbers_are_pooled_in_one_room() -> None:
    """Two places that pool the same rows are two numbers under one name, sooner or later."""
    pooled = {
        shown(path): pooled_in(tree) for path, tree in trees().items() if room(path) in THEIRS
    }
    assert [path for path, count in pooled.items() if count] == []


NODES = {"gspo_lab": 424_780, "tests": 358_900}
"""The most syntax nodes that each folder may have. A bound may only fall."""
NODES_A_LINE = {"gspo_lab": 6.34, "tests": 6.69}
IDIOMS = {"gspo_lab": 27, "tests": 312}
"""Statements that say several things at once. A bound may only fall."""
ENTRIES = 12


def dense_idioms(node: ast.AST) -> list[str]:
    """The names of the dense idioms that a node is."""
    names = []
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        if isinstance(node.value, ast.GeneratorExp):
            names.append("a generator unpacked")
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
            names.append("several assignments in one statement")
    factor = node.left if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) else None
    if isinstance(factor, ast.List | ast.Tuple):
        names.append("a list times a condition")
    if isinstance(node, ast.Tuple | ast.List):
        starred = [entry.value for entry in node.elts if isinstance(entry, ast.Starred)]
        if any(isinstance(value, ast.Tuple) for value in starred):
            names.append("a splat of a literal")
    inner = (node.body, node.orelse) if isinstance(node, ast.IfExp) else ()
    if any(isinstance(branch, ast.IfExp) for branch in inner):
        names.append("a nested conditional")
    comprehensions = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    if isinstance(node, comprehensions) and len(node.generators) > 1:
        names.append("a comprehension of two loops")
    if isinstance(node, ast.JoinedStr):
        fields = [value.value for value in node.values if isinstance(value, ast.FormattedValue)]
        for field in fields:
            if any(isinstance(inner, ast.IfExp | ast.JoinedStr) for inner in ast.walk(field)):
                names.append("an f-string that decides")
                break
    return names


@pytest.mark.parametrize("folder", ["gspo_lab", "tests"])
def test_the_code_grows_neither_in_size_nor_in_density(folder: str) -> None:
    nodes = lines = 0
    idioms: list[str] = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines += text.count("\n")
        for node in ast.walk(ast.parse(text)):
            nodes += 1
            if isinstance(node, ast.Name | ast.expr_context | ast.Constant):
                continue  # most are, and none is an idiom
            for name in dense_idioms(node):
                idioms.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} {name}")
    assert nodes <= NODES[folder]
    assert nodes / lines <= NODES_A_LINE[folder]
    assert len(idioms) <= IDIOMS[folder], "\n".join(idioms)


def test_the_package_opens_on_the_way_of_the_data() -> None:
    entries = [entry.name for entry in PACKAGE.iterdir() if entry.name != "__pycache__"]
    assert len(entries) <= ENTRIES, entries
