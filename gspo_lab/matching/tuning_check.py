"""The results of the trials of `[tune]`, round by round, and whether every arm has the settings that it chose."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gspo_lab.errors import LabError
from gspo_lab.matching.run_pair import DECLARED, UNKNOWN, Check, Fault, differs
from gspo_lab.matching.settings_diff import format_value
from gspo_lab.states import State
from gspo_lab.store.answers import read_scores
from gspo_lab.store.records import read_series, read_updates
from gspo_lab.study import Declaration, flat
from gspo_lab.study.tune import REWARD, Tune, budget
from gspo_lab.study.tuning_trials import label, trial

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

TUNING = "tuning"


@dataclass(frozen=True)
class CandidateResult:
    """A candidate in one round: its mean score over the trials' seeds, or None and the reason in `failure`."""

    score: float | None
    failure: str = ""


@dataclass(frozen=True)
class TuningRound:
    """A round: per arm the results of its candidates by index, and the indices that were promoted."""

    steps: int
    results: dict[str, dict[int, CandidateResult]]
    promoted: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Trials:
    """The decided rounds. `open`: the runs that the next round waits for, with the step to train them to.

    `dead`: arms whose candidates all failed. `chosen` is set once no run is open and no arm is dead.
    """

    rounds: tuple[TuningRound, ...] = ()
    open: tuple[tuple[str, int], ...] = ()
    dead: tuple[str, ...] = ()
    chosen: Mapping[str, int] | None = None


def read_trials(evidence: "Evidence", name: str, tune: Tune, again: Collection[str] = ()) -> Trials:
    """The state of the trials `name`, from their records alone. A failed trial is dead, except those in `again`."""
    records = _TrialRecords(evidence, name, tune, again)
    candidates = {arm: tuple(range(tune.number)) for arm in tune.candidates}
    rounds: list[TuningRound] = []
    for plan in tune.rounds:
        waiting: list[str] = []
        results: dict[str, dict[int, CandidateResult]] = {}
        for arm, indices in candidates.items():
            for index in indices if len(indices) > 1 else ():
                result = records.result(arm, index, plan.steps)
                if isinstance(result, CandidateResult):
                    results.setdefault(arm, {})[index] = result
                else:
                    waiting += result
        if waiting:
            return Trials(tuple(rounds), tuple((run, plan.steps) for run in waiting))
        promoted = {
            arm: tune.best(arm, {index: result.score for index, result in by_index.items()}, plan.keep)
            for arm, by_index in results.items()
        }
        rounds.append(TuningRound(plan.steps, results, promoted))
        candidates |= promoted
        if dead := tuple(arm for arm, indices in candidates.items() if not indices):
            return Trials(tuple(rounds), dead=dead)
    return Trials(tuple(rounds), chosen={arm: indices[0] for arm, indices in candidates.items()})


class _TrialRecords:
    """The records of trials, read once, for the result of a candidate after any number of steps."""

    def __init__(self, evidence: "Evidence", name: str, tune: Tune, again: Collection[str]) -> None:
        self._name, self._tune, self._again = name, tune, again
        self._states: dict[str, tuple[str, str | None]] = {}
        self._rewards: dict[str, list[tuple[float, float]]] = {}
        self._reached: dict[str, int] = {}
        self._scores: dict[tuple[str, int], float] = {}
        self._nonfinite: dict[str, list[int]] = {}
        if name in evidence.studies():
            runs = evidence.runs(name)
            self._states = {row["run_id"]: (row["state"], row["message"]) for row in runs.to_dict("records")}
            rewards = read_series(evidence, name, "steps", "reward_mean").items()
            self._rewards = {run: list(zip(at.tolist(), values.tolist(), strict=True)) for run, (at, values) in rewards}
            # Count prompts, not rewards: a step that completed no group has no reward.
            steps = read_series(evidence, name, "steps", "prompts")
            self._reached = {run: int(at[-1]) for run, (at, _) in steps.items() if len(at)}
            bad = read_updates(evidence, name, [], nonfinite=1)
            self._nonfinite = {str(run): [int(step) for step in at] for run, at in bad.groupby("run_id")["step"]}
            scores = read_scores(evidence, name)
            scores = scores[scores["bench"] == tune.metric]
            self._scores = {
                (str(row["run_id"]), int(row["step"])): float(row["score"]) for row in scores.to_dict("records")
            }

    def result(self, arm: str, index: int, steps: int) -> CandidateResult | tuple[str, ...]:
        """The candidate's result after `steps`, or the ids of the runs that have made fewer steps."""
        from gspo_lab.readings import average

        scores, failures, waiting = [], [], []
        for seed in self._tune.seeds:
            run = f"{self._name}/{trial(arm, self._tune.candidates[arm][index])}/s{seed}"
            score = self._score(run, steps)
            if score is not None and (odd := self._collapse(run, steps) or ("" if score == score else "not graded")):
                failures.append(f"seed {seed} {odd}")
            elif score is not None:
                scores.append(score)
            elif self._states.get(run, ("", ""))[0] == State.FAILED and run not in self._again:
                failures.append(f"seed {seed} failed: {self._states[run][1]}")
            else:
                waiting.append(run)
        if waiting:
            return tuple(waiting)
        return CandidateResult(None, "; ".join(failures)) if failures else CandidateResult(average(scores))

    def _score(self, run: str, steps: int) -> float | None:
        """The metric after `steps`; a reward is averaged over their last fifth.

        None if the run has made fewer steps, NaN if it was not graded.
        """
        if self._tune.metric != REWARD:
            return self._scores.get((run, steps))
        if self._reached.get(run, -1) < steps - 1:
            return None
        from gspo_lab.stats.curve_summaries import carry_forward, last_fifth  # here, because it imports numpy

        early = [point for point in self._rewards.get(run, []) if point[0] < steps]
        _, curve = carry_forward([at for at, _ in early], [reward for _, reward in early], steps - 1)
        return last_fifth(curve) if len(curve) else math.nan

    def _collapse(self, run: str, steps: int) -> str:
        """How the run collapsed in its first `steps`, by the report's rule; empty if it did not."""
        from gspo_lab.stats.collapse import stability  # here, because it imports numpy

        early = [point for point in self._rewards.get(run, []) if point[0] < steps]
        fatal = [step for step in self._nonfinite.get(run, []) if step < steps]
        result = stability([at for at, _ in early], [reward for _, reward in early], steps, nonfinite_steps=fatal)
        return "" if result.collapse is None else f"collapsed at step {result.collapse} ({result.cause})"


