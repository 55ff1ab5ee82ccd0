"""Every time that one declaration was carried out: originals, replications, the same study under another name, archived
ones and those of other machines; what each said, and all of them together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from gspo_lab.errors import LabError
from gspo_lab.files import read_json
from gspo_lab.findings.decision import Decision, decision
from gspo_lab.findings.stability import verdicts
from gspo_lab.layout import ARCHIVE, DATABASE, STUDY
from gspo_lab.readings import Source, once, runs
from gspo_lab.states import State
from gspo_lab.stats.executions import Cluster, Fate, Together, agreement, clusters, fate, together
from gspo_lab.stats.verdict import Verdict
from gspo_lab.store.external_evidence import evidence_of_database, evidence_of_study
from gspo_lab.study import Declaration
from gspo_lab.study.contrast import side_names
from gspo_lab.study.declaration import differences, same_content

ORIGINAL, REPLICATION, SAME = "original", "replication", "the same by content"
NOT_BEGUN = "no run of it has begun"
NOT_HERE, ANOTHER = "the original, not in this lab", "named as the original, another study by now"


@dataclass(frozen=True)
class Execution:
    """One time that a study was carried out, and what it said.

    `study` is what it was called when it was declared, `seeds` are those that it decided on. `unread` says why nothing
    is known but its name, `copy_of` names an earlier one with the very same numbers: it is no execution of its own.
    It is `finished` when every run that it decides on is.
    """

    name: str
    relation: str
    declared_at: str
    study: str
    seeds: tuple[int, ...] = ()
    verdicts: tuple[tuple[str, Verdict], ...] = ()
    decision: Decision | None = None
    unread: str | None = None
    copy_of: str | None = None
    finished: bool = True

    @property
    def counts(self) -> bool:
        """Whether it is read, and an execution of its own."""
        return self.unread is None and self.copy_of is None

    def of(self, arm: str) -> Verdict | None:
        """Its verdict on an arm."""
        return dict(self.verdicts).get(arm)

    @property
    def numbers(self) -> tuple[object, ...]:
        """What two records of one execution have in common."""
        return (self.seeds, *((arm, verdict.paired and verdict.paired.differences) for arm, verdict in self.verdicts))


@dataclass(frozen=True)
class VerdictReplication:
    """A word that one execution said of an arm, and what a later one makes of it."""

    arm: str
    said: Verdict
    by: str
    fate: Fate
    later: str


@dataclass(frozen=True)
class Executions:
    """All executions of one study's content in their order, the first one first."""

    every: tuple[Execution, ...]

    @property
    def others(self) -> bool:
        """Whether there is any but the study itself."""
        return len(self.every) > 1

    @property
    def under_way(self) -> bool:
        """Whether a replication was declared that has not come to its end."""
        return any(one.relation == REPLICATION and not one.finished for one in self.every)

    @property
    def can_confirm(self) -> bool:
        """Whether there are so many on seeds of their own that agreeing means something: a single difference between
        two says next to nothing of how executions vary."""
        finished = [one for one in self.every if one.counts and one.finished]
        return any(len(self._clusters(arm, finished)) > 2 for one in finished[:1] for arm, _ in one.verdicts)

    @cached_property
    def words(self) -> tuple[VerdictReplication, ...]:
        """What became of every word in each later execution that can judge it."""
        counted = [one for one in self.every if one.counts]
        return tuple(
            VerdictReplication(arm, said, first.name, became, later.name)
            for place, first in enumerate(counted)
            for later in counted[place + 1 :]
            for arm, said in first.verdicts
            if (again := later.of(arm)) is not None and (became := fate(said, again)) is not None
        )

    @property
    def taken_back(self) -> tuple[VerdictReplication, ...]:
        """The words that a later execution denies."""
        return tuple(one for one in self.words if one.fate == "taken back")

    def together(self, arm: str) -> Together | None:
        """An arm's differences over all executions that have an interval and no reason to withhold it."""
        known = self._clusters(arm, self.every)
        return together(known, known[0].paired.alpha) if known else None

    def times(self, arm: str) -> int:
        """How many executions `together` is of."""
        return sum(cluster.executions for cluster in self._clusters(arm, self.every))

    def agreement(self, arm: str) -> float | None:
        """p of executions on other seeds that differ this much if nothing but their pairs varied."""
        known = [one.paired for one in self._clusters(arm, self.every)]
        estimates, ses = [paired.estimate or 0.0 for paired in known], [paired.se or 0.0 for paired in known]
        return agreement(estimates, ses, [paired.n for paired in known])

    @staticmethod
    def _clusters(arm: str, every: Sequence[Execution]) -> list[Cluster]:
        judged = [(one.seeds, verdict) for one in every if one.counts and (verdict := one.of(arm)) is not None]
        known = [(seeds, verdict.paired) for seeds, verdict in judged if verdict.word != "withheld"]
        return clusters([(seeds, paired) for seeds, paired in known if paired and paired.low is not None])


