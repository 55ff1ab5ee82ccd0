import numpy as np
import pytest
from scipy import special

from gspo_lab.errors import LabError
from gspo_lab.stats.looks import first_resolving, nominal_level


def test_one_look_has_alpha_itself() -> None:
    assert nominal_level((), 0.05) == nominal_level((8,), 0.05) == 0.05


@pytest.mark.parametrize(("looks", "level"), [((5, 8), 0.0292), ((3, 6, 9), 0.0198), ((4, 8), 0.0276)])
def test_the_constants(looks: tuple[int, ...], level: float) -> None:
    assert nominal_level(looks, 0.05) == pytest.approx(level, abs=0.0006)


@pytest.mark.parametrize("looks", [(5, 8), (4, 8), (3, 4, 5, 10)])
@pytest.mark.parametrize("alpha", [0.05, 0.05 / 3])
def test_all_looks_together_keep_alpha(looks: tuple[int, ...], alpha: float) -> None:
    d_RS = np.random.default_rng(1).standard_normal((200_000, looks[-1]))
    alarm = np.zeros(len(d_RS), dtype=bool)
    for n in looks:
        t = d_RS[:, :n].mean(axis=1) / d_RS[:, :n].std(axis=1, ddof=1) * np.sqrt(n)
        alarm |= 2 * special.stdtr(n - 1, -np.abs(t)) < nominal_level(looks, alpha)
    # 3 Monte Carlo errors of 200,000 studies, and the three digits that the level is rounded down to.
    assert alarm.mean() == pytest.approx(alpha, abs=3 * np.sqrt(alpha / 200_000) + 0.01 * alpha)


def test_the_level_lies_between_bonferroni_and_alpha() -> None:
    assert 0.05 / 8 < nominal_level(tuple(range(3, 11)), 0.05) < 0.05 / 2
    assert nominal_level((5, 8), 1e-6) == 5e-7  # beyond what is simulated


@pytest.mark.parametrize("looks", [(2, 5), (8, 5), (5, 5), tuple(range(3, 12))])
def test_looks_that_cannot_be_are_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(LabError, match="looks at"):
        nominal_level(looks, 0.05)


def test_the_first_look_that_resolves_is_the_one() -> None:
    heard: list[int] = []

    def judge(look: int) -> str:
        heard.append(look)
        return "better" if look >= 5 else "open"

    assert first_resolving((3, 5, 8), judge, lambda word: word == "better") == (5, "better")
    assert heard == [3, 5]
    assert first_resolving((3, 4), judge, lambda word: word == "better") == (4, "open")
