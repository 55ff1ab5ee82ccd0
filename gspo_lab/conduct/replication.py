"""A declared study again: the same arms and rule on fresh seeds and fresh starts, linked to the first."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

from gspo_lab.errors import LabError
from gspo_lab.files import read_json
from gspo_lab.layout import ARCHIVE, STUDY, database_of
from gspo_lab.plan.preparation import needs_start
from gspo_lab.registry import nearest
from gspo_lab.runfolder import run_folders
from gspo_lab.states import State
from gspo_lab.store import Evidence, ingest
from gspo_lab.study import Arm, Declaration, Study, load_study
from gspo_lab.study.declaration import Replicates, differences, identity, same_content
from gspo_lab.study.overrides import drop_options
from gspo_lab.study.trials import tuned

SHOWN = 4
MOST_SEED = 2**63
"""Seeds lie below."""


@dataclass(frozen=True)
class Replication:
    """What is to be carried out: `study` again, of which `original` was the first; `begun` before, or new."""

    study: Study
    original: Declaration
    begun: bool

    @property
    def lines(self) -> tuple[str, ...]:
        """For people, before it begins."""
        how = "goes on" if self.begun else "begins"
        seeds = ", ".join(map(str, self.study.seeds))
        first = next(iter(self.study.arms.values())).settings
        starts = "the seeds' own" if first.warm_start.per_seed else "one of its own"
        if not needs_start(first.model):
            starts = f"{first.model} as it is: that checkpoint is part of the question"
        return (
            f"{self.study.name} {how}: {self.original.name} again on seeds {seeds}"
            f"{f', declared {self.original.created}' if self.original.created else ''}",
            f"starting models: {starts}",
        )


def replication(wanted: str, runs: Path, *, another: bool = False) -> Replication:
    """The replication of the study `wanted`, a name or a TOML file: the first that is not finished, else the latest,
    else a new one; with `another` a new one in any case.

    A replication of a replication is one of the first study. LabError for a study that was never declared, that the
    file no longer says, or that is not finished itself.
    """
    path = Path(wanted)
    asked = load_study(path) if path.suffix == ".toml" else None
    original = _original(asked.name if asked else wanted, runs)
    if asked is not None and asked.tune is not None and original.tune is not None:
        asked = tuned(asked, original.tune)  # a replication repeats what the arms chose, not their choosing
    if asked is not None and not same_content(asked, original):
        keys = differences(asked, original)
        more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
        raise LabError(
            f"{path} is no longer the study that {runs / original.name / STUDY} declares; they differ in "
            f"{', '.join(keys[:SHOWN])}{more}: gspo-lab replicate {original.name} repeats what was declared"
        )
    ingest(runs)
    if left := _left(original.name, runs):
        raise LabError(
            f"{original.name} is not finished ({', '.join(left[:SHOWN])}{' ...' * (len(left) > SHOWN)}): go on with it "
            "first; what has said nothing yet cannot be replicated"
        )
    known = sorted((one for _, one in _declared(runs) if _of(one, original.name)), key=_numbered)
    place = path if asked is not None else _place(original, runs)
    if known and not another:
        begun = next((one for one in known if _left(one.name, runs)), known[-1])
        return Replication(_study(begun, begun, place, asked), original, begun=True)
    name = next(name for n in range(1, 10**6) if not (runs / (name := f"{original.name}-r{n}")).exists())
    return Replication(_study(original, _next(original, name, runs), place, asked), original, begun=False)


def _original(name: str, runs: Path) -> Declaration:
    declared = _read(runs / name / STUDY)
    if declared is None:
        known = sorted(home.name for home, _ in _declared(runs))
        has = f"it has {', '.join(known)}" if known else "it holds no study yet"
        raise LabError(f"nothing to replicate: '{name}' was never declared in {runs}{nearest(name, known)}; {has}")
    if declared.recorded is not None:
        raise LabError(f"{name} was imported: its logs do not record enough to train it again; write a study file")
    if declared.trials_of is not None:
        raise LabError(f"{name} are the trials of {declared.trials_of}: gspo-lab replicate {declared.trials_of}")
    if declared.replicates is not None and (first := _read(runs / declared.replicates.name / STUDY)) is not None:
        return first
    return declared


def _read(file: Path) -> Declaration | None:
    """What a study's folder declares; a study that was copied is its own."""
    data = read_json(file)
    return None if data is None else replace(Declaration.parse(data, file), name=file.parent.name)


