"""All-or-nothing imports: write runs into a folder beside the study, then move them into it.

A run that is imported again is replaced. Rows and answers may come in two imports: new rows replace
the run's rows, new answers its answers.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import Path

from gspo_lab.common.atomic_files import sha256_of, write_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import STUDY
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.common.states import STARTED, State
from gspo_lab.exchange.importers.config import check_equal_configs
from gspo_lab.exchange.importers.convert import Conversion
from gspo_lab.exchange.importers.secrets import without_home
from gspo_lab.recording.journal import Journal, JournalReader, from_dict, from_end
from gspo_lab.recording.records import AnswerRecord, Record, RunStatus
from gspo_lab.recording.runfolder import RunFolder, WorkFolder
from gspo_lab.study import Declaration, Run
from gspo_lab.study.import_origin import ORIGIN, Origin

RECORDS_AT_ONCE = 1000
"""Records that are written together; no more are held."""


@dataclass(frozen=True)
class ImportedRun:
    """The result for one run. `state` is new, replaced, extended or unchanged."""

    id: str
    state: str
    origin: Origin
    other_source: str | None = None
    """The log of an earlier import that this one replaces."""


class ImportTransaction:
    """One import of a study. Nothing in the study changes before `commit`."""

    def __init__(self, runs: Path, study: str) -> None:
        self._live = runs / study
        self._beside = runs / f".import-{study}"
        self._study = study
        self._runs: dict[str, ImportedRun] = {}

    @property
    def runs(self) -> list[ImportedRun]:
        """The runs of this import so far."""
        return list(self._runs.values())

    @contextmanager
    def open(self) -> Iterator["ImportTransaction"]:
        """Hold the import lock of this study. At the end, delete what was not committed."""
        root = self._beside.parent
        created = [folder for folder in (root, *root.parents) if not folder.exists()]
        refusal = f"{self._study}: another import of it is under way"
        try:
            with WorkFolder(self._beside).exclusive_lock(refusal):
                self._clear()
                try:
                    yield self
                # before the lock is released: a refused import must not delete the other's files
                finally:
                    self._clear()
                    shutil.rmtree(self._beside, ignore_errors=True)
        finally:
            for folder in created:
                with suppress(OSError):  # it is not empty
                    folder.rmdir()

    def end(self, arm: str, seed: int) -> int:
        """The number of steps of a run so far; 1 for a new run."""
        for home in (self._beside, self._live):
            journal = self._folder(home, arm, seed).journal
            if journal.exists():
                ends = (line["step"] for line in from_end(journal) if "state" in line)
                return max(1, next(ends, 1))
        return 1

    def stage_run(self, arm: str, seed: int, converted: Conversion, source: str) -> None:
        """Write one run's records beside the study.

        LabError if the run was trained here.
        """
        name = f"{self._study}/{arm}/s{seed}"
        live = self._folder(self._live, arm, seed)
        staged = self._folder(self._beside, arm, seed)
        earlier = next((folder for folder in (staged, live) if folder.journal.exists()), None)
        origin = None if earlier is None else _origin(earlier)
        if earlier is not None and origin is None:
            raise LabError(
                f"{name} was trained here; give the import another --study, or another seed"
            )
        draft = RunFolder(staged.path.with_name(f"{staged.path.name}.draft"))
        draft.path.mkdir(parents=True)
        kept_records, kept_origin = _records_to_keep(earlier, origin, converted)
        self._write(draft, kept_records, converted, source, kept_origin)
        shutil.rmtree(staged.path, ignore_errors=True)
        draft.path.rename(staged.path)
        self._record_outcome(name, live, staged, extends=kept_origin is not None)

    def commit(self, declaration: Declaration) -> None:
        """Write study.json and every run.json, and move the journals into the study.

        LabError if a journal is gone, or two runs of an arm have different configurations.
        """
        changed = {run.id for run in self.runs if run.state != "unchanged"}
        specified: list[tuple[Run, RunFolder, RunFolder]] = []
        for arm, entry in declaration.arms.items():
            configs: dict[str, JsonMapping] = {}
            for seed in declaration.seeds:
                name = f"{self._study}/{arm}/s{seed}"
                live = self._folder(self._live, arm, seed)
                source = self._folder(self._beside, arm, seed) if name in changed else live
                origin = _origin(source)
                if origin is None and name in changed:
                    raise LabError(
                        f"{name}: its journal is gone from {self._beside}; import it again"
                    )
                if origin is None:
                    continue
                check_equal_configs(arm, name, origin.config, configs)
                configs[name] = origin.config
                run = Run(
                    self._study,
                    arm,
                    seed,
                    entry.settings,
                    entry.declared,
                    {},
                    origin=origin,
                    recorded_keys=entry.recorded_keys,
                )
                specified.append((run, source, live))
        self._live.mkdir(parents=True, exist_ok=True)
        write_json(self._live / STUDY, declaration.to_json())
        for run, source, live in specified:
            live.specify(run.to_json(), imported=True)
            if source != live:
                source.journal.replace(live.journal)

    def _clear(self) -> None:
        """Delete everything but the lock."""
        for entry in self._beside.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)

    def _folder(self, home: Path, arm: str, seed: int) -> RunFolder:
        return RunFolder(home / arm / f"s{seed}")

    def _record_outcome(
        self, name: str, live: RunFolder, staged: RunFolder, *, extends: bool
    ) -> None:
        if not live.journal.exists():
            state = "new"
        elif _same_records(live.journal, staged.journal):
            state = "unchanged"
        else:
            state = "extended" if extends else "replaced"
        origin = _origin(staged)
        assert origin is not None
        earlier = _origin(live) if state == "replaced" else None
        moved = earlier is not None and earlier.source != origin.source
        other_source = earlier.source if earlier is not None and moved else None
        self._runs[name] = ImportedRun(name, state, origin, other_source)

    def _write(
        self,
        folder: RunFolder,
        kept_records: Iterable[Record],
        converted: Conversion,
        source: str,
        kept_origin: Origin | None,
    ) -> None:
        """Write the records between a start and an end record; the end states the meaning of each
        metric.
        """
        origin = Origin(converted.log.program, without_home(source), converted.log.version)
        facts = {ORIGIN: origin.to_json()}
        records = chain(converted.records(), kept_records)
        if converted.has_no_rows:
            records = chain(kept_records, converted.records())
        end = 0
        with Journal(folder.path) as journal:
            journal.write([RunStatus(state=STARTED, step=0, facts=facts)])
            while batch := list(islice(records, RECORDS_AT_ONCE)):
                end = max(end, *map(_steps_done, batch))
                journal.write(batch)
            origin = converted.origin(source)
            if kept_origin is not None:
                rows = kept_origin if converted.has_no_rows else origin
                origin = replace(rows, files={**kept_origin.files, **origin.files})
            state = State.STOPPED if converted.stopped else State.FINISHED
            # The seal tells a run that is imported again from a journal that lost its end.
            seal = sha256_of(folder.journal)
            facts = {ORIGIN: origin.to_json()}
            journal.write([RunStatus(state=state, step=end, journal=seal, facts=facts)])


def _steps_done(record: Record) -> int:
    """The number of steps that a run has made with this record."""
    made_by_step = record.kind in ("step", "update")
    return int(record.step) + made_by_step


def _origin(folder: RunFolder) -> Origin | None:
    """A run's origin by its last import; None if a worker wrote its journal."""
    facts: JsonObject = next(
        (line["facts"] for line in from_end(folder.journal) if line.get("facts")), {}
    )
    return Origin.from_fact(facts[ORIGIN], str(folder.path)) if ORIGIN in facts else None


