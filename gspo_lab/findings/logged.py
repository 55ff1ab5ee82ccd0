"""Of runs that other programs recorded: what each of their numbers is, whether two arms' are the same, and what spoils
the comparison as far as the logs tell."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from gspo_lab.readings import Source, average, once
from gspo_lab.readings import runs as runs_of
from gspo_lab.readings.answers import scores
from gspo_lab.store.records import LENGTH, read_ends, read_lengths, read_own_numbers
from gspo_lab.study import Declaration, Origin
from gspo_lab.study.origin import ORIGIN

CLIP, REWARD, DISTANCE = "clip fraction", "training reward", "distance to the old policy"
CLIPS = ("clip_fraction_tokens", "clip_fraction_responses")
WIDE_SEQUENCE, NARROW_TOKEN = 0.05, 0.01
"""A sequence ratio's range from here on, and a token ratio's up to here, are the other rule's."""
ENDS = "The reward of each run is read over its own rows, up to its own end."


@dataclass(frozen=True)
class LoggedName:
    """One name of an arm's logs, `score` the benchmark whose score it is. `value` is its mean over the last fifth of
    each run's rows that have it, and over the arm's runs; None where it became a column of the lab, or has no number.
    """

    name: str
    meaning: str | None
    quantity: str | None
    column: str | None
    score: str | None
    value: float | None

    @property
    def rewards(self) -> bool:
        """Whether it is of training responses, which the model was rewarded for."""
        return self.quantity == REWARD or self.column == "reward_mean"


@dataclass(frozen=True)
class ImportedMetrics:
    """What the logs of a study's imported runs are: per arm its names, and in sentences what to know of them."""

    names: Mapping[str, tuple[LoggedName, ...]]
    apart: tuple[str, ...]
    """Quantities that two arms define differently, so that nothing subtracts them."""
    warnings: tuple[str, ...]

    @cached_property
    def strange(self) -> dict[str, list[str]]:
        """Per arm the names that were not understood."""
        found = {arm: [one.name for one in names if one.meaning is None] for arm, names in self.names.items()}
        return {arm: names for arm, names in found.items() if names}


@once
def logged(found: Source) -> ImportedMetrics | None:
    """What is known of the logs; None where the lab's own workers recorded every run."""
    origins = {}
    for row in found.evidence.runs(found.study).to_dict("records"):
        facts = json.loads(row["facts"]) if isinstance(row["facts"], str) else {}
        if ORIGIN in facts:
            origins[str(row["run_id"])] = Origin.told(facts[ORIGIN], str(row["run_id"]))
    if not origins:
        return None
    names = {arm: tuple(_names(found, arm, origins)) for arm in found.declaration.arms}
    return ImportedMetrics(names, tuple(_apart(names)), tuple(_warnings(found, names)))


def _names(found: Source, arm: str, origins: Mapping[str, Origin]) -> Iterator[LoggedName]:
    runs = [run for run in runs_of(found) if run.arm == arm and run.id in origins]
    metrics: dict[str, Mapping[str, str]] = {}
    values: dict[str, list[float]] = {}
    for run in runs:
        metrics |= origins[run.id].metrics
        for name, value in read_own_numbers(found.evidence, run.id).items():
            values.setdefault(name, []).append(value)
    for name, told in sorted(metrics.items()):
        own = values.get(name)
        mean = average(own or ())
        yield LoggedName(name, told.get("meaning"), told.get("quantity"), told.get("column"), told.get("score"), mean)


def _apart(names: Mapping[str, tuple[LoggedName, ...]]) -> Iterator[str]:
    """A quantity is the same in two arms where some definition of it is."""
    meanings = {
        arm: {q: {one.meaning for one in own if one.quantity == q} for q in {one.quantity for one in own}}
        for arm, own in names.items()
    }
    first, *others = meanings
    for quantity in sorted({one for own in meanings.values() for one in own if one is not None}):
        for arm in others:
            one, other = meanings[first].get(quantity), meanings[arm].get(quantity)
            if one and other and not one & other:
                yield (f"{quantity}: not compared. {first} logs {_listed(one)}; {arm} logs {_listed(other)}.")


def _listed(meanings: set[str | None]) -> str:
    return " / ".join(sorted(filter(None, meanings)))


