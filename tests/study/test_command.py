"""What to type for a study that was begun in another way."""

from gspo_lab.study.overrides import without


def test_an_option_is_left_out_with_its_value_wherever_it_stands() -> None:
    words = ("studies/x.toml", "--set", "steps=3", "--seeds", "5,6", "--name", "seeds")
    assert without(words, "--name") == ("studies/x.toml", "--set", "steps=3", "--seeds", "5,6")
    assert without(words, "--seeds", "--name") == ("studies/x.toml", "--set", "steps=3")
    assert without(words[:1], "--name") == words[:1]
