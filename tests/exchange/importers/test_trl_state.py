"""TRL's trainer_state.json: its definitions, resumes and later versions.

Also the messages about what is wrong with it.
"""

import math
from pathlib import Path

import pytest
from calling import gspo_lab
from logs import bring, brought, content, opened, refused, report, trainer_state, trl_rows

from gspo_lab.analysis.findings.run_outcomes import stabilities
from gspo_lab.analysis.readings import Source
from gspo_lab.recording.store.answers import read_scores
from gspo_lab.recording.store.records import read_steps, read_updates

GSPO = ("--set", "objective=gspo")


def one(folder: Path, path: Path, *options: object, arm: str = "gspo", seed: int = 0) -> str:
    said = brought(folder, "trl", path, "--study", "x", "--arm", arm, "--seed", seed, *options)
    return said.out


def column(folder: Path, name: str, table: str = "updates") -> dict[str, list[float]]:
    with opened(folder) as evidence:
        frame = (read_steps if table == "steps" else read_updates)(evidence, "x", [name])
        return {str(run): rows[name].tolist() for run, rows in frame.groupby("run_id")}


def test_its_clip_fraction_is_the_lab_s_where_its_level_is_known(tmp_path: Path) -> None:
    """.25 of tokens at level token, of responses at level sequence.

    Without a recorded level the unit is unknown.
    """
    path = trainer_state(tmp_path / "trainer_state.json", trl_rows(range(1, 4)))
    one(tmp_path, path, "--set", "objective=grpo", arm="grpo")
    one(tmp_path, path, *GSPO, arm="gspo")
    one(tmp_path, path, arm="unknown")
    tokens = column(tmp_path, "clip_fraction_tokens")
    responses = column(tmp_path, "clip_fraction_responses")
    assert tokens["x/grpo/s0"] == responses["x/gspo/s0"] == [0.25] * 3
    assert all(math.isnan(v) for run in ("x/gspo/s0", "x/unknown/s0") for v in tokens[run])
    assert all(math.isnan(v) for run in ("x/grpo/s0", "x/unknown/s0") for v in responses[run])
    found = report(tmp_path, "x")["logged"]
    assert found["names"]["unknown"]["clip_ratio/region_mean"]["value"] == 0.25
    assert [line.partition(".")[0] for line in found["not_compared"]] == [
        "clip fraction: not compared"
    ] * 2


def test_truncation_is_no_clip(tmp_path: Path) -> None:
    rows = [{"step": 1, "loss": 0.5, "completions/clipped_ratio": 0.75, "something/new": 3.0}]
    one(tmp_path, trainer_state(tmp_path / "trainer_state.json", rows), *GSPO)
    assert column(tmp_path, "truncated_responses", "steps") == {"x/gspo/s0": [0.75]}
    assert report(tmp_path, "x")["logged"]["not_understood"] == {"gspo": ["something/new"]}


def test_of_two_names_of_one_number_the_mapped_one_or_the_first_is_the_column(
    tmp_path: Path,
) -> None:
    """Some trainers log old and new names in one row; the other one keeps its own name."""
    rows = [
        {
            "step": 1,
            "completion_length": 8.0,
            "completions/mean_length": 8.0,
            "reward": 0.5,
            "rewards/acc/mean": 1,
        }
    ]
    one(
        tmp_path,
        trainer_state(tmp_path / "trainer_state.json", rows),
        "--map",
        "reward=rewards/acc/mean",
    )
    assert column(tmp_path, "response_tokens_mean", "steps") == {"x/gspo/s0": [8.0]}
    assert column(tmp_path, "reward_mean", "steps") == {"x/gspo/s0": [1.0]}
    logged = report(tmp_path, "x")["logged"]["names"]["gspo"]
    assert {name: logged[name]["value"] for name in ("completions/mean_length", "reward")} == {
        "completions/mean_length": 8.0,
        "reward": 0.5,
    }


