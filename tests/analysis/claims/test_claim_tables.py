"""`[[claim]]` in a study: what it may say, and that every mistake is named."""

from pathlib import Path

import pytest

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import Strings
from gspo_lab.study import ClaimTable, Study, digest, load_study

STUDY = """
question = "What may a claim say?"
task = "addition"
[[bench]]
name = "addition"
[arm.grpo]
objective = "grpo"
[arm.gspo]
objective = "gspo"
"""
MINE = """
[[claim]]
name = "mine"
metric = "entropy"
statistic = "mean over steps"
comparison = "difference"
above = 0.0
"""


def study(folder: Path, claims: str) -> Study:
    path = folder / "toy.toml"
    path.write_text(STUDY + claims)
    return load_study(path)


def mistakes(folder: Path, claims: str) -> Strings:
    with pytest.raises(LabError) as refused:
        study(folder, claims)
    return refused.value.details


def test_claims_belong_to_the_locked_study(tmp_path: Path) -> None:
    plain = study(tmp_path, "")
    claiming = study(tmp_path, MINE + '[[claim]]\nname = "C04-clip-gap"\n')
    assert plain.claims == ()
    assert "claims" not in plain.locked(), (
        "studies without claims keep the digest that they were locked with"
    )
    assert [claim.name for claim in claiming.claims] == ["mine", "C04-clip-gap"]
    assert claiming.locked()["claims"][0] == {
        **dict.fromkeys(ClaimTable.model_fields),
        "name": "mine",
        "metric": "entropy",
        "statistic": "mean over steps",
        "comparison": "difference",
        "above": 0.0,
    }
    assert digest(plain.locked()) != digest(claiming.locked())


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('name = "C04-clip-gape"', "C04-clip-gape: no such claim (did you mean 'C04-clip-gap'?)"),
        ('name = "C04"', "C04: no such claim (did you mean 'C04-clip-gap'?)"),
        (
            'name = "C04-clip-gap"\nabove = 1.0',
            "C04-clip-gap.above: belongs to a claim written in place",
        ),
        ('name = "C04-clip-gap"\nbound = 1.0', "C04-clip-gap.bound: unknown key"),
        (
            'name = "C04-clip-gap"\narms = {gspo = "gspq"}',
            "C04-clip-gap.arms.gspo: no arm 'gspq' (did you mean 'gspo'?)",
        ),
        (
            'name = "C04-clip-gap"\narms = {gsp = "gspo"}',
            "C04-clip-gap.arms: no role 'gsp' (did you mean 'gspo'?)",
        ),
        ("metric = 1", "0.name: missing"),
    ],
)
def test_a_mistake_in_a_built_in_claim_is_named(tmp_path: Path, table: str, said: str) -> None:
    assert any(
        line.startswith(f"claim.{said}") for line in mistakes(tmp_path, f"[[claim]]\n{table}\n")
    )
    assert "claim: a list of tables, each headed [[claim]]" in mistakes(
        tmp_path, f"[claim]\n{table}\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '"entropy"',
            '"entrpy"',
            ".metric: no metric or benchmark 'entrpy' (did you mean 'entropy'?)",
        ),
        ('"entropy"', '"prompt_digest"', ".metric: no metric or benchmark 'prompt_digest'"),
        (
            '"mean over steps"',
            '"mean over updates"',
            ".statistic: 'mean over updates' does not fit entropy",
        ),
        ('"mean over steps"', '"median"', ".statistic: "),
        ('statistic = "mean over steps"', "", ".statistic: missing"),
        ('comparison = "difference"', "", ".comparison: missing"),
        ("above = 0.0", "", ": say where the result is expected by one of above, below, inside"),
        ("above = 0.0", "above = 0.0\nbelow = 1.0", ": say where the result is expected by one of"),
        ("above = 0.0", "inside = [1.0, 0.0]", ".inside: the first must be smaller"),
        ("above = 0.0", "inside = [1.0]", ".inside: "),
        ('"difference"', '"ratio"', ": a ratio is expected against bounds above 0"),
        (
            "above = 0.0",
            'above = 0.0\narms = {grpo = "grpo"}',
            ".arms: no role 'grpo'; roles: of, against",
        ),
        ("above = 0.0", "above = 0.0" + MINE, ": declared twice"),
        ('"entropy"\nstatistic = "mean over steps"', '"grad_norm"\nstatistic = "largest"', ""),
        (
            '"entropy"\nstatistic = "mean over steps"',
            '"addition"\nstatistic = "mean over the last evaluations"',
            "",
        ),
        (
            '"entropy"\nstatistic = "mean over steps"',
            '"addition"\nstatistic = "mean over the last fifth"',
            "",
        ),
        ("mean over steps", "area under the curve", ""),
    ],
)
def test_a_mistake_in_a_claim_of_ones_own_is_named(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    if said:
        assert any(
            line.startswith(f"claim.mine{said}")
            for line in mistakes(tmp_path, MINE.replace(old, new, 1))
        )
    else:
        assert study(tmp_path, MINE.replace(old, new, 1)).claims[0].name == "mine"


def test_a_built_in_claim_s_name_is_taken(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, MINE.replace("mine", "C23-stable-then-equal"))
    assert only.startswith("claim.C23-stable-then-equal: a built-in claim's name")
