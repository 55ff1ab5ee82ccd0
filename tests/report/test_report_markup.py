import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from case_tables import cases
from jinja2 import UndefinedError
from markdown_it import MarkdownIt
from markupsafe import Markup

import gspo_lab.report
from gspo_lab.common.text import signed as text_signed
from gspo_lab.report.page import script_json
from gspo_lab.report.templating import (
    Output,
    environment,
    fenced,
    format_number,
    html_text,
    percent,
    plain,
    signed,
    unbroken,
)
from gspo_lab.report.views.view import rounded

TEMPLATES = sorted(Path(gspo_lab.report.__file__).with_name("templates").glob("*.j2"))


def written(template: str, output: Output, **values: Any) -> str:
    return environment(output).from_string(template).render(**values)


def test_text_of_data_is_escaped_and_markup_is_not_escaped_twice() -> None:
    hostile = '<i title="x">&'
    assert (
        written("<b>{{ x }}</b>", "html", x=hostile) == "<b>&lt;i title=&quot;x&quot;&gt;&amp;</b>"
    )
    assert written("{{ paragraph(x) }}", "html", x=hostile).count("&lt;i") == 1
    assert written("{{ x }}", "html", x=Markup("<b>1</b>")) == "<b>1</b>"
    assert "<i" not in written("{{ paragraph(x) }}", "md", x=hostile)
    with pytest.raises(UndefinedError):
        written("{{ nobody }}", "html")


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf")])
@pytest.mark.parametrize("output", ["html", "md"])
def test_no_template_can_write_a_missing_number(output: Output, missing: float | None) -> None:
    """Whatever a template writes is formatted: by name, in a table, in a list, through a filter."""
    template = """{{ x }} {{ row.x }} {{ x | number }} {{ x | percent }} {{ x | signed }}
        {{ paragraph(x) }} {{ bullets([x]) }}
        {{ table([[x, row]], ["a", ("b", "1.x", "number")]) }}"""
    text = written(template, output, x=missing, row={"x": missing})
    assert text.count("not measured") == 9
    assert not {"None", "nan", "inf", "NaN"} & set(text.replace("<", " ").replace(">", " ").split())


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_joins_no_number_to_a_text(template: Path) -> None:
    """`~` and `join` would write a number past the filters: only texts and counts stand there."""
    for line in template.read_text(encoding="utf-8").splitlines():
        for field in ("estimate", "low", "high", ".p ", "final", "start", "best", "mean", "score "):
            assert f"~ row.{field}" not in line
            assert f"~ view.{field}" not in line


def test_a_word_with_a_hyphen_is_broken_nowhere_and_inert() -> None:
    held = '<span class="unbroken">gspo-5,</span> or <span class="unbroken">&lt;a-b&gt;.</span>'
    assert unbroken("x - y --set gspo-5, or <a-b>.") == f"x - y --set {held}"


def test_what_cannot_be_seen_is_spelt_out() -> None:
    assert html_text("a\x00b\u202ec\ud800d") == "a[U+0000]b[U+202E]c[U+D800]d"
    assert html_text("two\nlines") == "two\nlines"