def _warnings(found: Source, names: Mapping[str, tuple[LoggedName, ...]]) -> Iterator[str]:
    declared = found.declaration
    yield from _of_settings(declared)
    for arm in declared.arms:
        if _ends(found, arm, [name for name in names[arm] if name.quantity == CLIP]) == {0}:
            yield f"The clip fraction of {arm} is 0 in every row: {_why_nothing_clips(found, arm, names[arm])}"
    seeds = {arm: {run.seed for run in runs_of(found) if run.arm == arm} for arm in declared.arms}
    single = [arm for arm, own in seeds.items() if len(own) == 1]
    trained = sorted({one.name for own in names.values() for one in own if one.score and one.rewards})
    if trained:
        yield f"The score is {', '.join(trained)}, a training reward: it tells no learning from reward hacking."
    if single:
        yield f"One seed of {', '.join(single)}: two runs of one arm may differ as much as these arms do."
    common = set.intersection(*seeds.values())
    lonely = [f"{arm} {', '.join(map(str, sorted(own - common)))}" for arm, own in seeds.items() if own - common]
    if lonely:
        yield f"Seeds that not all arms have, and that no pair is made of: {'; '.join(lonely)}."
    for what, by_run in read_lengths(found.evidence, found.study).items():
        ends = {
            arm: sorted({by_run[run.id] for run in runs_of(found) if run.arm == arm and run.id in by_run})
            for arm in seeds
        }
        known = {arm: own for arm, own in ends.items() if own}
        if len({tuple(own) for own in known.values()}) > 1 or any(len(own) > 1 for own in known.values()):
            told = "; ".join(f"{arm} {', '.join(f'{one:g}' for one in own)}" for arm, own in known.items())
            yield f"Logs differ in {what}: {told}.{f' {ENDS}' if what == LENGTH else ''}"
    asked = scores(found).dropna(subset=["problems"])
    sizes: dict[str, set[int]] = {}
    for bench, count in sorted(zip(asked["bench"], asked["problems"], strict=True)):
        sizes.setdefault(bench, set()).add(int(count))
    for bench, counts in sizes.items():
        if len(counts) > 1:
            told = ", ".join(map(str, sorted(counts)))
            yield f"Runs were asked {told} problems of {bench}: their scores are not of one set."


def _of_settings(declared: Declaration) -> Iterator[str]:
    for arm in declared.arms.values():
        update, objective = arm.settings.update, arm.settings.objective
        counted = all(declared.told(arm.name, f"update.{key}") for key in ("minibatches", "epochs"))
        if counted and update.per_rollout_batch == 1:
            yield f"{arm.name} makes one update per rollout batch: every ratio is 1 and nothing can clip."
        if objective.policy_loss != "clip" or not declared.told(arm.name, "objective.importance_sampling_level"):
            continue
        ranges = [
            getattr(objective, key) for key in ("clip_low", "clip_high") if declared.told(arm.name, f"objective.{key}")
        ]
        if objective.importance_sampling_level == "token" and ranges and max(ranges) < NARROW_TOKEN:
            yield f"{arm.name}: a token ratio with a range of {max(ranges):g}, which is a sequence ratio's."
        if objective.importance_sampling_level != "token" and ranges and min(ranges) >= WIDE_SEQUENCE:
            yield f"{arm.name}: a sequence ratio with a range of {min(ranges):g}, which is a token ratio's."


def _why_nothing_clips(found: Source, arm: str, names: tuple[LoggedName, ...]) -> str:
    """By the distance to the old policy, where that is logged: it is 0 only if every ratio is 1."""
    moved = [name for name in names if name.quantity == DISTANCE]
    ends = _ends(found, arm, moved)
    if any(ends):
        return f"its ratios are not 1 ({moved[0].name} is not 0), so its clip range is wider than they vary."
    if ends:
        return f"every ratio is 1 ({moved[0].name} is 0), so nothing can clip, and GRPO and GSPO are the same program."
    return "either it makes one update per rollout batch, so that every ratio is 1, or its clip range is wide."


def _ends(found: Source, arm: str, names: Iterable[LoggedName]) -> set[float]:
    runs = [run.id for run in runs_of(found) if run.arm == arm]
    return {end for run in runs for name in names for end in read_ends(found.evidence, run, name.column, name.name)}
