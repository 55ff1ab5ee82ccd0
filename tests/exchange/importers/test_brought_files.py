"""Files as people bring them.

They have marks of Windows, lists of json.dump, archives, numbers beyond float32, and what a
configuration tells of adapters.
"""

import json
from pathlib import Path

import pytest
from calling import gspo_lab
from case_tables import cases
from laboratory import json_of
from logs import brought, csv_of, offline_run, opened

from gspo_lab.recording.store.records import read_steps

ONE = ("--study", "x", "--arm", "a", "--seed", 0)
ROWS = '[{"step": 1, "reward": 0.1, "rewards/f/mean": 1},\n {"step": 2, "reward": 0.2}]'
CALLS = """[{"_step": 0, "train/global_step": 10, "train/reward": 0.1, "train/kl": 0},
 {"_step": 1, "train/global_step": 20, "train/reward": 0.2}]"""
STATE = f'{{\n "global_step": 2,\n "log_history": {ROWS}}}'
CONSOLE = "step:1 - critic/score/mean:0.1\nstep:2 - critic/score/mean:0.2\n"
VERL = """{"step": 1, "data": {"critic/score/mean": 0.1}}
{"step": 2, "data": {"critic/score/mean": 0.2}}"""


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("trl", STATE),
        ("trl", ROWS),
        ("jsonl", ROWS.replace("\n", "")),
        ("jsonl", CALLS.replace("\n", "")),
        ("csv", "step,reward\n1,0.1\n2,0.2\n"),
        ("jsonl", '{"step": [1, 2], "reward": [0.1, 0.2]}'),
        (
            "jsonl",
            '{"step": {"0": 1, "1": 2}, "x": {"0": "x", "1": 0}, "reward": {"0": 0.1, "1": 0.2}}',
        ),
        ("verl", VERL),
        ("verl", CONSOLE),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_marks_of_windows_and_lists_of_json_dump_are_read(
    tmp_path: Path, source: str, text: str, encoding: str
) -> None:
    log = tmp_path / f"a log.{source}"
    log.write_text(f"\ufeff{text}", encoding, newline="\r\n")
    config = tmp_path / "config.json"
    config.write_text('\ufeff{"learning_rate": 1e-6}')
    brought(tmp_path, source, log, *ONE, "--config", config)
    with opened(tmp_path) as evidence:
        assert read_steps(evidence, "x", ["reward_mean"])["reward_mean"].tolist() == [0.1, 0.2]


@pytest.mark.parametrize(("text", "said"), cases(__file__, "what_a_file_is"))
def test_diagnose_says_in_one_line_what_a_file_is(tmp_path: Path, text: str, said: str) -> None:
    log = tmp_path / "history.json"
    log.write_text(text, encoding="latin-1")
    answer = gspo_lab("diagnose", log)
    assert said in answer.out + answer.err
    assert answer.err.count("\n") == (answer.code > 0)


def test_what_is_no_number_of_float32_is_told_once(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    rows = [f"{step},1e308,None" for step in range(1, 40)]
    log = csv_of(tmp_path / "a.csv", "step,reward,q", *rows, "40,3e38,1")
    for said in (gspo_lab("diagnose", log).out, brought(tmp_path, "csv", log, *ONE).out):
        assert "reward is not finite in float32, first at step 1" in said
        assert "q has a text in place of a number at step 1: 39 left out" in said
    assert not recwarn.list


ADAPTERS = """
config.json ; {"_name_or_path": "m"} ; 0 None
adapter_config.json ; {"r": 8, "lora_alpha": 16} ; 8 16
adapter_config.json ; {"peft_type": "PROMPT_TUNING"} ; None None
a.verl ; {"lora_rank": 8, "lora_alpha": 16} ; 8 16
a.verl ; {"lora_rank": 0} ; 0 None
a.verl ; {"path": "m"} ; None None
a.wandb ; {"num_generations": 8, "peft_config": {"default": {"r": 8, "lora_alpha": 16}}} ; 8 16
a.wandb ; {"num_generations": 8, "beta": 0, "train_type": "full", "lora_rank": 8} ; 0 None
a.wandb ; {"num_generations": 8, "beta": 0, "tuner_type": "full", "lora_rank": 8} ; 0 None
a.wandb ; {"num_generations": 8, "beta": 0, "train_type": "lora", "lora_rank": 8} ; None None
a.wandb ; {"actor": {"use_lora": false, "eps_clip": 0.2, "path": "m"}} ; 0 None
a.wandb ; {"actor": {"use_lora": true, "eps_clip": 0.2, "path": "m"}} ; None None
"""
"""Where a configuration stands ; what it says ; the rank and scale that are recorded."""


@pytest.mark.parametrize("row", ADAPTERS.strip().splitlines())
def test_whether_adapters_were_trained(tmp_path: Path, row: str) -> None:
    name, config, recorded = row.split(" ; ")
    path = tmp_path / name
    if name == "a.wandb":
        offline_run(path, [{"step": 1, "reward": 0.5}], json.loads(config))
    elif name == "a.verl":
        path.write_text(f"{{'actor_rollout_ref': {{'model': {config}}}}}\n{CONSOLE}")
    else:
        path.write_text(config)
        path = tmp_path / "trainer_state.json"
        path.write_text(STATE)
    brought(tmp_path, path.suffix[1:].replace("json", "trl"), path, *ONE)
    update = json_of(tmp_path / "runs/x/a/s0/run.json")["settings"].get("update", {})
    assert f"{update.get('lora_rank')} {update.get('lora_alpha')}" == recorded
