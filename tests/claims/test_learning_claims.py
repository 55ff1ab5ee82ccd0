"""C14 and C19 to C23 on numbers that can be worked out by hand. t(2, .975) = 4.30265."""

from pathlib import Path

import pytest
from claim_lab import PAIR, Fields, Numbers, gives, results

from gspo_lab.study import Run

TUNED = PAIR + "clip_low = 0.02\nclip_high = 0.03\n"
GRID = "".join(
    f'[arm.{rule}-{k}]\nobjective = "{rule}"\nclip_low = {low * 2.0**k}\nclip_high = {low * 2.0**k}\n'
    for rule, low in (("grpo", 0.05), ("gspo", 0.001))
    for k in range(5)
)
LUSPO = '[arm.luspo]\nobjective = "gspo"\naggregation = "seq-mean-token-sum"\n'


def learning(run: Run, step: int) -> int:
    """Of 10 problems grpo has 3, 4, 5 right after 0, 5, 10 steps; gspo 3, 6 and 6, 7 or 8 by seed."""
    last = 5 if run.arm == "grpo" else 6 + run.seed
    return {0: 3, 5: 4 if run.arm == "grpo" else 6, 10: last}[step]


def test_efficiency_is_an_area_against_prompts(tmp_path: Path) -> None:
    found = results(tmp_path, gives(right=learning), arms=TUNED, steps=10)["C14-more-efficient"]
    area, threshold = found.parts
    # trapezoids: grpo .4; gspo (.45 + (.6 + x) / 2) / 2 = .525, .55, .575: differences .125, .15, .175, sd .025
    assert area.estimate == pytest.approx(0.15)
    assert [area.low, area.high] == pytest.approx([0.15 - 0.062104, 0.15 + 0.062104], abs=1e-5)
    # finals are means of the last two evaluations: .45 for grpo; half of the common gain is .375, met at step 5
    assert threshold.note == "mean over seeds: 160 against 160 prompts (half of the common gain)"
    assert found.word == "supported"
    assert found.reading is not None
    assert [part.estimate for part in found.reading.also] == pytest.approx([0.15, 0.15]), "tokens and FLOPs per step"


def test_equal_tokens_end_where_the_shorter_budget_ends(tmp_path: Path) -> None:
    def step(run: Run, step: int) -> Fields:
        return {"tokens_sampled_total": (1000 if run.arm == "grpo" else 2000) * (step + 1)}

    found = results(tmp_path, gives(right=learning, step=step), arms=TUNED, steps=10)["C14-more-efficient"]
    assert found.reading is not None
    # 10,000 tokens are gspo's first 5 steps: mean of .3 and .6 = .45 in every seed, against .4
    assert found.reading.also[0].estimate == pytest.approx(0.05)


def test_efficiency_needs_tuned_ranges_and_the_same_first_rollout(tmp_path: Path) -> None:
    def step(run: Run, step: int) -> Fields:
        return {"rollout_digest": run.arm}

    found = results(tmp_path, gives(step=step))["C14-more-efficient"]
    assert found.word == "not testable here"
    assert "gspo has the paper's range 3e-4/4e-4, tuned for thousands of tokens, on responses of 10" in found.reason
    assert "the first rollouts of grpo and gspo differ at seed 0" in found.reason


@pytest.mark.parametrize(
    ("more", "word", "said"),
    [
        # of 200 problems: differences 0, .005, -.005: sd .005, half-width .01242
        ({0: 0, 1: 1, 2: -1}, "supported", "whole interval"),
        ({0: 12, 1: 13, 2: 14}, "contradicted", "other side"),
        # +.156, +.117, +.195 to the half problem: a wide spread, and far from equal all the same
        ({0: 31, 1: 23, 2: 39}, "contradicted", "other side"),
        # -.02, 0, .02: sd .02, half-width .0497
        ({0: -4, 1: 0, 2: 4}, "not resolved", "the interval covers both sides"),
    ],
)
def test_stable_rules_end_alike(tmp_path: Path, more: dict[int, int], word: str, said: str) -> None:
    def right(run: Run, step: int) -> int:
        return 100 + (more[run.seed] if run.arm == "gspo" else 0)

    found = results(tmp_path, gives(right=right), problems=200)["C23-stable-then-equal"]
    assert found.word == word
    assert said in found.reason


def test_a_collapsed_run_is_not_stable(tmp_path: Path) -> None:
    def update(run: Run, step: int, minibatch: int) -> Fields:
        return {"nonfinite": int(run.arm == "gspo" and run.seed == 2 and step == 1)}

    found = results(tmp_path, gives(update=update))["C23-stable-then-equal"]
    assert found.word == "not testable here"
    assert "gspo, seed 2, collapsed at step 1 (non-finite)" in found.reason


