"""Replicate a declared study: the same arms and rule with new seeds and new starting models."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.common.atomic_files import read_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import ARCHIVE, STUDY, database_of
from gspo_lab.common.registry import nearest
from gspo_lab.common.states import State
from gspo_lab.recording.runfolder import run_folders
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.running.plan.preparation import needs_start
from gspo_lab.study import Arm, Declaration, Study, load_study
from gspo_lab.study.declaration import Replicates, differences, identity, same_content
from gspo_lab.study.overrides import drop_options, seed_words
from gspo_lab.study.tuning_trials import tuned

SHOWN = 4
MOST_SEED = 2**63
"""Seeds are smaller than this."""


@dataclass(frozen=True)
class Replication:
    """A replication to run: `study` repeats `original`; `begun`: an earlier call began it."""

    study: Study
    original: Declaration
    begun: bool

    @property
    def lines(self) -> tuple[str, ...]:
        """Two lines about it for a terminal."""
        how = "goes on" if self.begun else "begins"
        seeds = ", ".join(map(str, self.study.seeds))
        first = next(iter(self.study.arms.values())).settings
        starts = "the seeds' own" if first.warm_start.per_seed else "one of its own"
        if not needs_start(first.model):
            starts = f"{first.model} as it is: that checkpoint is part of the question"
        return (
            (
                f"{self.study.name} {how}: {self.original.name} again on seeds {seeds}"
                f"{f', declared {self.original.created}' if self.original.created else ''}"
            ),
            f"starting models: {starts}",
        )


def replication(name: str, runs: Path, *, another: bool = False) -> Replication:
    """The replication of the study `name`, which may be a TOML file: the first unfinished one, else
    the latest.

    Without any, or with `another`, a new one. A replication of a replication repeats the first
    study. LabError for a study that was never declared, that differs from its file, or that is not
    finished.
    """
    path = Path(name)
    stated = load_study(path) if path.suffix == ".toml" else None
    original = _original(stated.name if stated else name, runs)
    if stated is not None and stated.tune is not None and original.tune is not None:
        stated = tuned(
            stated, original.tune
        )  # a replication repeats the arms' choices without new trials
    if stated is not None and not same_content(stated, original):
        keys = differences(stated, original)
        more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
        raise LabError(
            f"{path} is no longer the study that {runs / original.name / STUDY} declares; they"
            f" differ in {', '.join(keys[:SHOWN])}{more}: gspo-lab replicate {original.name}"
            " repeats what was declared"
        )
    ingest(runs)
    if missing := _missing_runs(original.name, runs):
        names = ", ".join(missing[:SHOWN]) + " ..." * (len(missing) > SHOWN)
        raise LabError(
            f"{original.name} is not finished ({names}): go on with it first, it has no result to"
            " replicate"
        )
    known = [declared for declared in _declared(runs) if _repeats(declared, original.name)]
    known.sort(key=lambda declared: (len(declared.name), declared.name))
    place = path if stated is not None else _place(original, runs)
    if known and not another:
        begun = next(
            (declared for declared in known if _missing_runs(declared.name, runs)), known[-1]
        )
        return Replication(_study(begun, begun, place, stated), original, begun=True)
    new = next(
        new for n in range(1, 10**6) if not (runs / (new := f"{original.name}-r{n}")).exists()
    )
    return Replication(
        _study(original, _new_declaration(original, new, runs), place, stated),
        original,
        begun=False,
    )


def _original(name: str, runs: Path) -> Declaration:
    declared = _read(runs / name / STUDY)
    if declared is None:
        known = sorted(study.name for study in _declared(runs))
        has = f"it has {', '.join(known)}" if known else "it holds no study yet"
        raise LabError(
            f"nothing to replicate: '{name}' was never declared in {runs}{nearest(name, known)};"
            f" {has}"
        )
    if declared.recorded is not None:
        raise LabError(
            f"{name} was imported: its logs do not record enough to train it again; write a study"
            " file"
        )
    if declared.trials_of is not None:
        raise LabError(
            f"{name} are the trials of {declared.trials_of}: gspo-lab replicate"
            f" {declared.trials_of}"
        )
    if (
        declared.replicates is not None
        and (first := _read(runs / declared.replicates.name / STUDY)) is not None
    ):
        return first
    return declared


def _read(file: Path) -> Declaration | None:
    """The declaration in a study's folder; the folder gives its name."""
    data = read_json(file)
    return None if data is None else replace(Declaration.parse(data, file), name=file.parent.name)


