"""The references on disk are the ones that the code makes, and name everything."""

import importlib.util
import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from gspo_lab.recording.records import RECORDS, is_time
from gspo_lab.study import VerdictTable
from gspo_lab.study.runtime_tables import LaunchTable
from gspo_lab.study.schema import KEYS
from gspo_lab.training.objectives.presets import PRESETS

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_on_disk_are_those_that_the_code_makes(maker: ModuleType) -> None:
    for page, make in maker.PAGES.items():
        assert (DOCS / page).read_text(encoding="utf-8") == make(), (
            f"{page}: run python docs/make_reference.py"
        )


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


def test_every_key_and_every_recorded_field_has_its_line() -> None:
    keys, metrics = (
        (DOCS / f"reference/{page}.md").read_text("utf-8") for page in ("study-keys", "metrics")
    )
    tables = {key.rpartition(".")[0] for key in KEYS}
    wanted = {key.rpartition(".")[2] for key in KEYS if key not in tables} | {
        *VerdictTable.model_fields,
        *PRESETS,
    }
    wanted |= {key for table in dict(LaunchTable()).values() for key in type(table).model_fields}
    assert {key for key in wanted if f"\n- `{key}`" not in keys} == set()
    recorded = [
        (entry.name, is_time(entry.name)) for record in RECORDS.values() for entry in fields(record)
    ]
    assert [
        name for name, time in recorded if f"\n- `{name}`{'*' if time else ''}" not in metrics
    ] == []