def test_nan_was_not_measured_and_evaluations_have_their_own_cadence(tmp_path: Path) -> None:
    rows = trl_rows(range(1, 4))
    rows[1]["reward"] = math.nan
    rows[1]["grad_norm"] = math.inf
    rows[2]["grad_norm"] = math.nan
    rows.insert(2, {"step": 2, "eval_reward": 0.5, "eval_loss": 0.1})
    path = trainer_state(
        tmp_path / "out" / "checkpoint-3" / "trainer_state.json", rows, summary=True
    )
    assert "NaN" in path.read_text()
    said = one(tmp_path, tmp_path / "out", *GSPO)
    assert "the summary of the whole run, its last row, is left out" in said
    for name in ("reward", "grad_norm"):
        assert said.count(f"{name} is not finite in float32, first at step 2 [x/gspo/s0]") == 1
    assert column(tmp_path, "reward_mean", "steps")["x/gspo/s0"] == pytest.approx(
        [0.01, math.nan, 0.03], nan_ok=True
    )
    with opened(tmp_path) as evidence:
        assert read_scores(evidence, "x")[["bench", "step", "score"]].to_numpy().tolist() == [
            ["eval_reward", 2, 0.5]
        ]


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_update_that_is_not_finite_ends_a_run_s_learning(
    tmp_path: Path, name: str, value: float
) -> None:
    """Rows 1 to 30, that of 21 broken: step 20 of the lab.

    Of the others nobody knows that the update was finite.
    """
    rows = trl_rows(range(1, 31), grad_norm=1.0)
    rows[20][name] = value
    one(tmp_path, trainer_state(tmp_path / "trainer_state.json", rows), *GSPO)
    found = column(tmp_path, "nonfinite")["x/gspo/s0"]
    assert found == pytest.approx([math.nan] * 20 + [1] + [math.nan] * 9, nan_ok=True)
    with opened(tmp_path) as evidence:
        run = stabilities(Source(evidence, "x"))["x/gspo/s0"]
    assert (run.collapse, run.cause) == (20, "non-finite")


def test_a_reward_that_is_not_finite_is_no_update(tmp_path: Path) -> None:
    rows = trl_rows(range(1, 4))
    rows[1]["reward"] = math.nan
    one(tmp_path, trainer_state(tmp_path / "trainer_state.json", rows), *GSPO)
    assert all(map(math.isnan, column(tmp_path, "nonfinite")["x/gspo/s0"]))


def test_rows_are_told_to_be_means_over_their_interval(tmp_path: Path) -> None:
    path = trainer_state(tmp_path / "trainer_state.json", trl_rows(range(10, 50, 10)))
    assert "rows are means over up to 10 steps" in one(tmp_path, path, *GSPO)


def test_a_resume_elsewhere_is_joined_and_another_run_is_not(tmp_path: Path) -> None:
    """Steps 1 to 6, then from step 4 on again in another folder: the later numbers count."""
    trainer_state(
        tmp_path / "out" / "a" / "checkpoint-6" / "trainer_state.json", trl_rows(range(1, 7))
    )
    later = trainer_state(
        tmp_path / "out" / "b" / "checkpoint-8" / "trainer_state.json", trl_rows(range(4, 9), 1.0)
    )
    assert "goes back from step 6 to 4 (resumed?): of one step the later number counts" in one(
        tmp_path, tmp_path / "out", *GSPO
    )
    assert column(tmp_path, "reward_mean", "steps")["x/gspo/s0"] == pytest.approx(
        [0.01, 0.02, 0.03, 1.04, 1.05, 1.06, 1.07, 1.08]
    )
    trainer_state(later, trl_rows(range(1, 9), 1.0))
    line = refused(
        tmp_path, "trl", tmp_path / "out", "--study", "x", "--arm", "gspo", "--seed", 1, *GSPO
    )
    assert "begins again at step 1, after step 6: two runs in one log" in line


def test_a_run_that_is_imported_again_is_replaced(tmp_path: Path) -> None:
    path = trainer_state(tmp_path / "trainer_state.json", trl_rows(range(1, 5)))
    assert "x/gspo/s0: new" in one(tmp_path, path, *GSPO)
    for rows in (trl_rows(range(1, 7)), trl_rows(range(1, 3), 0.5)):
        trainer_state(path, rows)
        assert "x/gspo/s0: replaced" in one(tmp_path, path)
        assert column(tmp_path, "reward_mean", "steps")["x/gspo/s0"] == pytest.approx(
            [row["reward"] for row in rows]
        )
        with opened(tmp_path) as evidence:
            [run] = evidence.runs("x").to_dict("records")
        assert (run["steps_done"], run["state"]) == (len(rows), "finished")
        assert "x/gspo/s0: unchanged" in one(tmp_path, path)
    assert "damaged" not in gspo_lab("records", "rebuild", "--runs", tmp_path / "runs").err


