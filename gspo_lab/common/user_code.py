"""A user's Python files, executed from their present source, and the digest of the executed source.

Python's cache compares a file's size and its time in whole seconds. So an edit of equal length, or
a checkout that keeps times, would run the old program. It also writes `__pycache__` beside the
user's files. This loader avoids both.
"""

import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

# Installed packages, and this one, come through the cache: compiling torch anew takes half a
# minute.
_PLACES = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
INSTALLED = (Path(__file__).parents[1], *(Path(place).resolve() for place in _PLACES))


class FromSource(SourceFileLoader):
    """Compiles the file's present bytes, whatever is cached; `digest` is their sha256 once they
    were executed.
    """

    digest: str | None = None

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source and keep the digest of what was compiled; no cache is read or
        written.
        """
        source = self.get_data(self.path)
        self.digest = hashlib.sha256(source).hexdigest()
        return self.source_to_code(source, self.path)


class _Finder(MetaPathFinder):
    """Finds what the other finders find, and has files that are not installed loaded from their
    source.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is None:
                continue
            if type(spec.loader) is SourceFileLoader and not _is_installed(Path(spec.loader.path)):
                spec.loader = FromSource(spec.loader.name, spec.loader.path)
            return spec
        return None


@contextmanager
def from_source() -> Iterator[None]:
    """Within the block, every module outside the installed packages is executed from its source."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def source_digest(thing: Any) -> str | None:
    """The sha256 of the executed source of a function or class, or of its file if Python loaded it;
    None without.
    """
    defined = inspect.unwrap(thing) if callable(thing) else thing
    module = sys.modules.get(getattr(defined, "__module__", None) or "")
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    if isinstance(loader, FromSource):
        return loader.digest
    try:
        source = inspect.getsourcefile(defined)
    except TypeError:  # built in
        return None
    return (
        hashlib.sha256(Path(source).read_bytes()).hexdigest()
        if source and Path(source).is_file()
        else None
    )


def _is_installed(path: Path) -> bool:
    return any(path.resolve().is_relative_to(place) for place in INSTALLED)
