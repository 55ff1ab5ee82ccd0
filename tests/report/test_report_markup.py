from gspo_lab.report.figures import rounded, script_json
from gspo_lab.report.markup import Html, h, markdown_table, number, plain, signed, text


def test_text_is_escaped_and_markup_is_not_escaped_twice() -> None:
    inner = h("b", "<i>&\"'")
    assert inner == "<b>&lt;i&gt;&amp;&quot;&#x27;</b>"
    assert h("p", inner, " x") == f"<p>{inner} x</p>"
    assert isinstance(inner, Html)


def test_attributes_are_escaped_bare_or_left_out() -> None:
    assert h("a", href='"><script>', hidden=True, title=None, class_="c0") == (
        '<a href="&quot;&gt;&lt;script&gt;" hidden class="c0"></a>'
    )


def test_what_cannot_be_seen_is_spelt_out() -> None:
    assert text("a\x00b\u202ec\ud800d") == "a[U+0000]b[U+202E]c[U+D800]d"
    assert text("two\nlines") == "two\nlines"


def test_numbers_are_short_and_unknown_is_said() -> None:
    assert [number(one) for one in (None, float("nan"), float("inf"), 0.0, 7)] == [*["not measured"] * 3, "0", "7"]
    assert [number(one) for one in (0.12345, 12.345, 0.000123, -0.5)] == ["0.123", "12.3", "1.23e−4", "−0.500"]
    assert [signed(one) for one in (0.0314159, -0.02, 0.0, 0.00012, None)] == [
        "+0.031",
        "−0.020",
        "0",
        "+1.2e−4",
        "not measured",
    ]


def test_json_cannot_leave_its_script_block() -> None:
    written = script_json({"a": "</script><!--&", "b": [1, None]})
    assert not set("<>&") & set(written)
    assert written == '{"a":"\\u003c/script\\u003e\\u003c!--\\u0026","b":[1,null]}'


def test_six_significant_digits() -> None:
    assert [rounded(one) for one in (0.123456789, 3.0, float("nan"), 5, "x")] == [0.123457, 3, None, 5, "x"]


def test_markdown_cells_keep_the_table() -> None:
    assert markdown_table(["a|b"], [["x\ny<"]]) == "| a\\|b |\n| --- |\n| x y&lt; |"
    assert plain("<script>") == "&lt;script>"
