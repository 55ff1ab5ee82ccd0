"""From which step on a run's updates have the full learning rate: what clips, moves and spreads is read from there."""

from collections.abc import Mapping

from gspo_lab.readings.source import Source, once

FULL = 1 - 1e-9
"""Of the declared learning rate: from here on two that were computed in another order are equal."""
RISING = "SELECT COUNT(learning_rate), MAX(step) FILTER (WHERE learning_rate < ?) FROM updates WHERE run_id = ?"


@once
def first_settled(of: Source) -> Mapping[str, int]:
    """Per run id the first step from which every recorded update has the full learning rate.

    Where steps make equally many updates the schedule says it. Where their groups vary they make fewer, or none, and
    the rate rises by updates made: there the run's record says it, and the schedule for runs that recorded no rate.
    An imported run whose warm-up is not known is read from its first row.
    """
    declared, out = of.declaration, {}
    for run in of.evidence.chosen(of.study):
        if run.arm not in declared.arms:
            continue
        settings = declared.arms[run.arm].settings
        out[run.id] = settings.update.first_settled if declared.told(run.arm, "update.warmup_updates") else 0
        if settings.rollout.varying and declared.told(run.arm, "update.learning_rate"):
            ((known, last),) = of.evidence.rows(RISING, (FULL * settings.update.learning_rate, run.id))
            if known:
                out[run.id] = 0 if last is None else last + 1
    return out
