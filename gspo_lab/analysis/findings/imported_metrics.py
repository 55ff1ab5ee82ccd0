"""Runs that other programs recorded: their metrics, whether two arms define them alike, and what
spoils comparison.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from operator import itemgetter

from gspo_lab.analysis.readings import Source, average, once
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.analysis.readings.answers import scores
from gspo_lab.common.plain_data import OptionalFloat, OptionalText, Strings
from gspo_lab.recording.store.records import LENGTH, read_ends, read_lengths, read_own_numbers
from gspo_lab.study import Declaration, Origin
from gspo_lab.study.dotted_keys import BAND
from gspo_lab.study.import_origin import ORIGIN

CLIP = "clip fraction"
REWARD = "training reward"
DISTANCE = "distance to the old policy"
WIDE_SEQUENCE = 0.05
NARROW_TOKEN = 0.01
"""A sequence ratio with this range or a wider one, and a token ratio with a narrower one, look
mistaken.
"""
REWARD_NAME = re.compile(
    r"(?!eval|val|test)(rewards/.*|.*/reward|reward|reward_mean|mean_reward)", re.IGNORECASE
)
"""A training reward under a name that its program does not define; not a held-out one."""
REWARD_FUNCTION = re.compile(r"(?:train/)?rewards/([^/]+)")
"""The name of one reward function in TRL's logs, `rewards/correct/mean`."""
ENDS = "The reward of each run is read over its own rows, up to its own end."


@dataclass(frozen=True)
class LoggedName:
    """One name of an arm's logs, `score` the benchmark whose score it is.

    `value` is its mean over the last fifth of each run's rows that have it, and over the arm's
    runs. It is None where the name became a column of gspo-lab, or has no number.
    """

    name: str
    meaning: OptionalText
    quantity: OptionalText
    column: OptionalText
    score: OptionalText
    value: OptionalFloat

    @property
    def rewards(self) -> bool:
        """Whether it is a training reward."""
        known = self.quantity == REWARD or self.column == "reward_mean"
        return known or (self.quantity is None and REWARD_NAME.fullmatch(self.name) is not None)


@dataclass(frozen=True)
class ImportedMetrics:
    """The logs of a study's imported runs: per arm its names, and sentences on what limits the
    comparison.
    """

    names: Mapping[str, tuple[LoggedName, ...]]
    apart: Strings
    """Quantities that two arms define differently, so that nothing subtracts them."""
    warnings: Strings
    rewards_differ: bool = False
    """Whether two arms' training rewards may be sums of different functions."""

    def scored_rewards(self, bench: OptionalText = None) -> list[str]:
        """The training rewards that were imported as scores, of `bench` alone if it is given."""
        named = (name for name in chain(*self.names.values()) if name.score and name.rewards)
        return sorted({name.name for name in named if bench in (None, name.score)})

    @cached_property
    def strange(self) -> dict[str, list[str]]:
        """Per arm the names without a known meaning."""
        unknown = {
            arm: [name.name for name in names if name.meaning is None]
            for arm, names in self.names.items()
        }
        return {arm: names for arm, names in unknown.items() if names}


@once
def imported_metrics(source: Source) -> ImportedMetrics | None:
    """What is known of the logs; None where gspo-lab recorded every run itself."""
    origins = {}
    for row in source.evidence.run_rows(source.study):
        facts = json.loads(row["facts"] or "{}")
        if ORIGIN in facts:
            origins[row["run_id"]] = Origin.from_fact(facts[ORIGIN], row["run_id"])
    if not origins:
        return None
    names = {arm: tuple(_names(source, arm, origins)) for arm in source.declaration.arms}
    apart = [*_different_definitions(names), *_reward_sums(names)]
    differ = any(line.startswith(f"{REWARD}:") for line in apart)
    metrics = ImportedMetrics(names, tuple(apart), (), differ)
    return replace(metrics, warnings=tuple(_warnings(source, metrics)))


def _names(source: Source, arm: str, origins: Mapping[str, Origin]) -> Iterator[LoggedName]:
    runs = [run for run in runs_of(source) if run.arm == arm and run.id in origins]
    metrics: dict[str, Mapping[str, str]] = {}
    values: dict[str, list[float]] = {}
    for run in runs:
        metrics |= origins[run.id].metrics
        for name, value in read_own_numbers(source.evidence, run.id).items():
            values.setdefault(name, []).append(value)
    for name, facts in sorted(metrics.items()):
        recorded = {key: facts.get(key) for key in ("meaning", "quantity", "column", "score")}
        yield LoggedName(name, **recorded, value=average(values.get(name, ())))


def _different_definitions(names: Mapping[str, tuple[LoggedName, ...]]) -> Iterator[str]:
    """A quantity is the same in two arms where some definition of it is."""
    meanings: dict[str, dict[str, set[str]]] = {}
    for arm, of_arm in names.items():
        for name in of_arm:
            if name.quantity is not None and name.meaning:
                meanings.setdefault(name.quantity, {}).setdefault(arm, set()).add(name.meaning)
    first = next(iter(names))
    for quantity, by_arm in sorted(meanings.items()):
        base = by_arm.pop(first, set())
        for arm, definitions in by_arm.items():
            if base and not base & definitions:
                logs = (
                    f"{first} logs {' / '.join(sorted(base))}; {arm} logs"
                    f" {' / '.join(sorted(definitions))}"
                )
                yield f"{quantity}: not compared. {logs}."


