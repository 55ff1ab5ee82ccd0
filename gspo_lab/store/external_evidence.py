"""Evidence from elsewhere, an archive or another machine: read through a database of its own that is thrown away.

Nothing is written where the records lie.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from gspo_lab.errors import LabError
from gspo_lab.paths import DATABASE
from gspo_lab.store.database import copied
from gspo_lab.store.evidence import Evidence
from gspo_lab.store.ingest import ingest_apart


@contextmanager
def evidence_of_study(home: Path) -> Iterator[Evidence]:
    """One study's folder, as if it were all that its lab holds."""
    with TemporaryDirectory(prefix="gspo-lab-") as place:
        runs, database = Path(place, "runs"), Path(place, DATABASE)
        runs.mkdir()
        (runs / home.name).symlink_to(home.resolve(), target_is_directory=True)
        ingest_apart(runs, database)
        with Evidence.open(database, runs) as evidence:
            yield evidence


@contextmanager
def evidence_of_database(path: Path) -> Iterator[Evidence]:
    """A lab.db of any version. LabError where it is none."""
    with TemporaryDirectory(prefix="gspo-lab-") as place:
        copy = Path(place, DATABASE)
        try:
            copied(path, copy)
        except LabError as error:
            raise LabError(str(error).replace(str(copy), str(path))) from error
        with Evidence.open(copy, path.parent) as evidence:
            yield evidence
