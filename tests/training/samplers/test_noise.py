import math

import pytest
import torch

from gspo_lab.training.samplers import transformers_sampler
from gspo_lab.training.samplers.base import noise_key
from gspo_lab.training.samplers.transformers_sampler import exponentials, sample_by_argmax

KEYS = torch.tensor([noise_key(0, "rollout", 3, p, s) for p in range(40) for s in range(10)])
V = torch.arange(200)


def test_a_draw_depends_on_key_position_and_entry_alone() -> None:
    complete = exponentials(KEYS, torch.full_like(KEYS, 7), V)
    alone = exponentials(KEYS[13:14], torch.tensor([7]), V)
    assert torch.equal(complete[13:14], alone)
    mixed = exponentials(KEYS[[13, 2]], torch.tensor([7, 9]), V)
    assert torch.equal(mixed[0], alone[0])
    assert not torch.equal(mixed[1], complete[2])


def test_draws_are_exponential_and_uncorrelated() -> None:
    a = exponentials(KEYS, torch.zeros_like(KEYS), V)
    b = exponentials(KEYS, torch.ones_like(KEYS), V)
    n = a.numel()
    assert (a > 0).all()
    # Mean 1 and variance 1, five standard errors wide (the variance of a sample variance of Exp(1)
    # is 8/n).
    assert abs(a.mean() - 1) < 5 / n**0.5
    assert abs(a.var() - 1) < 5 * (8 / n) ** 0.5
    for x, y in ((a, b), (a[1:], a[:-1]), (a[:, 1:], a[:, :-1])):
        r = torch.corrcoef(torch.stack([x.flatten(), y.flatten()]))[0, 1]
        assert abs(r) < 5 / n**0.5
    uniform = (-a).exp().flatten().sort().values
    gap = (uniform - (torch.arange(n) + 0.5) / n).abs().max()
    assert gap < 2 / n**0.5  # Kolmogorov-Smirnov, p of about 1e-3


def test_keys_differ_by_any_part() -> None:
    keys = {
        noise_key(0, "a", 1),
        noise_key(0, "a", 2),
        noise_key(1, "a", 1),
        noise_key(0, "b", 1),
        noise_key(0, "a1"),
    }
    assert len(keys) == 5
    assert all(0 <= key < 2**63 for key in keys)


@pytest.mark.parametrize(("at_once", "rows"), [(1, 60), (70, 400), (900, 400), (2**20, 400)])
def test_pieces_of_the_race_find_the_winners_of_the_whole(
    at_once: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The argmax by pieces equals the argmax over all of p / noise at once.

    Pieces of one entry, of a part of a row, of some rows, of all.
    """
    keys = KEYS[:rows]
    p = torch.randn(rows, len(V), generator=torch.Generator().manual_seed(0)).softmax(dim=-1)
    p[5] = 0
    p[5, 3] = 1.0
    monkeypatch.setitem(transformers_sampler.AT_ONCE, "cpu", at_once)
    complete = (p / exponentials(keys, torch.full_like(keys, 4), V)).argmax(dim=-1)
    actual = sample_by_argmax(p, keys, torch.full_like(keys, 4))
    assert torch.equal(actual, complete)
    assert actual[5] == 3
    assert len(set(actual.tolist())) > rows / 8


def test_of_probabilities_that_are_no_numbers_the_first_wins() -> None:
    assert sample_by_argmax(
        torch.full((2, 9), torch.nan), KEYS[:2], torch.zeros_like(KEYS[:2])
    ).tolist() == [0, 0]


def test_the_numbers_are_those_of_splitmix64() -> None:
    """The published generator in Python's own integers.

    Runs recorded by every version so far were drawn with it.
    """
    mask = (1 << 64) - 1

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    key = int(KEYS[0])
    golden = 0x9E3779B97F4A7C15
    row = mix((key + mix(11 * golden & mask)) & mask)
    for entry in (0, 1, 151_935):
        bits = mix((row + entry * golden) & mask) >> 11
        actual = float(exponentials(KEYS[:1], torch.tensor([11]), torch.tensor([entry])))
        assert actual == pytest.approx(-math.log((bits + 0.5) * 2.0**-53), rel=1e-14)
