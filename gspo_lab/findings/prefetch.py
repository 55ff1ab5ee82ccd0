"""What a report reads first, added up in SQLite while Python imports what the report is made with: neither needs the
other, and SQLite works without Python's lock."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING

from gspo_lab.findings.training_curves import course
from gspo_lab.readings import Source, read
from gspo_lab.readings.named import CLIP

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


@contextmanager
def reading_ahead(wanted: "Sequence[tuple[Evidence, str]]") -> Iterator[None]:
    """Reads the longest sums of these studies, which their evidence then knows. Nobody else may read meanwhile: each
    has one connection, and shows one moment."""
    reader = Thread(target=_read, args=(wanted,))
    reader.start()
    try:
        yield
    finally:
        reader.join()


def _read(wanted: "Sequence[tuple[Evidence, str]]") -> None:
    with suppress(Exception):  # whoever needs what cannot be read is told
        sources = [Source(evidence, study) for evidence, study in wanted]
        for source in sources:
            course(source)
        for source in sources:
            read(source, CLIP)
