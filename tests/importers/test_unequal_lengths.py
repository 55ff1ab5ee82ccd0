"""Logs of unequal length: each is read up to its own end, and nothing is carried beyond it."""

from pathlib import Path

import pytest
from logs import bring, json_lines, opened, report

from gspo_lab.findings.paired_comparisons import compared as compared_of
from gspo_lab.findings.paired_comparisons import scalars
from gspo_lab.findings.run_outcomes import stabilities
from gspo_lab.readings import Source
from gspo_lab.store import ingest


def verl_log(path: Path, rewards: list[float]) -> Path:
    rows = [{"step": step, "data": {"critic/score/mean": value}} for step, value in enumerate(rewards, 1)]
    return json_lines(path, rows)


@pytest.fixture
def unequal(tmp_path: Path) -> Path:
    """grpo: 10 rows of 1 to 10, gspo: 30 rows of 1 to 30, on three seeds that add .1, .2 and .3."""
    for seed in range(3):
        for arm, rows in (("grpo", 10), ("gspo", 30)):
            path = verl_log(tmp_path / f"{arm}-{seed}.jsonl", [row + (seed + 1) / 10 for row in range(1, rows + 1)])
            said = bring(tmp_path, "verl", path, "--study", "x", "--arm", arm, "--seed", seed)
            assert said.code == 0, said.err
    ingest(tmp_path / "runs")
    return tmp_path


def test_the_last_fifth_and_the_area_are_each_log_s_own(unequal: Path) -> None:
    """The last 2 of 10 rows: 9.5 (+ .1 of seed 0); the last 6 of 30: 27.5. Means: 5.5 and 15.5."""
    with opened(unequal) as evidence:
        found = Source(evidence, "x")
        area, tail = scalars(found)
        compared = {one.scalar.name: one.paired.estimate for one in compared_of(found)}
    assert tail.name == "training reward, last fifth of each log"
    assert tail.values["grpo", 0] == pytest.approx(9.6)
    assert tail.values["gspo", 0] == pytest.approx(27.6)
    assert (area.values["grpo", 0], area.values["gspo", 0]) == pytest.approx((5.6, 15.6))
    assert compared[tail.name] == pytest.approx(27.5 - 9.5)
    warnings = " ".join(report(unequal, "x")["logged"]["warnings"])
    assert "Logs differ in length, in steps: grpo 10; gspo 30. The reward of each run is read over its own" in warnings


def test_rows_at_an_interval_weigh_alike(tmp_path: Path) -> None:
    """Rows of steps 10, 20, ..., 100, each a mean over ten steps: the last fifth is the mean of the last two."""
    rows = [{"step": 10 * row, "data": {"critic/score/mean": float(row), "odd": row}} for row in range(1, 11)]
    path = json_lines(tmp_path / "log.jsonl", rows)
    bring(tmp_path, "verl", path, "--study", "x", "--arm", "grpo", "--seed", 0)
    names = report(tmp_path, "x")["logged"]["names"]["grpo"]
    assert names["odd"]["value"] == 9.5
    with opened(tmp_path) as evidence:
        assert scalars(Source(evidence, "x"))[-1].values == {("grpo", 0): 9.5}


def test_whether_a_run_fell_is_judged_over_its_own_steps(unequal: Path) -> None:
    """A run of 30 steps needs 10 in a row; beside one of 1,000 steps it would need 50, and could not be judged."""
    path = verl_log(unequal / "long.jsonl", [1.0] * 1000)
    bring(unequal, "verl", path, "--study", "x", "--arm", "long", "--seed", 0)
    with opened(unequal) as evidence:
        stable = stabilities(Source(evidence, "x"))
    assert (stable["x/gspo/s0"].window, stable["x/long/s0"].window) == (10, 50)
    assert stable["x/gspo/s0"].judged
