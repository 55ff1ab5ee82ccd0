"""Names to code, for every kind of part: engines, launchers, tasks, samplers, log readers, losses.

A name stands for `"module:attribute"`, which is imported only when the name is used. It comes from

    gspo_lab's table of the kind            ENGINES, LAUNCHERS, SAMPLERS, ...
    an installed package's entry points     [project.entry-points."gspo_lab.engines"]
                                            mine = "my_pkg.engine:Mine"
    the name itself                         "my_pkg.module:Thing", or "my_file.py:thing" for a file
                                            beside the study
"""

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from gspo_lab.common.errors import LabError, MissingExtra
from gspo_lab.common.paths import beside
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.common.user_code import FromSource, from_source

Names = Mapping[str, str]
"""Name -> "module:attribute"."""
EXTRA_OF = {
    "torch": "train",
    "transformers": "train",
    "tokenizers": "train",
    "pyarrow": "parquet",
    "httpx2": "server",
}


def nearest(name: str, choices: Iterable[str]) -> str:
    """`" (did you mean 'x'?)"`, or nothing where no known name is near."""
    close = difflib.get_close_matches(name, list(choices), n=5)
    # Two letters in the wrong order are a likelier slip than a wrong letter.
    close.sort(key=lambda candidate: sorted(candidate) != sorted(name))
    return f" (did you mean '{close[0]}'?)" if close else ""


def unlisted(name: str, names: Collection[str], have: str = "known:") -> str:
    """The end of a message on an unknown name: `'gpso' (did you mean 'gspo'?); known: gspo`."""
    return f"'{name}'{nearest(name, names)}; {have} {', '.join(names) or 'none'}"


@cache
def installed(kind: str) -> Names:
    """Name -> "module:attribute" of what installed packages add to a kind; nothing of them is
    imported.
    """
    group = {"policy loss": "losses"}.get(kind, f"{kind}s")
    return {point.name: point.value for point in entry_points(group=f"gspo_lab.{group}")}


def names_of(kind: str, table: Names) -> Names:
    """The built-in `table` of a kind with the additions of installed packages, which cannot replace
    built-in names.
    """
    return {**installed(kind), **table}


def read_description(kind: str, name: str, table: Names) -> JsonObject:
    """What stands in the TOML file beside the code of `name`: `about.toml` of a package, `x.toml`
    of a module `x.py`.

    Empty where there is none. The code itself is not imported.
    """
    where = names_of(kind, table).get(name, name).rpartition(":")[0]
    if where.endswith(".py"):
        code = Path(where)
    else:
        try:
            spec = importlib.util.find_spec(where) if where else None
        except ModuleNotFoundError:
            spec = None
        if spec is None or spec.origin is None:
            return {}
        code = Path(spec.origin)
    path = code.with_name("about.toml") if code.name == "__init__.py" else code.with_suffix(".toml")
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def look_up(kind: str, name: str, table: Names, base: Path | None = None) -> Any:
    """The object that `name` stands for. `kind` is the word used in messages ("task", "engine");
    `base` is the folder that a file's path starts from. LabError where there is no such name, or it
    cannot be imported.
    """
    require_known(kind, name, table)
    where, _, attribute = names_of(kind, table).get(name, name).rpartition(":")
    try:
        with nullcontext() if name in table else from_source():
            module = _load_file(base, where) if where.endswith(".py") else _module(where)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in EXTRA_OF:
            raise MissingExtra(missing, EXTRA_OF[missing], f"the {kind} '{name}'") from error
        raise LabError(
            f"the {kind} '{name}' cannot be imported: no module named '{error.name}'"
        ) from error
    except LabError:
        raise
    except Exception as error:
        if name in table:
            raise
        # An outsider's file runs when it is imported, and may fail in any way.
        raise LabError(
            f"the {kind} '{name}': importing it failed with {one_line_error(error)}"
        ) from error
    if not hasattr(module, attribute):
        raise LabError(f"the {kind} '{name}': '{where}' has no '{attribute}'")
    return getattr(module, attribute)


def check_callable(
    kind: str,
    name: str,
    part: Any,
    call: Sequence[str],
    methods: Sequence[str],
    options: JsonMapping | None = None,
) -> None:
    """LabError where `found` cannot be called with as many arguments as `call` names, and with
    `options` by their names, or is a class without `methods`.

    Calls nothing: what a function makes is seen only when it is made (`check_made`).
    """
    call_form = f"it is called as {name.rpartition(':')[2]}({', '.join(call)})"
    if not callable(part):
        raise LabError(
            f"the {kind} '{name}' is {type(part).__name__}, not a class or a function; {call_form}"
        )
    try:
        inspect.signature(part).bind(*call, **(options or {}))
    except TypeError as error:
        raise LabError(f"the {kind} '{name}' is no {kind}: {call_form} ({error})") from error
    except ValueError:
        pass  # some built-in things do not say how they are called
    if isinstance(part, type):
        check_made(kind, name, part, methods)


def check_made(kind: str, name: str, value: Any, attributes: Sequence[str]) -> None:
    """LabError where something lacks one of the parts that make it an engine, a sampler, a task."""
    missing = [part for part in attributes if not hasattr(value, part)]
    if missing:
        raise LabError(f"the {kind} '{name}' is no {kind}: it has no {', '.join(missing)}")


def one_line_error(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def require_known(kind: str, name: str, table: Names) -> None:
    """LabError where `name` is no name of the kind, "module:attribute" or "file.py:attribute";
    imports nothing.
    """
    names = names_of(kind, table)
    if name not in names and ":" not in name:
        raise LabError(
            f"unknown {kind} {unlisted(name, sorted(names))}, "
            "or 'module:attribute', 'file.py:attribute'"
        )


def _module(where: str) -> ModuleType:
    """A module, looked for in the present folder too: a worker, started as `python -m`, has that on
    its path.
    """
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))
    return importlib.import_module(where)


def _load_file(base: Path | None, where: str) -> ModuleType:
    path = beside(base, where).resolve()
    if not path.is_file():
        raise LabError(f"no file {path}")
    name = "gspo_lab_user_" + hashlib.sha256(str(path).encode()).hexdigest()[:12]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=FromSource(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
