import math
import random
from typing import Any

import pytest

from gspo_lab.errors import LabError
from gspo_lab.objectives.measures import calibrated_band, clipped_share
from gspo_lab.objectives.ratios import Level


def details(n: int = 1000) -> list[dict[str, list[Any]]]:
    """Responses of 4 tokens; A = +1 moves up by 0.01 on average, A = -1 down by 0.02, noise 0.05 a token."""
    rng = random.Random(1)
    out: list[dict[str, list[Any]]] = []
    for _ in range(n):
        sign = rng.choice([1, -1, 0])
        drift = {1: 0.01, -1: -0.02, 0: 0.0}[sign]
        tokens = [rng.gauss(drift, 0.05) for _ in range(4)]
        out.append({"length": [4], "advantage": [float(sign)], "sum_log_ratio": [sum(tokens)], "log_ratios": [tokens]})
    return out


@pytest.mark.parametrize("target", [0.05, 0.2])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_found_band_clips_the_target_share_of_each_sign(level: Level, target: float) -> None:
    data = details()
    low, high = calibrated_band(data, level, target)
    for sign in (1, -1):
        values: list[float] = []
        for item in data:
            if item["advantage"][0] == sign:
                values += item["log_ratios"][0] if level == "token" else [item["sum_log_ratio"][0] / 4]
        bound = [math.exp(v) > 1 + high if sign > 0 else math.exp(v) < 1 - low for v in values]
        assert sum(bound) / len(bound) == pytest.approx(target, abs=1.5 / len(bound))
    # A sequence's mean over 4 tokens has half the noise, so its band is narrower.
    assert calibrated_band(data, "sequence", target)[1] < calibrated_band(data, "token", target)[1]


def test_too_little_data_and_no_movement_are_said() -> None:
    with pytest.raises(LabError, match="saw"):
        calibrated_band(details(20), "sequence", 0.1)
    flat = [{"length": [1], "advantage": [s], "sum_log_ratio": [0.0], "log_ratios": [[0.0]]} for s in (1.0, -1.0)] * 60
    with pytest.raises(LabError, match="clip_target"):
        calibrated_band(flat, "sequence", 0.1)


def test_the_share_that_a_range_clips_counts_what_moves_along_its_advantage() -> None:
    """Beyond 1 + .1 with A > 0: log 1.2; beyond 1 - .2 with A < 0: log .7. Not log .5 with A > 0, nor what has no A."""
    seen = [
        {
            "length": [2],
            "advantage": [1.0],
            "sum_log_ratio": [math.log(0.6)],
            "log_ratios": [[math.log(1.2), math.log(0.5)]],
        },
        {
            "length": [2],
            "advantage": [-1.0],
            "sum_log_ratio": [math.log(0.63)],
            "log_ratios": [[math.log(0.7), math.log(0.9)]],
        },
        {"length": [1], "advantage": [0.0], "sum_log_ratio": [9.0], "log_ratios": [[9.0]]},
    ]
    assert clipped_share(seen, "token", (0.2, 0.1)) == 2 / 4
    # The means: log(.6) / 2 < 0 with A > 0, and log(.63) / 2 = -.231 with A < 0, below log(.8) = -.223.
    assert clipped_share(seen, "sequence", (0.2, 0.1)) == 1 / 2
    with pytest.raises(LabError, match="no response with an advantage"):
        clipped_share(seen[2:], "token", (0.2, 0.1))