def _reward_sums(names: Mapping[str, tuple[LoggedName, ...]]) -> Iterator[str]:
    """A sentence where the logs of two arms do not name the same reward functions. Functions that
    no name tells are unknown, not equal.
    """
    sums = {}
    for arm, logged in names.items():
        functions = {match[1] for name in logged if (match := REWARD_FUNCTION.match(name.name))}
        if functions or any(name.rewards for name in logged):
            sums[arm] = ", ".join(sorted(functions)) or "functions that its log does not name"
    if len(set(sums.values())) > 1:
        listed = "; ".join(f"{arm} sums {text}" for arm, text in sums.items())
        yield f"{REWARD}: not compared. The logs do not name the same functions: {listed}."


def _warnings(source: Source, metrics: ImportedMetrics) -> Iterator[str]:
    declared = source.declaration
    names = metrics.names
    yield from _settings_notes(declared)
    for arm in declared.arms:
        if _ends(source, arm, [name for name in names[arm] if name.quantity == CLIP]) == {0}:
            yield (
                f"The clip fraction of {arm} is 0 in every row:"
                f" {_why_nothing_clips(source, arm, names[arm])}"
            )
    seeds = {arm: {run.seed for run in runs_of(source) if run.arm == arm} for arm in declared.arms}
    single = [arm for arm, arm_seeds in seeds.items() if len(arm_seeds) == 1]
    if trained := metrics.scored_rewards():
        yield (
            f"The score is {', '.join(trained)}, a training reward: it tells no learning from"
            " reward hacking."
        )
    if single:
        yield (
            f"One seed of {', '.join(single)}: two runs of one arm may differ as much as these"
            " arms do."
        )
    common = set.intersection(*seeds.values())
    extra = {
        arm: sorted(arm_seeds - common) for arm, arm_seeds in seeds.items() if arm_seeds - common
    }
    if extra:
        listed = "; ".join(f"{arm} {', '.join(map(str, more))}" for arm, more in extra.items())
        yield f"Seeds that not all arms have, and that no pair is made of: {listed}."
    yield from _length_notes(source)
    yield from _benchmark_notes(source)


def _length_notes(source: Source) -> Iterator[str]:
    """What is said where the logs of the arms have different lengths."""
    for measure, by_run in read_lengths(source.evidence, source.study).items():
        ends = {
            arm: sorted(
                {by_run[run.id] for run in runs_of(source) if run.arm == arm and run.id in by_run}
            )
            for arm in source.declaration.arms
        }
        if len(set(chain(*ends.values()))) > 1:
            known = {
                arm: ", ".join(f"{end:g}" for end in arm_ends)
                for arm, arm_ends in ends.items()
                if arm_ends
            }
            text = "; ".join(f"{arm} {listed}" for arm, listed in known.items())
            yield f"Logs differ in {measure}: {text}.{f' {ENDS}' if measure == LENGTH else ''}"


def _benchmark_notes(source: Source) -> Iterator[str]:
    """What is said where runs were asked different numbers of a benchmark's problems."""
    sizes: dict[str, set[int]] = {}
    for row in sorted(scores(source), key=itemgetter("bench")):
        if row["problems"] is not None:
            sizes.setdefault(row["bench"], set()).add(row["problems"])
    for bench, counts in sizes.items():
        if len(counts) > 1:
            text = ", ".join(map(str, sorted(counts)))
            yield f"Runs were asked {text} problems of {bench}: their scores are not of one set."


def _settings_notes(declared: Declaration) -> Iterator[str]:
    for arm in declared.arms.values():
        update = arm.settings.update
        objective = arm.settings.objective
        known = partial(declared.is_known, arm.name)
        counted = all(known(f"update.{key}") for key in ("minibatches", "epochs"))
        if counted and update.per_rollout_batch == 1:
            yield (
                f"{arm.name} makes one update per rollout batch: every ratio is 1 and nothing can"
                " clip."
            )
        if objective.policy_loss != "clip" or not known("objective.importance_sampling_level"):
            continue
        ends = zip(BAND, objective.clip_range, strict=True)
        ranges = [end for key, end in ends if known(key)]
        if objective.importance_sampling_level == "token" and ranges and max(ranges) < NARROW_TOKEN:
            yield (
                f"{arm.name}: a token ratio with a range of {max(ranges):g}, which is a sequence"
                " ratio's."
            )
        if (
            objective.importance_sampling_level != "token"
            and ranges
            and min(ranges) >= WIDE_SEQUENCE
        ):
            yield (
                f"{arm.name}: a sequence ratio with a range of {min(ranges):g}, which is a token"
                " ratio's."
            )


def _why_nothing_clips(source: Source, arm: str, names: tuple[LoggedName, ...]) -> str:
    """Why no clip binds, by the logged distance to the old policy.

    The distance is 0 only if every ratio is 1.
    """
    moved = [name for name in names if name.quantity == DISTANCE]
    ends = _ends(source, arm, moved)
    if any(ends):
        return (
            f"its ratios are not 1 ({moved[0].name} is not 0), so its clip range is wider than they"
            " vary."
        )
    if ends:
        return (
            f"every ratio is 1 ({moved[0].name} is 0), so nothing can clip, and GRPO and GSPO are"
            " the same program."
        )
    return (
        "either it makes one update per rollout batch, so that every ratio is 1, or its clip range"
        " is wide."
    )


def _ends(source: Source, arm: str, names: Iterable[LoggedName]) -> set[float]:
    runs = [run.id for run in runs_of(source) if run.arm == arm]
    return {
        end
        for run in runs
        for name in names
        for end in read_ends(source.evidence, run, name.column, name.name)
    }