def _declared(runs: Path) -> Iterator[Declaration]:
    for file in sorted(runs.glob(f"*/{STUDY}")):
        with suppress(LabError):
            if (declared := _read(file)) is not None:
                yield declared


def _repeats(declared: Declaration, name: str) -> bool:
    return declared.replicates is not None and declared.replicates.name == name


def _missing_runs(name: str, runs: Path) -> list[str]:
    """The unfinished runs that a study's decision needs, with their states."""
    with Evidence.open(database_of(runs), runs) as evidence:
        source = Source(evidence, name)
        states = {(run.arm, run.seed): run.state for run in runs_of(source)}
        needed = {
            (arm, seed): "not begun" for seed in decision(source).seeds for arm in source.arms
        }
    needed |= {run: states[run] for run in needed if run in states}
    return [
        f"{arm} seed {seed} {state}"
        for (arm, seed), state in needed.items()
        if state != State.FINISHED
    ]


def _new_declaration(original: Declaration, name: str, runs: Path) -> Declaration:
    """The declaration of a new replication: its seeds are larger than those of every execution of
    the study.
    """
    used = {*original.seeds, *(original.tune.seeds if original.tune is not None else ())}
    for execution in (*_declared(runs), *_declared(runs / ARCHIVE)):
        if same_content(execution, original) or _repeats(execution, original.name):
            used |= set(execution.seeds)
    count = len(original.seeds) - len(original.added)
    first = max(used) + 1
    if first + count > MOST_SEED:
        raise LabError(
            f"{original.name} has used seed {first - 1}: no {count} fresh seeds are left beyond it"
        )
    return original.derive(
        name,
        [_with_new_start(arm, first) for arm in original.arms.values()],
        range(first, first + count),
        replicates=Replicates(original.name, identity(original)),
        reference_bands=original.reference_bands,
    )


def _with_new_start(arm: Arm, seed: int) -> Arm:
    """The arm with a new starting model: if all seeds share one, that of the first new seed."""
    start = arm.settings.warm_start
    if start.per_seed or not needs_start(arm.settings.model):
        return arm
    start = start.model_copy(update={"seed": seed})
    return replace(arm, settings=arm.settings.model_copy(update={"warm_start": start}))


def _place(original: Declaration, runs: Path) -> Path:
    """The file that the study came from, by its runs and commands; relative paths are relative to
    its folder.
    """
    base = next(
        (folder.run().base for folder in run_folders(runs / original.name) if folder.is_declared),
        ".",
    )
    file = (
        Path(original.commands[0][0]).name
        if original.commands and original.commands[0]
        else f"{original.name}.toml"
    )
    return Path(base) / file


def _study(before: Declaration, declared: Declaration, place: Path, stated: Study | None) -> Study:
    """The declaration as a study to run.

    Options of a launcher are not declared; they come from the file.
    """
    values = {field.name: getattr(declared, field.name) for field in fields(Declaration)}
    study = Study(**values, path=place, command=_command(before, declared, place))
    return study if stated is None else replace(study, launch=stated.launch)


def _command(before: Declaration, declared: Declaration, place: Path) -> tuple[str, ...]:
    """The arguments of `gspo-lab plan` or `run` for these arms, seeds and name, without the link
    to the original.
    """
    first = drop_options(
        before.commands[0] if before.commands else (str(place),), "--seeds", "--seed", "--name"
    )
    pairs = zip(first[1::2], first[2::2], strict=False)
    options = [word for pair in pairs if not re.match(r"seeds\s*=", pair[1]) for word in pair]
    return (
        *first[:1],
        *options,
        *seed_words(declared.seeds),
        "--name",
        declared.name,
    )
