"""[tune]: every arm chooses on trials before the first step, and nothing that ends them changes what it chooses.

The counting engine rewards a step with .5 + .01 x step + .001 x seed, .1 more for arm b, and a bonus by the arm's name.
"""

import json
import signal
from typing import Any

import pytest
from counting import Bench

from gspo_lab.errors import LabError
from gspo_lab.findings import Findings
from gspo_lab.matching import Certificate
from gspo_lab.store import Evidence

TUNE = """
[tune]
seeds = [100, 101]
steps = 2
metric = "reward"
[tune.values]
update.learning_rate = [1e-5, 2e-5, 4e-5, 2e-4]
"""
"""Two rounds: four candidates to step 2, two of them to step 4. The arms declare 1e-4."""
BONUS = {"a@1e-05": 0.1, "a@2e-05": 0.3, "a@4e-05": 0.2, "a@0.0002": 0.0, "b@4e-05": 0.1, "b@2e-05": 0.1}
TRIALS = "count-trials"


@pytest.fixture
def tuned(bench: Bench) -> Bench:
    bench.steps, bench.seeds, bench.verdict, bench.bonus = 3, [0, 1, 2], TUNE, BONUS
    return bench


def study(bench: Bench, name: str = "count") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bench.runs / name / "study.json").read_text())
    return found


def came_to(bench: Bench, state: str = "") -> dict[str, int]:
    """Per trial of seed 100 the steps that it has trained."""
    out = {}
    for arm in study(bench, TRIALS)["arms"]:
        out[arm] = len(bench.steps_of(f"../{TRIALS}/{arm}/s100"))
    return out


def rate(bench: Bench, run: str) -> float:
    found = json.loads((bench.home / run / "run.json").read_text())["settings"]["update"]["learning_rate"]
    return float(found)


def certificate(bench: Bench) -> Certificate:
    with Evidence.open(bench.runs / "lab.db", bench.runs) as evidence:
        return Findings(evidence, "count").certificate


def test_the_best_half_goes_on_and_the_best_is_what_the_study_trains_with(tuned: Bench) -> None:
    found, shown = tuned.conduct()
    assert found.exit_code == 0
    # a: .3 and .2 lead; b: 2e-5 and 4e-5 are equal, the others too: the declared 1e-4 is nearer to 4e-5.
    assert came_to(tuned) == {
        "a@1e-05": 2,
        "a@2e-05": 4,
        "a@4e-05": 4,
        "a@0.0002": 2,
        "b@1e-05": 2,
        "b@2e-05": 4,
        "b@4e-05": 4,
        "b@0.0002": 2,
    }
    assert "count-trials: round 1 of 2, to step 2: 16 to do" in shown
    assert "count-trials: round 2 of 2, to step 4: 8 to do" in shown
    assert "chosen on trials, and locked: a update.learning_rate = 2e-05; b update.learning_rate = 4e-05" in shown
    assert {rate(tuned, f"a/s{seed}") for seed in range(3)} == {2e-5}
    assert {rate(tuned, f"b/s{seed}") for seed in range(3)} == {4e-5}
    locked = study(tuned)["tune"]
    assert (locked["chosen"], len(locked["journals"])) == ({"a": 1, "b": 2}, 16)
    assert study(tuned)["edits"] == []
    # What goes on does not train its first steps again.
    assert tuned.states_of(f"../{TRIALS}/a@2e-05/s100")[:3] == [("started", 0), ("stopped", 2), ("started", 2)]


def test_the_certificate_says_that_each_arm_chose_on_the_same_budget(tuned: Bench) -> None:
    tuned.conduct()
    found = certificate(tuned)
    assert found.ok
    assert found.tuning is not None
    assert found.tuning.state == "differs as declared"
    # (4 x 2 + 2 x 2) steps on two seeds.
    assert "each arm chose on 8 trials (4 candidates x 2 seeds, 24 steps in all), by reward" in found.tuning.detail


def test_trials_are_in_the_database_and_in_no_verdict(tuned: Bench) -> None:
    found, _ = tuned.conduct()
    with Evidence.open(tuned.runs / "lab.db", tuned.runs) as evidence:
        trials, own = Findings(evidence, TRIALS), Findings(evidence, "count")
        assert len(trials.runs) == 16
        assert trials.decision.sentences == ("No verdict: these are the trials on which the arms of count chose.",)
        assert trials.decision.verdicts == {}
        assert {run.seed for run in own.runs} == {0, 1, 2}
    assert all(arm.runs == 3 for arm in found.arms)


