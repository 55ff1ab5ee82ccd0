from collections.abc import Callable, Sequence
from typing import Any

import pytest
from markdown_it import MarkdownIt

from gspo_lab.common.text import signed as text_signed
from gspo_lab.report.markup import (
    Html,
    fenced,
    format_number,
    h,
    markdown_table,
    percent,
    plain,
    signed,
    table,
    text,
    unbroken,
)
from gspo_lab.report.page import rounded, script_json


def test_text_is_escaped_and_markup_is_not_escaped_twice() -> None:
    inner = h("b", "<i>&\"'")
    assert inner == "<b>&lt;i&gt;&amp;&quot;&#x27;</b>"
    assert h("p", inner, " x") == f"<p>{inner} x</p>"
    assert isinstance(inner, Html)


def test_a_word_with_a_hyphen_is_broken_nowhere_and_inert() -> None:
    held = '<span class="unbroken">gspo-5,</span> or <span class="unbroken">&lt;a-b&gt;.</span>'
    assert unbroken("x - y --set gspo-5, or <a-b>.") == f"x - y --set {held}"


def test_attributes_are_escaped_bare_or_left_out() -> None:
    assert h("a", href='"><script>', hidden=True, title=None, class_="c0") == (
        '<a href="&quot;&gt;&lt;script&gt;" hidden class="c0"></a>'
    )


def test_what_cannot_be_seen_is_spelt_out() -> None:
    assert text("a\x00b\u202ec\ud800d") == "a[U+0000]b[U+202E]c[U+D800]d"
    assert text("two\nlines") == "two\nlines"


@pytest.mark.parametrize(
    ("write", "values", "written"),
    [
        (format_number, (None, float("nan"), float("inf")), ["not measured"] * 3),
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
        (
            lambda v: text_signed(v, 0.248),
            (0.25, -0.126),
            ["+0.25", "−0.13"],
        ),  # two digits of the interval's width
        (rounded, (0.123456789, 3.0, float("nan"), 5, "x"), [0.123457, 3, None, 5, "x"]),
        (
            text,
            ("95 % of 3 s",),
            ["95\u00a0% of 3\u00a0s"],
        ),  # no line breaks between a number and its unit
    ],
)
def test_numbers_have_one_style(
    write: Callable[[Any], Any], values: Sequence[Any], written: list[Any]
) -> None:
    assert [write(value) for value in values] == written


def test_a_column_of_numbers_is_set_to_the_right_with_its_head() -> None:
    numbers = table(["", "of"], [["x", cell] for cell in ("0.5", "3 of 7", "–", "not measured")])
    assert numbers.count('class="n"') == 5
    assert 'class="n"' not in table(["", "of"], [["x", "0.5"], ["x", "better"]])


def test_json_cannot_leave_its_script_block() -> None:
    written = script_json({"a": "</script><!--&", "b": [1, None]})
    assert not set("<>&") & set(written)
    assert written == '{"a":"\\u003c/script\\u003e\\u003c!--\\u0026","b":[1,null]}'


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
    """What a parser with tables, strikethrough and bare links makes of one paragraph: kinds and
    contents.
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
    [
        ("@name", ["@name"]),
        ("owner/repo#12 and #7", ["owner/repo#12", "#7"]),
        ("group/project!3", ["group/project!3"]),
        ("GH-12", ["GH-12"]),
        ("see https://evil.example", ["https://evil.example"]),
        ("www.evil.example", ["www.evil.example"]),
        (":tada:", [":tada:"]),
        ("on sums:reward: it", ["sums:reward"]),
        ("it (#12), :4096:8, so", ["#12", ":4096:8"]),
        ("a@b.example", ["a@b.example"]),
        ("a `@name` b", ["`@name`"]),
        ("runs/archive/toy-20261123-120000/lab.db", ["runs/archive/toy-20261123-120000/lab.db"]),
        ("0123456789abcdef0123456789abcdef01234567", ["0123456789abcdef0123456789abcdef01234567"]),
    ],
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
