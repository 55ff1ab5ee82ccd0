"""clip = 'calibrated': the pilot, its band, and that it is found once."""

import json
import math

import pytest
from counting import Bench

from gspo_lab.errors import LabError

LOW, HIGH = 1 - math.exp(-0.043), math.exp(0.043) - 1
"""The counting engine's moves are .001 x 1..50 on mini-batch 1; a target of .15 leaves the largest 7.5 of 50 outside:
the 43rd is the bound, on both sides."""


def objective(bench: Bench, run: str) -> dict[str, float]:
    found: dict[str, float] = json.loads((bench.home / run / "run.json").read_text())["settings"]["objective"]
    return found


def test_a_pilot_finds_the_range_before_the_first_step(bench: Bench) -> None:
    bench.seeds, bench.b = [3], 'clip = "calibrated"'
    found, shown = bench.conduct()
    assert found.exit_code == 0
    assert "pilot b: finished at step 6/6" in shown
    assert "arm b: calibrated clip range 0.0421 / 0.0439, frozen" in shown
    assert objective(bench, "b/s3")["clip"] == "calibrated"
    assert objective(bench, "b/s3")["clip_low"] == pytest.approx(LOW)
    assert objective(bench, "b/s3")["clip_high"] == pytest.approx(HIGH)
    declared = json.loads((bench.home / "study.json").read_text())
    assert declared["arms"]["b"]["settings"]["objective"]["clip_high"] == pytest.approx(HIGH)
    bands = {"grpo": [0.2, 0.27], "gspo": [pytest.approx(LOW), pytest.approx(HIGH)]}
    assert declared["reference_bands"] == bands
    for run in ("a/s3", "b/s3"):
        assert json.loads((bench.home / run / "run.json").read_text())["reference_bands"] == bands
    settings = json.loads((bench.home / "_pilot/b/s1000003/run.json").read_text())["settings"]
    assert settings["objective"]["clip"] == "fixed"
    assert (settings["objective"]["clip_low"], settings["objective"]["clip_high"]) == (3e-4, 4e-4)
    assert (settings["steps"], settings["bench"]) == (6, [])


def test_a_found_range_is_frozen(bench: Bench) -> None:
    bench.seeds, bench.b, bench.fail = [3], 'clip = "calibrated"', {"b/s3": "crash"}
    assert bench.conduct()[0].exit_code == 1
    first = objective(bench, "b/s3")
    (bench.home / "bands.json").unlink()  # what a begun run was made with stands in study.json
    bench.fail = {}
    found, shown = bench.conduct()
    assert found.exit_code == 0
    assert "pilot" not in shown
    assert objective(bench, "b/s3") == first
    bench.b = 'clip = "calibrated"\nclip_target = 0.3'
    with pytest.raises(LabError, match=r"objective\.clip_target"):
        bench.conduct()


def test_a_pilot_of_other_settings_is_run_again(bench: Bench) -> None:
    bench.seeds, bench.b, bench.fail = [3], 'clip = "calibrated"', {"a/s3": "lab", "b/s3": "lab"}
    bench.conduct()
    for arm in "ab":
        (bench.home / arm / "s3/journal.jsonl").unlink()
    bench.b, bench.fail = 'clip = "calibrated"\nclip_target = 0.3', {}
    found, _ = bench.conduct()
    assert found.exit_code == 0
    assert objective(bench, "b/s3")["clip_high"] == pytest.approx(math.exp(0.035) - 1)


def test_a_failing_pilot_ends_the_study_before_its_first_step(bench: Bench) -> None:
    bench.seeds, bench.b, bench.fail = [3], 'clip = "calibrated"', {"b/s1000003": "lab"}
    found, _ = bench.conduct()
    assert found.exit_code == 2
    assert "buy gloves" in found.failures[0]
    assert not (bench.home / "a/s3").exists()


def test_one_update_per_batch_cannot_be_calibrated(bench: Bench) -> None:
    bench.b = 'clip = "calibrated"\nupdate = { minibatches = 1 }'
    with pytest.raises(LabError) as caught:
        bench.study()
    assert "minibatches >= 2" in " ".join(caught.value.details)
