"""The pairs one by one, and every declared number as a difference with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gspo_lab.claims.outcomes import outcomes
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.frames import arms, mean, value
from gspo_lab.report.markup import Html, h, markdown_table, number, signed, table
from gspo_lab.report.section import Section
from gspo_lab.stats import holm, paired_t
from gspo_lab.stats.paired import PairedT
from gspo_lab.stats.series import last_fifth, normalised_auc
from gspo_lab.study import baseline_of, primary_of

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

HEAD = ("number", "arm", "difference", "interval", "pairs", "p", "p, adjusted")


@dataclass(frozen=True)
class Scalar:
    """One number per run: (arm, seed) -> value. `scored` ones are benchmark scores, the others training rewards."""

    name: str
    values: dict[tuple[str, int], float]
    scored: bool
    primary: bool = False


@dataclass(frozen=True)
class Compared:
    """A scalar's difference between an arm and the baseline over the seeds that both have."""

    scalar: Scalar
    arm: str
    paired: PairedT


def pairs(evidence: "Evidence", study: str) -> Section | None:
    """A slope per seed for the primary score, and a forest of all scalars; None without two arms."""
    content = evidence.study(study)
    order = arms(evidence, study)
    baseline = baseline_of(content)
    treatments = [arm for arm in order if arm != baseline]
    if not treatments or content.get("sweep"):
        return None
    found = scalars(evidence, study)
    compared = [
        Compared(scalar, arm, _difference(scalar, baseline, arm, content["seeds"], content["verdict"]["alpha"]))
        for scalar in found
        for arm in treatments
    ]
    compared = [one for one in compared if one.paired.n]
    if not compared:
        return None
    decided = next((scalar for scalar in found if scalar.primary), None)
    charts = [] if decided is None else [_slope(decided, baseline, arm, content, order) for arm in treatments]
    charts = [chart for chart in charts if chart.values()]
    margin = content["verdict"]["margin"]
    forests = [
        _forest("m-forest-scores", "Scores", [one for one in compared if one.scalar.scored], baseline, order, margin),
        _forest("m-forest-reward", "Rewards", [one for one in compared if not one.scalar.scored], baseline, order),
    ]
    adjusted = _adjusted(compared)
    rows = [_row(one, p) for one, p in zip(compared, adjusted, strict=True)]
    caption = (
        f"Differences to {baseline}, paired by seed. Only the primary score carries the verdict; p of the others is "
        "adjusted over all of them by Holm's rule"
    )
    data = {"scalars": [_data(one, p) for one, p in zip(compared, adjusted, strict=True)]}
    body: tuple[Html | Chart, ...] = (
        h("p", "One line per seed, from the baseline's score to the arm's: the pairs that the verdict rests on."),
        *charts,
        *(forest for forest in forests if forest.values()),
        table(HEAD, rows, caption=caption),
    )
    return Section("pairs", "Pairs and differences", body, data, f"{caption}.\n\n{markdown_table(HEAD, rows)}")


def scalars(evidence: "Evidence", study: str) -> list[Scalar]:
    """The primary score, the other benchmarks' scores, and the reward's area and tail, by fixed rules."""
    content = evidence.study(study)
    first = primary_of(content)
    benches = sorted(set(evidence.scores(study)["bench"]), key=lambda bench: (bench != first, bench))
    out = [
        Scalar(
            f"{bench}{', primary' if bench == first else ''}",
            {(run.arm, run.seed): run.final for run in outcomes(evidence, study, bench) if run.final is not None},
            scored=True,
            primary=bench == first,
        )
        for bench in benches
    ]
    return [*out, *_rewards(evidence, study)]


