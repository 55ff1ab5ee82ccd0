"""Answers problem by problem, with the grades in force: of a study's runs, of one run, of a later
evaluation.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gspo_lab.common.plain_data import JsonObject, OptionalText
from gspo_lab.recording.records import StoredAnswer
from gspo_lab.recording.store.evidence import table_of
from gspo_lab.recording.store.schema import (
    ANSWERS,
    CHOSEN,
    IN_ORDER,
    WITH_GRADES,
    all_in_force,
    in_force,
    pass_at,
    quoted,
    scores_of,
)
from gspo_lab.study.verdict_tables import score_named

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.recording.store.evidence import Evidence

NUMBERS = ("problems", "answers", "score", "errors", "truncated")
SCORE_COLUMNS = ["run_id", "arm", "seed", "bench", "step", *NUMBERS, "evaluation"]
LONG = 64
"""Tokens from which on two sampled answers are hardly ever the same by chance."""
OF_RUNS = f"FROM chosen JOIN answers USING (run_id) {WITH_GRADES} WHERE"
OF_ONE_SEED = "evaluation = ? AND bench = ? AND step = ? AND sample = 0 AND seed = ?"


def read_scores(evidence: "Evidence", study: str, evaluation: OptionalText = "") -> "DataFrame":
    """run_id, arm, seed, bench, step, problems, answers, score, errors, truncated, evaluation.

    `score` is the mean over problems of the mean `correct` of a problem's answers; answers whose
    grader failed are counted in `errors` and not in the score (NaN if none was graded); `truncated`
    counts answers cut at the limit. Where the study's primary score is "NAME:reward" or
    "NAME:pass@8", that is a benchmark of its own beside NAME. `evaluation` "" (the default) keeps
    to what the runs recorded as they trained; a name takes that later evaluation of their
    checkpoints, None takes everything: then a (run, bench, step) may occur more than once.
    """
    rows = [tuple(row.values()) for row in score_rows(evidence, study, evaluation)]
    return table_of(rows, SCORE_COLUMNS, NUMBERS)


def score_rows(evidence: "Evidence", study: str, evaluation: OptionalText = "") -> list[JsonObject]:
    """The scores of `read_scores` as rows by column, None if not measured. Do not change a row."""
    query = (
        f"SELECT {quoted(SCORE_COLUMNS)} FROM chosen JOIN scores USING (run_id) ORDER BY"
        f" {IN_ORDER}, evaluation, bench, step"
    )

    def read() -> list[JsonObject]:
        shares = evidence.select(study, query)
        primary = (evidence.study(study).get("verdict") or {}).get("primary")
        score = score_named(primary or "")
        if not score.reward and score.k == 1:
            return shares
        query_of_score = (
            scores_of("reward") if score.reward else scores_of("correct", pass_at(score.k))
        )
        decides = evidence.select(
            study, query.replace("JOIN scores", f"JOIN ({query_of_score}) AS scores")
        )
        return shares + [row | {"bench": primary} for row in decides if row["bench"] == score.bench]

    scores = evidence.once((query, study), read)
    return [row for row in scores if evaluation in (None, row["evaluation"])]


def grades(
    evidence: "Evidence", study: str, bench: str, steps: Sequence[int], evaluation: str = ""
) -> list[tuple[Any, ...]]:
    """arm, seed, step, problem, sample, correct (None: not graded) of all runs' answers, in no
    order; of the benchmark "NAME:reward" the rewards stand as `correct`."""
    bench, correct = _graded_column(bench)
    marks = ", ".join("?" * len(steps))
    query = (
        f"{CHOSEN} SELECT arm, seed, step, problem, sample, {correct} {OF_RUNS} "
        f"evaluation = ? AND bench = ? AND step IN ({marks})"
    )
    return evidence.rows(query, (study, evaluation, bench, *steps))


def tallies(evidence: "Evidence", study: str, bench: str) -> "DataFrame":
    """run_id, arm, seed, step, problem, answers, errors (not graded) and correct: counts over a
    problem's answers that the runs gave as they trained; of the benchmark "NAME:reward" the sum of
    rewards."""
    bench, correct = _graded_column(bench)
    return evidence.table(
        f"{CHOSEN} SELECT run_id, arm, seed, step, problem, COUNT(*) AS answers, SUM(correct IS"
        " NULL) AS errors, COALESCE(SUM(correct), 0) AS correct FROM (SELECT run_id, arm, seed,"
        f" step, problem, {correct} {OF_RUNS} evaluation = '' AND bench = ?) GROUP BY run_id, arm,"
        " seed, step, problem ORDER BY run_id, step, problem",
        study,
        bench,
    )


def first_answers(
    evidence: "Evidence", study: str, bench: str, step: int, seed: int, evaluation: str = ""
) -> list[JsonObject]:
    """arm, problem, correct, truncated, tokens of the first answer to each problem by the runs of
    one seed; of the benchmark "NAME:reward" the rewards stand as `correct`."""
    bench, correct = _graded_column(bench)
    return evidence.select(
        study,
        f"SELECT arm, problem, {correct}, truncated, tokens {OF_RUNS} {OF_ONE_SEED} ORDER BY"
        f" {IN_ORDER}, problem",
        *(evaluation, bench, step, seed),
    )


def transcripts(
    evidence: "Evidence",
    study: str,
    bench: str,
    step: int,
    seed: int,
    problems: Sequence[str],
    evaluation: str = "",
) -> list[JsonObject]:
    """arm and every column of the first answers to some problems, with their texts."""
    bench = _graded_column(bench)[0]
    columns = [
        name
        for name in ANSWERS.names
        if name not in ("run_id", "evaluation", "bench", "step", "sample")
    ]
    return evidence.select(
        study,
        f"SELECT arm, {all_in_force(columns)} {OF_RUNS} {OF_ONE_SEED} "
        f"AND problem IN ({', '.join('?' * len(problems))}) ORDER BY {IN_ORDER}",
        *(evaluation, bench, step, seed, *problems),
    )


def _graded_column(name: str) -> tuple[str, str]:
    """The benchmark that was asked, and SQL for what of its grades counts: whether they are right,
    or the rewards.
    """
    score = score_named(name)
    return score.bench, in_force("reward" if score.reward else "correct", "correct")


def by_problem(evidence: "Evidence", runs: Sequence[str], evaluation: str) -> "DataFrame":
    """run_id, bench, step, problem and counts over its answers in a later evaluation, with the
    grades in force.

    Counts: answers, graded, correct, errors, truncated, distinct (different texts), long (LONG
    tokens or more). Also repeats (long answers that occurred before), by_others (answers by another
    model than the requested one). Texts: answered_by (that model), error (why one was not graded).
    `runs` are ids of runs or subjects.
    """
    long = f"CASE WHEN tokens >= {LONG} THEN text END"
    query = f"""
        SELECT run_id, bench, step, problem, COUNT(*) AS answers, COUNT(correct) AS graded,
               COALESCE(SUM(correct), 0) AS correct, SUM(correct IS NULL) AS errors, SUM(truncated) AS truncated,
               COUNT(DISTINCT text) AS "distinct", COUNT({long}) AS long,
               COUNT({long}) - COUNT(DISTINCT {long}) AS repeats,
               COUNT(answered_by) AS by_others, MIN(answered_by) AS answered_by, MIN(error) AS error
        FROM (SELECT {all_in_force((*ANSWERS.key, "correct", "truncated", "tokens", "text", "answered_by", "error"))}
              FROM answers {WITH_GRADES} WHERE evaluation = ? AND run_id IN ({", ".join("?" * len(runs))}))
        GROUP BY run_id, bench, step, problem ORDER BY run_id, bench, step, problem"""  # noqa: E501
    return evidence.table(query, evaluation, *runs)


def questions(
    evidence: "Evidence", run: str
) -> list[tuple[str, int, str, int, int | None, OptionalText, OptionalText]]:
    """bench, step, problem, sample, sample_seed, prompt, reference of the benchmark answers that a
    run gave itself.
    """
    names = ("bench", "step", "problem", "sample", "sample_seed", "prompt", "reference")
    query = (
        f"SELECT {quoted(names)} FROM answers WHERE run_id = ? AND evaluation = '' AND bench <>"
        " 'rollout'"
    )
    return evidence.rows(query + " ORDER BY rowid", (run,))


def stored(evidence: "Evidence", run: str) -> dict[str, list[StoredAnswer]]:
    """The benchmark answers of a run or subject by evaluation, with the grades in force.

    "" stands for a run's own evaluations.
    """
    columns = all_in_force([field.name for field in fields(StoredAnswer)])
    query = (
        f"SELECT answers.evaluation, {columns} FROM answers {WITH_GRADES} "
        "WHERE run_id = ? AND bench <> 'rollout' ORDER BY answers.evaluation, answers.rowid"
    )
    answers: dict[str, list[StoredAnswer]] = {}
    for evaluation, *values in evidence.rows(query, (run,)):
        answers.setdefault(evaluation, []).append(StoredAnswer(*values))
    return answers
