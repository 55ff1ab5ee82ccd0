import base64
import json

import pytest

from gspo_lab.training.samplers.server_sampler import KeyMask

KEY = "sk-proj-Q7xT2mVbN9aLpZ4k"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"Bearer {KEY}.", "Bearer [the key]."),
        ("first sk-proj-Q7xT, then 2mVbN9aLpZ4k!", "first [the key], then [the key]!"),
        ("s k - p r o j - Q 7 x T 2 m V b N 9 a L p Z 4 k", "[the key]"),
        (KEY.upper()[::-1], "[the key]"),
        (KEY.encode().hex(), "[the key]"),
        ("skills: project Q7x, 2mVb", "skills: project Q7x, 2mVb"),
    ],
)
def test_the_key_is_hidden_in_any_form(said: str, shown: str) -> None:
    assert KeyMask(KEY).hide(said) == shown


@pytest.mark.parametrize("before", ["", "x", "xy", "Bearer "])
def test_base64_hides_no_less_than_all_but_its_ends(before: str) -> None:
    said = base64.b64encode(f"{before}{KEY} and more".encode()).decode()
    shown = KeyMask(KEY).hide(said)
    start, _, end = shown.partition("[the key]")
    kept = base64.b64decode(start + "A" * (-len(start) % 4)).decode(errors="replace")
    assert "k-p" not in kept
    assert "4k" not in base64.b64decode("A" * (-len(end) % 4) + end).decode(errors="replace")


def test_json_escapes_do_not_show_it_and_a_short_key_is_a_word() -> None:
    said = json.dumps({"choices": [{"text": KEY}]}).replace("Q7", "\\u00517").encode()
    assert KeyMask(KEY).json_of(said) == {"choices": [{"text": "[the key]"}]}
    assert KeyMask("EMPTY").json_of(said) == json.loads(said)
    assert KeyMask(KEY).json_of(b"[" * 100_000) is None
