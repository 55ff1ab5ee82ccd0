"""The claim of a `[[claim]]` table that names a metric."""

from gspo_lab.analysis.claims.claim import Claim
from gspo_lab.analysis.claims.data import ClaimData
from gspo_lab.analysis.claims.estimates import Estimates, Region
from gspo_lab.analysis.claims.expectations import LAST_EVALUATIONS, mean_over_seeds, statistic
from gspo_lab.analysis.claims.preconditions import seeds
from gspo_lab.recording.records import StepRecord, UpdateRecord
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.study import ClaimTable
from gspo_lab.study.claim_validation import IN_PLACE_ROLES

FIGURES = {CLIP_FRACTION: "m-clip", "reward_mean": "m-reward"}
"""Where a metric's figure is not named after it."""


def from_table(table: ClaimTable) -> Claim:
    """The claim of a table that has passed the study's own checks."""
    metric = table.metric or ""
    name = table.statistic or ""
    ratio = table.comparison == "ratio"
    low, high = table.inside or (table.above, table.below)
    expected = Region(low, high)

    def evaluate(data: ClaimData, subject: str, baseline: str) -> Estimates:
        title = f"{metric}, {name}: {subject} {'/' if ratio else '-'} {baseline}"
        primary = metric == data.source.declaration.primary
        estimate = mean_over_seeds(
            data,
            title,
            statistic(name, metric),
            (subject, baseline),
            expected,
            ratio=ratio,
            final_scores=primary and name == LAST_EVALUATIONS,
        )
        return Estimates((estimate,))

    recorded = {*UpdateRecord.__dataclass_fields__, *StepRecord.__dataclass_fields__}
    figure = FIGURES.get(metric, f"m-{metric.replace('_', '-')}")
    return Claim(
        id=table.name,
        grade="C",
        statement=f"{metric}, {name}: the {table.comparison} of the two arms lies {expected}.",
        source=table.source or "this study",
        published="the study's own expectation",
        criterion=f"{expected}; contradicted {' or '.join(map(str, expected.outside))}",
        evaluate=evaluate,
        roles=IN_PLACE_ROLES,
        needs=(seeds(3),),
        figure=figure if metric in recorded else "scores",
    )
