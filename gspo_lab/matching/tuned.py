"""What the trials of `[tune]` showed, round by round, and whether what the arms were given is what they chose."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gspo_lab.errors import LabError
from gspo_lab.matching.pairing import DECLARED, UNDECLARED, UNKNOWN, Check
from gspo_lab.matching.settings import shown
from gspo_lab.states import State
from gspo_lab.store.answers import read_scores
from gspo_lab.store.records import read_series, read_updates
from gspo_lab.study import Declaration, flat
from gspo_lab.study.trials import label, trial
from gspo_lab.study.tune import REWARD, Tune, budget

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

TUNING = "tuning"


@dataclass(frozen=True)
class Tried:
    """A candidate in one round: its mean score over the trials' seeds, None where it `died`, in words how."""

    score: float | None
    died: str = ""


@dataclass(frozen=True)
class TriedRound:
    """A round: per arm its candidates by their places, and those that went on."""

    steps: int
    tried: dict[str, dict[int, Tried]]
    kept: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Trials:
    """The rounds that are decided; `open` are the runs that the next one waits for, with the step to train them to.

    `dead` are arms without a candidate that lives; `chosen` is complete once nothing is open or dead.
    """

    rounds: tuple[TriedRound, ...] = ()
    open: tuple[tuple[str, int], ...] = ()
    dead: tuple[str, ...] = ()
    chosen: Mapping[str, int] | None = None


def read_trials(evidence: "Evidence", name: str, tune: Tune, again: Collection[str] = ()) -> Trials:
    """What the trials `name` say by the records alone. A trial that failed is dead, those of `again` excepted."""
    seen = _Seen(evidence, name, tune, again)
    left = {arm: tuple(range(tune.number)) for arm in tune.candidates}
    rounds: list[TriedRound] = []
    for one in tune.rounds:
        asked = {arm: places for arm, places in left.items() if len(places) > 1}
        found = {arm: {place: seen.tried(arm, place, one.steps) for place in own} for arm, own in asked.items()}
        waiting = [run for own in found.values() for tried in own.values() if isinstance(tried, tuple) for run in tried]
        if waiting:
            return Trials(tuple(rounds), tuple((run, one.steps) for run in waiting))
        told = {arm: {at: t for at, t in own.items() if isinstance(t, Tried)} for arm, own in found.items()}
        kept = {
            arm: tune.best(arm, {place: tried.score for place, tried in own.items()}, one.keep)
            for arm, own in told.items()
        }
        rounds.append(TriedRound(one.steps, told, kept))
        left |= kept
        if dead := tuple(arm for arm, places in left.items() if not places):
            return Trials(tuple(rounds), dead=dead)
    return Trials(tuple(rounds), chosen={arm: places[0] for arm, places in left.items()})


class _Seen:
    """The records of trials, asked for what became of a candidate after so many steps."""

    def __init__(self, evidence: "Evidence", name: str, tune: Tune, again: Collection[str]) -> None:
        self._name, self._tune, self._again = name, tune, again
        there = name in evidence.studies()
        self._states: dict[str, tuple[str, str | None]] = {}
        self._rewards: dict[str, list[tuple[float, float]]] = {}
        self._reached: dict[str, int] = {}
        self._scores: dict[tuple[str, int], float] = {}
        self._nonfinite: dict[str, list[int]] = {}
        if there:
            runs = evidence.runs(name)
            self._states = {row["run_id"]: (row["state"], row["message"]) for row in runs.to_dict("records")}
            rewards = read_series(evidence, name, "steps", "reward_mean").items()
            self._rewards = {run: list(zip(at.tolist(), own.tolist(), strict=True)) for run, (at, own) in rewards}
            # A step that completed no group has no reward, and was made all the same.
            made = read_series(evidence, name, "steps", "prompts")
            self._reached = {run: int(at[-1]) for run, (at, _) in made.items() if len(at)}
            bad = read_updates(evidence, name, [], nonfinite=1)
            self._nonfinite = {str(run): [int(step) for step in own] for run, own in bad.groupby("run_id")["step"]}
            scores = read_scores(evidence, name)
            scores = scores[scores["bench"] == tune.metric]
            self._scores = {
                (str(row["run_id"]), int(row["step"])): float(row["score"]) for row in scores.to_dict("records")
            }

    def tried(self, arm: str, place: int, steps: int) -> Tried | tuple[str, ...]:
        """The candidate after `steps`; or the runs that have not come so far."""
        from gspo_lab.readings import average

        scores, died, waiting = [], [], []
        for seed in self._tune.seeds:
            run = f"{self._name}/{trial(arm, self._tune.candidates[arm][place])}/s{seed}"
            score = self._score(run, steps)
            if score is not None and (fell := self._fell(run, steps) or ("" if score == score else "not graded")):
                died.append(f"seed {seed} {fell}")
            elif score is not None:
                scores.append(score)
            elif self._states.get(run, ("", ""))[0] == State.FAILED and run not in self._again:
                died.append(f"seed {seed} failed: {self._states[run][1]}")
            else:
                waiting.append(run)
        if waiting:
            return tuple(waiting)
        return Tried(None, "; ".join(died)) if died else Tried(average(scores))

    def _score(self, run: str, steps: int) -> float | None:
        """The metric after so many steps, of a reward its mean over the last fifth of them. None where the run has not
        come so far, NaN where it was not graded."""
        if self._tune.metric != REWARD:
            return self._scores.get((run, steps))
        if self._reached.get(run, -1) < steps - 1:
            return None
        from gspo_lab.stats.series import held, last_fifth  # numpy: not where a certificate is only spoken of

        early = [point for point in self._rewards.get(run, []) if point[0] < steps]
        _, curve = held([at for at, _ in early], [reward for _, reward in early], steps - 1)
        return last_fifth(curve) if len(curve) else math.nan

    def _fell(self, run: str, steps: int) -> str:
        """How the run collapsed before its first `steps` were over, by the report's rule; empty if it stood."""
        from gspo_lab.stats.collapse import stability  # numpy: not where a certificate is only spoken of

        early = [one for one in self._rewards.get(run, []) if one[0] < steps]
        fatal = [step for step in self._nonfinite.get(run, []) if step < steps]
        found = stability([at for at, _ in early], [own for _, own in early], steps, nonfinite_steps=fatal)
        return "" if found.collapse is None else f"collapsed at step {found.collapse} ({found.cause})"