def _rewards(evidence: "Evidence", study: str) -> list[Scalar]:
    """From every step. Finished runs alone: what ended early has no end to average."""
    runs = evidence.runs(study)
    finished = set(runs["run_id"][runs["state"] == "finished"])
    area: dict[tuple[str, int], float] = {}
    tail: dict[tuple[str, int], float] = {}
    rewards = evidence.series(study, "steps", "reward_mean")
    for run in evidence.chosen(study):
        steps, reward = rewards[run.id]
        if run.id in finished and len(steps) > 1 and np.isfinite(reward).all():
            area[run.arm, run.seed] = normalised_auc(steps, reward)
            tail[run.arm, run.seed] = last_fifth(reward)
    return [
        Scalar("training reward, area under its curve", area, scored=False),
        Scalar("training reward, last fifth of the steps", tail, scored=False),
    ]


def _difference(scalar: Scalar, baseline: str, arm: str, seeds: Sequence[int], alpha: float) -> PairedT:
    both = [seed for seed in seeds if (baseline, seed) in scalar.values and (arm, seed) in scalar.values]
    first = [scalar.values[baseline, seed] for seed in both]
    second = [scalar.values[arm, seed] for seed in both]
    scale = max((abs(v) for v in [*first, *second]), default=0.0)
    return paired_t([b - a for a, b in zip(first, second, strict=True)], alpha, scale=scale)


def _slope(scalar: Scalar, baseline: str, arm: str, content: dict[str, Any], order: Sequence[str]) -> Chart:
    colour = list(order).index(arm)
    both = [s for s in content["seeds"] if (baseline, s) in scalar.values and (arm, s) in scalar.values]
    ends = {seed: (scalar.values[baseline, seed], scalar.values[arm, seed]) for seed in both}
    lines = [Series(arm, colour, (baseline, arm), ends[seed], seed=seed) for seed in both]
    if len(both) > 1:
        middle = tuple(mean([ends[seed][side] for seed in both]) for side in (0, 1))
        lines.append(Series(arm, colour, (baseline, arm), middle))
    return Chart(
        f"m-pairs-{arm}",
        f"{baseline} → {arm}",
        "arm",
        "final score",
        tuple(lines),
        kind="slopes",
        small=True,
        span=tuple(scalar.values.values()),
    )


def _forest(
    id: str,
    title: str,
    own: Sequence[Compared],
    baseline: str,
    order: Sequence[str],
    margin: float | None = None,
) -> Chart:
    series = []
    for arm in dict.fromkeys(one.arm for one in own):
        rows = [one for one in own if one.arm == arm]
        names = tuple(one.scalar.name for one in rows)
        paired = [one.paired for one in rows]
        series.append(
            Series(
                arm,
                list(order).index(arm),
                names,
                tuple(value(one.estimate) for one in paired),
                low=tuple(value(one.low) for one in paired),
                high=tuple(value(one.high) for one in paired),
            )
        )
    shaded = "" if margin is None else f" Shaded: the margin of equivalence, ±{margin:g}."
    return Chart(
        id,
        f"{title}, difference to {baseline}",
        "number",
        "difference",
        tuple(series),
        kind="forest",
        note=f"Right of zero: higher than {baseline}. Lines: intervals over seeds.{shaded}",
        margin=margin,
    )


def _adjusted(compared: Sequence[Compared]) -> list[float | None]:
    """Holm over the secondaries; the primary stands by itself."""
    return holm([None if one.scalar.primary else one.paired.p for one in compared])


def _row(one: Compared, adjusted: float | None) -> list[str]:
    paired = one.paired
    interval = paired.reason or f"{signed(paired.low)} to {signed(paired.high)}"
    shown = "decides" if one.scalar.primary else number(adjusted, 2) if adjusted is not None else "–"
    p = number(paired.p, 2) if paired.p is not None else "–"
    return [one.scalar.name, one.arm, signed(paired.estimate), interval, str(paired.n), p, shown]


def _data(one: Compared, adjusted: float | None) -> dict[str, Any]:
    paired = one.paired
    return {
        "number": one.scalar.name,
        "arm": one.arm,
        "primary": one.scalar.primary,
        "estimate": paired.estimate,
        "low": paired.low,
        "high": paired.high,
        "p": paired.p,
        "p_adjusted": adjusted,
        "pairs": paired.n,
        "reason": paired.reason,
    }
