"""C04 to C06: how much the two rules clip. Symbols as in records/update.py; cf = clip_fraction_tokens."""

import math
from collections.abc import Mapping

import numpy as np

from gspo_lab.claims import needs
from gspo_lab.claims.claim import Roles
from gspo_lab.claims.estimates import Estimate, Estimates, Region, Side, Untestable, exact
from gspo_lab.claims.recorded import Recorded, settled
from gspo_lab.claims.statistics import number
from gspo_lab.findings.clipped import SATURATED
from gspo_lab.readings.named import CLIP_EVERYWHERE
from gspo_lab.readings.responses import band_counts
from gspo_lab.records import BAND_SCALES
from gspo_lab.stats import paired_t
from gspo_lab.stats.arrays import Floats

PAIR = ("grpo", "gspo")
CLIP = "clip_fraction_tokens"
LEVEL = 10.0
"""The gap between the rules: one order of magnitude at least."""


def clip_gap(recorded: Recorded, roles: Roles) -> Estimates:
    """cf of each arm's own rule and range, token-weighted over all settled updates, GSPO / GRPO."""
    ratios, floors = {}, []
    for seed in recorded.seeds(roles.values()):
        shares = (recorded.read(CLIP_EVERYWHERE, roles[role], seed) for role in PAIR)
        (grpo, tokens), (gspo, own) = ((round(share.total), share.weight) for share in shares)
        if grpo == gspo == 0:
            raise Untestable(f"neither arm clipped a token at seed {seed}")
        floors += [] if grpo else [str(seed)]
        ratios[seed] = (max(gspo, 1) / own) / (max(grpo, 1) / tokens)
    notes = [
        f"{said} (above {SATURATED}), so its cf is a ceiling and the ratio measures the other arm's"
        for role in PAIR
        if (said := needs.saturation(recorded, roles[role]))
    ]
    if floors:
        notes.append(
            f"{roles['grpo']} clipped no token at seed {', '.join(floors)}: one token is assumed, so the "
            "ratio is a lower bound there"
        )
    gap = recorded.over_seeds("cf GSPO / cf GRPO", ratios, Region(above=LEVEL), () if floors else None, ratio=True)
    magnitude = recorded.over_seeds("its magnitude", ratios, Region(30, 1000), ratio=True)
    return Estimates((gap,), () if floors else (magnitude,), tuple(notes))


def gap_on_the_grid(recorded: Recorded, roles: Roles) -> Estimates:
    """Both ranges x {1/4 .. 4}: in how many of the 25 cells do the seeds' intervals put the ratio above 10?

    Counterfactual on the same batches: both arms' updates together. A cell without clips counts one token, so that it
    can be placed on one side; a cell in which neither rule would clip lies on neither.
    """
    pairs = recorded.seeds(roles.values())
    log_SGH = np.full((len(pairs), len(BAND_SCALES), len(BAND_SCALES)), np.nan)
    for place, seed in enumerate(pairs):
        counts = [_band_counts(recorded, roles[role], seed) for role in PAIR]
        grpo, gspo = (counts[0][rule] + counts[1][rule] for rule in PAIR)
        for g, high in enumerate(gspo):
            for h, low in enumerate(grpo):
                if high or low:
                    log_SGH[place, g, h] = math.log10(max(high, 1) / max(low, 1))
    above: list[float] = []
    below: list[float] = []
    for cell in log_SGH.reshape(len(pairs), -1).T:
        if np.isnan(cell).any():
            continue
        found = paired_t(cell - 1.0, recorded.verdict.alpha, scale=float(np.abs(cell).max()))
        # Cells of equal counts in every seed have no interval: they are on their side without a doubt or not at all.
        certain = 0.0 if found.estimate else 1.0
        (above if cell.mean() > 1 else below).append(certain if found.p is None else found.p)
    cells = len(BAND_SCALES) ** 2
    most, half = math.ceil(0.8 * cells), math.floor(cells / 2)
    side: Side | None = None
    p: float | None = None
    if len(above) >= most:
        side, p = "supported", sorted(above)[most - 1]
    elif len(below) > half:
        side, p = "contradicted", sorted(below)[half]
    alpha = recorded.verdict.alpha
    sure, surely_below = (sum(p < alpha for p in side) for side in (above, below))
    part = Estimate(
        "share of the 25 cells with cf GSPO / cf GRPO > 10",
        "supported if 0.8 of the cells or more, contradicted if below 0.5",
        len(pairs),
        len(above) / cells,
        p=p,
        side=side,
        alpha=alpha,
        note=f"{sure} cells have their whole interval above {LEVEL:g}, {surely_below} below it",
    )
    return Estimates((part,))


def _band_counts(recorded: Recorded, arm: str, seed: int) -> Mapping[str, Floats]:
    counts, _ = band_counts(recorded.found, recorded.found.finished[arm, seed])
    if not counts:
        raise Untestable(f"band_counts was not recorded in {arm}, seed {seed}")
    return counts


def grows_with_minibatch(recorded: Recorded, roles: Roles) -> Estimates:
    """Spearman's rank correlation of cf and minibatch over a run's settled updates with minibatch >= 1."""
    pairs = recorded.seeds(roles.values())
    at_zero: dict[str, float] = {}
    parts, notes = [], []
    for arm in (roles[role] for role in PAIR):
        found = {}
        for seed in pairs:
            at_zero[f"{arm}/s{seed}"] = number(recorded, arm, seed, "largest with minibatch = 0", CLIP)
            rows = settled(recorded, arm, seed, CLIP)
            if rows[CLIP].nunique() > 1:
                ranks = rows[[CLIP, "minibatch"]].rank()
                found[seed] = float(np.corrcoef(ranks[CLIP], ranks["minibatch"])[0, 1])
        if len(found) == len(pairs):
            parts.append(recorded.over_seeds(f"{arm}: rank correlation", found, Region(above=0)))
        else:
            notes.append(f"{arm} clips the same share at every update of some seed: no correlation there")
    if not parts:
        raise Untestable("; ".join(notes))
    return Estimates((exact("cf on mini-batch 0", at_zero, 0.0, what="exactly 0"), *parts), notes=tuple(notes))
