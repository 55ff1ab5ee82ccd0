"""Messages of an import about rows, units and steps that do not fit together.

Logs may also have unequal lengths. Each log is read up to its own end, and nothing is carried
beyond it.
"""

import json
from pathlib import Path

import pytest
from logs import bring, brought, csv_of, json_lines, opened, project, refused, report

from gspo_lab.analysis.claims import answer
from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.paired_comparisons import compared as compared_of
from gspo_lab.analysis.findings.paired_comparisons import scalars
from gspo_lab.analysis.findings.run_outcomes import stabilities
from gspo_lab.analysis.readings import Source
from gspo_lab.recording.store import ingest
from gspo_lab.recording.store.records import read_steps
from gspo_lab.report.templating import statement

ONE = ("--study", "x", "--arm", "a", "--seed", 0)


def test_two_runs_side_by_side_in_a_log_are_refused(tmp_path: Path) -> None:
    """Most steps have two numbers. Of a single step the later number counts, with a note."""
    rows = [f"{step},.{step}{run}" for step in range(1, 5) for run in range(2)]
    log = csv_of(tmp_path / "log.csv", "step,r", *rows)
    assert (
        "r is logged twice at step 1, 0.1 and 0.11, and so at 4 of 4 steps: two runs in one log?"
        in refused(tmp_path, "csv", log, *ONE)
    )
    csv_of(log, "step,r", "1,.5", "2,.6", "2,.6")
    assert bring(tmp_path, "csv", log, *ONE).code == 0
    scores = csv_of(tmp_path / "scores.csv", "arm,seed,score", "a,0,.5", "a,0,.6")
    assert "line 3: it has no step" in refused(tmp_path, "csv", scores, "--study", "y")


def test_a_number_that_comes_twice_is_told(tmp_path: Path) -> None:
    path = project(tmp_path / "p.db", [("a-s0", 1, '{"r": 0.5}'), ("a-s0", 1, '{"r": 0.6}')])
    said = bring(tmp_path, "trackio", path, "--study", "x", "--run-pattern", "{arm}-s{seed}")
    assert "note: r is logged twice at step 1, 0.5 and 0.6: the later number counts" in said.out


def test_nested_keys_have_dotted_names(tmp_path: Path) -> None:
    rows = [{"step": step, "train": {"reward": step / 10, "more": {"kl": 0.5}}} for step in (1, 2)]
    log = json_lines(tmp_path / "log.jsonl", rows)
    assert bring(tmp_path, "jsonl", log, *ONE, "--map", "reward=train.reward").code == 0
    assert report(tmp_path, "x")["logged"]["names"]["a"].keys() == {"train.reward", "train.more.kl"}
    with opened(tmp_path) as evidence:
        assert read_steps(evidence, "x", ["reward_mean"])["reward_mean"].tolist() == [0.1, 0.2]
    json_lines(log, [{"step": 1, "a": {"b": 1}, "a.b": 2}])
    assert "a.b is there twice, nested and with a dot" in refused(
        tmp_path, "jsonl", log, *ONE[:-1], 1
    )


def test_percentages_need_a_margin_of_their_unit(tmp_path: Path) -> None:
    scores = csv_of(tmp_path / "scores.csv", "arm,seed,score", "a,0,45.3", "b,0,47.1")
    line = refused(tmp_path, "csv", scores, "--study", "x")
    assert (
        "scores of score reach 47.1, and the usual margin of 0.02 is of shares from 0 to 1" in line
    )
    assert "divide percentages by 100" in line
    assert bring(tmp_path, "csv", scores, "--study", "x", "--set", "verdict.margin=0.5").code == 0
    assert bring(tmp_path, "csv", scores, "--study", "x").code == 0, "its study has a margin by now"


def test_final_scores_of_other_steps_are_not_subtracted(tmp_path: Path) -> None:
    """With a reward as the score, step 6 of one arm is not compared with step 3 of another."""
    for seed in range(3):
        for arm, steps in (("a", 3), ("b", 6)):
            log = csv_of(
                tmp_path / "log.csv",
                "step,r",
                *(f"{step},{step / 10 + seed / 100}" for step in range(1, steps + 1)),
            )
            options = ("--study", "x", "--arm", arm, "--seed", seed, "--score-metric", "r")
            assert bring(tmp_path, "csv", log, *options).code == 0
    with opened(tmp_path) as evidence:
        said = answer(Source(evidence, "x"))
    assert said.word == "no verdict"
    assert "final scores are of step 3 in a and of step 6 in b (seed 0)" in statement(
        "answer", said
    )
    assert said.command == "import complete logs of every run", "its answers cannot be graded here"


@pytest.mark.parametrize(
    ("kl", "why"),
    [
        (
            [0.01, 0.02],
            (
                "its ratios are not 1 (actor/ppo_kl is not 0), so its clip range is wider than they"
                " vary."
            ),
        ),
        ([0.0, 0.0], "every ratio is 1 (actor/ppo_kl is 0), so nothing can clip"),
        (
            None,
            (
                "either it makes one update per rollout batch, so that every ratio is 1, or its"
                " clip range is wide."
            ),
        ),
    ],
)
def test_a_clip_fraction_of_0_is_explained_by_what_was_logged(
    tmp_path: Path, kl: list[float] | None, why: str
) -> None:
    rows = [
        {
            "step": step,
            "data": {"actor/pg_clipfrac": 0.0, **({"actor/ppo_kl": kl[step - 1]} if kl else {})},
        }
        for step in (1, 2)
    ]
    bring(tmp_path, "verl", json_lines(tmp_path / "log.jsonl", rows), *ONE)
    [line] = [
        line for line in report(tmp_path, "x")["logged"]["warnings"] if "clip fraction" in line
    ]
    assert line.startswith(f"The clip fraction of a is 0 in every row: {why}")


