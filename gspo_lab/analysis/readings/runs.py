"""What a reading is read from, a study's runs, and the sets of seeds that a number may be of."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from gspo_lab.common.paths import STUDY
from gspo_lab.common.plain_data import Integers, OptionalInt
from gspo_lab.common.reason import Reason, Reasons
from gspo_lab.common.states import State
from gspo_lab.common.text import counted, seed_numbers, seeds_text
from gspo_lab.recording.records.update import RATE_COLUMN
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.schema import CHOSEN, IN_ORDER
from gspo_lab.study import Declaration
from gspo_lab.study.import_origin import ORIGIN
from gspo_lab.study.schema import RATE

P = ParamSpec("P")
S = TypeVar("S", bound="Source")
T = TypeVar("T")


@dataclass(eq=False)
class Source:
    """One study in the database of `evidence`, which does not change while it is open.

    `label` is the study's name beside others. In `elsewhere` further executions of it lie: folders
    of runs, databases."""

    evidence: Evidence
    study: str
    label: str = ""
    elsewhere: Sequence[Path] = ()
    base: "Source | None" = None
    """The study as it was declared, of one that is read with another baseline."""
    results: dict[tuple[Hashable, ...], Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.label = self.label or self.study

    @property
    def arms(self) -> list[str]:
        """The arms in their declared order, which is also the order of their colours."""
        return list(self.declaration.arms)

    @cached_property
    def declaration(self) -> Declaration:
        """What the study declares. LabError for a study that the database lacks."""
        declared = Declaration.parse(self.evidence.study(self.study), f"{self.study}/{STUDY}")
        return replace(declared, name=self.study)  # a study that was copied is its own


def once(read: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A function of a source that keeps its results: each is computed once.

    Do not change a result.
    """

    def read_once(source: S, /, *args: P.args, **options: P.kwargs) -> T:
        key = (read.__module__, read.__qualname__, args, *sorted(options.items()))
        if key not in source.results:
            source.results[key] = read(source, *args, **options)
        answer: T = source.results[key]
        return answer

    update_wrapper(read_once, read)
    return read_once


@dataclass(frozen=True)
class RecordedRun:
    """One run that the database knows. `state` is a word of `states.State`."""

    id: str
    arm: str
    seed: int
    state: str
    steps_planned: OptionalInt
    imported: bool = False
    """Whether another program recorded it; its log says nothing of steps after its last row."""

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self.state == State.FINISHED


@dataclass(frozen=True)
class Seeds:
    """Which runs a number is of, by a `name` that the report's JSON gives too."""

    name: str
    finished: bool = True
    """Whether only finished runs count."""
    only: Integers | None = None
    """The seeds that count; None: all."""

    def has(self, run: Any) -> bool:
        """Whether a run, or what became of it, counts by its `seed` and `state`."""
        return (run.state == State.FINISHED or not self.finished) and (
            self.only is None or run.seed in self.only
        )

    def label(self) -> str:
        """The set for people: "finished runs of seeds 0 to 4"."""
        kind = "finished runs" if self.finished else "recorded runs"
        if not self.only:
            return kind
        return f"{kind} of {seeds_text(self.only)}"


RECORDED = Seeds("recorded", finished=False)
"""Every run that the database knows, whatever its state."""
FINISHED = Seeds("finished")
"""Every finished run, also those of seeds that were added later."""


def deciding(declared: Declaration) -> Seeds:
    """The finished runs of the seeds that were declared before the first step, up to the last
    look.
    """
    return Seeds("deciding", only=declared.deciding)


def decided(seeds: Iterable[int]) -> Seeds:
    """The finished runs that a verdict rests on: of `seeds`, which a look may have resolved
    early.
    """
    return Seeds("decided", only=tuple(seeds))


@once
def recorded_runs(source: Source) -> tuple[RecordedRun, ...]:
    """Every run of a declared arm, in the order of the study's arms, then seeds. The certificate
    names runs that are recorded and not declared.
    """
    source.evidence.study(source.study)
    query = (
        f"{CHOSEN} SELECT run_id, arm, seed, state, steps_planned, json_type(facts, '$.{ORIGIN}')"
        " FROM chosen JOIN (SELECT run_id, state, steps_planned, facts FROM runs) USING (run_id)"
        f" ORDER BY {IN_ORDER}"
    )
    rows = source.evidence.rows(query, (source.study,))
    return tuple(
        RecordedRun(run, arm, seed, state, planned, imported=origin is not None)
        for run, arm, seed, state, planned, origin in rows
        if arm in source.declaration.arms
    )


def runs(
    source: Source, seeds: Seeds = RECORDED, arms: Collection[str] | None = None
) -> tuple[RecordedRun, ...]:
    """The runs of a set of seeds; with `arms` those of these arms, on the seeds that all of them
    have.
    """
    chosen = [
        run for run in recorded_runs(source) if seeds.has(run) and (arms is None or run.arm in arms)
    ]
    if arms is not None:
        seeds_of = [{run.seed for run in chosen if run.arm == arm} for arm in arms]
        chosen = [run for run in chosen if all(run.seed in seeds for seeds in seeds_of)]
    return tuple(chosen)


@once
def finished_runs(source: Source) -> dict[tuple[str, int], str]:
    """(arm, seed) -> run id of every finished run."""
    return {(run.arm, run.seed): run.id for run in runs(source, FINISHED)}


@once
def deciding_runs(source: Source) -> dict[tuple[str, int], str]:
    """The run ids of the deciding seeds by (arm, seed): all that a verdict is read from."""
    return {(run.arm, run.seed): run.id for run in runs(source, deciding(source.declaration))}


def not_counted(source: Source) -> Reasons:
    """The finished runs of seeds that do not decide; empty where there are none."""
    extra = [seed for _, seed in finished_runs(source).keys() - deciding_runs(source).keys()]
    if not extra:
        return ()
    seeds = seed_numbers(set(extra))
    text = f"not counted: {counted(len(extra), 'run')} of other seeds ({seeds})"
    return (Reason("not-counted", text),)


def finished_seeds(source: Source, arms: Iterable[str]) -> list[int]:
    """The seeds on which all of these arms have finished."""
    return sorted({run.seed for run in runs(source, FINISHED, list(arms))})


FULL = 1 - 1e-9
"""The share of the declared learning rate from which on a rate is full.

It is below 1, so that two rates that were computed in another order are equal.
"""
RISING = (
    f"SELECT COUNT({RATE_COLUMN}), MAX(step) FILTER (WHERE {RATE_COLUMN} < ?) FROM updates WHERE"
    " run_id = ?"
)


@once
def first_settled(source: Source) -> Mapping[str, int]:
    """Per run id the first step from which every recorded update has the full learning rate.

    Where all steps make equally many updates it follows from the schedule. Where groups vary, steps
    make fewer, and the rate rises by updates made: then it is read from the recorded rate, if there
    is one. An imported run with an unknown warm-up is read from its first row.
    """
    declared = source.declaration
    out = {}
    for run in source.evidence.chosen(source.study):
        if run.arm not in declared.arms:
            continue
        settings = declared.arms[run.arm].settings
        out[run.id] = (
            settings.update.first_settled
            if declared.is_known(run.arm, "update.warmup_updates")
            else 0
        )
        if settings.rollout.varying and declared.is_known(run.arm, RATE):
            ((known_steps, last),) = source.evidence.rows(
                RISING, (FULL * settings.update.adamw["lr"], run.id)
            )
            if known_steps:
                out[run.id] = 0 if last is None else last + 1
    return out
