"""All executions of one declaration with their verdicts: originals, replications, archived and on
other machines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path

from gspo_lab.analysis.findings.decision import Decision, decision
from gspo_lab.analysis.findings.stability import verdicts
from gspo_lab.analysis.matching import Match
from gspo_lab.analysis.matching.certificate import check_journals
from gspo_lab.analysis.readings import Source, once, runs
from gspo_lab.analysis.stats.random_effects import (
    CombinedEstimate,
    ReplicationOutcome,
    SeedCluster,
    clusters,
    combine,
    replication_outcome,
    welch_p,
)
from gspo_lab.analysis.stats.verdict import Verdict
from gspo_lab.common.atomic_files import read_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import ARCHIVE, DATABASE, STUDY
from gspo_lab.common.plain_data import Integers, OptionalFloat, OptionalText
from gspo_lab.common.states import State
from gspo_lab.recording.store.evidence import evidence_of_database, evidence_of_study
from gspo_lab.recording.store.schema import CHOSEN
from gspo_lab.study import Declaration
from gspo_lab.study.contrast import side_names
from gspo_lab.study.declaration import differences, same_content
from gspo_lab.study.verdict_tables import score_named

ORIGINAL = "original"
REPLICATION = "replication"
SAME = "the same by content"
NOT_BEGUN = "no run of it has begun"
NOT_HERE = "the original, not in this lab"
ANOTHER = "named as the original, another study by now"
OTHER_PROBLEMS = "it was asked other problems"


@dataclass(frozen=True)
class Execution:
    """One execution of a study, and its verdicts.

    `study` is its name at declaration, `seeds` are those that decide. `unread` says why only its
    name is known. `copy_of` names an earlier execution with the same rollouts or differences: a
    copy does not count. `finished` means that every deciding run is finished. `rollouts` has the
    seed of each digest of a run's first rollout. `problems` are the name, prompt and reference of
    each problem of the deciding benchmark.
    """

    name: str
    relation: str
    declared_at: str
    study: str
    seeds: Integers = ()
    verdicts: tuple[tuple[str, Verdict], ...] = ()
    decision: Decision | None = None
    unread: OptionalText = None
    copy_of: OptionalText = None
    finished: bool = True
    rollouts: Mapping[str, int] = field(default_factory=dict)
    problems: frozenset[tuple[object, ...]] = frozenset()

    @property
    def counts(self) -> bool:
        """Whether it is read, and not a copy."""
        return self.unread is None and self.copy_of is None

    def of(self, arm: str) -> Verdict | None:
        """Its verdict on an arm."""
        return dict(self.verdicts).get(arm)

    @property
    def differences(self) -> dict[str, list[float]]:
        """The differences of each arm's pairs, in order of size: another seed's name hides none."""
        return {
            arm: sorted(verdict.paired.differences)
            for arm, verdict in self.verdicts
            if verdict.paired is not None
        }

    def repeats(self, earlier: "Execution") -> bool:
        """Whether it is a record of the earlier execution's runs.

        Then all differences are equal, or a run sampled what one of another seed had sampled.
        """
        if any(self.differences.values()) and self.differences == earlier.differences:
            return True
        shared = self.rollouts.keys() & earlier.rollouts.keys()
        return any(self.rollouts[digest] != earlier.rollouts[digest] for digest in shared)


@dataclass(frozen=True)
class VerdictReplication:
    """A verdict of the execution `by` on an arm, and what a later execution says of it."""

    arm: str
    verdict: Verdict
    by: str
    fate: ReplicationOutcome
    later: str


@dataclass(frozen=True)
class Executions:
    """All executions of one study's content, in their order."""

    executions: tuple[Execution, ...]

    @property
    def has_others(self) -> bool:
        """Whether there are executions beside the study itself."""
        return len(self.executions) > 1

    @property
    def under_way(self) -> bool:
        """Whether a declared replication is unfinished."""
        return any(
            execution.relation == REPLICATION and not execution.finished
            for execution in self.executions
        )

    @property
    def can_confirm(self) -> bool:
        """Whether there are three or more clusters of seeds: two say next to nothing about how
        executions vary.
        """
        finished = [
            execution for execution in self.executions if execution.counts and execution.finished
        ]
        arms = [arm for arm, _ in finished[0].verdicts] if finished else []
        return any(len(self._clusters(arm, finished)) > 2 for arm in arms)

    @cached_property
    def replications(self) -> tuple[VerdictReplication, ...]:
        """Every verdict beside each later execution that can confirm or contradict it."""
        counted = [execution for execution in self.executions if execution.counts]
        compared = []
        for initial, later in combinations(counted, 2):
            for arm, verdict in initial.verdicts:
                again = later.of(arm)
                fate = None if again is None else replication_outcome(verdict, again)
                if fate is not None:
                    compared.append(
                        VerdictReplication(arm, verdict, initial.name, fate, later.name)
                    )
        return tuple(compared)

    @property
    def contradicted(self) -> tuple[VerdictReplication, ...]:
        """The verdicts that a later execution contradicts."""
        return tuple(
            replication for replication in self.replications if replication.fate == "contradicted"
        )

    def combined(self, arm: str) -> CombinedEstimate | None:
        """An arm's combined estimate over all executions that have an interval and do not withhold
        the verdict.
        """
        found = self._clusters(arm, self.executions)
        return combine(found, found[0].paired.alpha) if found else None

    def times(self, arm: str) -> int:
        """How many executions `combined` is of."""
        return sum(cluster.executions for cluster in self._clusters(arm, self.executions))

    def welch_p(self, arm: str) -> OptionalFloat:
        """p of executions on other seeds that differ this much if nothing but their pairs
        varied.
        """
        tests = [cluster.paired for cluster in self._clusters(arm, self.executions)]
        estimates = [paired.estimate or 0.0 for paired in tests]
        ses = [paired.se or 0.0 for paired in tests]
        return welch_p(estimates, ses, [paired.df or 1.0 for paired in tests])

    @staticmethod
    def _clusters(arm: str, executions: Sequence[Execution]) -> list[SeedCluster]:
        judged = [
            (execution.seeds, execution.of(arm)) for execution in executions if execution.counts
        ]
        tests = [
            (seeds, verdict.paired)
            for seeds, verdict in judged
            if verdict and verdict.word != "no verdict"
        ]
        return clusters(
            [(seeds, paired) for seeds, paired in tests if paired and paired.low is not None]
        )


