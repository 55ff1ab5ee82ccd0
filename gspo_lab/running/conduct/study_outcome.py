"""How the conduct of a study ended: what failed, and the exit code."""

from collections.abc import Sequence
from dataclasses import dataclass

from gspo_lab.analysis.findings.decision import decision
from gspo_lab.analysis.readings import Source, runs
from gspo_lab.common.plain_data import Strings
from gspo_lab.common.states import Exit, State
from gspo_lab.running.conduct.worker_pool import WorkItemResult
from gspo_lab.study import Study


@dataclass(frozen=True)
class StudyOutcome:
    """The state of a study after `conduct`."""

    study: str
    failures: Strings
    exit_code: int
    """0: all needed runs finished; 1: some did not; 2: the user can fix the failure; 130:
    interrupted.
    """


def outcome(
    study: Study, source: Source, results: Sequence[WorkItemResult], *, interrupted: bool
) -> StudyOutcome:
    """The outcome of a study whose records are in the database of `source`."""
    failures = tuple(result.line for result in results if result.state is not State.FINISHED)
    finished = {(run.arm, run.seed) for run in runs(source) if run.finished}
    declared = {(run.arm, run.seed) for run in study.runs()}
    complete = decision(source).stopped or declared <= finished
    failed = {result.code for result in results if result.state in (State.FAILED, State.LOST)}
    if interrupted:
        code = Exit.INTERRUPTED
    elif failed:
        code = Exit.REFUSED if failed == {Exit.REFUSED} else Exit.INCOMPLETE
    else:
        code = Exit.FINISHED if complete else Exit.INCOMPLETE
    return StudyOutcome(study.name, failures, code)
