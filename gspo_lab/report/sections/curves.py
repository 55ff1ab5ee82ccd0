"""Training reward and benchmark scores as training goes."""

from typing import TYPE_CHECKING

from gspo_lab.report.chart import Chart
from gspo_lab.report.frames import MEAN, arms, curve, groups, over_seeds
from gspo_lab.report.section import Section

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


def curves(evidence: "Evidence", study: str) -> Section | None:
    """The reward of every seed, then one chart per benchmark."""
    reward = curve(
        evidence,
        study,
        "steps",
        "reward_mean",
        id="m-reward",
        title="Training reward",
        unit="mean reward",
        note=MEAN,
    )
    scores = evidence.scores(study)
    charts = [
        Chart(
            f"m-score-{bench}",
            f"Benchmark {bench}",
            "step",
            "score",
            over_seeds(own, arms(evidence, study), "step", "score"),
            note=f"{_asked(own['problems'].max(), own['answers'].max())} {MEAN}",
        )
        for bench, own in groups(scores, "bench")
    ]
    return Section("curves", "Learning curves", (reward, *charts))


def _asked(problems: int, answers: int) -> str:
    each = answers / problems
    return f"{problems} held-out problems, {each:g} answer{'' if each == 1 else 's'} each."