def test_the_range_hardly_matters_for_gspo(tmp_path: Path) -> None:
    # of 200: gspo 80 on the narrowest range, then 100, and +-0 or 1 by seed; grpo 60 to 100
    def right(run: Run, step: int) -> int:
        rule, _, k = run.arm.partition("-")
        scores = [80 + run.seed, 100, 100, 100, 100 + run.seed] if rule == "gspo" else [60, 70, 80, 90, 100]
        return scores[int(k)]

    found = results(tmp_path, gives(right=right), arms=GRID, problems=200)["C19-band-insensitive"]
    *flat, worse, spread = found.parts
    assert [part.name for part in flat] == [
        f"final score, gspo-{wide} - gspo-{narrow}" for narrow, wide in ((2, 3), (2, 4), (3, 4))
    ]
    assert [part.estimate for part in flat] == pytest.approx([0.0, 0.005, 0.005])
    assert worse.estimate == pytest.approx(0.1 - 0.005)
    assert spread.estimate == pytest.approx(0.2 - 0.1), "gspo's own spread is 100 + seed - 80 - seed"
    # equal in every seed: there is nothing to build an interval from
    assert spread.low is None
    assert found.word == "not resolved"


def test_wider_ranges_that_differ_contradict_that_the_range_hardly_matters(tmp_path: Path) -> None:
    # of 200: the widest range of gspo loses 40, 41 and 42: -.2, -.205, -.21, sd .005, half-width .0124
    def right(run: Run, step: int) -> int:
        rule, _, k = run.arm.partition("-")
        return ([80, 100, 100, 100, 60 - run.seed] if rule == "gspo" else [60, 70, 80, 90, 100])[int(k)]

    found = results(tmp_path, gives(right=right), arms=GRID, problems=200)["C19-band-insensitive"]
    wider = found.parts[1]
    assert [wider.low, wider.high] == pytest.approx([-0.205 - 0.01242, -0.205 + 0.01242], abs=1e-5)
    assert found.word == "contradicted"
    assert "gspo-4 - gspo-2" in found.reason


def test_the_range_needs_five_of_each(tmp_path: Path) -> None:
    assert "1 arms vary the range of grpo alone" in results(tmp_path, Numbers())["C19-band-insensitive"].reason


@pytest.mark.parametrize(("cut", "word"), [(0.05, "supported"), (0.2, "not testable here")])
def test_length_bias_reads_the_last_fifth(tmp_path: Path, cut: float, word: str) -> None:
    def step(run: Run, step: int) -> Fields:
        longer = (12 + 0.1 * run.seed) if run.arm == "luspo" and step >= 8 else 10.0
        return {"response_tokens_mean": longer, "truncated_responses": cut}

    found = results(tmp_path, gives(step=step), arms=PAIR + LUSPO, steps=10)["C20-length-bias"]
    assert found.word == word
    if word == "supported":
        assert found.parts[0].estimate == pytest.approx((1.2 * 1.21 * 1.22) ** (1 / 3))


@pytest.mark.parametrize(("cut", "word"), [("gspo", "contradicted"), ("luspo", "not testable here")])
def test_answers_cut_at_the_limit_hide_only_how_long_they_would_have_been(tmp_path: Path, cut: str, word: str) -> None:
    """LUSPO's answers are the shorter ones. Where GSPO's are cut they would be longer still; LUSPO's might too."""

    def step(run: Run, step: int) -> Fields:
        shorter = (8 + 0.1 * run.seed) if run.arm == "luspo" else 10.0
        return {"response_tokens_mean": shorter, "truncated_responses": 0.2 if run.arm == cut else 0.0}

    found = results(tmp_path, gives(step=step), arms=PAIR + LUSPO, steps=10)["C20-length-bias"]
    assert found.word == word
    assert f"{cut} has 0.2 of its responses cut at the limit" in found.reason


def falling(run: Run, step: int) -> Fields:
    """gspo's reward falls from .8 to 0 at step 60; grpo's stays."""
    fell = run.arm == "gspo" and step >= 60
    return {"reward_mean": 0.0 if fell else 0.8 + 0.001 * (step % 2)}


def warning(run: Run, step: int, minibatch: int) -> Fields:
    """The gradient norm leaves its range in step 55 of the runs that will fall; stale_k3 in every run."""
    early = run.arm == "gspo" and step >= 55
    return {"grad_norm": 9.0 if early else 1.0 + 0.01 * (step % 3), "stale_k3": 5.0 if step >= 55 else 1.0}


def test_precursors_lead_in_every_collapsed_run_without_false_alarms(tmp_path: Path) -> None:
    found = results(tmp_path, gives(step=falling, update=warning), seeds=5, steps=80, minibatches=2, every=80)
    claim = found["C21-precursors"]
    assert "grad_norm: leads in 5 of 5, false alarms in 0 of 5" in claim.reason
    assert "stale_k3: leads in 5 of 5, false alarms in 5 of 5" in claim.reason
    assert claim.parts[0].estimate == 1
    assert claim.word == "supported"


def test_precursors_need_collapses(tmp_path: Path) -> None:
    found = results(tmp_path, Numbers())["C21-precursors"]
    assert found.word == "not testable here"
    assert found.reason.startswith("0 runs collapsed")
