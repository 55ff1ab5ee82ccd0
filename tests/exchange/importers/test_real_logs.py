"""Logs of real runs of TRL, verl and AReaL.

Imported numbers equal those computed by hand from the files.
"""

import json
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
from laboratory import json_of
from logs import bring, brought, opened, report
from public_data import public

from gspo_lab.analysis.findings.paired_comparisons import compared as compared_of
from gspo_lab.analysis.findings.paired_comparisons import scalars as scalars_of
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.store.records import read_steps, read_updates


def column(folder: Path, name: str, table: str) -> list[float]:
    """A number of the one run, in the rows that have it."""
    with opened(folder) as evidence:
        frame = (read_steps if table == "steps" else read_updates)(evidence, "x", [name])
        return [float(value) for value in frame[name].dropna()]


def last_fifth(values: list[float]) -> float:
    return fmean(values[-max(1, len(values) // 5) :])


@pytest.mark.parametrize(
    ("name", "rule", "clip"),
    [
        ("trl/trainer_state_grpo_1proc.json", "grpo", "clip_fraction_tokens"),
        ("trl/trainer_state_gspo_1proc.json", "gspo", "clip_fraction_responses"),
        ("trl/trainer_state_gspo_2proc.json", "gspo", "clip_fraction_responses"),
    ],
)
def test_trl_s_rows_are_its_file_s(tmp_path: Path, name: str, rule: str, clip: str) -> None:
    path = public(f"logs/{name}")
    rows = [row for row in json_of(path)["log_history"] if "train_runtime" not in row]
    assert len(rows) == 12
    options = ("--study", "x", "--arm", rule, "--seed", 0, "--set", f"objective={rule}")
    assert bring(tmp_path, "trl", path, *options).code == 0
    names = report(tmp_path, "x")["logged"]["names"][rule]
    logged = {key: [row[key] for row in rows if key in row] for key in rows[0]}
    assert column(tmp_path, "reward_mean", "steps") == logged["reward"]
    assert column(tmp_path, clip, "updates") == logged["clip_ratio/region_mean"]
    assert column(tmp_path, "grad_norm", "updates") == logged["grad_norm"]
    assert column(tmp_path, "learning_rate", "updates") == logged["learning_rate"]
    for own in ("entropy", "loss"):
        assert names[own]["value"] == pytest.approx(last_fifth(logged[own]), rel=1e-5), own
    with opened(tmp_path) as evidence:
        area, tail = scalars_of(Source(evidence, "x"))
    rewards = logged[
        "reward"
    ]  # in 3 of the 12 rows: that of each new rollout batch, four updates apart
    assert len(rewards) == 3
    assert tail.values == {(rule, 0): pytest.approx(last_fifth(rewards))}
    halves = [(one + other) / 2 for one, other in pairwise(rewards)]
    assert area.values == {(rule, 0): pytest.approx(fmean(halves))}
    assert json_of(tmp_path / "runs" / "x" / rule / "s0" / "run.json")["settings"] == {
        "objective": {
            "preset": rule,
            "importance_sampling_level": "token" if rule == "grpo" else "sequence",
        }
    }, "a trainer_state.json tells no setting"


@pytest.mark.parametrize(("arm", "count"), [("grpo", 2), ("gspo", 3)])
def test_verl_s_rows_are_its_file_s(tmp_path: Path, arm: str, count: int) -> None:
    path = public(f"logs/verl/log_{arm}.jsonl")
    rows: list[JsonObject] = [json.loads(line)["data"] for line in path.read_text().splitlines()]
    assert len(rows) == count
    mode = "token" if arm == "grpo" else "sequence-token"
    level = (
        "--set",
        f"objective.importance_sampling_level={mode}",
        "--set",
        "objective.aggregation=token-mean",
    )
    assert (
        bring(tmp_path, "verl", path, "--study", "x", "--arm", arm, "--seed", 0, *level).code == 0
    )
    names = report(tmp_path, "x")["logged"]["names"][arm]
    assert column(tmp_path, "reward_mean", "steps") == [row["critic/score/mean"] for row in rows]
    for name, logged in (
        ("clip_fraction_tokens", "actor/pg_clipfrac"),
        ("grad_norm", "actor/grad_norm"),
        ("learning_rate", "actor/lr"),
    ):
        assert column(tmp_path, name, "updates") == [row[logged] for row in rows], name
    assert column(tmp_path, "entropy", "steps") == [row["actor/entropy"] for row in rows]
    assert names["actor/ppo_kl"]["value"] == pytest.approx(rows[-1]["actor/ppo_kl"], rel=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "trl/events.out.tfevents.1795309380.vm.30011.0",
        "areal/events.out.tfevents.1795313067.vm",
        "verl/events.out.tfevents.1795313718.vm.5359.0",
    ],
)
def test_tensorboard_s_scalars_are_its_file_s(tmp_path: Path, name: str) -> None:
    """Every scalar of every name, by TensorBoard's own reader.

    Also its mean over the last fifth of its steps.
    """
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    path = public(f"logs/{name}")
    found = reader.EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    events = {
        tag: {event.step: event.value for event in found.Scalars(tag)}
        for tag in found.Tags()["scalars"]
    }
    scalars = {tag: list(by_step.values()) for tag, by_step in events.items()}
    assert scalars
    brought(tmp_path, "tensorboard", path, "--study", "x", "--arm", "a", "--seed", 0)
    names = report(tmp_path, "x")["logged"]["names"]["a"]
    assert names.keys() == scalars.keys()
    own = {tag: values for tag, values in scalars.items() if "value" in names[tag]}
    assert len(own) > len(scalars) / 2
    for tag, values in own.items():
        assert names[tag]["value"] == pytest.approx(last_fifth(values), rel=1e-4), tag


def test_two_arms_are_subtracted_at_their_own_ends(tmp_path: Path) -> None:
    """verl's 2 rows of grpo and 3 of gspo.

    Their last rows, and their mean heights by trapezoids.
    """
    rewards = {}
    for arm in ("grpo", "gspo"):
        path = public(f"logs/verl/log_{arm}.jsonl")
        rewards[arm] = [
            json.loads(line)["data"]["critic/score/mean"] for line in path.read_text().splitlines()
        ]
        assert bring(tmp_path, "verl", path, "--study", "x", "--arm", arm, "--seed", 0).code == 0
    with opened(tmp_path) as evidence:
        compared = {
            one.scalar.name: one.paired.estimate for one in compared_of(Source(evidence, "x"))
        }
    tail, area = (
        compared[f"training reward, {name}"]
        for name in ("last fifth of each log", "area under its curve")
    )
    grpo = rewards["grpo"]
    gspo = rewards["gspo"]
    assert tail == pytest.approx(gspo[2] - grpo[1])
    assert area == pytest.approx(
        (gspo[0] / 2 + gspo[1] + gspo[2] / 2) / 2 - (grpo[0] + grpo[1]) / 2
    )
