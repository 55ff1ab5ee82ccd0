"""Executions of a study that its lab's database does not hold: those that --fresh moved away, and other machines'."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from gspo_lab.errors import LabError
from gspo_lab.files import read_json
from gspo_lab.findings.executions import ORIGINAL, Execution, Executions, execution, executions
from gspo_lab.layout import ARCHIVE, DATABASE, STUDY
from gspo_lab.readings import Source, once
from gspo_lab.store.external_evidence import evidence_of_database, evidence_of_study
from gspo_lab.study import Declaration
from gspo_lab.study.declaration import differences, same_content

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
                    yield execution(Source(evidence, home.name, label))
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
                out.append(execution(Source(evidence, home.name, f"{home.name} ({path})")))
        return out
    database = path / DATABASE if path.is_dir() else path
    if not database.is_file():
        raise LabError(f"{path}: holds neither studies nor {DATABASE}")
    with evidence_of_database(database) as evidence:
        known = {name: Declaration.parse(evidence.study(name), f"{path}: {name}") for name in evidence.studies()}
        names = _same(known, found.declaration, path)
        return [execution(Source(evidence, name, f"{name} ({path})")) for name in names]


def _same(known: dict[str, Declaration], declared: Declaration, path: Path) -> list[str]:
    """The names of those that are the declared study by content."""
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
