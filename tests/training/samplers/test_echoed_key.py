import base64
import json

import pytest

from gspo_lab.training.samplers.server_sampler import KeyMask

KEY = "sk-proj-Q7xT2mVbN9aLpZ4k"


@pytest.mark.parametrize(
    ("output", "displayed"),
    [
        (f"Bearer {KEY}.", "Bearer [the key]."),
        ("first sk-proj-Q7xT, then 2mVbN9aLpZ4k!", "first [the key], then [the key]!"),
        ("s k - p r o j - Q 7 x T 2 m V b N 9 a L p Z 4 k", "[the key]"),
        (KEY.upper()[::-1], "[the key]"),
        (KEY.encode().hex(), "[the key]"),
        ("skills: project Q7x, 2mVb", "skills: project Q7x, 2mVb"),
    ],
)
def test_the_key_is_hidden_in_any_form(output: str, displayed: str) -> None:
    assert KeyMask(KEY).hide(output) == displayed


@pytest.mark.parametrize("initial", ["", "x", "xy", "Bearer "])
def test_base64_hides_no_less_than_all_but_its_ends(initial: str) -> None:
    output = base64.b64encode(f"{initial}{KEY} and more".encode()).decode()
    displayed = KeyMask(KEY).hide(output)
    start, _, end = displayed.partition("[the key]")
    retained = base64.b64decode(start + "A" * (-len(start) % 4)).decode(errors="replace")
    assert "k-p" not in retained
    assert "4k" not in base64.b64decode("A" * (-len(end) % 4) + end).decode(errors="replace")


def test_json_escapes_do_not_show_it_and_a_short_key_is_a_word() -> None:
    output = json.dumps({"choices": [{"text": KEY}]}).replace("Q7", "\\u00517").encode()
    assert KeyMask(KEY).json_of(output) == {"choices": [{"text": "[the key]"}]}
    assert KeyMask("EMPTY").json_of(output) == json.loads(output)
    assert KeyMask(KEY).json_of(b"[" * 100_000) is None