def execution(source: Source, study: Source) -> Execution:
    """`source` as one of several executions of `study`, named by its label.

    `study` names the sides of a contrast.
    """
    declared = source.declaration
    decided = decision(source)
    judged = verdicts(source)
    if decided.contrast is not None:
        negative, positive = side_names(study.declaration.verdict)
        judged = {positive: replace(decided.contrast, subject=positive, baseline=negative)}
    begun = any(run.state != State.PLANNED for run in runs(source))
    return Execution(
        name=source.label,
        relation=ORIGINAL if declared.original is None else REPLICATION,
        declared_at=declared.created,
        study=str(source.evidence.study(source.study)["name"]),
        seeds=decided.seeds,
        verdicts=tuple(judged.items()),
        decision=decided,
        unread=None if begun else NOT_BEGUN,
        finished=begun and all(run.finished for run in runs(source) if run.seed in decided.seeds),
        rollouts=_first_rollouts(source),
        problems=_problems(source),
    )


def _first_rollouts(source: Source) -> dict[str, int]:
    """The seed of each digest of what a run sampled before its first update."""
    query = (
        f"{CHOSEN} SELECT rollout_digest, chosen.seed FROM chosen JOIN steps USING (run_id) WHERE"
        " step = 0 AND rollout_digest IS NOT NULL"
    )
    rows = source.evidence.rows(query, (source.study,))
    return {str(digest): seed for digest, seed in rows}


def _problems(source: Source) -> frozenset[tuple[object, ...]]:
    """Name, prompt and reference of the deciding benchmark's problems, as one run was asked them.

    The certificate compares those of all runs of a study.
    """
    query = (
        f"{CHOSEN} SELECT DISTINCT problem, prompt, reference FROM answers WHERE run_id ="
        " (SELECT MIN(run_id) FROM chosen) AND evaluation = '' AND bench = ?"
    )
    bench = score_named(source.declaration.primary or "").bench
    return frozenset(source.evidence.rows(query, (source.study, bench)))


def _checked_execution(source: Source, study: Source) -> Execution:
    """An execution from elsewhere: its database must hold what its journals hold.

    Its name says that it is not verified where these do not lie beside it, or are not sealed.
    """
    evidence = source.evidence
    if not (evidence.runs_folder / source.study).is_dir():
        return replace(execution(source, study), name=f"{source.label}, not verified")
    check = check_journals(evidence, source.study)
    if check.state == Match.UNDECLARED:
        unread = f"its journals speak against it: {check.detail}"
        return replace(execution(source, study), unread=unread, verdicts=())
    name = source.label if check.state == Match.EQUAL else f"{source.label}, not verified"
    return replace(execution(source, study), name=name)


