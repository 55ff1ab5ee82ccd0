"""C14 and C23 on numbers that can be worked out by hand. t(2, .975) = 4.30265."""

from collections.abc import Callable
from pathlib import Path

import pytest
from assertions import assert_fields
from claim_lab import PAIR, Fields, Numbers, gives, result, why

from gspo_lab.common.reason import Reason
from gspo_lab.study import Run

TUNED = PAIR + "clip_low = 0.02\nclip_high = 0.03\n"


def learning(run: Run, step: int) -> int:
    """grpo answers 3, 4, 5 of 10 problems correctly after 0, 5, 10 steps.

    gspo answers 3, 6 and, by seed, 6, 7 or 8.
    """
    last = 5 if run.arm == "grpo" else 6 + run.seed
    return {0: 3, 5: 4 if run.arm == "grpo" else 6, 10: last}[step]


def test_efficiency_is_an_area_against_prompts(tmp_path: Path) -> None:
    found = result(tmp_path, gives(right=learning), "C14-more-efficient", arms=TUNED, steps=10)
    area, threshold = found.parts
    # trapezoids: grpo .4; gspo (.45 + (.6 + x) / 2) / 2 = .525, .55, .575: differences .125, .15,
    # .175, sd .025
    assert area.estimate == pytest.approx(0.15)
    assert [area.low, area.high] == pytest.approx([0.15 - 0.062104, 0.15 + 0.062104], abs=1e-5)
    # finals are means of the last two evaluations: .45 for grpo; half of the common gain is .375,
    # met at step 5
    assert threshold.reason == Reason(
        "prompts-needed", "mean over seeds: 160 against 160 prompts (half of the common gain)"
    )
    assert found.word == "supported"
    assert [part.estimate for part in found.supplementary] == pytest.approx([0.15, 0.15]), (
        "tokens and FLOPs per step"
    )


def test_equal_tokens_end_where_the_shorter_budget_ends(tmp_path: Path) -> None:
    def step(run: Run, step: int) -> Fields:
        return {"tokens_sampled_total": (1000 if run.arm == "grpo" else 2000) * (step + 1)}

    found = result(
        tmp_path, gives(right=learning, step=step), "C14-more-efficient", arms=TUNED, steps=10
    )
    # 10,000 tokens are gspo's first 5 steps: mean of .3 and .6 = .45 in every seed, against .4
    assert found.supplementary[0].estimate == pytest.approx(0.05)


def test_efficiency_needs_tuned_ranges_and_the_same_first_rollout(tmp_path: Path) -> None:
    def step(run: Run, step: int) -> Fields:
        return {"rollout_digest": run.arm}

    found = result(tmp_path, gives(step=step), "C14-more-efficient")
    assert found.word == "not testable here"
    assert (
        "gspo has the paper's range 3e-4/4e-4, tuned for thousands of tokens, on responses of 10"
        in why(found)
    )
    assert "the first rollouts of grpo and gspo differ at seed 0" in why(found)


@pytest.mark.parametrize(
    ("more", "word", "said"),
    [
        # of 200 problems: differences 0, .005, -.005: sd .005, half-width .01242
        ({0: 0, 1: 1, 2: -1}, "supported", "whole interval"),
        ({0: 12, 1: 13, 2: 14}, "contradicted", "other side"),
        # +.156, +.117, +.195 to the half problem: a wide spread, and far from equal all the same
        ({0: 31, 1: 23, 2: 39}, "contradicted", "other side"),
        # -.02, 0, .02: sd .02, half-width .0497
        ({0: -4, 1: 0, 2: 4}, "inconclusive", "the interval covers both sides"),
    ],
)
def test_stable_rules_end_alike(tmp_path: Path, more: dict[int, int], word: str, said: str) -> None:
    def right(run: Run, step: int) -> int:
        return 100 + (more[run.seed] if run.arm == "gspo" else 0)

    found = result(tmp_path, gives(right=right), "C23-stable-then-equal", problems=200)
    assert found.word == word
    assert said in why(found)


def test_a_collapsed_run_is_not_stable(tmp_path: Path) -> None:
    def update(run: Run, step: int, minibatch: int) -> Fields:
        return {"nonfinite": int(run.arm == "gspo" and run.seed == 2 and step == 1)}

    found = result(tmp_path, gives(update=update), "C23-stable-then-equal")
    assert found.word == "not testable here"
    assert "gspo, seed 2, collapsed at step 1 (non-finite)" in why(found)


def sigmoid(midpoint: dict[str, float], asymptote: dict[str, int]) -> Callable[[Run, int], int]:
    """Of 200 problems 40 right at the start; by seed one more or fewer. FLOPs are 1e9 a step."""

    def right(run: Run, step: int) -> int:
        gain = asymptote[run.arm] - 40
        return 40 + run.seed + (round(gain / (1 + (midpoint[run.arm] / step) ** 2)) if step else 0)

    return right


@pytest.mark.parametrize(
    ("asymptote", "word"),
    [({"grpo": 160, "gspo": 160}, "supported"), ({"grpo": 160, "gspo": 180}, "contradicted")],
)
def test_asymptotes_are_compared_and_midpoints_stated(
    tmp_path: Path, asymptote: dict[str, int], word: str
) -> None:
    curves = sigmoid({"grpo": 4.0, "gspo": 2.0}, asymptote)
    found = result(
        tmp_path, gives(right=curves), "C26-same-asymptote", problems=200, steps=16, every=1
    )
    (apart,) = found.parts
    assert apart.estimate == pytest.approx((asymptote["gspo"] - asymptote["grpo"]) / 200, abs=0.01)
    assert found.word == word
    assert "the paper searches a grid against GPU-hours" in why(found)
    sooner, *by_arm = found.supplementary
    assert_fields(sooner, estimate=pytest.approx(0.5, abs=0.05), ratio=True)
    assert [one.estimate for one in by_arm] == pytest.approx(
        [0.805, asymptote["gspo"] / 200 + 0.005, 2, 2], rel=0.06
    )


