"""C09, C12 and C13 on numbers that can be worked out by hand. t(2, .975) = 4.30265."""

from pathlib import Path

import pytest
from assertions import assert_fields
from claim_lab import MOE, Fields, Numbers, gives, result, results, why

from gspo_lab.common.reason import Reason
from gspo_lab.study import Run


def routed(gains: dict[str, dict[int, float]], change: float = 0.06, fell: bool = True) -> Numbers:
    """Constant rewards: the area under a curve is its height.

    grpo with seed 0 meets a loss that is not finite.
    """

    def update(run: Run, step: int, minibatch: int) -> Fields:
        layers = [
            change * minibatch / 3 * part * (1 + 0.01 * run.seed) for part in (0.4, 0.8, 1.2, 1.6)
        ]
        bad = int(fell and run.arm == "grpo" and run.seed == 0 and step == 1 and minibatch == 0)
        return {
            "nonfinite": bad,
            "expert_change": sum(layers) / 4,
            "expert_change_layers": layers,
            "clip_fraction_active_tokens": 0.2,
        }

    def step(run: Run, step: int) -> Fields:
        rule, _, replay = run.arm.partition("-")
        return {"reward_mean": 0.4 + (gains[rule][run.seed] if replay else 0.0)}

    return gives(update=update, step=step)


HELPS = {0: 0.2, 1: 0.25, 2: 0.3}
NOTHING = {0: -0.001, 1: 0.0, 2: 0.001}


def test_grpo_needs_replay_and_gspo_does_not(tmp_path: Path) -> None:
    found = results(
        tmp_path, routed({"grpo": HELPS, "gspo": NOTHING}), arms=MOE, verdict="reward_margin = 0.02"
    )
    area, collapses = found["C12-grpo-needs-replay"].parts
    # sd .05: half-width .12421
    assert [area.low, area.high] == pytest.approx([0.12579, 0.37421], abs=1e-5)
    assert collapses.reason == Reason(
        "collapses", "0 of 3 runs collapsed with replay, 1 of 3 without"
    )
    assert found["C12-grpo-needs-replay"].word == "supported"
    more, own = found["C13-gspo-no-replay"].parts
    # .201, .25, .299: sd .049, half-width .12172
    assert [more.estimate, more.low] == pytest.approx([0.25, 0.12828], abs=1e-5)
    # sd .001, half-width .00248: inside the margin of training reward, .02
    assert [own.low, own.high] == pytest.approx([-0.00248, 0.00248], abs=1e-5)
    assert found["C13-gspo-no-replay"].word == "supported"


def test_an_equivalent_gain_contradicts_the_need_for_replay(tmp_path: Path) -> None:
    numbers = routed({"grpo": NOTHING, "gspo": HELPS})
    found = results(tmp_path, numbers, arms=MOE, verdict="reward_margin = 0.02")
    assert found["C12-grpo-needs-replay"].word == "contradicted"
    assert found["C13-gspo-no-replay"].word == "contradicted"
    assert any("GSPO + R3 69.00" in one.text for one in found["C13-gspo-no-replay"].claim.counter)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (routed({"grpo": HELPS, "gspo": NOTHING}, change=0.01), "0.0101 of grpo's experts change"),
        (
            routed({"grpo": HELPS, "gspo": NOTHING}, fell=False),
            "stability cannot be compared: 0 of",
        ),
    ],
)
def test_replay_is_judged_only_where_it_could_matter(
    tmp_path: Path, numbers: Numbers, said: str
) -> None:
    found = results(tmp_path, numbers, arms=MOE)
    for name in ("C12-grpo-needs-replay", "C13-gspo-no-replay"):
        assert found[name].word == "not testable here"
        assert said in why(found[name])


@pytest.mark.parametrize("fell", [True, False])
def test_what_gspo_gains_by_replay_contradicts_that_it_needs_none(
    tmp_path: Path, fell: bool
) -> None:
    """It gains .2, .25 and .3 whether or not a run collapsed and however little routing moves.

    These preconditions keep a claim from being supported too easily. They hide no contradiction.
    """
    numbers = routed({"grpo": NOTHING, "gspo": HELPS}, change=0.01, fell=fell)
    found = result(
        tmp_path, numbers, "C13-gspo-no-replay", arms=MOE, verdict="reward_margin = 0.02"
    )
    assert found.word == "contradicted"
    assert "support would also have needed what is lacking here: routing hardly moves" in why(found)


