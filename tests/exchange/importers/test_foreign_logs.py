"""Logs as strangers bring them: what is read, and what is said of everything that is not."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from logs import brought, csv_of, json_lines, opened, refused

from gspo_lab.analysis.findings.imported_metrics import imported_metrics
from gspo_lab.analysis.findings.paired_comparisons import compared
from gspo_lab.analysis.readings import Source
from gspo_lab.exchange.importers.config import LARGEST
from gspo_lab.recording.runfolder import RunFolder

ONE = ("--study", "x", "--arm", "a", "--seed", 0)


def records(folder: Path, kind: str, value: str) -> list[tuple[int, Any]]:
    run = RunFolder(folder / "runs" / "x" / "a" / "s0")
    return [(record["step"], record.get(value)) for record in run.records(kind)]


def verl_rows(*rows: tuple[int, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"step": step, "data": data} for step, data in rows]


VALIDATION = {
    "val-core/math/acc/mean@4": 0.4,
    "val-aux/math/acc/best@4/mean": 0.6,
    "val-aux/math/acc/maj@4/mean": 0.5,
    "val-aux/math/reward/std@4": 0.1,
    "val-aux/num_turns/mean": 2,
}
TRL_EVALUATION = {
    "eval_reward": 0.3,
    "eval_rewards/acc/mean": 0.4,
    "eval_runtime": 2,
    "eval_loss": 1,
}


def test_verl_validates_before_it_trains(tmp_path: Path) -> None:
    rows = verl_rows(
        (0, VALIDATION),
        (1, {"critic/score/mean": 0.3}),
        (2, {"critic/score/mean": 0.4, **VALIDATION}),
    )
    said = brought(tmp_path, "verl", json_lines(tmp_path / "a.jsonl", rows), *ONE)
    assert records(tmp_path, "step", "reward_mean") == [(0, 0.3), (1, 0.4)]
    assert records(tmp_path, "score", "score") == [(0, 0.4), (2, 0.4)]
    assert "numbers before the first step of training are left out, scores excepted:" in said.out
    assert "not understood" not in said.out


def test_trl_evaluates_on_start(tmp_path: Path) -> None:
    history = [
        {"step": 0, **TRL_EVALUATION},
        {"step": 1, "loss": 0.5, "reward": 0.1},
        {"step": 3, **TRL_EVALUATION},
    ]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history, "global_step": 3, "max_steps": 3}))
    brought(tmp_path, "trl", path, *ONE, "--score-metric", "eval_rewards/acc/mean")
    assert records(tmp_path, "score", "score") == [(0, 0.4), (3, 0.4)]
    assert records(tmp_path, "step", "reward_mean") == [(0, 0.1)], "an evaluation is no training"


def reward_csv(path: Path, steps: list[int]) -> Path:
    return csv_of(path / "a.csv", "step,r", *(f"{s},{i / 100}" for i, s in enumerate(steps)))


def reward_verl(path: Path, steps: list[int]) -> Path:
    return json_lines(
        path / "a.jsonl", verl_rows(*((s, {"r": i / 100}) for i, s in enumerate(steps)))
    )


def reward_console(path: Path, steps: list[int]) -> Path:
    return csv_of(path / "a.log", *(f"step:{s} - r:{i / 100}" for i, s in enumerate(steps)))


def reward_history(path: Path, steps: list[int]) -> Path:
    lines = (f"{i},{s},{i / 100}" for i, s in enumerate(steps))
    return csv_of(path / "a.csv", "_step,global_step,r", *lines)


def reward_long(path: Path, steps: list[int]) -> Path:
    lines = (f"{s},r,{i / 100}" for i, s in enumerate(steps))
    return csv_of(path / "a.csv", "step,metric,value", *lines)


@pytest.mark.parametrize(
    ("source", "write"),
    [
        ("csv", reward_csv),
        ("csv", reward_long),
        ("verl", reward_verl),
        ("verl", reward_console),
        ("wandb", reward_history),
    ],
)
def test_a_resumed_log_counts_its_later_numbers(
    tmp_path: Path, source: str, write: Callable[[Path, list[int]], Path]
) -> None:
    log = write(tmp_path, [1, 2, 3, 2, 3, 4])
    said = brought(tmp_path, source, log, *ONE, "--map", "reward=r")
    values = [value for _, value in records(tmp_path, "step", "reward_mean")]
    assert values == [0.0, 0.03, 0.04, 0.05]
    assert "note: r goes back from step 3 to 2 (resumed?): of one step the later number" in said.out


def test_a_history_of_wandb_counts_the_trainer_s_steps(tmp_path: Path) -> None:
    """`_step` counts calls of log; columns that begin with `_` are no metrics."""
    log = csv_of(
        tmp_path / "a.csv",
        "_step,_runtime,train/global_step,train/reward,eval/rewards/correct/mean",
        "0,10,10,0.30,",
        "1,20,20,0.32,",
        "2,25,20,,0.40",
        "3,35,30,0.34,",
    )
    for source in ("wandb", "csv"):
        said = brought(tmp_path, source, log, *ONE)
        assert records(tmp_path, "step", "reward_mean") == [(9, 0.3), (19, 0.32), (29, 0.34)]
        assert records(tmp_path, "score", "score") == [(20, 0.4)]
        assert "_runtime" not in (tmp_path / "runs/x/a/s0/journal.jsonl").read_text()
        assert "read as a log of trl" in said.out


def test_steps_as_text(tmp_path: Path) -> None:
    """ms-swift writes "3/10" and a summary; the names are TRL's. It stopped at 2 of 4."""
    rows = [
        {"reward": step / 10, "completions/mean_length": 100, "global_step/max_steps": f"{step}/4"}
        for step in (1, 2)
    ]
    said = brought(tmp_path, "jsonl", json_lines(tmp_path / "a.jsonl", rows), *ONE)
    assert records(tmp_path, "step", "reward_mean") == [(0, 0.1), (1, 0.2)]
    assert records(tmp_path, "status", "state")[-1] == (2, "stopped")
    assert "the run stopped at step 2 of 4" in said.out
    rows.append({"train_runtime": 5.0, "global_step/max_steps": "4/4"})
    said = brought(tmp_path, "jsonl", json_lines(tmp_path / "a.jsonl", rows), *ONE)
    assert records(tmp_path, "status", "state")[-1] == (2, "finished")


