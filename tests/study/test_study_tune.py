"""[tune]: how it is read, what is refused, and successive halving by pencil."""

from pathlib import Path

import pytest
from study_files import ARMS, SHARED, load

from gspo_lab.common.errors import LabError
from gspo_lab.study import Declaration, Study
from gspo_lab.study.tune import Tune
from gspo_lab.study.tuning_trials import trial_study, tuned

RATES = "update.learning_rate = [1e-5, 5e-5, 2e-4, 8e-4]"


def tuning(
    folder: Path,
    values: str = RATES,
    *,
    seeds: str = "[7, 8]",
    more: str = "",
    shared: str = SHARED,
    arms: str = ARMS,
) -> Study:
    return load(
        folder,
        f"{shared}{arms}\n[tune]\nseeds = {seeds}\nsteps = 5\n{more}\n[tune.values]\n{values}\n",
    )


def refused(folder: Path, values: str = RATES, **how: str) -> str:
    with pytest.raises(LabError) as caught:
        tuning(folder, values, **how)
    return "\n".join(caught.value.details)


def read(folder: Path, values: str = RATES, **how: str) -> Tune:
    return tuning(folder, values, **how).tune


def test_half_goes_on_to_twice_the_steps_until_one_is_left(tmp_path: Path) -> None:
    tune = read(tmp_path)
    assert tune.rounds == [(5, 4, 2), (10, 2, 1)]
    # Two seeds: 4 x 5 steps, then two go on for 5 more.
    assert (tune.number, tune.spent) == (4, 2 * (4 * 5 + 2 * 5))
    seven = read(
        tmp_path,
        "update.learning_rate = [1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 6e-5, 7e-5]",
        more="eta = 3",
    )
    # A third of seven, rounded up, is three; a third of three is one.
    assert seven.rounds == [(5, 7, 3), (15, 3, 1)]


def test_who_goes_on_by_pencil(tmp_path: Path) -> None:
    tune = read(tmp_path)
    assert tune.declared["grpo"] == {"update.learning_rate": 1e-4}
    assert tune.best("grpo", {0: 0.1, 1: 0.4, 2: 0.3, 3: 0.2}, 2) == [1, 2]
    # Equal scores: 5e-5 and 2e-4 are a factor of two from the declared 1e-4, 8e-4 is eight, 1e-5
    # ten; then the earlier.
    assert tune.best("grpo", dict.fromkeys(range(4), 0.5), 2) == [1, 2]
    assert tune.best("grpo", dict.fromkeys(range(4), 0.5), 1) == [1]
    assert tune.best("grpo", {0: 0.5, 3: 0.5}, 1) == [3]
    # What collapsed or died never goes on, though fewer do.
    assert tune.best("grpo", {0: 0.0, 1: None, 2: None, 3: None}, 2) == [0]
    assert tune.best("grpo", dict.fromkeys(range(4)), 2) == []


def test_trials_are_a_study_of_their_own(tmp_path: Path) -> None:
    study = tuning(
        tmp_path, more='[tune.arm.gspo]\n"objective.clip_high" = [3e-4, 4e-4, 5e-4, 6e-4]'
    )
    trials = trial_study(study)
    assert (trials.name, trials.seeds, trials.parent.study) == ("tiny-trials", (7, 8), "tiny")
    assert list(trials.arms)[3:6] == ["grpo@0.0008", "gspo@1e-05_0.0003", "gspo@5e-05_0.0004"]
    one = trials.arms["gspo@5e-05_0.0004"]
    assert (one.of, one.settings.update.learning_rate, one.settings.objective.clip_high) == (
        "gspo",
        5e-5,
        4e-4,
    )
    # As long as the last round, asked at the end of each.
    assert (one.settings.steps, one.settings.bench[0].moments(10)) == (10, [0, 5, 10])
    assert {"update.learning_rate", "objective.clip_high"} <= set(one.declared)


def test_what_was_chosen_is_locked_and_read_back(tmp_path: Path) -> None:
    study = tuning(tmp_path)
    tune = study.tune.model_copy(
        update={"chosen": {"grpo": 0, "gspo": 3}, "journals": {"tiny-trials/x/s7": "ab"}}
    )
    done = tuned(study, tune)
    assert [arm.settings.update.learning_rate for arm in done.arms.values()] == [1e-5, 8e-4]
    assert all("update.learning_rate" in arm.declared for arm in done.arms.values())
    data = done.to_json()
    assert Declaration.parse(data, "x").tune == tune
    assert tune.trials == "tiny-trials"
    data["tune"]["chosen"]["grpo"] = 1
    parsed = Declaration.parse(data, "x")
    assert parsed.digest != parsed.content_digest


def test_every_arm_has_the_same_budget(tmp_path: Path) -> None:
    assert "tune.seeds: 1 is a seed of the study" in refused(tmp_path, seeds="[7, 1]")
    assert "tune.seeds: [7, 7] holds a seed twice" in refused(tmp_path, seeds="[7, 7]")
    assert "tune.seeds.0: input should be greater than or equal to 0" in refused(
        tmp_path, seeds="[-7]"
    )
    three = "[tune.arm.gspo]\nupdate.learning_rate = [1e-5, 2e-5, 4e-5]"
    assert "it has grpo 4, gspo 3" in refused(tmp_path, more=three)
    alone = '[tune.arm.gspo]\n"objective.clip_high" = [3e-4, 4e-4]'
    assert "arm grpo: has nothing to choose from" in refused(tmp_path, "", more=alone)
    assert "lists are read side by side" in refused(tmp_path, more=alone)
    dear = "update.epochs = [1, 2]"
    assert "arm grpo with 2: its steps differ in update.epochs" in refused(tmp_path, dear)
    with pytest.raises(LabError, match="mistake") as caught:
        load(
            tmp_path,
            f"{SHARED}{ARMS}\n[tune]\nseeds = [7]\nsteps = 5\nvalues.{RATES}\n",
            arms=["grpo"],
        )
    assert "--arms cannot take some of them" in caught.value.details[0]


