"""Which pairs decide, and by which spread: from the database to the word."""

import json
from pathlib import Path

import pytest
from synthetic_lab import by_seed, make_lab, right

from gspo_lab.findings.decision import Decision, decision
from gspo_lab.readings import Source
from gspo_lab.stats.two_way import items_variance
from gspo_lab.store import Evidence, rebuild
from gspo_lab.words import sentences

RIGHT = 8


EQUAL = right(lambda run, step: RIGHT / 20, by_seed)
"""Every run gets 8 of 20 problems right: grpo the first ones, gspo those from its seed on."""


def decided(database: Path) -> Decision:
    with Evidence.open(database) as evidence:
        return decision(Source(evidence, "toy"))


def test_ties_are_judged_by_what_the_answers_vary(tmp_path: Path) -> None:
    verdict = decided(make_lab(tmp_path, seeds=5, change=EQUAL)).verdicts["gspo"]
    # Problem by problem, seed s: s problems lost below, s won above the first eight.
    d_SI = [[float(seed <= i < seed + RIGHT) - float(i < RIGHT) for i in range(20)] for seed in range(5)]
    assert verdict.paired.differences == (0.0,) * 5
    assert verdict.paired.sd == 0.0
    assert verdict.paired.items_sd == pytest.approx((items_variance(d_SI) or 0.0) ** 0.5)
    # t(4) = 2.7764 times the answers' sd over sqrt 5, where version 0.1 had no interval.
    assert verdict.paired.high == pytest.approx(2.7764 * (verdict.paired.items_sd or 0.0) / 5**0.5, rel=1e-4)
    assert verdict.word == "not resolved"


def test_what_an_earlier_version_noted_as_added_does_not_decide(tmp_path: Path) -> None:
    database = make_lab(tmp_path, seeds=5)
    before = decided(database)
    path = database.parent / "toy" / "study.json"
    content = json.loads(path.read_text())
    content["edits"] = [{"at": "2026-01-01", "what": "seeds added: 3, 4"}]
    path.write_text(json.dumps(content))
    rebuild(database.parent)
    after = decided(database)
    assert (before.seeds, after.seeds) == ((0, 1, 2, 3, 4), (0, 1, 2))
    assert after.verdicts["gspo"].paired.differences == before.verdicts["gspo"].paired.differences[:3]
    assert sentences(after.described)[0].startswith("Not counted: 2 pairs of other seeds (3, 4), gspo − grpo ")
    assert after.matched.lock.state == "differs as declared"