def execution(found: Source, study: Source) -> Execution:
    """What `found` says, as one of several executions of `study`; it is named by its label. A contrast has the names
    that `study` gives it."""
    declared, decided, judged = found.declaration, decision(found), verdicts(found)
    if decided.contrast is not None:
        negative, positive = side_names(study.declaration.verdict)
        judged = {positive: replace(decided.contrast, subject=positive, baseline=negative)}
    begun = any(run.state != State.PLANNED for run in runs(found))
    return Execution(
        name=found.label,
        relation=ORIGINAL if declared.replicates is None else REPLICATION,
        declared_at=declared.created,
        study=str(found.evidence.study(found.study)["name"]),
        seeds=decided.seeds,
        verdicts=tuple(judged.items()),
        decision=decided,
        unread=None if begun else NOT_BEGUN,
        finished=begun and all(run.finished for run in runs(found) if run.seed in decided.seeds),
    )


def executions(found: Source, elsewhere: Iterable[Execution]) -> Executions:
    """The study, its like in the same database, and those read elsewhere: in its archive, on other machines.

    By the time of their declaration, replications last. Studies without a link to the first are the same by content.
    """
    beside = (Source(found.evidence, name) for name in found.evidence.studies() if name != found.study)
    here = [found, *(study for study in beside if _same_content(study, found))]
    alike = [*(execution(study, found) for study in here), *elsewhere]
    alike += _lost(found, alike)
    told: list[Execution] = []
    for one in sorted(alike, key=lambda one: (one.relation == REPLICATION, one.declared_at, one.name)):
        twin = next((other.name for other in told if _same_record(one, other)), None)
        told.append(replace(one, relation=SAME if told and one.relation == ORIGINAL else one.relation, copy_of=twin))
    return Executions(tuple(told))


def _lost(found: Source, alike: Sequence[Execution]) -> Iterator[Execution]:
    link = found.declaration.replicates
    if link is not None and all(one.study != link.name for one in alike):
        here = link.name in found.evidence.studies()
        yield Execution(link.name, ORIGINAL, "", link.name, unread=ANOTHER if here else NOT_HERE)


def _same_content(study: Source, found: Source) -> bool:
    """`same_content`; False for a study whose declaration this version cannot read."""
    try:
        return same_content(study.declaration, found.declaration)
    except LabError:
        return False


def _same_record(one: Execution, other: Execution) -> bool:
    measured = any(verdict.paired and verdict.paired.n for _, verdict in one.verdicts)
    return measured and one.numbers == other.numbers


NOT_READ = "archived, not read"


@once
def all_executions(of: Source) -> Executions:
    """Every time that the study's content was carried out, here, in the archive and in `elsewhere`."""
    return executions(of, chain(archived(of), *(executions_at(path, of) for path in of.elsewhere)))


def archived(found: Source) -> Iterable[Execution]:
    """The same study as --fresh has moved it to the archive, as far as it can be read."""
    for file in sorted((found.evidence.runs_folder / ARCHIVE).glob(f"*/{STUDY}")):
        home = file.parent
        label = f"{ARCHIVE}/{home.name}"
        try:
            if same_content(Declaration.parse(read_json(file), file), found.declaration):
                with evidence_of_study(home) as evidence:
                    yield execution(Source(evidence, home.name, label), found)
        except (LabError, OSError):
            if home.name.rpartition("-")[0] == found.study:
                yield Execution(label, ORIGINAL, "", found.study, unread=NOT_READ)


def executions_at(path: Path, found: Source) -> list[Execution]:
    """What `path` holds of the same study: a folder of runs, one study's folder, or a lab.db of another machine.

    LabError where there is none, and where a study of that name differs in content; it names the keys.
    """
    if not path.exists():
        raise LabError(f"{path}: no such file or folder; name another lab.db or a folder of runs")
    homes = [path] if (path / STUDY).is_file() else [file.parent for file in sorted(path.glob(f"*/{STUDY}"))]
    if homes:
        known = {home.name: Declaration.parse(read_json(home / STUDY), home / STUDY) for home in homes}
        out = []
        for home in (home for home in homes if home.name in _same(known, found.declaration, path)):
            with evidence_of_study(home) as evidence:
                out.append(execution(Source(evidence, home.name, f"{home.name} ({path})"), found))
        return out
    database = path / DATABASE if path.is_dir() else path
    if not database.is_file():
        raise LabError(f"{path}: holds neither studies nor {DATABASE}")
    with evidence_of_database(database) as evidence:
        known = {name: Declaration.parse(evidence.study(name), f"{path}: {name}") for name in evidence.studies()}
        names = _same(known, found.declaration, path)
        return [execution(Source(evidence, name, f"{name} ({path})"), found) for name in names]


def _same(known: dict[str, Declaration], declared: Declaration, path: Path) -> list[str]:
    if same := [name for name, study in known.items() if same_content(study, declared)]:
        return same
    if declared.recorded is not None:
        raise LabError(
            f"{path}: {declared.name} was imported, and logs do not record enough to call two studies the same; "
            "report it without --include"
        )
    near = declared.name if declared.name in known else next(iter(known)) if len(known) == 1 else None
    if near is None:
        raise LabError(f"{path}: no study there is {declared.name} by content; it has {', '.join(known) or 'none'}")
    keys = ", ".join(differences(known[near], declared))
    raise LabError(f"{path}: {near} there is another study than {declared.name} here; they differ in {keys}")
