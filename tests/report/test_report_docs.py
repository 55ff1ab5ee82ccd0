"""docs/reference/report.md lists what stands on the page, in its order."""

import re
from pathlib import Path

from gspo_lab.report.sections import SECTIONS

PAGE = (Path(__file__).parents[2] / "docs/reference/report.md").read_text(encoding="utf-8")
SPELT_OUT = {
    "logged": "as logged",
    "pairs": "pairs and differences",
    "stability": "stability margin",
    "limits_section": "limits and counter-evidence",
    "downloads": "data",
}


def test_the_page_on_the_report_lists_every_section_in_order() -> None:
    heads = re.findall(r"^\d+\. \*\*(.+?)\.\*\*", PAGE, flags=re.MULTILINE)
    listed = [name for head in heads for name in head.lower().split(", ")]
    names = [getattr(writer, "__name__", "") for writer in SECTIONS]
    assert listed == [SPELT_OUT.get(name, name) for name in names]
    assert "**Studies side by side**" in PAGE
