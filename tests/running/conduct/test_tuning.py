"""[tune]: every arm chooses on trials before the first step.

Nothing that ends the trials changes the choice.

The counting engine rewards a step with .5 + .01 x step + .001 x seed, .1 more for arm b, and a
bonus by the arm's name.
"""

import json
import shutil
import signal
from pathlib import Path

import pytest
from assertions import assert_fields
from calling import lab_error, python_path
from counting import Bench, answer_in
from laboratory import json_of

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.findings.matched import study_certificate
from gspo_lab.analysis.findings.matched import trials as trials_of
from gspo_lab.analysis.matching import Certificate
from gspo_lab.analysis.matching.certificate import verify_record
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.report.templating import statements
from gspo_lab.running.conduct import StudyOutcome
from gspo_lab.running.conduct.replication import replication

TUNE = """
[tune]
seeds = [100, 101]
steps = 2
metric = "reward"
[tune.values]
update.learning_rate = [1e-5, 2e-5, 4e-5, 2e-4]
"""
"""Two rounds: four candidates to step 2, two of them to step 4. The arms declare 1e-4."""
BONUS = {
    "a@1e-05": 0.1,
    "a@2e-05": 0.3,
    "a@4e-05": 0.2,
    "a@0.0002": 0.0,
    "b@4e-05": 0.1,
    "b@2e-05": 0.1,
}
TRIALS = "count-trials"


def tuning(bench: Bench) -> Bench:
    bench.steps = 3
    bench.seeds = [0, 1, 2]
    bench.verdict = TUNE
    bench.bonus = BONUS
    return bench


@pytest.fixture
def tuned(bench: Bench) -> Bench:
    """A study of one seed that has not begun."""
    bench = tuning(bench)
    bench.seeds = [0]
    return bench


