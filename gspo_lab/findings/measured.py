"""One run as the laws of length read it: how far its log-ratios spread and drift, and what both rules clip."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gspo_lab.findings.outcomes import outcomes
from gspo_lab.findings.recorded import reward_curves
from gspo_lab.objectives.ratios import binds
from gspo_lab.readings import Reading, Source, read
from gspo_lab.readings.responses import band_shares
from gspo_lab.readings.settled import first_settled
from gspo_lab.stats.arrays import Floats

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Measured:
    """One run, over its updates after the learning rate's warm-up.

    Log-ratios, in nats, are those of mini-batches >= 1; clipped shares, of each rule's reference range, are of all
    mini-batches, as the paper's. `gain` is what the primary score rose by. The columns with `_N` have one entry per
    response, mini-batch 0 included: log s less its mini-batch index's mean, the expected log s there (the negative
    k3 estimate of KL), the sign of A, and the response's share of all tokens.
    """

    length: float
    spread_tokens: float
    spread: float
    drift: float
    clipped_grpo: float
    clipped_gspo: float
    grad_norm: float
    reward_first: float
    gain: float | None
    scales: Mapping[str, Floats]
    """Per rule the clipped share of all tokens at its range x BAND_SCALES."""
    residual_N: Floats
    expected_N: Floats
    adv_N: Floats
    share_N: Floats

    @property
    def averaging(self) -> float:
        """What averaging over a response leaves of the token log-ratios' spread; 1/sqrt(L) if they were independent."""
        return self.spread / self.spread_tokens

    def clips(self, band: tuple[float, float], moved: float = 1.0, shrunk: float = 1.0) -> tuple[float, float]:
        """The clipped shares (A < 0, A > 0) of all tokens under a sequence rule's range, had the policy moved `moved`
        times as far, for which the log-ratios grow in proportion and their drift by its square, and were the spread
        around it `shrunk`."""
        log_s_N = moved**2 * self.expected_N + moved * shrunk * self.residual_N
        low_N, high_N = binds(np.exp(log_s_N), self.adv_N, np.ones_like(self.adv_N, dtype=bool), *band)
        return float(self.share_N[low_N].sum()), float(self.share_N[high_N].sum())


def measured(found: Source, arm: str, seed: int, run: str) -> Measured | None:
    """One run; None where it recorded no response's own numbers on mini-batches >= 1."""
    names = ["response_detail", "response_tokens", "stale_k3"]
    frame = found.evidence.updates(found.study, names, run=run)
    rows = frame[(frame["step"] >= first_settled(found)[run]) & frame["response_detail"].notna()]
    parts = [one for row in rows.to_dict("records") if (one := _of_update(row)) is not None]
    if not any(index_B.any() for index_B, *_ in parts):
        return None
    index_N, length_N, total_N, square_N, adv_N, expected_N = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    mean_N = total_N / length_N
    later_N = index_N > 0
    drifts = {index: float(mean_N[index_N == index].mean()) for index in np.unique(index_N)}
    residual_N = mean_N - np.vectorize(drifts.__getitem__, otypes=[float])(index_N)
    tokens = length_N[later_N].sum()
    mean = total_N[later_N].sum() / tokens
    shares = [read(found, Reading(f"would_clip_fraction_tokens_{rule}"))[run].value for rule in ("grpo", "gspo")]
    ended = outcomes(found, found.declaration.primary or "")
    norm = read(found, Reading("grad_norm"))[run].value
    rewards = reward_curves(found).get((arm, seed))
    return Measured(
        length=float(length_N.mean()),
        spread_tokens=math.sqrt(square_N[later_N].sum() / tokens - mean**2),
        spread=float(residual_N[later_N].std()),
        drift=float(-expected_N[later_N].mean()),
        clipped_grpo=math.nan if shares[0] is None else shares[0],
        clipped_gspo=math.nan if shares[1] is None else shares[1],
        grad_norm=math.nan if norm is None else norm,
        reward_first=math.nan if rewards is None else float(rewards[1][0]),
        gain=next((one.gain for one in ended if (one.arm, one.seed) == (arm, seed)), None),
        scales=band_shares(found, run),
        residual_N=residual_N,
        expected_N=expected_N,
        adv_N=adv_N,
        share_N=length_N / rows["response_tokens"].sum(),
    )


def _of_update(row: Mapping[Any, Any]) -> tuple[Floats, ...] | None:
    """Mini-batch index, length, sum of l_t and of its square, A and expected log s of an update's responses."""
    one = json.loads(row["response_detail"])
    columns = ("length", "sum_log_ratio", "sum_square_log_ratio", "advantage")
    length_B, total_B, square_B, adv_B = (np.asarray(one[name], dtype=np.float64) for name in columns)
    if not len(length_B) or not (np.isfinite(total_B).all() and math.isfinite(row["stale_k3"])):
        return None
    like_B = np.ones_like(length_B)
    return row["minibatch"] * like_B, length_B, total_B, square_B, adv_B, -row["stale_k3"] * like_B
