"""Every signal on logs made by hand, each next to its healthy twin, and on logs of real runs."""

import json
import re
import tomllib
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pandas as pd
import pytest
from calling import Said, gspo_lab
from laboratory import finish, leave
from public_data import public

from gspo_lab.analysis.diagnosis import SIGNALS, signals
from gspo_lab.analysis.diagnosis.log import consistent_count
from gspo_lab.common.plain_data import JsonObject, Strings, table_beside
from gspo_lab.recording.records import AnswerRecord, StepRecord, UpdateRecord
from gspo_lab.study import Run, load_study

PAGE = Path(__file__).parents[3] / "docs/how-to/diagnose-a-log.md"
TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def verl_log(folder: Path, case: JsonObject) -> list[object]:
    """Arguments of `diagnose` for a log of verl that departs from the healthy one."""
    rows = TABLES["healthy"] | case.get("rows", {})
    table = pd.DataFrame()
    for name, parts in rows.items():
        values, counts = zip(*parts, strict=True)
        table[name] = np.repeat(values, counts)
    steps = enumerate(table.to_dict("records"), 1)
    lines = [json.dumps({"step": step, "data": row}) for step, row in steps]
    (folder / "log.jsonl").write_text("\n".join(lines))
    (folder / "verl.json").write_text(json.dumps(TABLES["gspo"] | case.get("config", {})))
    return [folder / "log.jsonl", "--config", folder / "verl.json"]


def levels(answer: Said) -> dict[str, str]:
    assert not answer.err
    return {signal["name"]: signal["level"] for signal in answer.json["signals"]}


def raised(answer: Said) -> dict[str, str]:
    """The signals above a note."""
    return {name: level for name, level in levels(answer).items() if level in ("warn", "error")}


def test_what_the_run_was_made_with_is_recognised(tmp_path: Path) -> None:
    answer = gspo_lab("diagnose", *verl_log(tmp_path, {}), "--json")
    assert answer.json["recognised"] == {
        "program": "verl (version not recorded)",
        "rule": "GSPO (sequence ratio)",
        "clip range (low / high)": "0.0003 / 0.0004",
        "updates per rollout batch": "4",
        "aggregation": "seq-mean-token-mean",
        "old log-probs": "the trainer's",
        "steps with a number": "60",
    }


@pytest.mark.parametrize("case", TABLES["case"])
def test_a_fault_raises_its_signal_alone(tmp_path: Path, case: JsonObject) -> None:
    answer = gspo_lab("diagnose", *verl_log(tmp_path, case), "--json", "--fail-on", "warn")
    assert levels(answer)[case["signal"]] == case["level"]
    assert raised(answer).keys() <= {case["signal"]}
    assert answer.code == bool(raised(answer))
    assert case.get("says", "") in answer.out


def test_what_is_missing_or_a_rounded_zero_is_unknown_and_fails_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = "step:{} - actor/pg_clipfrac:0.000 - actor/entropy:0.000 - critic/score/mean:0.5\n"
    config = "{'trainer': {'api_key': 'sk-abcdefgh12345678'}}\n"
    for text, said, names in (
        ('{"step": 1, "data": {"actor/pg_clipfrac": 0.3}}', "calculate_log_probs = true", ()),
        ('{"step": 1, "data": {"train/actor/pg_clipfrac": 0.3}}', "--map COLUMN=NAME", ()),
        (config + line.format(1) + line.format(2), "printed as 0.000", ("ratios", "entropy")),
    ):
        log.write_text(text)
        answer = gspo_lab("diagnose", log, "--fail-on", "note", "--json")
        assert answer.code == 0
        assert said in answer.out
        assert {levels(answer)[name] for name in ("clip-fraction", *names)} == {"unknown"}
        assert "sk-abc" not in answer.out


EARLY = {"num_generations": 8, "beta": 0.04, "gradient_accumulation_steps": 4}


@pytest.mark.parametrize(
    ("config", "updates", "said"),
    [({}, "not recorded", "args.json"), (EARLY, "1", "the configuration that was read")],
)
def test_ms_swift_is_known_by_its_rows_and_an_early_trl_makes_one_update(
    tmp_path: Path, config: JsonObject, updates: str, said: str
) -> None:
    row = {"reward": 0.5, "memory(GiB)": 9.5, "entropy/mean": 0.8, "global_step/max_steps": "1/9"}
    (tmp_path / "logging.jsonl").write_text(json.dumps({**row, "clip_ratio/region_mean": 0.0}))
    (tmp_path / "args.json").write_text(json.dumps(config))
    answer = gspo_lab("diagnose", tmp_path / "logging.jsonl", "--json")
    recognised = answer.json["recognised"]
    assert "ms-swift" in recognised["program"]
    assert recognised["updates per rollout batch"] == updates
    assert said in answer.out


