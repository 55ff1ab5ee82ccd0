"""C15, and the statistic of the first mini-batch, on numbers that a pencil can follow."""

from pathlib import Path

import pytest
from claim_lab import Fields, Numbers, gives, results, why

from gspo_lab.study import Run

LOW = 'rollout = {dtype = "bfloat16"}\n'
PAIR = f'[arm.grpo]\nobjective = "grpo"\n{LOW}[arm.gspo]\nobjective = "gspo"\n{LOW}'


def mismatch(grpo: float, gspo: float, spread: float = 1.1) -> Numbers:
    """Flipped shares per rule, x 1, 1.01, 1.02 by seed; a response's mean spreads `spread` times what tokens make."""

    def update(run: Run, step: int, minibatch: int) -> Fields:
        by_seed = 1 + 0.01 * run.seed
        return {"flip_fraction_tokens_grpo": grpo * by_seed, "flip_fraction_tokens_gspo": gspo * by_seed}

    def step(run: Run, step: int) -> Fields:
        own = 0.01 * (1 + 0.01 * run.seed)
        return {"mismatch_std_responses": spread * own, "mismatch_std_independent": 0.01}

    return gives(update=update, step=step)


@pytest.mark.parametrize(
    ("grpo", "gspo", "spread", "word"),
    [
        (0.2, 0.1, 1.1, "supported"),
        (0.1, 0.2, 1.1, "contradicted"),
        # The mean spreads twice as much as independent tokens would make it: neither supported nor the other way round.
        (0.2, 0.1, 2.0, "not resolved"),
    ],
)
def test_precision_is_read_from_means_and_flipped_clips(
    tmp_path: Path, grpo: float, gspo: float, spread: float, word: str
) -> None:
    found = results(tmp_path, mismatch(grpo, gspo, spread), arms=PAIR)["C15-precision-tolerant"]
    assert found.word == word
    assert found.parts[0].estimate == pytest.approx(spread * (1.01 * 1.02) ** (1 / 3))
    assert found.parts[1].estimate == pytest.approx((gspo - grpo) * 1.01)
    assert [part.estimate for part in found.also] == pytest.approx([grpo * 1.01, gspo * 1.01])


def test_precision_needs_another_precision_and_the_trainers_log_probs(tmp_path: Path) -> None:
    same = results(tmp_path / "a", mismatch(0.2, 0.1), arms=PAIR.replace(LOW, ""))["C15-precision-tolerant"]
    assert "own engine and precision" in why(same)
    old = PAIR.replace(LOW, LOW + 'update = {old_logprobs = "sampler"}\n')
    found = results(tmp_path / "b", mismatch(0.2, 0.1), arms=old)["C15-precision-tolerant"]
    assert found.word == "not testable here"
    assert "takes the sampler's log-probs" in why(found)


def test_what_the_first_minibatch_clips_is_a_statistic_of_its_own(tmp_path: Path) -> None:
    def update(run: Run, step: int, minibatch: int) -> Fields:
        at_once = {"grpo": 0.0, "gspo": 0.3 + 0.01 * run.seed}[run.arm]
        return {"clip_fraction_active_tokens": at_once if minibatch == 0 else 0.9}

    table = """[[claim]]
name = "starts-clipped"
metric = "clip_fraction_active_tokens"
statistic = "mean over updates with minibatch = 0"
comparison = "difference"
above = 0.1
"""
    found = results(tmp_path, gives(update=update), arms=PAIR, tables=table)["starts-clipped"]
    assert found.parts[0].estimate == pytest.approx(0.31)
    assert found.word == "supported"