def test_what_cannot_be_chosen_is_one_line(tmp_path: Path) -> None:
    unknown = (
        "update.learning_rat: no setting that an arm can choose (did you mean"
        " 'update.learning_rate'?)"
    )
    assert unknown in refused(tmp_path, "update.learning_rat = [1, 2]")
    assert "rollout.group_size: no setting that an arm can choose" in refused(
        tmp_path, "rollout.group_size = [4, 8]"
    )
    assert "give at least two numbers or words" in refused(
        tmp_path, "update.learning_rate = [1e-4]"
    )
    one = "update.learning_rate = 1e-4\nupdate.weight_decay = [0.1, 0.2]"  # beside a list
    assert "give at least two numbers or words in a list; got 0.0001" in refused(tmp_path, one)
    assert "learning_rate = -1" in refused(tmp_path, "update.learning_rate = [1e-4, -1]")
    assert "cannot be split into update.minibatches = 3" in refused(
        tmp_path, "update.minibatches = [2, 3]"
    )
    assert "two candidates are the same" in refused(
        tmp_path, "update.learning_rate = [1e-4, 1.0000001e-4]"
    )
    (only,) = refused(tmp_path, 'objective.clip = ["fixed", "calibrated"]').splitlines()
    assert only.startswith(
        "tune: arm grpo with calibrated: clip = 'calibrated': a pilot finds its range, and trials"
    )
    assert "no benchmark 'sum'" in refused(tmp_path, more='metric = "sum"')
    assert "tune.arm: no arm 'gpso'" in refused(
        tmp_path, more="[tune.arm.gpso]\nupdate.learning_rate = [1, 2]"
    )
    swept = f"{SHARED}[sweep]\nupdate.minibatches = [1, 2]\n"
    assert "leave [sweep] or [tune] out" in refused(tmp_path, shared=swept)


def test_a_correction_comes_with_what_it_was_published_with(tmp_path: Path) -> None:
    """tis 0 to 2, icepop 0.5 to 5; the arm gspo has tis of its own, with an upper bound of 3."""
    study = tuning(
        tmp_path,
        'objective.mismatch_correction = ["none", "tis", "icepop"]',
        arms=f'{ARMS}mismatch_correction = "tis"\nmismatch_high = 3.0\n',
    )
    ranges = {
        name: (arm.settings.objective.mismatch_low, arm.settings.objective.mismatch_high)
        for name, arm in trial_study(study).arms.items()
    }
    assert ranges == {
        "grpo@none": (None, None),
        "grpo@tis": (0, 2),
        "grpo@icepop": (0.5, 5),
        "gspo@none": (None, 3),
        "gspo@tis": (0, 3),
        "gspo@icepop": (0.5, 3),
    }
    bounds = {"objective.mismatch_low", "objective.mismatch_high"}
    assert bounds <= set(trial_study(study).arms["grpo@tis"].declared)
    done = tuned(study, study.tune.model_copy(update={"chosen": {"grpo": 2, "gspo": 0}})).arms[
        "grpo"
    ]
    assert (done.settings.objective.mismatch_low, done.settings.objective.mismatch_high) == (0.5, 5)
    assert bounds <= set(done.declared)


def test_a_candidate_s_own_bounds_stay(tmp_path: Path) -> None:
    both = 'objective.mismatch_correction = ["tis", "icepop"]\nobjective.mismatch_high = [4, 2]'
    objective = trial_study(tuning(tmp_path, both)).arms["grpo@icepop_2"].settings.objective
    assert (objective.mismatch_low, objective.mismatch_high) == (0.5, 2)
    # 6 > 5: the bound that icepop brings is held to the rule as one that is given.
    low = 'objective.mismatch_correction = ["tis", "icepop"]\nobjective.mismatch_low = [1, 6]'
    assert "mismatch_low = 6 must be smaller than mismatch_high = 5" in refused(tmp_path, low)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ("objective.kl_coef = [0, 0.01]", "objective.kl_coef"),
        ('objective.advantage = ["group-mean-std", "gae"]', "objective.advantage"),
        (
            'objective.policy_loss = ["clip", "bapo"]\nobjective.bapo_clip_low = [1e-4, 1e-4]',
            "objective.policy_loss",
        ),
        ("update.lora_rank = [0, 8]", "update.lora_rank"),
    ],
)
def test_candidates_that_pass_through_other_models_are_refused(
    tmp_path: Path, values: str, key: str
) -> None:
    told = refused(tmp_path, values)
    assert f" differ in {key}; trials must cost the same, so arms cannot choose these" in told
    assert told.count("\n") == 0


def test_values_that_cost_alike_may_be_chosen_and_arms_may_cost_what_they_do(
    tmp_path: Path,
) -> None:
    values = ["objective.kl_coef = [0.01, 0.1]", "update.lora_rank = [8, 16]"]
    values += [
        'objective.advantage = ["group-mean-std", "leave-one-out"]',
        "update.minibatches = [2, 4]",
    ]
    values += [
        'routing_replay = ["none", "old-policy"]',
        'update.old_logprobs = ["trainer", "sampler"]',
    ]
    assert [read(tmp_path, one).number for one in values] == [2] * 6
    assert read(tmp_path, arms=f"{ARMS}kl_coef = 0.1\n").number == 4
