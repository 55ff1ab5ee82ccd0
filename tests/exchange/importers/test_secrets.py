"""No secret of a log is stored: one rule, tried through every source."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from calling import lab_error
from laboratory import rendered
from logs import brought, csv_of, json_lines, offline_run, project, trainer_state, trl_rows

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.exchange.importers.secrets import public_settings, without_home
from gspo_lab.recording.store import ingest

ONE = ("--study", "x", "--arm", "a", "--seed", 0)
HIDDEN = "Zq7Xk29Wm4Tr8Yp3Lv6N"
SECRETS: JsonObject = {
    "hf_token": f"hf_{HIDDEN}",
    "wandb": {"api_key": HIDDEN},
    "env": {"OPENAI_API_KEY": f"sk-{HIDDEN}", "PATH": "/home/alice/bin"},
    "awsSecretAccessKey": HIDDEN,
    "password": "alice1",
    "command": f"train.py --token {HIDDEN}",
    "reward_model_url": f"https://bob:{HIDDEN}@host/x",
    "user": "alice",
    "email": "alice@example.org",
    "reward_name": f"judge-{HIDDEN}",
    "extra": [f"hf_{HIDDEN}"],
    "deploy": {"private_key": f"-----BEGIN KEY {HIDDEN}"},
    "learning_rate": 1e-6,
    "output_dir": "/home/alice/out",
}


def csv_log(folder: Path) -> tuple[object, ...]:
    config = folder / "config.json"
    config.write_text(json.dumps(SECRETS))
    log = csv_of(folder / "a.csv", "step,r,api_key,password", f"1,.5,{HIDDEN},123456")
    return ("csv", log, *ONE, "--config", config)


def json_log(folder: Path) -> tuple[object, ...]:
    rows = [{"step": 1, "r": 0.5, "config": SECRETS, "secret": 4242424242}]
    return ("jsonl", json_lines(folder / "a.jsonl", rows), *ONE)


def toml_log(folder: Path) -> tuple[object, ...]:
    csv_log(folder)
    (folder / "x.toml").write_text(
        '[[runs]]\nsource = "csv"\npath = "a.csv"\narm = "a"\nseed = 0\nconfig = "config.json"\n'
    )
    return (folder / "x.toml",)


def verl_log(folder: Path) -> tuple[object, ...]:
    log = csv_of(folder / "a.log", repr(SECRETS), "step:1 - critic/score/mean:0.5")
    return ("verl", log, *ONE)


def hydra_log(folder: Path) -> tuple[object, ...]:
    pytest.importorskip("yaml")
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "config.yaml").write_text(json.dumps(SECRETS))
    return ("verl", json_lines(folder / "a.jsonl", [{"step": 1, "data": {"r": 0.5}}]), *ONE)


def wandb_log(folder: Path) -> tuple[object, ...]:
    rows = [{"_step": 1, "r": 0.5, "api_key": 4242424242}]
    return ("wandb", offline_run(folder / "run-a.wandb", rows, SECRETS), *ONE)


def trackio_log(folder: Path) -> tuple[object, ...]:
    path = project(folder / "a.db", [("a-s0", 1, '{"r": 0.5}')])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE configs (run_name TEXT, config TEXT)")
        database.execute("INSERT INTO configs VALUES ('a-s0', ?)", (json.dumps(SECRETS),))
    return ("trackio", path, "--study", "x", "--run-pattern", "{arm}-s{seed}")


def trl_log(folder: Path) -> tuple[object, ...]:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    arguments = transformers.TrainingArguments(
        output_dir="/home/alice/out", hub_token=f"hf_{HIDDEN}", learning_rate=1e-6
    )
    checkpoint = folder / "checkpoint-1"
    trainer_state(checkpoint / "trainer_state.json", trl_rows(range(1, 2)))
    torch.save(arguments, checkpoint / "training_args.bin")
    return ("trl", checkpoint, *ONE)


@pytest.mark.parametrize(
    "write", [csv_log, json_log, toml_log, verl_log, hydra_log, wandb_log, trackio_log, trl_log]
)
def test_no_secret_is_stored(tmp_path: Path, write: Callable[[Path], tuple[object, ...]]) -> None:
    """Journal, run.json, study.json, database, page, JSON and the terminal hold none of them."""
    said = brought(tmp_path, *write(tmp_path))
    ingest(tmp_path / "runs")
    pages = rendered(tmp_path / "runs" / "lab.db", "x")
    files = [path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    texts = [pages.html, pages.json, said.out, said.err]
    everything = b"".join([*files, *(text.encode() for text in texts)])
    for secret in (HIDDEN, "alice", "bob:", "123456", "4242424242"):
        assert secret.encode() not in everything.replace(str(tmp_path).encode(), b"")
    if write is not json_log:
        assert "values that may be secret or personal are not stored: " in said.out


SETTINGS = """
max_tokens 512
pad_token "<|endoftext|>"
loss.token_level true
model "Qwen/Qwen2.5-Math-1.5B-Instruct"
data.prompt_key "question"
data.reward_fn_key "data_source"
rollout.max_token_len_per_gpu 16384
dataloader_pin_memory true
pass_k 8
mask_token_id 5
lr_scheduler_type "constant_with_warmup"
reward_weights [0.5, 1.0]
question "Basic arithmetic"
sort_key "key=length"
reward.key "score"
hub_strategy "every_save"
stages [["warm", 1], ["main", 2]]
"""
SECRET_SETTINGS = r"""
x.github_token "abc"
SLACK_WEBHOOK "abc"
db.dsn "abc"
service.apiKey "abc"
note "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
note "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
note "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc"
launcher.argv "x"
runtime_env.vars.A "x"
note "python train.py --lr 1"
HOME "x"
storage "Endpoint=https://x;AccountKey=abc/def=="
note "https://hooks.slack.com/services/T0/B0/X"
note "{\"private_key_id\": \"ab\"}"
note "https://x.net/c?sv=2020&sig=abc"
note "Basic dXNlcjpwYXNz"
logdir "/Users/alice"
wandb_entity "alice"
key "Qx7Lp2Vb9Nm4"
judge.Key "Qx7Lp2Vb9Nm4"
card.pin "4711"
push_to_hub_model_id "alice/m"
e.host "box"
e.args ["--hf_token", "abc"]
headers ["Authorization: Bearer abcdef12345"]
stages [["main", ["password=hunter2"]]]
"""


@pytest.mark.parametrize("setting", SETTINGS.strip().splitlines())
def test_settings_stay(setting: str) -> None:
    name, _, value = setting.partition(" ")
    assert public_settings({name: json.loads(value)}) == ({name: json.loads(value)}, 0)


@pytest.mark.parametrize("setting", SECRET_SETTINGS.strip().splitlines())
def test_secrets_go(setting: str) -> None:
    name, _, value = setting.partition(" ")
    assert public_settings({name: json.loads(value)}) == ({}, 1)


def test_a_configuration_that_repeats_itself_is_bounded() -> None:
    table: JsonObject = {"a": 1}
    for _ in range(40):
        table = {"a": table, "b": table}
    with lab_error("more than 100,000 entries"):
        public_settings(table)


def test_a_path_does_not_name_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/alice")
    assert without_home("/data/alice/out/a.csv") == "~/out/a.csv"
    assert without_home("/home/bob/out") == "~/out"
    assert without_home("out/a.csv") == "out/a.csv"
