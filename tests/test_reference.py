"""The references on disk are the ones that the code makes, and name everything."""

import importlib.util
import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from gspo_lab.objectives.presets import PRESETS
from gspo_lab.records import RECORDS, is_time
from gspo_lab.study import BenchTable, Settings, VerdictTable
from gspo_lab.study.undeclared import LaunchTable

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_on_disk_are_those_that_the_code_makes(maker: ModuleType) -> None:
    for page, make in maker.PAGES.items():
        assert (DOCS / page).read_text(encoding="utf-8") == make(), f"{page}: run python docs/make_reference.py"


def test_every_link_of_a_page_leads_to_a_file_and_a_heading() -> None:
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", without_code(page)):
            file = page.parent / target if target else page
            if not target.startswith("http"):
                assert file.exists(), (page.name, target)
                assert not anchor or anchor in anchors(file), (page.name, target, anchor)


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    heads = re.findall(r"^#+ (.+)$", without_code(page), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_recorded_field_has_its_line() -> None:
    text = (DOCS / "reference/metrics.md").read_text(encoding="utf-8")
    for record in RECORDS.values():
        section = text.split(f"## `{record.table}`\n")[1].split("\n## ")[0]
        for entry in fields(record):
            mark = r" \*" if is_time(entry.name) else ""
            assert re.search(rf"^\| `{entry.name}`{mark} \| \w+ \| .+ \| .+ \|$", section, re.M), entry.name


def test_every_key_of_a_study_has_its_line() -> None:
    text = (DOCS / "reference/study-keys.md").read_text(encoding="utf-8")

    def section(title: str) -> str:
        return text.split(f"## {title}\n")[1].split("\n## ")[0]

    tables: dict[str, type[BaseModel]] = {"`[[bench]]`": BenchTable, "`[verdict]`": VerdictTable}
    for name, entry in Settings.model_fields.items():
        inner = entry.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            tables[f"`[{name}]`"] = inner
        elif name != "bench":
            assert f"| `{name}` |" in section("Top level")
    assert "`[update]`" in tables
    launch = LaunchTable()
    tables |= {f"`[launch.{name}]`": type(getattr(launch, name)) for name in LaunchTable.model_fields}
    for title, table in tables.items():
        for key in table.model_fields:
            assert f"| `{key}` |" in section(title), (title, key)
    for preset in PRESETS:
        assert f"| `{preset}` |" in section("`[objective]`")


def test_no_key_is_without_a_meaning() -> None:
    for line in (DOCS / "reference/study-keys.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            cells = line.replace("\\|", "/").split("|")
            assert len(cells[4 if len(cells) > 4 else 2]) >= 7, line