TOML = """
question = "x?"
model = "tiny-qwen3"
task = "addition"
seeds = [0]
steps = 3
[update]
old_logprobs = "sampler"
[waive]
aggregation-label = "a fault made on purpose"
replay-on-dense = "another"
[arm.a]
objective = "gspo"
aggregation = "token-mean"
routing_replay = "old-policy"
"""


UPDATES = [(0, 0, None, 0), (0, 1, 0.6, 0), (1, 0, 0.4, 0), (1, 1, 0.6, 1), (2, 0, 0.4, 1)]


def test_a_run_of_gspo_lab_is_read_by_mini_batch(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOML)
    [run] = load_study(tmp_path / "s.toml").runs()
    assert isinstance(run, Run)
    records: list[Any] = [
        StepRecord(step=2, prompts=2, responses=4, zero_variance_groups=0.95, version_lag_mean=2.0),
        AnswerRecord(
            bench="b", step=3, problem="p", sample=0, text="", correct=1, reward=1.0, tokens=1
        ),
    ]
    # Not finite: one of two mini-batches of step 1, both of step 2. Step 0 has no first share.
    for step, index, clipped, nonfinite in UPDATES:
        record = UpdateRecord(
            step=step, minibatch=index, clip_fraction_tokens=clipped, nonfinite=nonfinite
        )
        records.append(record)
    home = leave(run, tmp_path / "runs", records)
    finish(home, 3)
    answer = gspo_lab("diagnose", home, "--json")
    assert raised(answer) == {
        "aggregation": "warn",
        "gradient": "error",
        "no-signal": "error",
        "old-log-probs": "warn",
        "routing-replay": "warn",
        "score": "warn",
    }
    assert levels(answer)["staleness"] == "note"
    assert "mini-batch 0: 0.4, later ones: 0.6" in answer.out
    assert "loss or gradient not finite, first at step 1" in answer.out


@pytest.mark.parametrize(
    ("name", "options", "value"),
    [
        (
            "verl/log_gspo.jsonl",
            ("--set", "objective=gspo", "--set", "objective.clip_high=4e-4"),
            "0.028",
        ),
        ("trl/trainer_state_gspo_2proc.json", (), "0.076"),
        ("areal/events.out.tfevents.1795313067.vm", (), "0.085"),
    ],
)
def test_logs_of_real_runs_are_read_by_their_bare_names(
    name: str, options: Strings, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "events" in name:
        pytest.importorskip("tensorboard")
    log = public(f"logs/{name}")
    monkeypatch.chdir(log.parent)
    answer = gspo_lab("diagnose", log.name, *options, "--json")
    found = {signal["name"]: signal for signal in answer.json["signals"]}
    assert found["clip-fraction"]["value"].startswith(value)
    assert found["clip-fraction"]["level"] == ("ok" if options else "unknown")
    assert found["ratios"]["level"] == "ok"


def test_two_runs_in_one_log_and_no_log_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("step,reward\n1,0.5\n")
    for log, said in (
        (public("logs/areal/stats_commit_hook.jsonl"), "two runs in one log"),
        (tmp_path, "name its kind: --source"),
    ):
        answer = gspo_lab("diagnose", log)
        assert (answer.code, said in answer.err) == (2, True)


ROWS = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", PAGE.read_text(), re.M))


@pytest.mark.parametrize("name", SIGNALS)
def test_the_page_lists_a_signal_as_the_code_has_it(name: str) -> None:
    declared = table_beside(signals.__file__, "signals.toml")[name]
    needs, *_, source = ROWS[name].split(" | ")
    assert needs == declared["needs"]
    for reference in re.findall(r"\d{4}\.\d{5}|docs/\S+?\.md", declared["source"]):
        assert reference.removeprefix("docs/") in source
    for place in TABLES["bounds"].get(name, ()):
        for bound in np.atleast_1d(resolve_name(f"gspo_lab.analysis.diagnosis.{place}")):
            assert f"{bound:g}".removeprefix("0") in ROWS[name]


def test_every_program_has_its_keys() -> None:
    tables = table_beside(signals.__file__, "keys.toml")
    for table in tables.values():
        assert set(table) <= set(tables["any"])


def test_a_count_follows_from_unrounded_shares_alone() -> None:
    assert consistent_count([0.0625, 0.71875]) == 32
    assert consistent_count([0.12, 0.5]) is None
    assert consistent_count([0.0625, 1.0]) is None
