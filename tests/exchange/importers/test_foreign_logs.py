"""Logs as strangers bring them: what is read, and what is said of everything that is not."""

import json
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from laboratory import rendered
from logs import brought, csv_of, events, json_lines, refused

from gspo_lab.common.plain_data import JsonObject, Strings
from gspo_lab.exchange.importers.config import LARGEST
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.recording.store import ingest

TABLES = tomllib.loads(r"""
left_out = [
    [['arm,seed,score', 'a,0,.5', 'Qwen/Qwen3-0.6B,0,.6'], [], 'arm Qwen/Qwen3-0.6B is named'],
    [['arm,seed,score', 'a,0,.5', ',0,.6'], [], 'from log.csv: rows without arm, seed or run'],
    [
        ['run,step,score', 'a-s0,1,.5', 'b_s0,1,.6'],
        ['--run-pattern', '{arm}-s{seed}'],
        "not imported from log.csv: b_s0; it does not fit '{arm}-s{seed}' (--run-pattern)",
    ],
    [
        ['arm,seed,step,score', 'a,0,1,.5', 'a,0,2,n/a', 'b,0,1,.5', 'b,0,2,.6'],
        [],
        'note: score: steps of other runs without a score in a/s0 2',
    ],
]
unreadable = [
    [['arm,seed,score', 'GRPO,0,.5', 'grpo,1,.6'], 'differ only in upper and lower case'],
    [['method,random_seed,accuracy', 'a,0,.5'], 'it has method, random_seed, accuracy'],
    [['arm,seed,score', 'a,0,.5', 'a,0,.6'], 'name its column: --map step=NAME; it has arm'],
    [['arm,seed,step,score', 'a,0,,.5'], 'it has no step (looked for step, train/global_step'],
]
marks = [
    [['1;1.234', '2;2'], 'score: 1.234 is read as a decimal', [1.234, 2]],
    [['1;1,234', '2;2'], 'score: 1,234 is read as a decimal', [1.234, 2]],
    [['1;1', '1.000;2'], 'step: 1.000 is read as a decimal', [2]],
    [['1;1.234', '2;2,5'], '', [1234, 2.5]],
    [['1;2,5', '2;1.234'], '', [2.5, 1234]],
    [['1;1.234', '2;2.5'], '', [1.234, 2.5]],
    [['1;1.234.567,5', '2;0.27'], '', [1234567.5, 0.27]],
    [['1;1.234.567', '2;1.234'], '', [1234567, 1234]],
]
forms = [
    'arm;seed;step;score / a;0;1;0,25 / a;0;1000;0.5',
    'arm;seed;step;score / a;0;1;0,25 / a;0;1.000;0,5',
    'sep=; / arm;seed;step;score / a;0;1;0,25 / a;0;1000;0,5',
    "arm\tseed\tstep\tscore / a\t0\t1\t0,25 / a\t0\t1000\t0,5",
    'arm|seed|step|score / a|0|1|.25 / a|0|1000|.5',
    "\ufeffarm, seed, step, score / a , 0, 1, .25 / a, 0, 1000, .5",
    "arm\tseed\tstep\tscore\ttokens / a\t0\t1\t0.250\t12,5 / a\t0\t1000\t0.500\t1,234",
    'score,step,seed,arm / .25,1,s0,a / .5,1000,seed 0,a',
    'arm;seed;step;score / a;0;1;0,25 / a;0;1.000;1,000 / a;0;1.000;0,5',
]
resumed = [ # source, first line, and how a row is written
    ['csv', 'step,r', '{step},{reward}'],
    ['csv', 'step,metric,value', '{step},r,{reward}'],
    ['verl', '', '{{"step": {step}, "data": {{"r": {reward}}}}}'],
    ['verl', '', 'step:{step} - r:{reward}'],
    ['wandb', '_step,global_step,r', '{call},{step},{reward}'],
]
""")
"""Tables as strangers bring them, and what is made of them."""

ONE = ("--study", "x", "--arm", "a", "--seed", 0)


def records(folder: Path, kind: str, value: str) -> list[tuple[int, Any]]:
    run = RunFolder(folder / "runs" / "x" / "a" / "s0")
    return [(record["step"], record.get(value)) for record in run.records(kind)]


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
    rows = [
        {"step": 0, "data": VALIDATION},
        {"step": 1, "data": {"critic/score/mean": 0.3}},
        {"step": 2, "data": {"critic/score/mean": 0.4, **VALIDATION}},
    ]
    said = brought(tmp_path, "verl", json_lines(tmp_path / "a.jsonl", rows), *ONE)
    assert records(tmp_path, "step", "reward_mean") == [(0, 0.3), (1, 0.4)]
    assert records(tmp_path, "score", "score") == [(0, 0.4), (2, 0.4)]
    assert "numbers before the first step of training are left out, scores excepted:" in said.out
    assert "not understood" not in said.out


