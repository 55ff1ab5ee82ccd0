import json

from gspo_lab.samplers.server_sampler import hide_key

KEY = "sk-proj-Q7xT2mVbN9aLpZ4k"


def test_a_key_that_a_server_repeats_is_hidden_and_a_short_one_is_a_word() -> None:
    said = json.dumps({"choices": [{"text": f"Bearer {KEY}."}]}).replace("Q7", "\\u00517").encode()
    assert json.loads(hide_key(said, KEY)) == {"choices": [{"text": "Bearer [the key]."}]}
    assert hide_key(said, "EMPTY") == hide_key(said, None) == said
    assert hide_key(b"[" * 100_000, KEY) == b""
