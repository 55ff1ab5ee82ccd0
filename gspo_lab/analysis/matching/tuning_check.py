"""The results of the trials of `[tune]`, round by round, and whether every arm has the settings
that it chose.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gspo_lab.analysis.matching.run_pair import Check, Fault, Match, differs, format_value
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalFloat, Strings
from gspo_lab.common.states import State
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.answers import score_rows
from gspo_lab.recording.store.records import read_series, read_updates
from gspo_lab.study import Declaration
from gspo_lab.study.tune import REWARD, Tune, budget, label, trial

TUNING = "tuning"


@dataclass(frozen=True)
class CandidateResult:
    """A candidate in one round: its mean score over the trials' seeds, or None and the reason in
    `failure`.
    """

    score: OptionalFloat
    failure: str = ""


@dataclass(frozen=True)
class TuningRound:
    """A round: per arm the results of its candidates by index, and the indices that were
    promoted.
    """

    steps: int
    results: dict[str, dict[int, CandidateResult]]
    promoted: dict[str, list[int]]


@dataclass(frozen=True)
class Trials:
    """The decided rounds. `open`: the runs that the next round waits for. `dead`: arms whose
    candidates all failed.

    `chosen` is set once no run is open and no arm is dead.
    """

    rounds: tuple[TuningRound, ...] = ()
    open: Strings = ()
    dead: Strings = ()
    chosen: Mapping[str, int] | None = None


def read_trials(evidence: Evidence, name: str, tune: Tune, again: Collection[str] = ()) -> Trials:
    """The state of the trials `name`, from their records alone.

    A failed trial is dead, except those in `again`.
    """
    result_of = _results(evidence, name, tune, again)
    remaining = {arm: list(range(tune.number)) for arm in tune.candidates}
    rounds: list[TuningRound] = []
    for plan in tune.rounds:
        results: dict[str, dict[int, CandidateResult]] = {}
        waiting: list[str] = []
        for arm, indices in remaining.items():
            for index in indices if len(indices) > 1 else ():
                runs = [
                    f"{name}/{trial(arm, tune.candidates[arm][index])}/s{seed}"
                    for seed in tune.seeds
                ]
                by_run = {run: result_of(run, plan.steps) for run in runs}
                waiting += [run for run, result in by_run.items() if result is None]
                results.setdefault(arm, {})[index] = _mean_over_seeds(filter(None, by_run.values()))
        if waiting:
            return Trials(tuple(rounds), tuple(waiting))
        promoted = {
            arm: tune.best(
                arm, {index: result.score for index, result in by_index.items()}, plan.keep
            )
            for arm, by_index in results.items()
        }
        rounds.append(TuningRound(plan.steps, results, promoted))
        remaining |= promoted
        if dead := tuple(arm for arm, indices in remaining.items() if not indices):
            return Trials(tuple(rounds), dead=dead)
    return Trials(tuple(rounds), chosen={arm: indices[0] for arm, indices in remaining.items()})


def _mean_over_seeds(results: Iterable[CandidateResult]) -> CandidateResult:
    from gspo_lab.analysis.readings import average

    measured = list(results)
    failures = [result.failure for result in measured if result.failure]
    return (
        CandidateResult(None, "; ".join(failures))
        if failures
        else CandidateResult(average(r.score for r in measured))
    )


def _results(
    evidence: Evidence, name: str, tune: Tune, again: Collection[str]
) -> Callable[[str, int], CandidateResult | None]:
    """A function of a trial and a number of steps: its result after these; None if it has made
    fewer.

    A reward is averaged over the last fifth of the steps. A collapse is one by the report's rule.
    """
    if name not in evidence.studies():
        return lambda run, steps: None
    from gspo_lab.analysis.stats.collapse import stability
    from gspo_lab.analysis.stats.curve_summaries import carry_forward, last_fifth

    ended = {row["run_id"]: row for row in evidence.run_rows(name)}
    rewards = read_series(evidence, name, "steps", "reward_mean")
    # Count prompts, not rewards: a step that completed no group has no reward.
    prompts = read_series(evidence, name, "steps", "prompts")
    broken = (
        read_updates(evidence, name, [], nonfinite=1).groupby("run_id")["step"].agg(list).to_dict()
    )
    scores = {
        (row["run_id"], row["step"]): math.nan if row["score"] is None else row["score"]
        for row in score_rows(evidence, name)
        if row["bench"] == tune.metric
    }

    def result(run: str, steps: int) -> CandidateResult | None:
        steps_E, values = rewards.get(run, ((), ()))
        early = [(step, value) for step, value in zip(steps_E, values, strict=True) if step < steps]
        curve = [step for step, _ in early], [value for _, value in early]
        score = scores.get((run, steps))
        if (
            tune.metric == REWARD
            and run in prompts
            and prompts[run][0].max(initial=-1) >= steps - 1
        ):
            carried = carry_forward(*curve, steps - 1)[1]
            score = last_fifth(carried) if len(carried) else math.nan
        seed = f"seed {run.rpartition('/s')[2]}"
        if score is None:
            failed = run in ended and ended[run]["state"] == State.FAILED and run not in again
            return (
                CandidateResult(None, f"{seed} failed: {ended[run]['message']}") if failed else None
            )
        outcome = stability(
            *curve, steps, nonfinite_steps=[step for step in broken.get(run, ()) if step < steps]
        )
        if outcome.collapse is not None:
            return CandidateResult(
                None, f"{seed} collapsed at step {outcome.collapse} ({outcome.cause})"
            )
        return (
            CandidateResult(None, f"{seed} not graded")
            if math.isnan(score)
            else CandidateResult(score)
        )

    return result


def tuning_check(evidence: Evidence, declared: Declaration) -> Check | None:
    """Whether every arm has the settings that it chose, on equally many trials and separate seeds.

    None for a study without trials. The order of trials and study is proven by digests, not by
    clocks: the lock holds the digests of the trials' journals, and every run of the study names the
    lock. `gspo-lab certify` reads those journals again.
    """
    tune = declared.tune
    if tune is None or not declared.has_verdict:
        return None
    if tune.trials is None:
        return Check(TUNING, Match.UNKNOWN, "the arms have not chosen yet")
    faults = list(_choice_faults(declared, tune))
    stored = tune.trials in evidence.studies()
    if stored:
        faults += _trial_faults(evidence, tune, tune.trials)
    if faults:
        return differs(TUNING, faults)
    detail = f"{budget(tune)}: {choices_text(tune)}"
    if not stored:
        return Check(
            TUNING, Match.UNKNOWN, f"{detail}; the trials, {tune.trials}, are not in this database"
        )
    return Check(
        TUNING,
        Match.DECLARED,
        f"{detail}; locked with their trials' digests before the study's first step",
    )


def choices_text(tune: Tune) -> str:
    """The settings that every arm chose, as text."""
    texts = []
    for arm in tune.candidates:
        values = (f"{key} = {format_value(value)}" for key, value in tune.values(arm).items())
        texts.append(f"{arm} {', '.join(values)}")
    return "; ".join(texts)


def _choice_faults(declared: Declaration, tune: Tune) -> Iterator[Fault]:
    """Faults that the declaration shows."""
    if shared := sorted(set(tune.seeds) & set(declared.seeds)):
        yield "seeds", f"the arms chose on seeds of the study ({', '.join(map(str, shared))})"
    if len({len(candidates) for candidates in tune.candidates.values()}) > 1:
        yield "budget", "the arms had unequally many candidates to choose from"
    for name, arm in declared.arms.items():
        settings = arm.flat_settings
        chosen = tune.values(name) if name in tune.chosen else None
        if chosen is None or any(settings.get(key) != value for key, value in chosen.items()):
            yield name, f"{name} was not given what it chose"


def _trial_faults(evidence: Evidence, tune: Tune, name: str) -> Iterator[Fault]:
    """Faults that the trials' records show."""
    try:
        trials = Declaration.parse(evidence.study(name), name)
    except LabError as error:
        yield name, str(error)
        return
    if trials.digest != trials.content_digest:
        yield name, f"{name} was edited after it was locked"
    if trials.tune is None or trials.tune != tune.undecided:
        yield name, f"{name} declares other candidates or another budget"
        return
    chosen = read_trials(evidence, name, tune).chosen or {}
    for arm in tune.candidates:
        index = chosen.get(arm)
        if index != tune.chosen.get(arm):
            choice = "none" if index is None else label(tune.candidates[arm][index])
            yield arm, f"by its trials' records {arm} would choose {choice}"