@pytest.mark.parametrize(
    ("done", "planned", "state"), [(2, 4, "stopped"), (4, 4, "finished"), (2, -1, "finished")]
)
def test_a_half_done_run_of_trl_is_not_finished(
    tmp_path: Path, done: int, planned: int, state: str
) -> None:
    content = {"log_history": [{"step": 2, "reward": 1}], "global_step": done, "max_steps": planned}
    (tmp_path / "trainer_state.json").write_text(json.dumps(content))
    brought(tmp_path, "trl", tmp_path, *ONE)
    assert records(tmp_path, "status", "state")[-1][1] == state


def test_a_rounded_zero_is_not_zero(tmp_path: Path) -> None:
    """verl prints three decimals; a score and a reward of 0.000 stay 0."""
    line = "actor/pg_clipfrac:0.000 - actor/ppo_kl:-0.000 - critic/score/mean:0.000"
    log = csv_of(tmp_path / "a.log", f"step:1 - {line}", f"step:2 - {line}")
    said = brought(tmp_path, "verl", log, *ONE)
    assert (
        "actor/pg_clipfrac is printed as 0.000 at 2 steps: below .0005, but not known" in said.out
    )
    assert records(tmp_path, "update", "clip_fraction_tokens") == []
    assert records(tmp_path, "step", "reward_mean") == [(0, 0.0), (1, 0.0)]
    csv_of(log, *(f"step:{s} - actor/pg_clipfrac:0.0 - critic/score/mean:0.5" for s in (1, 2)))
    brought(tmp_path, "verl", log, *ONE, "--set", "objective=grpo")
    assert records(tmp_path, "update", "clip_fraction_tokens") == [(0, 0.0), (1, 0.0)]


