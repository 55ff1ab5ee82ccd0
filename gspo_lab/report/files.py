"""A report's three files, each written whole or not at all."""

import os
import tempfile
from pathlib import Path

from gspo_lab.report.page import Report


def write(report: Report, folder: Path) -> list[Path]:
    """Write the three files into `folder`, each whole or not at all; returns their paths, the page first."""
    folder.mkdir(parents=True, exist_ok=True)
    endings = {"html": report.html, "json": report.json, "md": report.markdown}
    return [_write(folder / f"{report.name}.{ending}", content) for ending, content in endings.items()]


def _write(path: Path, content: str) -> Path:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
