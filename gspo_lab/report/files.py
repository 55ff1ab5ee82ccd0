"""A report's three files, each written whole or not at all."""

from pathlib import Path

from gspo_lab.files import whole
from gspo_lab.report.page import Report


def write(report: Report, folder: Path) -> list[Path]:
    """Write the three files into `folder`, each whole or not at all; returns their paths, the page first."""
    endings = {"html": report.html, "json": report.json, "md": report.markdown}
    paths = []
    for ending, content in endings.items():
        paths.append(folder / f"{report.name}.{ending}")
        with whole(paths[-1], shared=True, lasting=False) as beside:
            beside.write_text(content, encoding="utf-8", newline="\n")
    return paths
