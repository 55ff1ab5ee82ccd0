"""Traces of runs for certificates and comparisons: starts, prompts, first updates, questions of
benchmarks. Every function reads from one `Evidence`."""

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gspo_lab.common.plain_data import JsonObject, OptionalText
from gspo_lab.common.states import STARTED
from gspo_lab.recording.store.evidence import arrays
from gspo_lab.recording.store.schema import CHOSEN, IN_ORDER, WITH_GRADES, all_in_force

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.recording.store.evidence import Evidence


def read_starts(evidence: "Evidence", study: str) -> list[JsonObject]:
    """A row for each start of a worker, in order: run_id, arm, seed, step, run, declaration, facts
    (JSON text).
    """
    query = (
        "SELECT run_id, arm, seed, step, run, declaration, facts FROM chosen JOIN statuses USING"
        f" (run_id) WHERE state = '{STARTED}' AND evaluation = '' ORDER BY {IN_ORDER}, position"
    )
    return evidence.select(study, query)


def read_seals(evidence: "Evidence", study: str) -> dict[str, dict[str, str]]:
    """Digests of answers in each finished run's last record: run -> `bench@step` -> digest."""
    query = (
        f"{CHOSEN} SELECT run_id, answers FROM chosen JOIN statuses USING (run_id) "
        "WHERE evaluation = '' AND answers IS NOT NULL ORDER BY position"
    )
    return {run: json.loads(answers) for run, answers in evidence.rows(query, (study,))}


def read_subjects(evidence: "Evidence") -> "DataFrame":
    """run_id, kind, name and content (JSON text) of every model and server that was evaluated
    without a run.
    """
    return evidence.table("SELECT run_id, kind, name, content FROM subjects ORDER BY run_id")


def read_later_evaluations(evidence: "Evidence", runs: Sequence[str] | None = None) -> "DataFrame":
    """run_id, evaluation, bench and content (evaluation.json) of each later evaluation; `runs`
    keeps to some runs or subjects.
    """
    where = "" if runs is None else f"WHERE run_id IN ({', '.join('?' * len(runs))}) "
    query = (
        f"SELECT run_id, evaluation, bench, content FROM evaluations {where}ORDER BY run_id,"
        " evaluation"
    )
    return evidence.table(query, *(runs or ()))


def read_questions(
    evidence: "Evidence", run: str
) -> list[tuple[str, int, str, int, OptionalText, OptionalText, OptionalText, OptionalText]]:
    """bench, step, problem, sample, prompt, reference, grader, text of the answers that a run
    itself recorded, in the order of asking."""
    names = ("bench", "step", "problem", "sample", "prompt", "reference", "grader", "text")
    query = (
        f"SELECT {all_in_force(names)} FROM answers {WITH_GRADES} WHERE run_id = ? AND evaluation"
        " = '' "
    )
    return evidence.rows(query + "ORDER BY answers.rowid", (run,))


def read_prompt_digests(evidence: "Evidence", run: str) -> dict[int, str]:
    """Per step of a run the rolling digest of its prompts, where it was recorded."""
    query = "SELECT step, prompt_digest FROM steps WHERE run_id = ? AND prompt_digest IS NOT NULL"
    return dict(evidence.rows(query, (run,)))


def read_prompt_streams(evidence: "Evidence", study: str) -> dict[str, tuple[int, OptionalText]]:
    """Per run id the number of its prompt digests, and a fingerprint of them all with their
    steps.
    """
    # Rows are read, and so joined, in the order of the table's key: (run_id, step).
    query = (
        "SELECT COUNT(prompt_digest), GROUP_CONCAT(step || ':' || prompt_digest) FROM steps WHERE"
        " run_id = ?"
    )
    out: dict[str, tuple[int, OptionalText]] = {}
    for run in evidence.chosen(study):
        ((count, text),) = evidence.rows(query, (run.id,))
        out[run.id] = count, None if text is None else hashlib.sha256(text.encode()).hexdigest()
    return out


def read_first_minibatches(
    evidence: "Evidence", run: str, metrics: Sequence[str]
) -> tuple[bool, tuple[int, dict[str, float]] | None, list[int]]:
    """What a run's updates with minibatch 0 record of these metrics, in three parts.

    The first part: whether any of the metrics is ever not 0. The second: the first step at which
    one is not 0 while the first metric is recorded, with the values there, or None. The third: how
    many of these updates record the first metric, the first two, and so on."""
    names = [f'"{name}"' for name in metrics]
    any_not_zero = " OR ".join(f"{name} <> 0" for name in names)
    all_recorded = [
        " AND ".join(f"{name} IS NOT NULL" for name in names[: count + 1])
        for count in range(len(names))
    ]
    counts = ", ".join(f"COUNT(*) FILTER (WHERE {recorded})" for recorded in all_recorded)
    first_step = f"MIN(step) FILTER (WHERE {all_recorded[0]} AND ({any_not_zero}))"
    query = (
        f"SELECT COUNT(*) FILTER (WHERE {any_not_zero}), {first_step}, {counts} FROM updates WHERE"
        " run_id = ? AND minibatch = 0"
    )
    ((count, step, *recorded),) = evidence.rows(query, (run,))
    query = (
        f"SELECT {', '.join(names)} FROM updates WHERE run_id = ? AND minibatch = 0 AND step = ?"
    )
    first = None
    for row in evidence.rows(query, (run, step)):
        values = zip(metrics, row, strict=True)
        first = step, {name: value for name, value in values if value is not None}
    return bool(count), first, recorded


def read_equal_norms(evidence: "Evidence", study: str) -> list[list[str]]:
    """Groups of run ids whose gradient norms are equal on the first mini-batch of one step."""
    import numpy as np

    query = (
        "SELECT step, grad_norm FROM updates WHERE run_id = ? AND minibatch = 0 AND grad_norm > 0"
    )
    runs = [run.id for run in evidence.chosen(study)]
    norms = [arrays(evidence.rows(query, (run,)), ("step", "norm")) for run in runs]
    run_N = np.repeat(runs, np.array([len(own["step"]) for own in norms], dtype=np.int64))
    key_N = np.concatenate([[], *(own["step"] + 1j * own["norm"] for own in norms)])
    _, group_N, counts = np.unique(key_N, return_inverse=True, return_counts=True)
    groups: dict[int, list[str]] = {}
    for place in np.flatnonzero(counts[group_N] > 1):
        groups.setdefault(group_N[place], []).append(run_N[place])
    return [groups[group] for group in sorted(groups)]