def test_a_benchmark_is_asked_at_every_rounds_end(tuned: Bench) -> None:
    tuned.verdict = TUNE.replace('metric = "reward"\n', "")
    tuned.right = {f"{arm}@1e-05/s{seed}": 9 for arm in "ab" for seed in (100, 101)}
    tuned.conduct()
    assert study(tuned)["tune"]["chosen"] == {"a": 0, "b": 0}
    assert study(tuned)["tune"]["metric"] == "sums"
    asked = {one["step"] for one in tuned.journal(f"../{TRIALS}/a@1e-05/s100") if one["kind"] == "answer"}
    assert asked == {0, 2, 4}


def test_the_same_command_trains_no_trial_again(tuned: Bench) -> None:
    tuned.conduct()
    before = study(tuned), study(tuned, TRIALS)
    found, shown = tuned.conduct()
    assert (found.exit_code, "round" in shown) == (0, False)
    assert (study(tuned), study(tuned, TRIALS)) == before


def test_a_kill_amid_the_trials_changes_no_choice(tuned: Bench) -> None:
    tuned.hold = {"a@4e-05/s101": 3}  # in the second round
    conductor = tuned.start()
    tuned.until_held()
    conductor.send_signal(signal.SIGKILL)
    conductor.communicate()
    assert study(tuned)["tune"]["chosen"] == {}
    assert not (tuned.home / "a").exists()
    tuned.hold_anew({})
    found, _ = tuned.conduct()
    assert found.exit_code == 0
    assert study(tuned)["tune"]["chosen"] == {"a": 1, "b": 2}
    assert certificate(tuned).ok


def test_a_trial_that_dies_is_the_worst_and_one_that_the_machine_ends_is_tried_again(tuned: Bench) -> None:
    tuned.fail = {"a@2e-05/s101": "lab"}
    found, _ = tuned.conduct()
    assert found.exit_code == 2
    assert not (tuned.home / "a").exists()
    tuned.fail = {"a@2e-05/s101": "crash"}  # at its third step, in the second round
    found, _ = tuned.conduct()
    assert study(tuned)["tune"]["chosen"] == {"a": 2, "b": 2}
    with Evidence.open(tuned.runs / "lab.db", tuned.runs) as evidence:
        trials = Findings(evidence, "count").trials
    assert trials is not None
    assert trials.rounds[0].tried["a"][1].score is not None
    assert trials.rounds[1].tried["a"][1].score is None
    assert "seed 101 failed: ZeroDivisionError" in trials.rounds[1].tried["a"][1].died


def test_an_arm_without_a_living_candidate_ends_the_study_before_its_first_step(tuned: Bench) -> None:
    tuned.verdict = TUNE.replace("steps = 2", "steps = 3")
    tuned.fail = {f"b@{rate}/s100": "crash" for rate in ("1e-05", "2e-05", "4e-05", "0.0002")}
    with pytest.raises(LabError, match=r"^b: every candidate collapsed or died .* gspo-lab show count-trials"):
        tuned.conduct()
    assert not (tuned.home / "a").exists()


def test_another_tuning_is_refused_once_the_study_has_begun(tuned: Bench) -> None:
    tuned.conduct()
    tuned.verdict = TUNE.replace("2e-4", "3e-4")
    with pytest.raises(LabError, match=r"arms chose by another \[tune\]"):
        tuned.conduct()
    found, _ = tuned.conduct(fresh=True)
    assert found.exit_code == 0
    assert sorted(one.name for one in (tuned.runs / "_archive").iterdir()) == ["count-1", "count-trials-1"]


def test_what_the_arms_were_given_is_held_against_their_trials(tuned: Bench) -> None:
    tuned.conduct()
    path = tuned.runs / TRIALS / "a@1e-05/s100/journal.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")
    with Evidence.open(tuned.runs / "lab.db", tuned.runs) as evidence:
        from gspo_lab.matching.verified import verified

        found = verified(evidence, Findings(evidence, "count").certificate, {})
    (journals,) = [check for _, check in found.of("journals")]
    assert journals.state == "differs undeclared"
    assert f"{TRIALS}/a@1e-05/s100: its journal is not what the arms chose on" in journals.detail
