"""Reading ahead: SQLite adds up a study's long series while Python imports and draws.

Half of a report's time is sums over every recorded row, the other half is Python's. SQLite computes outside of Python's
lock, so both go on at once. Nothing here is needed for a report to be right: what was not read ahead is read when it is
asked for, and what is just being read is waited for.
"""

import atexit
import gc
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

import gspo_lab.store.aggregates  # noqa: F401 - the thread below begins without any import
from gspo_lab.report.course import MINIBATCH_WEIGHTS, TABLES, spans_of
from gspo_lab.report.document import plotly

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

SWITCH_SECONDS = 1e-4
"""How soon a thread that SQLite returns to gets Python's lock back: it asks for it once per row of sums, and by default
an import may hold it for 5 ms each time."""


class Placed(Protocol):
    """A study in its database."""

    @property
    def evidence(self) -> "Evidence": ...
    @property
    def study(self) -> str: ...


@contextmanager
def reading_ahead(sources: Sequence[Placed]) -> Iterator[None]:
    """Within it a second processor adds up what the sections will ask for, and then packs the library."""
    before, collecting = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(min(before, SWITCH_SECONDS))
    # All that is made here is kept until the page is whole: who looks for garbage, now or at the end, finds none.
    gc.disable()
    atexit.register(gc.freeze)
    try:
        with ExitStack() as stack:
            databases = {one.evidence for one in sources}
            others = {evidence: stack.enter_context(evidence.beside()) for evidence in databases}
            thread = stack.enter_context(ThreadPoolExecutor(1))
            wanted = [(other, one.study) for one in sources if (other := others[one.evidence]) is not None]
            job = thread.submit(_prepare, wanted)
            yield
            job.result()
    finally:
        sys.setswitchinterval(before)
        if collecting:
            gc.enable()


def _prepare(studies: "Sequence[tuple[Evidence, str]]") -> None:
    for evidence, study in studies:
        evidence.series(study, "steps", "reward_mean")
        for table in TABLES:
            spans_of(evidence, study, table)
        # By now, or soon, whoever draws has imported these: pydantic and more.
        from gspo_lab.matching.trace import IDENTITIES
        from gspo_lab.study import settled_since

        evidence.prompt_streams(study)
        evidence.first_minibatches(study, IDENTITIES)
        evidence.minibatches(study, MINIBATCH_WEIGHTS, since=settled_since(evidence.study(study)))
    plotly()
