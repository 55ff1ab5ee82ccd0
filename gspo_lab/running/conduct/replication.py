"""Replicate a declared study: the same arms and rule with new seeds and new starting models."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import count, product
from pathlib import Path

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.readings import Source
from gspo_lab.analysis.readings import runs as runs_of
from gspo_lab.common.atomic_files import read_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import ARCHIVE, STUDY, database_of
from gspo_lab.common.plain_data import Strings
from gspo_lab.common.registry import nearest
from gspo_lab.common.states import State
from gspo_lab.common.text import first_few
from gspo_lab.recording.runfolder import run_folders
from gspo_lab.recording.store import Evidence, ingest
from gspo_lab.running.plan.preparation import needs_start
from gspo_lab.study import Arm, Declaration, Study, load_study
from gspo_lab.study.declaration import differences, same_content
from gspo_lab.study.overrides import drop_options, seed_words
from gspo_lab.study.parent import Kind
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
    def lines(self) -> Strings:
        """Two lines about it for a terminal."""
        verb = "goes on" if self.begun else "begins"
        seeds = ", ".join(map(str, self.study.seeds))
        settings = self.study.first_arm.settings
        starts = "the seeds' own" if settings.warm_start.per_seed else "one of its own"
        if not needs_start(settings.model):
            starts = f"{settings.model} as it is: that checkpoint is part of the question"
        line = f"{self.study.name} {verb}: {self.original.name} again on seeds {seeds}"
        if self.original.created:
            line += f", declared {self.original.created}"
        return line, f"starting models: {starts}"


def replication(name: str, runs: Path, *, another: bool = False) -> Replication:
    """The replication of the study `name`, which may be a TOML file: the first unfinished one, else
    the latest.

    Without any, or with `another`, a new one. A replication of a replication repeats the first
    study. LabError for a study that was never declared, that differs from its file, or that is not
    finished.
    """
    path = Path(name)
    file_study = load_study(path) if path.suffix == ".toml" else None
    original = _original(file_study.name if file_study else name, runs)
    if file_study is not None and file_study.tune is not None and original.tune is not None:
        # A replication repeats the arms' choices without new trials.
        file_study = tuned(file_study, original.tune)
    if file_study is not None and not same_content(file_study, original):
        keys = first_few(differences(file_study, original), SHOWN)
        raise LabError(
            f"{path} is no longer the study that {runs / original.name / STUDY} declares; they"
            f" differ in {keys}: gspo-lab replicate {original.name} repeats what was declared"
        )
    ingest(runs)
    if missing := _missing_runs(original.name, runs):
        raise LabError(
            f"{original.name} is not finished ({first_few(missing, SHOWN)}): go on with it"
            " first, it has no result to replicate"
        )
    replications = [
        declared for declared in _declarations(runs) if declared.original == original.name
    ]
    replications.sort(key=lambda declared: (len(declared.name), declared.name))
    place = path if file_study is not None else _place(original, runs)
    if replications and not another:
        begun = next(
            (declared for declared in replications if _missing_runs(declared.name, runs)),
            replications[-1],
        )
        return Replication(_study(begun, begun, place, file_study), original, begun=True)
    declared = _new_declaration(original, runs)
    return Replication(_study(original, declared, place, file_study), original, begun=False)


def _original(name: str, runs: Path) -> Declaration:
    declared = _read_declaration(runs / name / STUDY)
    if declared is None:
        names = sorted(study.name for study in _declarations(runs))
        has = f"it has {', '.join(names)}" if names else "it holds no study yet"
        raise LabError(
            f"nothing to replicate: '{name}' was never declared in {runs}{nearest(name, names)};"
            f" {has}"
        )
    if declared.recorded is not None:
        raise LabError(
            f"{name} was imported: its logs do not record enough to train it again; write a study"
            " file"
        )
    if declared.parent is not None and not declared.has_verdict:
        parent = declared.parent.study
        raise LabError(f"{name} are the trials of {parent}: gspo-lab replicate {parent}")
    if declared.original is not None:
        return _read_declaration(runs / declared.original / STUDY) or declared
    return declared


def _read_declaration(file: Path) -> Declaration | None:
    """The declaration in a study's folder; the folder gives its name."""
    data = read_json(file)
    return None if data is None else replace(Declaration.parse(data, file), name=file.parent.name)


def _declarations(runs: Path) -> Iterator[Declaration]:
    for file in sorted(runs.glob(f"*/{STUDY}")):
        with suppress(LabError):
            if (declared := _read_declaration(file)) is not None:
                yield declared


def _missing_runs(name: str, runs: Path) -> list[str]:
    """The unfinished runs that a study's decision needs, with their states."""
    with Evidence.open(database_of(runs), runs) as evidence:
        source = Source(evidence, name)
        states = {(run.arm, run.seed): run.state for run in runs_of(source)}
        needed = product(decision(source).seeds, source.arms)
    missing = []
    for seed, arm in needed:
        state = states.get((arm, seed), "not begun")
        if state != State.FINISHED:
            missing.append(f"{arm} seed {seed} {state}")
    return missing


def _new_declaration(original: Declaration, runs: Path) -> Declaration:
    """The declaration of a new replication: its seeds are larger than those of every execution of
    the study.
    """
    used = {*original.seeds, *(original.tune.seeds if original.tune is not None else ())}
    for execution in (*_declarations(runs), *_declarations(runs / ARCHIVE)):
        if same_content(execution, original) or execution.original == original.name:
            used |= set(execution.seeds)
    number = len(original.seeds) - len(original.added)
    first_seed = max(used) + 1
    if first_seed + number > MOST_SEED:
        raise LabError(
            f"{original.name} has used seed {first_seed - 1}: no {number} fresh seeds are left"
            " beyond it"
        )
    free = (
        n for n in count(1) if not (runs / Kind.REPLICATION.study_name(original.name, n)).exists()
    )
    return original.derive(
        Kind.REPLICATION,
        [_with_new_start(arm, first_seed) for arm in original.arms.values()],
        range(first_seed, first_seed + number),
        detail=next(free),
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


def _study(
    original: Declaration, declared: Declaration, place: Path, file_study: Study | None
) -> Study:
    """The declaration as a study to run.

    Options of a launcher are not declared; they come from the file.
    """
    values = {field.name: getattr(declared, field.name) for field in fields(Declaration)}
    study = Study(**values, path=place, command=_command(original, declared, place))
    return study if file_study is None else replace(study, launch=file_study.launch)


def _command(original: Declaration, declared: Declaration, place: Path) -> Strings:
    """The arguments of `gspo-lab plan` or `run` for these arms, seeds and name, without the link
    to the original.
    """
    words = drop_options(
        original.commands[0] if original.commands else (str(place),), "--seeds", "--seed", "--name"
    )
    command = list(words[:1])
    for option, value in zip(words[1::2], words[2::2], strict=False):
        if not re.match(r"seeds\s*=", value):
            command += [option, value]
    return (*command, *seed_words(declared.seeds), "--name", declared.name)