def test_messages_of_steps_and_runs_say_what_a_reader_can_check(tmp_path: Path) -> None:
    log = json_lines(tmp_path / "log.jsonl", [{"step": 0, "reward": 0.5}])
    line = refused(tmp_path, "jsonl", log, *ONE, "--logged-by", "trl")
    assert (
        "it has numbers of training at step 0 (reward_mean), and trl counts its steps from 1; if"
        " another program wrote it" in line
    )
    csv_of(tmp_path / "w.csv", "_step,train/reward", "0,.5")
    line = refused(tmp_path, "wandb", tmp_path / "w.csv", *ONE, "--logged-by", "trl")
    assert "W&B's _step counts calls of log: name the steps, --map step=NAME" in line
    runs = [("a", 0), ("a", 1), ("b", 0)]
    for place, (arm, seed) in enumerate(runs):
        length = 34 if place == 0 else 79
        csv = csv_of(
            tmp_path / "log.csv", "step,acc", *(f"{step},.5" for step in range(1, length + 1))
        )
        options = (
            "--study",
            "x",
            "--arm",
            arm,
            "--seed",
            seed,
            "--score-metric",
            "acc",
            "--map",
            "reward=acc",
        )
        assert bring(tmp_path, "csv", csv, *options).code == 0
    with opened(tmp_path) as evidence:
        found = Source(evidence, "x")
        assert decision(found).missing == {"b": ()}, "a seed that b never had"
    assert json.dumps(report(tmp_path, "x")).count("not begun") == 0


def verl_log(path: Path, rewards: list[float]) -> Path:
    rows = [
        {"step": step, "data": {"critic/score/mean": value}}
        for step, value in enumerate(rewards, 1)
    ]
    return json_lines(path, rows)


@pytest.fixture
def unequal(tmp_path: Path) -> Path:
    """grpo: 10 rows of 1 to 10, gspo: 30 rows of 1 to 30, on three seeds that add .1, .2 and .3."""
    for seed in range(3):
        for arm, rows in (("grpo", 10), ("gspo", 30)):
            path = verl_log(
                tmp_path / f"{arm}-{seed}.jsonl",
                [row + (seed + 1) / 10 for row in range(1, rows + 1)],
            )
            brought(tmp_path, "verl", path, "--study", "x", "--arm", arm, "--seed", seed)
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
    assert (
        "Logs differ in length, in steps: grpo 10; gspo 30. The reward of each run is read over"
        " its own" in warnings
    )


def test_rows_at_an_interval_weigh_alike(tmp_path: Path) -> None:
    """Rows of steps 10, 20, ..., 100 are each a mean over ten steps.

    So the last fifth is the mean of the last two.
    """
    rows = [
        {"step": 10 * row, "data": {"critic/score/mean": float(row), "odd": row}}
        for row in range(1, 11)
    ]
    path = json_lines(tmp_path / "log.jsonl", rows)
    bring(tmp_path, "verl", path, "--study", "x", "--arm", "grpo", "--seed", 0)
    names = report(tmp_path, "x")["logged"]["names"]["grpo"]
    assert names["odd"]["value"] == 9.5
    with opened(tmp_path) as evidence:
        assert scalars(Source(evidence, "x"))[-1].values == {("grpo", 0): 9.5}


def test_whether_a_run_fell_is_judged_over_its_own_steps(unequal: Path) -> None:
    """A run of 30 steps needs 10 in a row.

    Beside one of 1,000 steps it would need 50, and could not be judged.
    """
    path = verl_log(unequal / "long.jsonl", [1.0] * 1000)
    bring(unequal, "verl", path, "--study", "x", "--arm", "long", "--seed", 0)
    with opened(unequal) as evidence:
        stable = stabilities(Source(evidence, "x"))
    assert (stable["x/gspo/s0"].window, stable["x/long/s0"].window) == (10, 50)
    assert stable["x/gspo/s0"].judged


def test_what_newcomers_bring_is_read(tmp_path: Path) -> None:
    """Four shapes of tables from other programs.

    An index that pandas wrote, ms-swift's axis, verl's score of a function that returns a number,
    and a file of nothing but W&B's own columns.
    """
    pandas = csv_of(tmp_path / "p.csv", ",Unnamed: 0,step,r", "0,0,1,.5", "1,1,2,.6")
    brought(tmp_path, "csv", pandas, *ONE)
    assert report(tmp_path, "x")["logged"]["names"]["a"].keys() == {"r"}
    swift = [
        {"reward": 0.3, "loss": 0.1, "grad_norm": 1.0, "global_step/max_steps": f"{step}/2"}
        for step in (1, 2)
    ]
    said = brought(tmp_path, "jsonl", json_lines(tmp_path / "s.jsonl", swift), *ONE)
    assert "read as a log of trl, by its names" in said.out
    verl = "step:1 - critic/score/mean:0.3 - val-core/gsm8k/reward/mean@1:0.4\n"
    (tmp_path / "verl.log").write_text(verl)
    brought(tmp_path, "verl", tmp_path / "verl.log", *ONE[:-1], 1, "--study", "y")
    with opened(tmp_path) as evidence:
        assert Source(evidence, "y").declaration.primary == "val-core-gsm8k-reward-mean-1"
    own = csv_of(tmp_path / "w.csv", "step,_runtime", "1,3.5")
    line = refused(tmp_path, "csv", own, *ONE)
    assert "names that look like secrets or begin with '_' are left out" in line
