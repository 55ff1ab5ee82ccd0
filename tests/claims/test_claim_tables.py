"""`[[claim]]` in a study: what it may say, and that every mistake is named."""

from pathlib import Path

import pytest

from gspo_lab.errors import LabError
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


def mistakes(folder: Path, claims: str) -> tuple[str, ...]:
    with pytest.raises(LabError) as refused:
        study(folder, claims)
    return refused.value.details


def test_claims_belong_to_the_locked_study(tmp_path: Path) -> None:
    plain, claiming = study(tmp_path, ""), study(tmp_path, MINE + '[[claim]]\nname = "C04-clip-gap"\n')
    assert plain.claims == ()
    assert "claims" not in plain.locked(), "studies without claims keep the digest that they were locked with"
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
        ('name = "C04-clip-gape"', "claim.C04-clip-gape: no such claim (did you mean 'C04-clip-gap'?)"),
        ('name = "C04"', "claim.C04: no such claim (did you mean 'C04-clip-gap'?)"),
        ('name = "C04-clip-gap"\nabove = 1.0', "claim.C04-clip-gap.above: belongs to a claim written in place"),
        ('name = "C04-clip-gap"\nbound = 1.0', "claim.C04-clip-gap.bound: unknown key"),
        (
            'name = "C04-clip-gap"\narms = {gspo = "gspq"}',
            "claim.C04-clip-gap.arms.gspo: no arm 'gspq' (did you mean 'gspo'?); this study has grpo, gspo",
        ),
        (
            'name = "C04-clip-gap"\narms = {gsp = "gspo"}',
            "claim.C04-clip-gap.arms: no role 'gsp' (did you mean 'gspo'?)",
        ),
        ("metric = 1", "claim.0.name: missing"),
    ],
)
def test_a_mistake_in_a_built_in_claim_is_named(tmp_path: Path, table: str, said: str) -> None:
    assert any(line.startswith(said) for line in mistakes(tmp_path, f"[[claim]]\n{table}\n"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"entropy"', '"entrpy"', "claim.mine.metric: no metric or benchmark 'entrpy' (did you mean 'entropy'?)"),
        ('"entropy"', '"prompt_digest"', "claim.mine.metric: no metric or benchmark 'prompt_digest'"),
        ('"mean over steps"', '"mean over updates"', "claim.mine.statistic: 'mean over updates' does not fit entropy"),
        ('"mean over steps"', '"median"', "claim.mine.statistic: "),
        ('statistic = "mean over steps"', "", "claim.mine.statistic: missing"),
        ('comparison = "difference"', "", "claim.mine.comparison: missing"),
        ("above = 0.0", "", "claim.mine: say where the result is expected by one of above, below, inside"),
        ("above = 0.0", "above = 0.0\nbelow = 1.0", "claim.mine: say where the result is expected by one of"),
        ("above = 0.0", "inside = [1.0, 0.0]", "claim.mine.inside: the first must be smaller"),
        ("above = 0.0", "inside = [1.0]", "claim.mine.inside: "),
        ('"difference"', '"ratio"', "claim.mine: a ratio is expected against bounds above 0"),
        ('"mine"', '"C23-stable-then-equal"', "claim.C23-stable-then-equal: a built-in claim's name"),
        ("above = 0.0", 'above = 0.0\narms = {grpo = "grpo"}', "claim.mine.arms: no role 'grpo'; roles: of, against"),
        ("above = 0.0", "above = 0.0" + MINE, "claim.mine: declared twice"),
    ],
)
def test_a_mistake_in_a_claim_of_ones_own_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert any(line.startswith(said) for line in mistakes(tmp_path, MINE.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("metric", "statistic"),
    [
        ("grad_norm", "mean over updates with minibatch >= 1"),
        ("grad_norm", "largest"),
        ("entropy", "area under the curve"),
        ("addition", "mean over the last evaluations"),
        ("addition", "mean over the last fifth"),
    ],
)
def test_metrics_of_updates_steps_and_benchmarks_have_their_statistics(
    tmp_path: Path, metric: str, statistic: str
) -> None:
    table = MINE.replace("entropy", metric).replace("mean over steps", statistic)
    assert study(tmp_path, table).claims[0].statistic == statistic


def test_claims_are_tables(tmp_path: Path) -> None:
    assert "claim: a list of tables, each headed [[claim]]" in mistakes(tmp_path, '[claim]\nname = "C04-clip-gap"\n')