def test_a_score_margin_says_nothing_of_training_reward(tmp_path: Path) -> None:
    """GSPO gains .045, .05, .055 of reward: half-width .0124.

    The interval is wholly above a margin of .02 and inside one of .1.
    """
    gains = routed({"grpo": HELPS, "gspo": {0: 0.045, 1: 0.05, 2: 0.055}})
    undeclared, narrow, wide = (
        result(tmp_path / f"{place}", gains, "C13-gspo-no-replay", arms=MOE, verdict=margin)
        for place, margin in enumerate(
            ("", "reward_margin = 0.02", "reward_margin = 0.1\nmargin = 0.001")
        )
    )
    assert undeclared.word == "not testable here"
    assert "declares no verdict.reward_margin" in why(undeclared)
    assert undeclared.parts[1].criterion == "measured"
    assert (narrow.word, wide.word) == ("contradicted", "supported")
    assert (
        narrow.parts[1].criterion
        == "supported if between -0.02 and 0.02, contradicted if above 0.02"
    )


def test_a_run_that_falls_in_the_other_arm_is_instability_too(tmp_path: Path) -> None:
    """Only runs with replay collapse, and they gain less by it.

    So GRPO did not need replay, and no precondition may hide that.
    """
    plain = routed({"grpo": {0: -0.2, 1: -0.25, 2: -0.3}, "gspo": NOTHING}, fell=False)

    def update(run: Run, step: int, minibatch: int) -> Fields:
        fell = run.arm == "grpo-replay" and step == run.settings.steps - 1
        return {**plain.update(run, step, minibatch), "nonfinite": int(fell)}

    found = result(
        tmp_path, gives(update=update, step=plain.step), "C12-grpo-needs-replay", arms=MOE
    )
    assert found.word == "contradicted"


@pytest.mark.parametrize(("change", "word"), [(0.06, "inconclusive"), (0.3, "supported")])
def test_expert_change_is_a_direction_on_few_layers(
    tmp_path: Path, change: float, word: str
) -> None:
    """A share cannot be negative.

    The claim is supported from half of the published tenth on. A smaller share contradicts nothing.
    """
    numbers = routed({"grpo": HELPS, "gspo": NOTHING}, change)
    found = result(tmp_path, numbers, "C09-expert-change", arms=MOE)
    after_one, slope = found.parts
    # mini-batch 1 of 3: change / 3 x (1, 1.01, 1.02); layers .4, .8, 1.2, 1.6 of it: slope .4 x
    assert_fields(
        after_one, estimate=pytest.approx(change / 3 * 1.01), criterion="supported if above 0.05"
    )
    assert slope.estimate == pytest.approx(0.4 * change / 3 * 1.01)
    assert (found.word, found.supplementary[0].word) == (word, "measured")
    assert "the model has 4 routed layers and about 48 are needed" in why(found)


def test_a_dense_model_has_no_claims_about_experts(tmp_path: Path) -> None:
    dense = results(tmp_path / "dense", Numbers())
    for name in ("C09-expert-change", "C12-grpo-needs-replay", "C13-gspo-no-replay"):
        assert dense[name].word == "not testable here"
        assert why(dense[name]).startswith("no arm has a mixture of experts")


def test_the_need_of_an_unstable_run_counts_what_the_page_counts(tmp_path: Path) -> None:
    """Rewards are flat, and grpo's final scores are below half of their best.

    That makes three unstable runs, not none.
    """

    def right(run: Run, step: int) -> int:
        return 2 if run.arm == "grpo" and step else 8

    numbers = routed({"grpo": HELPS, "gspo": NOTHING}, fell=False)
    numbers.right = right  # type: ignore[method-assign]
    found = result(
        tmp_path, numbers, "C12-grpo-needs-replay", arms=MOE, verdict="reward_margin = 0.02"
    )
    assert "no unstable runs" not in {reason.code for reason in found.reasons}
    assert "0 of 6 judged runs" not in why(found)