def tuning_check(evidence: "Evidence", declared: Declaration) -> Check | None:
    """Whether every arm was given what it chose on as many trials as the others, on other seeds. None for a study
    without trials.

    That they came first is no matter of clocks: the lock holds the digests of their journals, and every run of the
    study names the lock. `gspo-lab certify` reads those journals again.
    """
    tune = declared.tune
    if tune is None or declared.trials_of is not None:
        return None
    if tune.trials is None:
        return Check(TUNING, UNKNOWN, "the arms have not chosen yet")
    odd = list(_odd_choice(declared, tune))
    there = tune.trials in evidence.studies()
    if there:
        odd += _odd_trials(evidence, tune, tune.trials)
    if odd:
        return Check(TUNING, UNDECLARED, "; ".join(said for _, said in odd), tuple(dict.fromkeys(at for at, _ in odd)))
    told = f"{budget(tune)}: {choices(tune)}"
    if not there:
        return Check(TUNING, UNKNOWN, f"{told}; the trials, {tune.trials}, are not in this database")
    return Check(TUNING, DECLARED, f"{told}; locked with their trials' digests before the study's first step")


def choices(tune: Tune) -> str:
    """What every arm chose, in words."""
    return "; ".join(
        f"{arm} {', '.join(f'{key} = {shown(value)}' for key, value in tune.values(arm).items())}"
        for arm in tune.candidates
    )


Odd = tuple[str, str]
"""What is wrong, by a name and in words."""


def _odd_choice(declared: Declaration, tune: Tune) -> Iterator[Odd]:
    """What the declaration alone shows."""
    if both := sorted(set(tune.seeds) & set(declared.seeds)):
        yield "seeds", f"the arms chose on seeds of the study ({', '.join(map(str, both))})"
    if len({len(own) for own in tune.candidates.values()}) > 1:
        yield "budget", "the arms had unequally many candidates to choose from"
    for name, arm in declared.arms.items():
        settings = flat(arm.resolved)
        chosen = tune.values(name) if name in tune.chosen else None
        if chosen is None or any(settings.get(key) != value for key, value in chosen.items()):
            yield name, f"{name} was not given what it chose"


def _odd_trials(evidence: "Evidence", tune: Tune, name: str) -> Iterator[Odd]:
    """What the trials' own records show."""
    try:
        own = Declaration.parse(evidence.study(name), name)
    except LabError as error:
        yield name, str(error)
        return
    if own.digest != own.content_digest:
        yield name, f"{name} was edited after it was locked"
    if own.tune is None or own.tune != tune.model_copy(update={"chosen": {}, "journals": {}}):
        yield name, f"{name} declares other candidates or another budget"
        return
    found = read_trials(evidence, name, tune)
    if found.chosen != tune.chosen:
        for arm in tune.candidates:
            place = (found.chosen or {}).get(arm)
            if place != tune.chosen.get(arm):
                called = "none" if place is None else label(tune.candidates[arm][place])
                yield arm, f"by its trials' records {arm} would choose {called}"