def test_a_deviation_that_depends_on_the_version_is_no_column(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(
        json.dumps({"log_history": [{"step": 1, "reward": 0.5, "reward_std": 0.25}]})
    )
    brought(tmp_path, "trl", tmp_path, *ONE)
    assert records(tmp_path, "step", "reward_std") == [(0, None)]
    assert records(tmp_path, "update", "engine_metrics") == [(0, {"reward_std": 0.25})]


def test_rewards_of_different_functions_are_not_subtracted(tmp_path: Path) -> None:
    """Their sums differ by what one arm's log has and the other has not; the page says so."""
    for arm, functions in (("grpo", ("acc",)), ("gspo", ("acc", "language"))):
        for seed in range(3):
            rewards = {f"rewards/{name}/mean": 0.5 for name in functions}
            history = [{"step": s, "reward": len(functions) + s, **rewards} for s in (1, 2, 3)]
            folder = tmp_path / f"{arm}-{seed}"
            folder.mkdir()
            (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    brought(tmp_path, "trl", str(tmp_path / "{arm}-{seed}"), "--study", "x")
    with opened(tmp_path) as evidence:
        source = Source(evidence, "x")
        assert compared(source) == []
        metrics = imported_metrics(source)
    assert metrics is not None
    assert metrics.apart == (
        "training reward: not compared. The rewards are of different functions: grpo sums acc; gspo"
        " sums acc, language.",
    )


def page(path: Path, *columns: str, axis: str = "Step", spread: float = 0.0) -> Path:
    names = [f'"{name}{bound}"' for name in columns for bound in ("", "__MIN", "__MAX")]
    rows = []
    for step in (1, 2):
        values = [f"{step / 10},{step / 10 - spread},{step / 10 + spread}" for _ in columns]
        rows.append(f"{step},{','.join(values)}")
    return csv_of(path / "page.csv", f'"{axis}",{",".join(names)}', *rows)


def test_names_of_runs_may_hold_the_dash_of_a_page(tmp_path: Path) -> None:
    path = page(tmp_path, "Qwen3 - a - s0 - eval/acc", "Qwen3 - b - s0 - eval/acc")
    pattern = ("--run-pattern", "Qwen3 - {arm} - s{seed}")
    said = brought(tmp_path, "wandb", path, "--study", "x", *pattern, "--score-metric", "eval/acc")
    assert said.out.splitlines()[:2] == ["x/a/s0: new", "x/b/s0: new"]
    assert records(tmp_path, "score", "score") == [(1, 0.1), (2, 0.2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axis": "Relative Time (Process)"}, "its axis is 'Relative Time (Process)', not a step"),
        ({"axis": "Wall Time"}, "its axis is 'Wall Time', not a step"),
        ({"spread": 0.05}, "'a-s0' is a mean over several runs (its __MIN and __MAX differ)"),
    ],
)
def test_a_page_without_steps_or_with_means_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    path = page(tmp_path, "a-s0 - eval/acc", **options)
    assert message in refused(tmp_path, "wandb", path, *ONE, "--run-pattern", "{arm}-s{seed}")


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        (("arm,seed,score", "a,0,.5", "Qwen/Qwen3-0.6B,0,.6"), (), "arm Qwen/Qwen3-0.6B is named"),
        (("arm,seed,score", "a,0,.5", ",0,.6"), (), "from log.csv: rows without arm, seed or run"),
        (
            ("run,step,score", "a-s0,1,.5", "b_s0,1,.6"),
            ("--run-pattern", "{arm}-s{seed}"),
            "not imported from log.csv: b_s0; it does not fit '{arm}-s{seed}' (--run-pattern)",
        ),
        (
            ("arm,seed,step,score", "a,0,1,.5", "a,0,2,n/a", "b,0,1,.5", "b,0,2,.6"),
            (),
            "note: score: steps of other runs without a score in a/s0 2",
        ),
    ],
)
def test_an_import_says_what_it_does_not_take(
    tmp_path: Path, lines: tuple[str, ...], options: tuple[str, ...], said: str
) -> None:
    log = csv_of(tmp_path / "log.csv", *lines)
    assert said in brought(tmp_path, "csv", log, "--study", "x", *options).out


def test_items_say_what_they_do_not_take(tmp_path: Path) -> None:
    lines = ("arm,seed,problem,correct", "a,0,p,1", ",0,p,1", "b/c,0,p,0")
    items = csv_of(tmp_path / "items.csv", *lines)
    said = brought(tmp_path, "items", items, "--study", "x", "--bench", "sums")
    assert "arm b/c is named b-c" in said.out
    assert "not imported from items.csv: rows without arm, seed or run" in said.out


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("arm,seed,score", "GRPO,0,.5", "grpo,1,.6"), "differ only in upper and lower case"),
        (("method,random_seed,accuracy", "a,0,.5"), "it has method, random_seed, accuracy"),
        (("arm,seed,score", "a,0,.5", "a,0,.6"), "name its column: --map step=NAME; it has arm"),
        (("arm,seed,step,score", "a,0,,.5"), "it has no step (looked for step, train/global_step"),
        ((",".join(f"m{i}" for i in range(20_000)), "1"), "20,000 columns; give a file of at most"),
    ],
)
def test_a_table_that_cannot_be_read_says_what_helps(
    tmp_path: Path, lines: tuple[str, ...], message: str
) -> None:
    log = csv_of(tmp_path / "log.csv", *lines)
    assert message in refused(tmp_path, "csv", log, "--study", "x")


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    log = csv_of(tmp_path / "log.csv", "arm;seed;step;score", "a;0;1;0,25", "a;0;2;0.5")
    brought(tmp_path, "csv", log, "--study", "x")
    assert records(tmp_path, "score", "score") == [(1, 0.25), (2, 0.5)]


def test_arguments_that_cannot_be_read_are_told_and_bounded(tmp_path: Path) -> None:
    """A small file that unpacks to 256 MB is not unpacked."""
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    (folder / "trainer_state.json").write_text('{"log_history": [{"step": 1, "reward": 1}]}')
    with (
        zipfile.ZipFile(folder / "training_args.bin", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x/data.pkl", "w", force_zip64=True) as file,
    ):
        for _ in range(1 << 4):
            file.write(bytes(LARGEST))
    said = brought(tmp_path, "trl", tmp_path, *ONE)
    assert "training_args.bin cannot be read; its settings are not known" in said.out
