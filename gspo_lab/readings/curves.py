"""What became of runs as they trained: rewards, signals that left their range, updates and grades that failed."""

from collections.abc import Mapping

import numpy as np

from gspo_lab.readings.read import SIGNALS, by_step, hold, signal
from gspo_lab.readings.reading import Reading, Steps, Window
from gspo_lab.readings.runs import FINISHED, first_settled, runs
from gspo_lab.readings.source import Source, once
from gspo_lab.stats.array_checks import Floats
from gspo_lab.stats.collapse import Onset, entropy_collapse, signal_onset

REWARD = Reading("reward_mean", Window(Steps.ALL))


@once
def nonfinite_steps(source: Source) -> dict[str, list[int]]:
    """Per run id with any the step of each update that was not finite: skipped, or of a dead model."""
    query = "SELECT step FROM updates WHERE run_id = ? AND nonfinite = 1 ORDER BY step, minibatch"
    steps = {run.id: [step for (step,) in source.evidence.rows(query, (run.id,))] for run in runs(source)}
    return {run: bad for run, bad in steps.items() if bad}


@once
def measured_rewards(source: Source) -> dict[str, tuple[Floats, Floats]]:
    """Per run id the steps at which its mean training reward was measured, and the reward."""
    known = {run: (curve, ~np.isnan(curve.values)) for run, curve in by_step(source, REWARD).items()}
    return {run: (curve.steps[finite], curve.values[finite]) for run, (curve, finite) in known.items()}


@once
def reward_curves(source: Source) -> dict[tuple[str, int], tuple[Floats, Floats]]:
    """(arm, seed) -> steps and mean training reward of every finished run, as `readings.read.hold` has them."""
    curves = {run: hold(run, by_step(source, REWARD)[run.id]) for run in runs(source, FINISHED)}
    return {(run.arm, run.seed): curve for run, curve in curves.items() if len(curve[0])}


@once
def grader_errors(source: Source) -> dict[str, float]:
    """Per run id the share of its training responses on which the grader failed, those of dropped groups among
    them; they counted as reward 0. Runs that have not counted them are left out."""
    query = (
        "SELECT TOTAL(grader_errors), SUM(responses), TOTAL(dropped_groups) FROM steps "
        "WHERE run_id = ? AND grader_errors IS NOT NULL GROUP BY run_id"
    )
    out: dict[str, float] = {}
    for run in runs(source):
        for failed, trained, dropped in source.evidence.rows(query, (run.id,)):
            if dropped and not source.declaration.is_known(run.arm, "rollout.group_size"):
                continue
            graded = trained + dropped * source.declaration.arms[run.arm].settings.rollout.group_size
            out |= {run.id: failed / graded} if graded else {}
    return out


@once
def onsets(source: Source, run: str) -> Mapping[str, Onset]:
    """Per recorded entry of SIGNALS when it left its range in a run, step by step after the warm-up."""
    out = {}
    for metric in SIGNALS:
        curve = by_step(source, signal(metric), run)[run]
        known = ~np.isnan(curve.values)
        if known.any():
            out[metric] = signal_onset(curve.steps[known], curve.values[known], first_settled(source)[run])
    return out


@once
def entropy_collapses(of: Source) -> Mapping[str, Onset]:
    """Per run id when the entropy of its training tokens collapsed; runs that recorded none are left out. An imported
    run is as long as its log."""
    curves = by_step(of, signal("entropy"))
    known = {run.id: (curves[run.id], ~np.isnan(curves[run.id].values)) for run in runs(of)}
    return {
        run.id: entropy_collapse(
            curve.steps[there], curve.values[there], run.steps_planned or int(curve.steps.max()) + 1
        )
        for run, (curve, there) in zip(runs(of), known.values(), strict=True)
        if there.any()
    }