@once
def all_executions(source: Source) -> Executions:
    """The study and all of the same content: in its database, in its archive, and in
    `source.elsewhere`.

    Replications come last, each group in the order of declaration. Studies without a link are the
    same by content.
    """
    studies = (
        Source(source.evidence, name) for name in source.evidence.studies() if name != source.study
    )
    same = [source, *(study for study in studies if _same_content(study, source))]
    alike = [execution(study, source) for study in same]
    alike += archived(source)
    for path in source.elsewhere:
        alike += executions_at(path, source)
    asked = alike[0].problems
    alike = [
        replace(member, unread=OTHER_PROBLEMS, verdicts=())
        if member.finished and len({asked, member.problems} - {frozenset()}) > 1
        else member
        for member in alike
    ]
    name = source.declaration.original
    if name is not None and all(member.study != name for member in alike):
        unread = ANOTHER if name in source.evidence.studies() else NOT_HERE
        alike.append(Execution(name, ORIGINAL, "", name, unread=unread))
    listed: list[Execution] = []
    for member in sorted(
        alike, key=lambda member: (member.relation == REPLICATION, member.declared_at, member.name)
    ):
        relation = SAME if listed and member.relation == ORIGINAL else member.relation
        twins = [earlier.name for earlier in listed if member.repeats(earlier)]
        listed.append(replace(member, relation=relation, copy_of=next(iter(twins), None)))
    return Executions(tuple(listed))


def _same_content(study: Source, source: Source) -> bool:
    """`same_content`; False for a study whose declaration is damaged."""
    try:
        return same_content(study.declaration, source.declaration)
    except LabError:
        return False


NOT_READ = "archived, not read"


def archived(source: Source) -> Iterator[Execution]:
    """The executions that --fresh has moved to the archive, as far as they can be read."""
    for file in sorted((source.evidence.runs_folder / ARCHIVE).glob(f"*/{STUDY}")):
        home = file.parent
        label = f"{ARCHIVE}/{home.name}"
        try:
            if same_content(Declaration.parse(read_json(file), file), source.declaration):
                yield _read_at(home, label, source, execution)
        except (LabError, OSError):
            if home.name.rpartition("-")[0] == source.study:
                yield Execution(label, ORIGINAL, "", source.study, unread=NOT_READ)


def executions_at(path: Path, source: Source) -> list[Execution]:
    """The executions of the source's study in `path`.

    `path` is a folder of runs, one study's folder, or another machine's lab.db. LabError without an
    execution, and where a study of that name differs in content; the message names the keys.
    """
    if not path.exists():
        raise LabError(f"{path}: no such file or folder; name another lab.db or a folder of runs")
    homes = (
        [path]
        if (path / STUDY).is_file()
        else [file.parent for file in sorted(path.glob(f"*/{STUDY}"))]
    )
    if homes:
        declarations = {
            home.name: Declaration.parse(read_json(home / STUDY), home / STUDY) for home in homes
        }
        opened = [
            home
            for home in homes
            if home.name in _same_execution(declarations, source.declaration, path)
        ]
        return [
            _read_at(home, f"{home.name} ({path})", source, _checked_execution) for home in opened
        ]
    database = path / DATABASE if path.is_dir() else path
    if not database.is_file():
        raise LabError(f"{path}: holds neither studies nor {DATABASE}")
    with evidence_of_database(database) as evidence:
        declarations = {
            name: Declaration.parse(evidence.study(name), f"{path}: {name}")
            for name in evidence.studies()
        }
        names = _same_execution(declarations, source.declaration, path)
        return [
            _checked_execution(Source(evidence, name, f"{name} ({path})"), source) for name in names
        ]


def _read_at(
    home: Path, label: str, source: Source, read: Callable[[Source, Source], Execution]
) -> Execution:
    with evidence_of_study(home) as evidence:
        return read(Source(evidence, home.name, label), source)


def _same_execution(
    declarations: dict[str, Declaration], declared: Declaration, path: Path
) -> list[str]:
    if same := [name for name, study in declarations.items() if same_content(study, declared)]:
        return same
    if declared.recorded is not None:
        raise LabError(
            f"{path}: {declared.name} was imported, and logs do not record enough to call two"
            " studies the same; report it without --include"
        )
    near = declared.name if len(declarations) > 1 else next(iter(declarations), "")
    if near not in declarations:
        raise LabError(
            f"{path}: no study there is {declared.name} by content; it has"
            f" {', '.join(declarations) or 'none'}"
        )
    keys = ", ".join(differences(declarations[near], declared))
    raise LabError(
        f"{path}: {near} there is another study than {declared.name} here; they differ in {keys}"
    )
