"""What a study's runs recorded, as whoever judges them asks for it: each answer once."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gspo_lab.readings import FINISHED, Reading, Source, Steps, Window, by_step, deciding, once, runs
from gspo_lab.readings.read import SIGNALS, hold, signal
from gspo_lab.readings.settled import first_settled
from gspo_lab.stats.arrays import Floats
from gspo_lab.stats.collapse import Onset, signal_onset
from gspo_lab.stats.verdict import Reason
from gspo_lab.store import answers
from gspo_lab.store.answers import read_scores

if TYPE_CHECKING:
    from pandas import DataFrame, Series

REWARD = Reading("reward_mean", Window(Steps.ALL))


@once
def finished_runs(of: Source) -> dict[tuple[str, int], str]:
    """(arm, seed) -> run id of every finished run."""
    return {(run.arm, run.seed): run.id for run in runs(of, FINISHED)}


@once
def deciding_runs(of: Source) -> dict[tuple[str, int], str]:
    """The same of the seeds that decide: all that a verdict is read from."""
    return {(run.arm, run.seed): run.id for run in runs(of, deciding(of.declaration))}


def not_counted(of: Source) -> tuple[Reason, ...]:
    """The finished runs of seeds that do not decide; empty where there are none."""
    others = [seed for _, seed in finished_runs(of).keys() - deciding_runs(of).keys()]
    return (Reason("not counted", {"seeds": tuple(sorted(set(others))), "runs": len(others)}),) * bool(others)


def finished_seeds(of: Source, arms: Iterable[str]) -> list[int]:
    """The seeds on which all of these arms have finished."""
    return sorted({run.seed for run in runs(of, FINISHED, list(arms))})


@once
def scores(of: Source) -> "DataFrame":
    """`store.answers.scores` of what the runs recorded as they trained."""
    return read_scores(of.evidence, of.study)


@once
def benches(of: Source) -> list[str]:
    """The benchmarks that any run was asked, the primary one first."""
    primary = of.declaration.primary
    return sorted(set(scores(of)["bench"]), key=lambda bench: (bench != primary, bench))


@once
def tallies(of: Source, bench: str) -> "DataFrame":
    """`store.answers.tallies`: how many answers to each problem were graded and right, run by run."""
    return answers.tallies(of.evidence, of.study, bench)


def counted_wrong(of: Source, bench: str, run: str) -> "Series[float]":
    """A run's score on a benchmark by step, with answers that could not be graded counted as wrong."""
    counts = tallies(of, bench)
    counts = counts[counts["run_id"] == run]
    return (counts["correct"] / counts["answers"]).groupby(counts["step"]).mean()


@once
def nonfinite_steps(of: Source) -> dict[str, list[int]]:
    """Per run id with any the step of each update that was not finite: skipped, or of a dead model."""
    bad = of.evidence.updates(of.study, [], nonfinite=1)
    return {str(run): [int(step) for step in rows] for run, rows in bad.groupby("run_id")["step"]}


@once
def measured_rewards(of: Source) -> dict[str, tuple[Floats, Floats]]:
    """Per run id the steps at which its mean training reward was measured, and the reward."""
    known = {run: (curve, ~np.isnan(curve.values)) for run, curve in by_step(of, REWARD).items()}
    return {run: (curve.steps[there], curve.values[there]) for run, (curve, there) in known.items()}


@once
def reward_curves(of: Source) -> dict[tuple[str, int], tuple[Floats, Floats]]:
    """(arm, seed) -> steps and mean training reward of every finished run, as `readings.read.hold` has them."""
    curves = {run: hold(run, by_step(of, REWARD)[run.id]) for run in runs(of, FINISHED)}
    return {(run.arm, run.seed): curve for run, curve in curves.items() if len(curve[0])}


@once
def grader_errors(of: Source) -> dict[str, float]:
    """Per run id the share of its training responses on which the grader failed, those of dropped groups among
    them; they counted as reward 0. Runs that have not counted them are left out."""
    query = (
        "SELECT TOTAL(grader_errors), SUM(responses), TOTAL(dropped_groups) FROM steps "
        "WHERE run_id = ? AND grader_errors IS NOT NULL GROUP BY run_id"
    )
    out: dict[str, float] = {}
    for run in runs(of):
        for failed, trained, dropped in of.evidence.rows(query, (run.id,)):
            if dropped and not of.declaration.told(run.arm, "rollout.group_size"):
                continue
            graded = trained + dropped * of.declaration.arms[run.arm].settings.rollout.group_size
            out |= {run.id: failed / graded} if graded else {}
    return out


@once
def onsets(of: Source, run: str) -> Mapping[str, Onset]:
    """Per recorded entry of SIGNALS when it left its range in a run, step by step after the warm-up."""
    out = {}
    for metric in SIGNALS:
        curve = by_step(of, signal(metric), run)[run]
        known = ~np.isnan(curve.values)
        if known.any():
            out[metric] = signal_onset(curve.steps[known], curve.values[known], first_settled(of)[run])
    return out


@once
def rule_arms(of: Source) -> tuple[str, str] | None:
    """GRPO's arm and GSPO's, those without routing replay first; None where one is lacking."""
    told = partial(of.declaration.told, key="objective.importance_sampling_level")
    arms = [arm for name, arm in of.declaration.arms.items() if told(name)]
    clipping = [arm for arm in arms if arm.settings.objective.policy_loss == "clip"]
    plain = sorted(clipping, key=lambda arm: arm.settings.routing_replay != "none")
    levels = {arm.settings.objective.importance_sampling_level: arm.name for arm in reversed(plain)}
    return (levels["token"], levels["sequence"]) if {"token", "sequence"} <= levels.keys() else None