def test_old_versions_of_verl_train_from_step_0(tmp_path: Path) -> None:
    """The row of step 0 holds the first update and what an evaluation after it scored."""
    training = {"critic/score/mean": 0.3, "actor/pg_clipfrac": 0.5}
    scored = {**training, "val/test_score/gsm8k": 0.4}
    rows = [{"step": 0, "data": training}, {"step": 1, "data": scored}]
    said = brought(tmp_path, "verl", json_lines(tmp_path / "a.jsonl", rows), *ONE)
    assert records(tmp_path, "step", "reward_mean") == [(0, 0.3), (1, 0.3)]
    assert records(tmp_path, "score", "score") == [(2, 0.4)]
    assert "its steps count from 0, as in older versions" in said.out


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


@pytest.mark.parametrize(("source", "first_line", "row"), TABLES["resumed"])
def test_a_resumed_log_counts_its_later_numbers(
    tmp_path: Path, source: str, first_line: str, row: str
) -> None:
    rows = [
        row.format(step=step, reward=call / 100, call=call)
        for call, step in enumerate([1, 2, 3, 2, 3, 4])
    ]
    log = csv_of(tmp_path / f"a.{source.replace('wandb', 'csv')}", first_line, *rows)
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


def steps_of_rows(folder: Path, rows: list[JsonObject], *options: object) -> list[int]:
    """The steps, as their program counts them, at which rows of rewards were read."""
    log = json_lines(folder / "a.jsonl", [{"reward": 0.5, **row} for row in rows])
    brought(folder, "jsonl", log, *ONE, "--logged-by", "trl", *options)
    return [step + 1 for step, _ in records(folder, "step", "reward_mean")]


@pytest.mark.parametrize(
    "form", ["{}", "{}/9", "[{} / 9]", "{} of 9", "step {}", "Step={}/9", "global_step_{}", "{}.0"]
)
def test_forms_of_a_step(tmp_path: Path, form: str) -> None:
    rows = [{"step": form.format(step)} for step in (3, 10)]
    assert steps_of_rows(tmp_path, rows) == [3, 10]


@pytest.mark.parametrize(
    "form", ["epoch 3", "-3", "3.5", "1,000", "epoch 1 step 3", "x", "1700000060"]
)
def test_what_is_no_step(tmp_path: Path, form: str) -> None:
    log = json_lines(tmp_path / "a.jsonl", [{"step": form, "reward": 0.5}])
    assert "not a whole number from 0 on" in refused(tmp_path, "jsonl", log, *ONE)


@pytest.mark.parametrize(
    "name", ["train/step", "rollout/step", "train_step", "iteration", "global_step", "Step"]
)
def test_the_trainer_s_step_counts_before_calls_of_log(tmp_path: Path, name: str) -> None:
    """A row that a user logged beside the trainer has no step of the trainer.

    Before the trainer's first row only the calls are known.
    """
    rows = [{"_step": 0, name: 5}, {"_step": 1, name: None}, {"_step": 2}, {"_step": 3, name: 10}]
    assert steps_of_rows(tmp_path, [{"_step": 1}, *rows]) == [1, 5, 10]
    notes = (tmp_path / "runs/x/a/s0/run.json").read_text()
    assert "rows without the trainer's step are left out (W&B's _step counts calls of log): 2" in (
        notes
    )


def test_a_folder_of_trl_holds_its_event_files_deeper(tmp_path: Path) -> None:
    names = ("train/reward", "train/loss", "train/grad_norm")
    events(tmp_path / "out/runs/Nov26_host", [(1, dict.fromkeys(names, 0.5))])
    said = brought(tmp_path, "tensorboard", tmp_path / "out", *ONE)
    assert "read as a log of trl, by its names" in said.out
    assert records(tmp_path, "step", "reward_mean") == [(0, 0.5)]


