"""Pilots of a real engine that only counts, and of models that train.

They calibrate ranges; `gspo-lab plan --advise` reads them.
"""

import io
import json
import math
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error
from counting import Bench
from laboratory import json_of
from rich.console import Console
from typer.testing import CliRunner

from gspo_lab.analysis.stats.moderated import PLAIN, VarianceRule
from gspo_lab.analysis.stats.power import seeds_needed
from gspo_lab.cli import app
from gspo_lab.running.conduct.run_pilots import advise, arm_of, within_factor
from gspo_lab.study import load_study
from gspo_lab.study.new_study import write_study

BOUND = 0.043
LOW = 1 - math.exp(-BOUND)
HIGH = math.exp(BOUND) - 1
"""The counting engine's moves are .001 x 1..50 on mini-batch 1.

A target of .15 leaves the largest 7.5 of 50 outside: the 43rd is the bound, on both sides.
"""


def objective(bench: Bench, run: str) -> dict[str, float]:
    result: dict[str, float] = json_of(bench.home / run / "run.json")["settings"]["objective"]
    return result


def test_a_pilot_finds_the_range_before_the_first_step_which_is_frozen_by_it(bench: Bench) -> None:
    bench.seeds = [3]
    bench.b = 'clip = "calibrated"'
    bench.fail = {"b/s3": "crash"}
    result, output = bench.conduct()
    assert result.exit_code == 1
    assert "pilot b: finished at step 6/6" in output
    assert "arm b: calibrated clip range 0.0421 / 0.0439, frozen" in output
    initial = objective(bench, "b/s3")
    assert_fields(
        initial, clip="calibrated", clip_low=pytest.approx(LOW), clip_high=pytest.approx(HIGH)
    )
    declared = json_of(bench.home / "study.json")
    assert declared["arms"]["b"]["settings"]["objective"]["clip_high"] == pytest.approx(HIGH)
    bands = {"grpo": [0.2, 0.27], "gspo": [pytest.approx(LOW), pytest.approx(HIGH)]}
    assert declared["reference_bands"] == bands
    for run in ("a/s3", "b/s3"):
        assert json_of(bench.home / run / "run.json")["reference_bands"] == bands
    settings = json_of(bench.home / "_pilot/b/s1000003/run.json")["settings"]
    assert_fields(settings["objective"], clip="fixed", clip_low=3e-4, clip_high=4e-4)
    assert_fields(settings, steps=6, bench=[])

    backup = (bench.home / "bands.json").rename(
        bench.folder / "bands.json"
    )  # a begun run's stands in study.json
    bench.fail = {}
    result, output = bench.conduct()
    assert (result.exit_code, "pilot b" in output) == (0, False)
    assert objective(bench, "b/s3") == initial
    bench.b = 'clip = "calibrated"\nclip_target = 0.3'
    with lab_error(r"objective\.clip_target"):
        bench.conduct()

    backup.rename(bench.home / "bands.json")
    for arm in "ab":  # as if neither had begun: now other settings have a pilot of their own
        shutil.rmtree(bench.home / arm)
    result, _ = bench.finish()
    assert objective(bench, "b/s3")["clip_high"] == pytest.approx(math.exp(0.035) - 1)


def test_a_failing_pilot_ends_the_study_before_its_first_step(bench: Bench) -> None:
    bench.seeds = [3]
    bench.b = 'clip = "calibrated"'
    bench.fail = {"b/s1000003": "lab"}
    result, _ = bench.conduct()
    assert result.exit_code == 2
    assert "buy gloves" in result.failures[0]
    assert not (bench.home / "a/s3").exists()


def test_a_rule_is_advised_on_an_arm_that_clips_by_it(tmp_path: Path) -> None:
    path = tmp_path / "family.toml"
    arms = "".join(f'[arm.{name}]\nobjective = "{name}"\n' for name in ("sapo", "grpo", "rloo"))
    path.write_text(
        f'question = "Which?"\nmodel = "tiny-qwen3"\ntask = "addition"\nsteps = 2\n{arms}'
    )
    study = load_study(path)
    objectives = [arm_of(study, rule, None).settings.objective for rule in ("grpo", "gspo")]
    assert [(entry.preset, entry.policy_loss) for entry in objectives] == [
        ("grpo", "clip"),
        ("gspo", "clip"),
    ]


