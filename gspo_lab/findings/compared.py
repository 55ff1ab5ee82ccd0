"""Every declared number of a run as a difference between arms, paired by seed; the primary score decides."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gspo_lab.stats import holm, paired_t
from gspo_lab.stats.paired import PairedT
from gspo_lab.stats.series import last_fifth, normalised_auc

if TYPE_CHECKING:
    from gspo_lab.findings.findings import Findings


@dataclass(frozen=True)
class Scalar:
    """One number per run: (arm, seed) -> value. `scored` ones are benchmark scores, the others training rewards."""

    name: str
    values: dict[tuple[str, int], float]
    scored: bool
    primary: bool = False


@dataclass(frozen=True)
class Compared:
    """A scalar's difference between an arm and the baseline over the verdict's seeds that both have.

    `p_adjusted` is Holm's over all scalars and arms but the primary score, which stands by itself (None).
    """

    scalar: Scalar
    arm: str
    paired: PairedT
    p_adjusted: float | None


def scalars(found: "Findings") -> list[Scalar]:
    """The primary score, the other benchmarks' scores, and the reward's area and tail, of finished runs."""
    primary = found.declaration.primary
    out = [
        Scalar(
            f"{bench}{', primary' if bench == primary else ''}",
            {(run.arm, run.seed): run.final for run in found.outcomes(bench) if run.final is not None},
            scored=True,
            primary=bench == primary,
        )
        for bench in found.benches
    ]
    rewards = {run: curve for run, curve in found.rewards.items() if len(curve[0]) > 1}
    own = any(run.imported for run in found.runs)
    area = {run: normalised_auc(*curve) for run, curve in rewards.items()}
    tail = {run: last_fifth(reward) for run, (_, reward) in rewards.items()}
    return [
        *out,
        Scalar("training reward, area under its curve", area, scored=False),
        Scalar(f"training reward, last fifth of {'each log' if own else 'the steps'}", tail, scored=False),
    ]


def compared(found: "Findings") -> list[Compared]:
    """Scalar by scalar, each arm against the baseline; those without a pair are left out."""
    pairs = [(scalar, arm, _difference(found, scalar, arm)) for scalar in found.scalars for arm in found.treatments]
    pairs = [one for one in pairs if one[2].n]
    adjusted = holm([None if scalar.primary else paired.p for scalar, _, paired in pairs])
    return [Compared(*one, p) for one, p in zip(pairs, adjusted, strict=True)]


def _difference(found: "Findings", scalar: Scalar, arm: str) -> PairedT:
    declared, baseline = found.declaration, found.declaration.baseline
    if scalar.primary and arm in found.decision.verdicts:
        return found.decision.verdicts[arm].paired
    both = [s for s in found.decision.seeds if (baseline, s) in scalar.values and (arm, s) in scalar.values]
    first = [scalar.values[baseline, seed] for seed in both]
    second = [scalar.values[arm, seed] for seed in both]
    scale = max((abs(v) for v in [*first, *second]), default=0.0)
    return paired_t([b - a for a, b in zip(first, second, strict=True)], declared.verdict.alpha, scale=scale)