def test_folders_of_several_runs_are_named(tmp_path: Path) -> None:
    """The parts of one run, by `add_scalars` or by their names, are read together."""
    for name in ("a/s0", "a/s1", "b/old", "c/train", "c/eval", "d/loss_x", "d/loss_y"):
        events(tmp_path / name, [(1, {"loss": 0.5})])
    events(tmp_path / "b", [(1, {"loss": 0.5})])
    line = refused(tmp_path, "tensorboard", tmp_path / "a", *ONE)
    assert "logs loss: name one of them, s0, s1, or write {arm} and {seed} in the path" in line
    assert "name one of them, ., old, or" in refused(tmp_path, "tensorboard", tmp_path / "b", *ONE)
    for path in ("a/s0", "c", "d", "{arm}/s{seed}"):
        brought(tmp_path, "tensorboard", tmp_path / path, "--study", path.strip("{")[0], *ONE[2:])


def test_a_history_without_calls_of_log(tmp_path: Path) -> None:
    log = csv_of(tmp_path / "a.csv", "train/global_step,train/reward", "5,.5", "10,.6")
    brought(tmp_path, "wandb", log, *ONE, "--logged-by", "trl")
    assert records(tmp_path, "step", "reward_mean") == [(4, 0.5), (9, 0.6)]


def test_a_console_of_verl_says_how_many_steps_were_planned(tmp_path: Path) -> None:
    lines = ("Total training steps: 4", "step:1 - critic/score/mean:0.5")
    said = brought(tmp_path, "verl", csv_of(tmp_path / "a.log", *lines), *ONE)
    assert "the run stopped at step 1 of 4" in said.out


def test_a_run_planned_in_epochs(tmp_path: Path) -> None:
    """10 steps are half an epoch, so 3 epochs are 60 steps."""
    (tmp_path / "c.json").write_text('{"max_steps": -1, "num_train_epochs": 3}')
    rows = [{"step": 5, "epoch": 0.25}, {"step": 10, "epoch": 0.5}]
    assert steps_of_rows(tmp_path, rows, "--config", tmp_path / "c.json") == [5, 10]
    assert records(tmp_path, "status", "state")[-1][1] == "stopped"
    assert "stopped at step 10 of 60" in (tmp_path / "runs/x/a/s0/run.json").read_text()


@pytest.mark.parametrize("form", ["epochs", "steps"])
def test_a_finished_run_is_not_told_to_have_stopped(tmp_path: Path, form: str) -> None:
    """100 steps end at epoch .99, for the last batch was smaller; 0/2 and 1/2 are both of two."""
    (tmp_path / "c.json").write_text('{"max_steps": -1, "num_train_epochs": 1}')
    if form == "epochs":
        rows = [{"step": step, "epoch": 0.0099 * step} for step in range(1, 101)]
        steps_of_rows(tmp_path, rows, "--config", tmp_path / "c.json")
    else:
        log = csv_of(tmp_path / "a.csv", "step,reward", "0/2,.1", "1/2,.2")
        brought(tmp_path, "csv", log, *ONE)
    assert records(tmp_path, "status", "state")[-1][1] == "finished"


HALF_DONE = """
stopped "global_step": 2, "max_steps": 3
stopped "global_step": 2, "max_steps": 4
finished "global_step": 4, "max_steps": 4
finished "global_step": 2, "max_steps": -1
stopped "global_step": "3", "max_steps": 10
stopped "global_step": 3, "max_steps": "10"
stopped "global_step": "3.0", "max_steps": "10"
finished "global_step": "10", "max_steps": "10"
finished "global_step": 2, "max_steps": Infinity
"""


@pytest.mark.parametrize("line", HALF_DONE.strip().splitlines())
def test_a_half_done_run_of_trl_is_not_finished(tmp_path: Path, line: str) -> None:
    state, _, counts = line.partition(" ")
    content = f'{{"log_history": [{{"step": 2, "reward": 1}}], {counts}}}'
    (tmp_path / "trainer_state.json").write_text(content)
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


RUNS = ("--run-pattern", "{arm}-s{seed}")


def page(path: Path, *columns: str, axis: str = "Step", spread: float = 0.0) -> Path:
    names = [f'"{name}{bound}"' for name in columns for bound in ("", "__MIN", "__MAX")]
    rows = []
    for step in (1, 2):
        values = [f"{step / 10},{step / 10 - spread},{step / 10 + spread}" for _ in columns]
        rows.append(f"{step},{','.join(values)}")
    return csv_of(path / "page.csv", f'"{axis}",{",".join(names)}', *rows)