def _records_to_keep(
    earlier: RunFolder | None, origin: Origin | None, converted: Conversion
) -> tuple[Iterator[Record], Origin | None]:
    """The records of an earlier import that this one does not replace, with their origin.

    Rows leave answers, and answers leave rows.
    """
    if earlier is None:
        return iter(()), None
    replaces_answers = converted.has_no_rows
    # line by line: a log may be longer than memory
    lines = (
        line
        for line in JournalReader(earlier.journal)
        if "state" not in line and (line["kind"] == AnswerRecord.kind) != replaces_answers
    )
    head = next(lines, None)
    if head is None:
        return iter(()), None
    return (from_dict(line) for line in chain([head], lines)), origin


def _same_records(journal: Path, other: Path) -> bool:
    """Whether two journals of imports hold the same records and ends."""
    lines = zip_longest(_comparable(journal), _comparable(other))
    return all(line == other_line for line, other_line in lines)


def _comparable(journal: Path) -> Iterator[JsonObject]:
    """A journal's lines without its start, its seal and the digests of the logs."""
    for line in JournalReader(journal):
        if "state" not in line:
            yield line
        elif line["state"] != STARTED:
            origin = {key: value for key, value in line["facts"][ORIGIN].items() if key != "files"}
            yield {"state": line["state"], "step": line["step"], **origin}
