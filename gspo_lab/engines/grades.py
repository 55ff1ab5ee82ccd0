"""What a step of any engine needs of its grades before it is trained on."""

from collections.abc import Sequence

from gspo_lab.errors import LabError

MOST_WORDS = 200
"""Characters of a grader's last error that are told."""


def need_grades(step: int, errors: Sequence[str | None], most: float) -> None:
    """LabError where the grader failed on a larger share than `most` of a step's responses.

    `most` is `rollout.max_grader_errors`; `errors` holds one entry per response, None where it was graded.
    """
    failed = [error for error in errors if error is not None]
    if len(failed) > most * len(errors):
        last = failed[-1].strip().partition("\n")[0][:MOST_WORDS]
        raise LabError(
            f"the grader failed on {len(failed)} of {len(errors)} responses of step {step}, more than "
            f"rollout.max_grader_errors = {most:g} allows; the last time: {last}. Mend it and start the study "
            "again: the run goes on from its last checkpoint"
        )


def failure(error: str | None, reward: float | None) -> str | None:
    """Why a response has no reward; None where it has one."""
    return (error or "it gave no reward") if reward is None else None