def test_both_rules_get_a_range_that_was_used(bench: Bench) -> None:
    bench.a = "clip_high = 0.5\nkl_coef = 0.01\nupdate.learning_rate = 2e-6"
    console = Console(file=io.StringIO(), width=200)
    result = advise(bench.study(), bench.runs, console=console, live=False)
    assert [entry.rule for entry in result] == ["grpo", "gspo"]
    for entry in result:
        assert_fields(
            entry,
            band=pytest.approx((LOW, HIGH)),
            # 7 of 50 lie beyond the 43rd
            clipped=pytest.approx(0.14),
            holds=True,
        )
    assert [entry.clipped_published for entry in result] == [
        0,
        1,
    ]  # .05 lies within .2, and .001 beyond 3e-4
    grpo = tomllib.loads(result[0].toml())["arm"]["grpo"]
    gspo = tomllib.loads(result[1].toml())["arm"]["gspo"]
    assert (grpo.pop("clip_low"), grpo.pop("clip_high")) == pytest.approx((LOW, HIGH), rel=1e-3)
    assert grpo == {"objective": "grpo", "kl_coef": 0.01, "update": {"learning_rate": 2e-6}}
    assert gspo.keys() == {"objective", "clip_low", "clip_high"}
    pilots = {path.parent.parent.name for path in (bench.home / "_advice").glob("*/s*/run.json")}
    assert pilots == {"grpo-0", "grpo-1", "gspo-0", "gspo-1"}
    console = Console(file=(output := io.StringIO()), width=200)
    assert advise(bench.study(), bench.runs, console=console, live=False) == result
    assert output.getvalue().startswith("advise count/_advice: 2 arms x 1 seed: 2 runs; about")
    assert "started" not in output.getvalue(), "finished pilots are not run again"


def test_advice_reckons_with_the_variance_that_all_arms_moderate(bench: Bench) -> None:
    bench.verdict = '[arm.c]\nobjective = "gspo"\nupdate.learning_rate = 2e-6\n'
    bench.study()
    options = ["--advise", "--json", "--sd", "0.02", "--runs", str(bench.runs)]
    completed = CliRunner().invoke(app, ["plan", str(bench.toml), *options])
    assert completed.exit_code == 0, completed.output
    effects = json.loads(completed.stdout)["detectable"]
    needed = [seeds_needed(0.02, 0.02, 0.05 / 2, rule=rule) for rule in (VarianceRule(3), PLAIN)]
    assert effects["seeds_for_margin"] == needed[0] < needed[1]


def test_another_share_another_range(bench: Bench) -> None:
    result = advise(
        bench.study(), bench.runs, share=0.3, console=Console(file=io.StringIO()), live=False
    )
    assert [entry.band[1] for entry in result] == pytest.approx([math.exp(0.035) - 1] * 2)


def test_a_failing_pilot_is_told(bench: Bench) -> None:
    bench.fail = {"gspo-0/s1000000": "lab"}
    with lab_error("a pilot failed") as caught:
        advise(bench.study(), bench.runs, console=Console(file=io.StringIO()), live=False)
    assert "buy gloves" in caught.value.details[0]


def test_a_first_batch_without_a_lesson_is_told_before_the_rest_of_the_pilot(bench: Bench) -> None:
    bench.flat = True
    with lab_error("all responses to a problem earned the same"):
        advise(bench.study(), bench.runs, console=Console(file=io.StringIO()), live=False)
    (journal, _) = sorted((bench.home / "_advice").rglob("journal.jsonl"))
    assert journal.read_text().count('"kind":"step"') == 1


@pytest.mark.parametrize(
    ("share", "wanted", "found"), [(0.1, 0.15, True), (0.226, 0.15, False), (0.0, 0.15, False)]
)
def test_what_is_near(share: float, wanted: float, found: bool) -> None:
    assert within_factor(share, wanted) == found


SUMS = """
question = "?"
model = "tiny-qwen3"
device = "cpu"
task = {name="addition", digits=1, hasty=0.5}
warm_start = {steps=150, batch_size=16, learning_rate=4e-3}
[arm.gspo]
objective = "gspo"
"""


@pytest.mark.slow
@pytest.mark.parametrize("task", ["quickstart", "sums", "init"])
def test_a_real_model_clips_the_wanted_share_with_it(task: str, tmp_path: Path) -> None:
    """Three tasks of pilots.

    Sums of two digits from the quickstart's start and at its learning rate, sums of one digit, and
    the study that `init` writes.
    """
    study, quickstart, *_ = write_study(tmp_path / "mine", "tiny-qwen3", "own")
    texts = {"quickstart": quickstart.read_text(), "sums": SUMS, "init": study.read_text()}
    study.write_text(texts[task])
    line = [
        sys.executable,
        "-m",
        "gspo_lab.cli",
        "plan",
        str(study),
        "--advise",
        "--json",
    ]
    completed = subprocess.run(
        [*line, "--runs", str(tmp_path / "runs")], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    for entry in json.loads(completed.stdout)["rules"]:
        assert entry["target"] / 1.5 <= entry["clipped"] <= entry["target"] * 1.5, entry