def test_every_other_arm_has_its_asymptote_and_midpoint(tmp_path: Path) -> None:
    """No curve of `slow` bends, and `bare` recorded no FLOPs.

    So neither is fitted, and the claim on the two arms still stands.
    """
    others = {"dapo": "dapo", "slow": "cispo", "bare": "rloo"}
    arms = PAIR + "".join(
        f'[arm.{name}]\nobjective = "{preset}"\n' for name, preset in others.items()
    )
    midpoints = {"grpo": 4.0, "gspo": 2.0, "dapo": 3.0, "slow": 20.0, "bare": 3.0}
    curves = sigmoid(midpoints, dict.fromkeys(midpoints, 160) | {"dapo": 120})

    def step(run: Run, step: int) -> Fields:
        return {"flops_total": None} if run.arm == "bare" else {}

    shape = {"arms": arms, "problems": 200, "steps": 16, "every": 1}
    found = result(tmp_path, gives(right=curves, step=step), "C26-same-asymptote", **shape)
    assert found.word == "supported"
    asymptote, later = found.supplementary[5:]
    assert (asymptote.name, later.name) == (
        "asymptote of dapo",
        "FLOPs until half of the gain, dapo / grpo",
    )
    assert (asymptote.estimate, later.estimate) == (
        pytest.approx(0.605, rel=0.05),
        pytest.approx(0.75, abs=0.05),
    )
    assert later.ratio


def test_equal_differences_on_all_seeds_may_lie_on_neither_side(tmp_path: Path) -> None:
    """gspo ends .0275 higher on each: what the answers alone vary covers the margin of .02."""
    curves = sigmoid({"grpo": 4.0, "gspo": 2.0}, {"grpo": 160, "gspo": 160})
    found = result(tmp_path, gives(right=curves), "C23-stable-then-equal", problems=200, steps=16)
    assert found.word == "inconclusive"
    assert "final score, GSPO - GRPO is on neither side" in why(found)


def test_runs_whose_curve_does_not_bend_are_not_fitted(tmp_path: Path) -> None:
    curves = sigmoid({"grpo": 20.0, "gspo": 20.0}, {"grpo": 160, "gspo": 160})
    found = result(
        tmp_path, gives(right=curves), "C26-same-asymptote", problems=200, steps=16, every=1
    )
    assert found.word == "not testable here"
    assert (
        "grpo, seed 0: 16 evaluations after the start show too little of the curve for an asymptote"
        in why(found)
    )


LOW = 'rollout = {dtype = "bfloat16"}\n'
LOW_PAIR = f'[arm.grpo]\nobjective = "grpo"\n{LOW}[arm.gspo]\nobjective = "gspo"\n{LOW}'


def mismatch(grpo: float, gspo: float, spread: float = 1.1) -> Numbers:
    """Flipped shares per rule, x 1, 1.01, 1.02 by seed.

    A response's mean mismatch has `spread` times the deviation that independent tokens give.
    """

    def update(run: Run, step: int, minibatch: int) -> Fields:
        by_seed = 1 + 0.01 * run.seed
        return {
            "flip_fraction_tokens_grpo": grpo * by_seed,
            "flip_fraction_tokens_gspo": gspo * by_seed,
        }

    def step(run: Run, step: int) -> Fields:
        own = 0.01 * (1 + 0.01 * run.seed)
        return {"mismatch_std_responses": spread * own, "mismatch_std_independent": 0.01}

    return gives(update=update, step=step)


@pytest.mark.parametrize(
    ("grpo", "gspo", "spread", "word"),
    [
        (0.2, 0.1, 1.1, "supported"),
        (0.1, 0.2, 1.1, "contradicted"),
        # The mean spreads twice as much as independent tokens would make it: neither supported nor
        # the other way round.
        (0.2, 0.1, 2.0, "inconclusive"),
    ],
)
def test_precision_is_read_from_means_and_flipped_clips(
    tmp_path: Path, grpo: float, gspo: float, spread: float, word: str
) -> None:
    found = result(tmp_path, mismatch(grpo, gspo, spread), "C15-precision-tolerant", arms=LOW_PAIR)
    assert found.word == word
    assert found.parts[0].estimate == pytest.approx(spread * (1.01 * 1.02) ** (1 / 3))
    assert found.parts[1].estimate == pytest.approx((gspo - grpo) * 1.01)
    assert [part.estimate for part in found.supplementary] == pytest.approx(
        [grpo * 1.01, gspo * 1.01]
    )


def test_precision_needs_another_precision_and_the_trainers_log_probs(tmp_path: Path) -> None:
    same = result(
        tmp_path / "a", mismatch(0.2, 0.1), "C15-precision-tolerant", arms=LOW_PAIR.replace(LOW, "")
    )
    assert "own engine and precision" in why(same)
    old = LOW_PAIR.replace(LOW, LOW + 'update = {old_logprobs = "sampler"}\n')
    found = result(tmp_path / "b", mismatch(0.2, 0.1), "C15-precision-tolerant", arms=old)
    assert found.word == "not testable here"
    assert "takes the sampler's log-probs" in why(found)
