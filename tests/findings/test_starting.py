"""Of which starting models a verdict is: said in its own sentence."""

from pathlib import Path

import pytest
from laboratory import rendered
from synthetic_lab import TWO_ARMS, make_lab

from gspo_lab.findings.decision import decision
from gspo_lab.findings.matched import about, starting_limits
from gspo_lab.models.check import EMBEDDED
from gspo_lab.readings import Source
from gspo_lab.report.sections.grounds import limits
from gspo_lab.store import Evidence
from gspo_lab.study import Settings, Study, load_study
from gspo_lab.words import decided_sentences, say

SHARED = "All seeds share one start of tiny-qwen3: the interval"


def study(folder: Path, toml: str, seeds: int = 3) -> Study:
    path = folder / "toy.toml"
    path.write_text(toml.format(steps=4, seeds=seeds, every=4))
    return load_study(path)


@pytest.mark.parametrize(
    ("was", "now", "seeds", "words", "limit"),
    [
        ("", "", 3, " on this one starting model", SHARED),
        ("", "", 1, "", None),
        ("steps = {steps}", "steps = {steps}\nwarm_start.per_seed = true", 3, "", None),
        (
            'model = "tiny-qwen3"',
            'model = "Qwen/Qwen3-0.6B"',
            3,
            " starting from Qwen/Qwen3-0.6B",
            "Every seed starts from Qwen/Qwen3-0.6B: what is judged is this checkpoint, which is the question",
        ),
        (
            '[arm.gspo]\nobjective = "gspo"',
            '[arm.gspo]\nobjective = "gspo"\nmodel = "tiny-qwen3-moe"',
            3,
            " on these starting models",
            "All seeds share one start of tiny-qwen3 and tiny-qwen3-moe",
        ),
    ],
)
def test_a_verdict_says_of_which_starts_it_is(
    tmp_path: Path, was: str, now: str, seeds: int, words: str, limit: str | None
) -> None:
    declared = study(tmp_path, TWO_ARMS.replace(was, now) if was else TWO_ARMS, seeds)
    assert (say(found) if (found := about(declared)) else "") == words
    assert [line for line in limits(declared) if line in starting_limits(declared)] == starting_limits(declared)
    assert [line[: len(limit or "")] for line in starting_limits(declared)] == ([limit] if limit else [])


@pytest.mark.parametrize(
    ("gain", "said"), [(0.35, "gspo is better than grpo"), (0.0, "Whether gspo differs from grpo")]
)
def test_it_stands_in_the_sentence_of_terminal_and_card(tmp_path: Path, gain: float, said: str) -> None:
    database = make_lab(tmp_path, gain=gain)
    with Evidence.open(database) as evidence:
        (sentence,) = decided_sentences(decision(Source(evidence, "toy")))
    assert sentence.startswith(said)
    assert " on this one starting model" in sentence
    report = rendered(database, "toy")
    assert f'<p class="headline">{sentence.rstrip(".")}: ' in report.html
    assert SHARED in report.html


def test_every_embedded_model_is_known_as_one(tmp_path: Path) -> None:
    settings: Settings = study(tmp_path, TWO_ARMS).arms["grpo"].settings
    assert all(settings.model_copy(update={"model": name}).embedded for name in EMBEDDED)
    assert not settings.model_copy(update={"model": "Qwen/Qwen3-0.6B"}).embedded