@pytest.mark.parametrize(
    ("write", "values", "texts"),
    [
        (
            format_number,
            (None, float("nan"), float("inf")),
            ["not measured", "not measured", "not measured"],
        ),
        (format_number, (0, 0.0, 7, 0.12345, 12.345), ["0", "0", "7", "0.123", "12.3"]),
        (format_number, (0.000123, 1e-5, -0.5), ["1.23e−4", "1.00e−5", "−0.500"]),
        (percent, (None, 0.0, 0.00042, 0.465), ["not measured", "0 %", "0.0420 %", "46.5 %"]),
        (
            signed,
            (0.0314159, -0.02, 0.0, 0.00012, None),
            ["+0.031", "−0.020", "0", "+1.2e−4", "not measured"],
        ),
        (
            lambda v: text_signed(v, 0.069),
            (0.0751, -0.0411, 0.0, -1.1e-17),
            ["+0.075", "−0.041", "0", "0"],
        ),
        (lambda v: text_signed(v, 1.4), (-0.0486, 0.75), ["−0.05", "+0.75"]),
        # two digits of the interval's width
        (lambda v: text_signed(v, 0.248), (0.25, -0.126), ["+0.25", "−0.13"]),
        (rounded, (0.123456789, 3.0, float("nan"), 5, "x"), [0.123457, 3, None, 5, "x"]),
        # no line breaks between a number and its unit
        (html_text, ("95 % of 3 s",), ["95\u00a0% of 3\u00a0s"]),
    ],
)
def test_numbers_have_one_style(
    write: Callable[[Any], Any], values: Sequence[Any], texts: list[Any]
) -> None:
    assert [write(value) for value in values] == texts


def test_a_column_of_numbers_is_set_to_the_right_with_its_head() -> None:
    numbers = [["x", cell] for cell in ("0.5", "3 of 7", "–", "not measured", "5 %", 0.25)]
    table = "{{ table(rows, ['', 'share']) }}"
    assert written(table, "html", rows=numbers).count('class="n"') == 7
    assert 'class="n"' not in written(table, "html", rows=[["x", "0.5"], ["x", "better"]])


def test_json_cannot_leave_its_script_block() -> None:
    block = script_json({"a": "</script><!--&", "b": [1, None]})
    assert not set("<>&") & set(block)
    assert json.loads(block) == {"a": "</script><!--&", "b": [1, None]}


def markdown_table(head: list[str], rows: list[list[Any]]) -> str:
    return written("{{ table(rows, head) }}", "md", head=head, rows=rows).strip()


def test_markdown_cells_keep_the_table() -> None:
    assert markdown_table(["a|b"], [["x\ny<"]]) == "| a\\|b |\n| --- |\n| x y&lt; |"
    assert plain("<script>") == "&lt;script>"


HOSTILE_LINES = (
    "![x](https://evil.example/a.png)",
    "[click](javascript:alert(1))",
    "https://evil.example www.evil.example",
    "*bold* _thin_ `code` ~~gone~~ <b>x</b> &lt;",
    "# heading",
    "- item",
    "1. item",
    "> quote",
    "===",
    "    indented",
    "a\nb\n\n# c",
    "</details><img src=x>",
    "| a | b |",
)


def shown(text: str) -> list[tuple[str, str]]:
    """The kinds and contents that a parser makes of one paragraph.

    The parser knows tables, strikethrough and bare links.
    """
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    block = reader.parse(text)
    assert [token.type for token in block] == ["paragraph_open", "inline", "paragraph_close"]
    return [(child.type, child.content) for child in block[1].children or []]


@pytest.mark.parametrize("line", HOSTILE_LINES)
def test_markdown_of_hostile_text_is_that_text_and_nothing_else(line: str) -> None:
    children = shown(plain(line))
    assert {kind for kind, _ in children} <= {"text", "text_special", "code_inline"}
    assert "".join(content for _, content in children) == " ".join(line.split("\n")).strip()


@pytest.mark.parametrize(
    ("said", "links"),
    cases(__file__, "what_a_forge_would_link_is_code_that_can_be_copied"),
)
def test_what_a_forge_would_link_is_code_that_can_be_copied(said: str, links: list[str]) -> None:
    children = shown(plain(said))
    assert [content for kind, content in children if kind == "code_inline"] == links
    assert "".join(content for _, content in children) == said
    assert plain(said).isascii()
    assert all(link in plain(said) for link in links)
    assert markdown_table(["a"], [["#1|b"]]).endswith("| `#1\\|b` |")


def test_code_cannot_close_its_fence() -> None:
    assert fenced(["a", "```", "@name"]) == "````\na\n```\n@name\n````"
    assert fenced(["a"]) == "```\na\n```"