def _declared(runs: Path) -> Iterator[tuple[Path, Declaration]]:
    for file in sorted(runs.glob(f"*/{STUDY}")):
        try:
            found = _read(file)
        except LabError:
            continue
        if found is not None:
            yield file.parent, found


def _numbered(one: Declaration) -> tuple[int, str]:
    return len(one.name), one.name


def _of(one: Declaration, name: str) -> bool:
    return one.replicates is not None and one.replicates.name == name


def _left(name: str, runs: Path) -> list[str]:
    """The runs that a study's decision still lacks, with where they stand."""
    from gspo_lab.findings.decision import decision
    from gspo_lab.readings import Source
    from gspo_lab.readings import runs as runs_of

    with Evidence.open(database_of(runs), runs) as evidence:
        found = Source(evidence, name)
        states = {(run.arm, run.seed): run.state for run in runs_of(found)}
        needed = [(arm, seed) for seed in decision(found).seeds for arm in found.arms]
    return [
        f"{arm} seed {seed} {states.get((arm, seed), 'not begun')}"
        for arm, seed in needed
        if states.get((arm, seed)) != State.FINISHED
    ]


def _next(original: Declaration, name: str, runs: Path) -> Declaration:
    """The declaration of a further replication: seeds beyond all that any execution of the study has ever used."""
    every = [*_declared(runs), *_declared(runs / ARCHIVE)]
    used = {seed for _, one in every if same_content(one, original) or _of(one, original.name) for seed in one.seeds}
    used |= set(original.tune.seeds if original.tune is not None else ())
    count, first = len(original.seeds) - len(original.added), max({*used, *original.seeds}) + 1
    if first + count > MOST_SEED:
        raise LabError(f"{original.name} has used seed {first - 1}: no {count} fresh seeds are left beyond it")
    return replace(
        original,
        name=name,
        seeds=tuple(range(first, first + count)),
        added=(),
        arms={arm.name: _started(arm, first) for arm in original.arms.values()},
        replicates=Replicates(original.name, identity(original)),
        commands=(),
        created="",
        edits=(),
        superseded=(),
        digest=None,
        content_digest=None,
    )


def _started(arm: Arm, seed: int) -> Arm:
    """The arm from a starting model that no other execution had: of the first fresh seed, where all seeds share one."""
    start = arm.settings.warm_start
    if start.per_seed or not needs_start(arm.settings.model):
        return arm
    start = start.model_copy(update={"seed": seed})
    return replace(arm, settings=arm.settings.model_copy(update={"warm_start": start}))


def _place(original: Declaration, runs: Path) -> Path:
    """The file that the study came from, as far as its runs and commands tell: relative paths start beside it."""
    base = next((folder.run().base for folder in run_folders(runs / original.name) if folder.is_declared), ".")
    file = Path(original.commands[0][0]).name if original.commands and original.commands[0] else f"{original.name}.toml"
    return Path(base) / file


def _study(before: Declaration, declared: Declaration, place: Path, asked: Study | None) -> Study:
    """The declaration as a study to run; a launcher's options are not declared, and stand in the file alone."""
    own = {one.name: getattr(declared, one.name) for one in fields(Declaration)}
    study = Study(**own, path=place, command=_command(before, declared, place))
    return study if asked is None else replace(study, launch=asked.launch)


def _command(before: Declaration, declared: Declaration, place: Path) -> tuple[str, ...]:
    """What to type behind `gspo-lab check` or `run` for the same arms, seeds and name, without the link."""
    first = drop_options(before.commands[0] if before.commands else (str(place),), "--seeds", "--name")
    pairs = zip(first[1::2], first[2::2], strict=False)
    kept = [word for pair in pairs if not re.match(r"seeds\s*=", pair[1]) for word in pair]
    return (*first[:1], *kept, "--seeds", ",".join(map(str, declared.seeds)), "--name", declared.name)