def test_two_logs_cannot_be_one_run(tmp_path: Path) -> None:
    for folder, reward in (("a", 0.0), ("b", 0.5)):
        trainer_state(tmp_path / folder / "trainer_state.json", trl_rows(range(1, 3), reward))
    (tmp_path / "two.toml").write_text(
        '[arm.gspo]\nobjective = "gspo"\n'
        + "".join(
            f'[[runs]]\nsource = "trl"\npath = "{folder}"\narm = "gspo"\nseed = 0\n'
            for folder in "ab"
        )
    )
    assert "both claim to be gspo, seed 0" in refused(tmp_path, tmp_path / "two.toml")
    one(tmp_path, tmp_path / "a", *GSPO)
    again = one(tmp_path, tmp_path / "b")
    assert f"note: x/gspo/s0 was imported from {tmp_path / 'a'} before" in again


def test_a_study_imports_whole_or_not_at_all(tmp_path: Path) -> None:
    for arm in ("grpo", "gspo"):
        for seed in (0, 1, 2):
            trainer_state(
                tmp_path / f"{arm}-{seed}" / "trainer_state.json", trl_rows(range(1, 5), seed / 10)
            )
    toml = tmp_path / "mine.toml"
    toml.write_text(
        'question = "Which is better?"\n[verdict]\nmargin = 0.05\n[arm.grpo]\nobjective ='
        ' "grpo"\nclip_low = 0.2\n[arm.gspo]\nobjective = "gspo"\nclip_low = 0.2\n[[runs]]\nsource'
        ' = "trl"\npath = "{arm}-{seed}"\nlogged_by = "trl"\nscore = {reward = "reward"}\n'
    )
    broken = tmp_path / "gspo-2" / "trainer_state.json"
    whole = broken.read_text()
    broken.write_text("{")
    assert "gspo-2" in refused(tmp_path, toml)
    assert not (tmp_path / "runs").exists()
    broken.write_text(whole)
    assert bring(tmp_path, toml).code == 0
    found = report(tmp_path, "mine")
    assert found["answer"]["runs"] == {"finished": 6}
    assert any("sequence ratio with a range of 0.2" in line for line in found["logged"]["warnings"])
    before = content(tmp_path / "runs")
    assert bring(tmp_path, toml).code == 0
    assert content(tmp_path / "runs") == before


def test_what_spoils_a_comparison_is_told(tmp_path: Path) -> None:
    def log(name: str, steps: range, clipped: float) -> Path:
        return trainer_state(
            tmp_path / name / "trainer_state.json", trl_rows(steps, clipped=clipped)
        )

    one(
        tmp_path,
        log("a", range(1, 5), 0.0),
        "--set",
        "objective=grpo",
        "--set",
        "update.minibatches=1",
        "--set",
        "update.epochs=1",
        arm="grpo",
    )
    one(tmp_path, log("b", range(2, 22, 2), 0.1), *GSPO, seed=0)
    one(tmp_path, log("c", range(2, 22, 2), 0.1), *GSPO, seed=1)
    told = " ".join(report(tmp_path, "x")["logged"]["warnings"])
    for part in (
        "clip fraction of grpo is 0 in every row",
        "grpo makes one update per rollout batch",
        "One seed of grpo",
        "no pair is made of: gspo 1",
        "differ in length, in steps: grpo 4; gspo 20",
        "differ in the interval of their rows, in steps: grpo 1; gspo 2",
    ):
        assert part in told


def test_settings_that_contradict_are_refused(tmp_path: Path) -> None:
    path = trainer_state(tmp_path / "trainer_state.json", trl_rows(range(1, 3)))
    one(tmp_path, path, *GSPO, "--set", "clip_low=3e-4")
    options = ("--study", "x", "--arm", "gspo", "--seed", 1, "--set", "clip_low=0.2")
    assert "arm gspo: objective.clip_low is 0.0003, and the study says 0.2" in refused(
        tmp_path, "trl", path, *options
    )


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (
            'question = "stability"\nlooks = [3]',
            "question = 'stability' is answered by all runs; leave it out",
        ),
        (
            'question = ["calmer"]',
            "verdict.question: no claim 'calmer'; this study declares none, under [[claim]]",
        ),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(
    tmp_path: Path, rule: str, what: str
) -> None:
    for seed in range(3):
        trainer_state(tmp_path / f"a-{seed}" / "trainer_state.json", trl_rows(range(1, 3)))
    (tmp_path / "mine.toml").write_text(
        f'[verdict]\n{rule}\n[[runs]]\nsource = "trl"\npath = "{{arm}}-{{seed}}"\nscore = {{reward'
        ' = "reward"}\n'
    )
    said = bring(tmp_path, tmp_path / "mine.toml")
    assert (said.code, said.err.count("\n"), what in said.err) == (2, 1, True), said
    assert not (tmp_path / "runs").exists()
