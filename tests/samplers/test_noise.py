import torch

from gspo_lab.samplers.base import noise_key
from gspo_lab.samplers.noise import exponentials

KEYS = torch.tensor([noise_key(0, "rollout", 3, p, s) for p in range(40) for s in range(10)])
V = torch.arange(200)


def test_a_draw_depends_on_key_position_and_entry_alone() -> None:
    whole = exponentials(KEYS, torch.full_like(KEYS, 7), V)
    alone = exponentials(KEYS[13:14], torch.tensor([7]), V)
    assert torch.equal(whole[13:14], alone)
    mixed = exponentials(KEYS[[13, 2]], torch.tensor([7, 9]), V)
    assert torch.equal(mixed[0], alone[0])
    assert not torch.equal(mixed[1], whole[2])


def test_draws_are_exponential_and_uncorrelated() -> None:
    a = exponentials(KEYS, torch.zeros_like(KEYS), V)
    b = exponentials(KEYS, torch.ones_like(KEYS), V)
    n = a.numel()
    assert (a > 0).all()
    # Mean 1 and variance 1, five standard errors wide (the variance of a sample variance of Exp(1) is 8/n).
    assert abs(a.mean() - 1) < 5 / n**0.5
    assert abs(a.var() - 1) < 5 * (8 / n) ** 0.5
    for x, y in ((a, b), (a[1:], a[:-1]), (a[:, 1:], a[:, :-1])):
        r = torch.corrcoef(torch.stack([x.flatten(), y.flatten()]))[0, 1]
        assert abs(r) < 5 / n**0.5
    uniform = (-a).exp().flatten().sort().values
    gap = (uniform - (torch.arange(n) + 0.5) / n).abs().max()
    assert gap < 2 / n**0.5  # Kolmogorov-Smirnov, p of about 1e-3


def test_keys_differ_by_any_part() -> None:
    keys = {noise_key(0, "a", 1), noise_key(0, "a", 2), noise_key(1, "a", 1), noise_key(0, "b", 1), noise_key(0, "a1")}
    assert len(keys) == 5
    assert all(0 <= key < 2**63 for key in keys)