def test_names_of_runs_may_hold_the_dash_of_a_page(tmp_path: Path) -> None:
    for metric in ("eval/acc", "eval - acc"):
        path = page(tmp_path, f"Qwen3 - a - s0 - {metric}", f"Qwen3 - b - s0 - {metric}")
        pattern = ("--run-pattern", "Qwen3 - {arm} - s{seed}", "--score-metric", metric)
        said = brought(tmp_path, "wandb", path, "--study", "x", *pattern)
        assert [line[:6] for line in said.out.splitlines()[:2]] == ["x/a/s0", "x/b/s0"]
        assert records(tmp_path, "score", "score") == [(1, 0.1), (2, 0.2)]


def test_what_a_page_or_a_pattern_of_paths_leaves_out_is_told(tmp_path: Path) -> None:
    """A column that names no run, and a folder beside those that the pattern fits."""
    said = brought(tmp_path, "wandb", page(tmp_path, "a-s0 - r", "odd"), *ONE[:2], *RUNS)
    assert "not imported: odd; no column 'RUN - METRIC'" in said.out
    for name in ("a-s0", "b_s0"):
        (tmp_path / name).mkdir()
        csv_of(tmp_path / name / "log.csv", "step,r", "1,.5")
    pattern = str(tmp_path / "{arm}-s{seed}" / "log.csv")
    said = brought(tmp_path, "csv", pattern, "--study", "y")
    assert "not imported: b_s0/log.csv; the path does not fit" in said.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axis": "Relative Time (Process)"}, "its axis is 'Relative Time (Process)', not a step"),
        ({"axis": "Wall Time"}, "its axis is 'Wall Time', not a step"),
        ({"spread": 0.05}, "'a-s0' is a mean over several runs (its __MIN and __MAX differ)"),
    ],
)
def test_a_page_without_steps_or_with_means_is_refused(
    tmp_path: Path, options: JsonObject, message: str
) -> None:
    path = page(tmp_path, "a-s0 - eval/acc", **options)
    assert message in refused(tmp_path, "wandb", path, *ONE, *RUNS)


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    TABLES["left_out"],
)
def test_an_import_says_what_it_does_not_take(
    tmp_path: Path, lines: Strings, options: Strings, said: str
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
        *TABLES["unreadable"],
        ((",".join(f"m{i}" for i in range(20_000)), "1"), "20,000 columns; give a file of at most"),
    ],
)
def test_a_table_that_cannot_be_read_says_what_helps(
    tmp_path: Path, lines: Strings, message: str
) -> None:
    log = csv_of(tmp_path / "log.csv", *lines)
    assert message in refused(tmp_path, "csv", log, "--study", "x")


@pytest.mark.parametrize(
    "table",
    TABLES["forms"],
)
def test_tables_as_programs_for_them_write_them(tmp_path: Path, table: str) -> None:
    brought(tmp_path, "csv", csv_of(tmp_path / "log.csv", *table.split(" / ")), "--study", "x")
    assert records(tmp_path, "score", "score") == [(1, 0.25), (1000, 0.5)]


def test_an_imported_arm_that_is_named_like_a_sweep_s_has_its_own_button(tmp_path: Path) -> None:
    """And its scores stand each in their place where no start was logged."""
    rows = [f"{arm},{seed},.5" for arm in ("grpo", "grpo@0.1") for seed in (0, 1, 2)]
    brought(tmp_path, "csv", csv_of(tmp_path / "a.csv", "arm,seed,score", *rows), "--study", "x")
    ingest(tmp_path / "runs")
    page = rendered(tmp_path / "runs" / "lab.db", "x").html
    assert re.findall(r'data-hide="(arm [^"]*)"', page) == ["arm grpo", "arm grpo@0.1"]
    assert "not measured, 0.500, 0.500" in page


@pytest.mark.parametrize(
    ("rows", "told", "scores"),
    TABLES["marks"],
)
def test_a_point_means_the_same_in_a_whole_table_and_an_unsure_one_is_told(
    tmp_path: Path, rows: Strings, told: str, scores: list[float]
) -> None:
    log = csv_of(tmp_path / "log.csv", "step;score", *rows)
    said = brought(tmp_path, "csv", log, *ONE, "--set", "verdict.margin=1")
    assert told in said.out
    assert ("thousands" in said.out) == (told != "")
    assert [score for _, score in records(tmp_path, "score", "score")] == scores


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


def test_a_folder_in_the_arguments_place_is_told(tmp_path: Path) -> None:
    state = tmp_path / "trainer_state.json"
    state.write_text('{"log_history": [{"step": 1, "reward": 1}]}')
    (tmp_path / "training_args.bin").mkdir()
    said = brought(tmp_path, "trl", state, *ONE)
    assert "training_args.bin cannot be read; its settings are not known" in said.out