def tuning_check(evidence: "Evidence", declared: Declaration) -> Check | None:
    """Whether every arm has the settings that it chose, on equally many trials and separate seeds.

    None for a study without trials. The order of trials and study is proven by digests, not by clocks: the lock holds
    the digests of the trials' journals, and every run of the study names the lock. `gspo-lab certify` reads those
    journals again.
    """
    tune = declared.tune
    if tune is None or declared.trials_of is not None:
        return None
    if tune.trials is None:
        return Check(TUNING, UNKNOWN, "the arms have not chosen yet")
    faults = list(_choice_faults(declared, tune))
    stored = tune.trials in evidence.studies()
    if stored:
        faults += _trial_faults(evidence, tune, tune.trials)
    if faults:
        return differs(TUNING, faults)
    detail = f"{budget(tune)}: {choices_text(tune)}"
    if not stored:
        return Check(TUNING, UNKNOWN, f"{detail}; the trials, {tune.trials}, are not in this database")
    return Check(TUNING, DECLARED, f"{detail}; locked with their trials' digests before the study's first step")


def choices_text(tune: Tune) -> str:
    """The settings that every arm chose, as text."""
    return "; ".join(
        f"{arm} {', '.join(f'{key} = {format_value(value)}' for key, value in tune.values(arm).items())}"
        for arm in tune.candidates
    )


def _choice_faults(declared: Declaration, tune: Tune) -> Iterator[Fault]:
    """Faults that the declaration shows."""
    if both := sorted(set(tune.seeds) & set(declared.seeds)):
        yield "seeds", f"the arms chose on seeds of the study ({', '.join(map(str, both))})"
    if len({len(candidates) for candidates in tune.candidates.values()}) > 1:
        yield "budget", "the arms had unequally many candidates to choose from"
    for name, arm in declared.arms.items():
        settings = flat(arm.resolved)
        chosen = tune.values(name) if name in tune.chosen else None
        if chosen is None or any(settings.get(key) != value for key, value in chosen.items()):
            yield name, f"{name} was not given what it chose"


def _trial_faults(evidence: "Evidence", tune: Tune, name: str) -> Iterator[Fault]:
    """Faults that the trials' records show."""
    try:
        trials = Declaration.parse(evidence.study(name), name)
    except LabError as error:
        yield name, str(error)
        return
    if trials.digest != trials.content_digest:
        yield name, f"{name} was edited after it was locked"
    if trials.tune is None or trials.tune != tune.model_copy(update={"chosen": {}, "journals": {}}):
        yield name, f"{name} declares other candidates or another budget"
        return
    chosen = read_trials(evidence, name, tune).chosen or {}
    for arm in tune.candidates:
        index = chosen.get(arm)
        if index != tune.chosen.get(arm):
            choice = "none" if index is None else label(tune.candidates[arm][index])
            yield arm, f"by its trials' records {arm} would choose {choice}"