@pytest.fixture(scope="module")
def done(starts: Path, tmp_path_factory: pytest.TempPathFactory) -> "Done":
    """One that is over, which no test changes; its outcome and what the console showed."""
    bench = tuning(Bench(tmp_path_factory.mktemp("tuned")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GSPO_LAB_CACHE", str(starts))
        patch.setenv("PYTHONPATH", python_path())
        return (bench, *bench.conduct())


def study(bench: Bench, name: str = "count") -> JsonObject:
    result: JsonObject = json_of(bench.runs / name / "study.json")
    return result


def came_to(bench: Bench) -> dict[str, int]:
    """Per trial of seed 100 the steps that it has trained."""
    return {
        arm: len(bench.steps_of(f"../{TRIALS}/{arm}/s100")) for arm in study(bench, TRIALS)["arms"]
    }


def rate(bench: Bench, run: str) -> float:
    result = json_of(bench.home / run / "run.json")["settings"]["update"]["learning_rate"]
    return float(result)


def certificate(bench: Bench) -> Certificate:
    with Evidence.open(bench.runs / "lab.db", bench.runs) as evidence:
        return study_certificate(Source(evidence, "count"))


Done = tuple[Bench, StudyOutcome, str]


def test_the_best_half_goes_on_and_the_best_is_what_the_study_trains_with(done: Done) -> None:
    tuned, result, output = done
    assert result.exit_code == 0
    # a: .3 and .2 lead; b: 2e-5 and 4e-5 are equal, the others too: the declared 1e-4 is nearer to
    # 4e-5.
    reached = {"1e-05": 2, "2e-05": 4, "4e-05": 4, "0.0002": 2}
    assert came_to(tuned) == {
        f"{arm}@{rate}": steps for arm in "ab" for rate, steps in reached.items()
    }
    assert "count: trials, round 1 of 2, to step 2, 16 to do" in output
    assert "count: trials, round 2 of 2, to step 4, 8 to do" in output
    assert (
        "chosen on trials, and locked: a update.learning_rate = 2e-05; b update.learning_rate ="
        " 4e-05" in output
    )
    assert {rate(tuned, f"a/s{seed}") for seed in range(3)} == {2e-5}
    assert {rate(tuned, f"b/s{seed}") for seed in range(3)} == {4e-5}
    locked = study(tuned)["tune"]
    assert (locked["chosen"], len(locked["journals"])) == ({"a": 1, "b": 2}, 16)
    assert study(tuned)["edits"] == []
    # What goes on does not train its first steps again.
    assert tuned.states_of(f"../{TRIALS}/a@2e-05/s100")[:3] == [
        ("started", 0),
        ("stopped", 2),
        ("started", 2),
    ]

    assert all(arm.runs == 3 for arm in answer_in(tuned.runs).arms.values())
    matched = certificate(tuned)
    assert (matched.ok, matched.tuning.state) == (True, "differs as declared")
    # (4 x 2 + 2 x 2) steps on two seeds.
    assert (
        "each arm chose on 8 trials (4 candidates x 2 seeds, 24 steps in all), by reward"
        in matched.tuning.detail
    )


def test_trials_are_in_the_database_and_in_no_verdict(done: Done) -> None:
    tuned = done[0]
    with Evidence.open(tuned.runs / "lab.db", tuned.runs) as evidence:
        trials = Source(evidence, TRIALS)
        source = Source(evidence, "count")
        assert len(runs_of(trials)) == 16
        assert statements("decision", decision(trials)) == [
            "No verdict: these are the trials on which the arms of count chose."
        ]
        assert decision(trials).verdicts == {}
        assert {run.seed for run in runs_of(source)} == {0, 1, 2}
    original = study(tuned), study(tuned, TRIALS)
    result, output = tuned.conduct()
    assert (result.exit_code, "round" in output) == (
        0,
        False,
    ), "the same command trains no trial again"
    assert (study(tuned), study(tuned, TRIALS)) == original


def test_a_benchmark_is_asked_at_every_rounds_end(tuned: Bench) -> None:
    tuned.verdict = TUNE.replace('metric = "reward"\n', "")
    tuned.right = {f"{arm}@1e-05/s{seed}": 9 for arm in "ab" for seed in (100, 101)}
    tuned.conduct()
    assert_fields(study(tuned)["tune"], chosen={"a": 0, "b": 0}, metric="sums")
    question = {
        entry["step"]
        for entry in tuned.journal(f"../{TRIALS}/a@1e-05/s100")
        if entry["kind"] == "answer"
    }
    assert question == {0, 2, 4}


def test_a_kill_amid_the_trials_changes_no_choice(tuned: Bench) -> None:
    tuned.hold = {"a@4e-05/s101": 3}  # in the second round
    conductor = tuned.start()
    tuned.until_held()
    conductor.send_signal(signal.SIGKILL)
    conductor.communicate()
    assert study(tuned)["tune"]["chosen"] == {}
    assert not (tuned.home / "a").exists()
    tuned.hold_anew({})
    tuned.finish()
    assert study(tuned)["tune"]["chosen"] == {"a": 1, "b": 2}
    assert certificate(tuned).ok


def test_a_trial_that_dies_is_the_worst_and_one_that_the_machine_ends_is_tried_again(
    tuned: Bench,
) -> None:
    tuned.fail = {"a@2e-05/s101": "lab"}
    result, _ = tuned.conduct()
    assert result.exit_code == 2
    assert not (tuned.home / "a").exists()
    tuned.fail = {"a@2e-05/s101": "crash"}  # at its third step, in the second round
    result, _ = tuned.finish()
    assert study(tuned)["tune"]["chosen"] == {"a": 2, "b": 2}
    with Evidence.open(tuned.runs / "lab.db", tuned.runs) as evidence:
        trials = trials_of(Source(evidence, "count"))
    assert trials.rounds[0].results["a"][1].score is not None
    assert trials.rounds[1].results["a"][1].score is None
    assert "seed 101 failed: ZeroDivisionError" in trials.rounds[1].results["a"][1].failure


def test_an_arm_without_a_living_candidate_ends_the_study_before_its_first_step(
    tuned: Bench,
) -> None:
    tuned.verdict = TUNE.replace("steps = 2", "steps = 3")
    tuned.fail = {f"b@{rate}/s100": "crash" for rate in ("1e-05", "2e-05", "4e-05", "0.0002")}
    with lab_error(r"^b: every candidate collapsed or died .* gspo-lab show count-trials"):
        tuned.conduct()
    assert not (tuned.home / "a").exists()


def test_another_tuning_is_refused_once_the_study_has_begun(done: Done, tuned: Bench) -> None:
    shutil.copytree(done[0].runs, tuned.runs)
    tuned.verdict = TUNE.replace("2e-4", "3e-4")
    with lab_error(r"arms chose by another \[tune\]"):
        tuned.conduct()
    tuned.verdict = TUNE.replace("[1e-5, 2e-5, 4e-5, 2e-4]", "[1e-5, 2e-5]")
    tuned.finish(fresh=True)
    assert sorted(entry.name for entry in (tuned.runs / "_archive").iterdir()) == [
        "count-1",
        "count-trials-1",
    ]


def test_what_the_arms_chose_on_is_held_against_their_trials(done: Done, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(done[0].runs, runs)
    path = runs / TRIALS / "a@1e-05/s100/journal.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with Evidence.open(runs / "lab.db", runs) as evidence:
        result = verify_record(evidence, study_certificate(Source(evidence, "count")), {})
    (journals,) = [check for _, check in result.of("journals")]
    assert journals.state == "differs undeclared"
    assert f"{TRIALS}/a@1e-05/s100: its journal is not what the arms chose on" in journals.detail
    edited = study(done[0])
    edited["tune"]["chosen"]["a"] = 0
    (runs / "count/study.json").write_text(json.dumps(edited))
    ingest(runs)
    with Evidence.open(runs / "lab.db", runs) as evidence:
        result = study_certificate(Source(evidence, "count"))
    assert (result.ok, result.tuning.state) == (False, "differs undeclared")
    assert "by its trials' records a would choose 2e-05" in result.tuning.detail
    assert "a was not given what it chose" in result.tuning.detail


def test_a_replication_repeats_what_was_chosen_on_seeds_that_no_trial_had(
    done: Done, tmp_path: Path
) -> None:
    bench = done[0]
    runs = tmp_path / "runs"
    shutil.copytree(bench.runs, runs)
    for expected in ("count", str(bench.toml)):
        again = replication(expected, runs).study
        assert again.seeds == (102, 103, 104)
        assert again.tune.chosen == {"a": 1, "b": 2}
        assert again.arms["a"].settings.update.learning_rate == 2e-5
    with lab_error("count-trials are the trials of count: gspo-lab replicate count"):
        replication(TRIALS, runs)
