"""Self-consistency of a run's record, checked in SQL: the first place where columns contradict each
other.

Only for runs of the native engine, whose columns have the meanings of docs/reference/metrics.md.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gspo_lab.recording.journal import ANSWERED, digest_of_answers, evaluation_key
from gspo_lab.recording.records import ROLLOUT
from gspo_lab.recording.store.schema import STEPS, UPDATES, TableSpec, quoted

if TYPE_CHECKING:
    from gspo_lab.recording.store.evidence import Evidence

EQUAL_TO = 1e-9
"""Relative difference up to which two sums of the same numbers are equal."""
SINGLE = 1e-5
"""The same where one of them is in single precision."""

CHANGES = """
    SELECT *,
           prompts_total - LAG(prompts_total, 1, 0) OVER w AS more_prompts,
           tokens_sampled_total - LAG(tokens_sampled_total, 1, 0) OVER w AS more_tokens,
           tokens_trained_total - LAG(tokens_trained_total, 1, 0) OVER w AS more_trained,
           updates_total - LAG(updates_total, 1, 0) OVER w AS more_updates,
           device_seconds_total - LAG(device_seconds_total, 1, 0) OVER w AS more_seconds,
           flops_total - LAG(flops_total, 1, 0) OVER w AS more_flops
    FROM steps WHERE run_id = :run WINDOW w AS (ORDER BY step)"""
ORDERED = (
    "SELECT *, ROW_NUMBER() OVER (ORDER BY step, minibatch) - 1 AS before FROM updates WHERE run_id"
    " = :run"
)
TRAINED = "COALESCE(responses * response_tokens_mean, 0) * :epochs"
UPDATES_DUE = "MIN(:updates / :epochs, responses / :group_size) * :epochs"
"""Where the groups of a step vary: one update for each group at most, even with more mini-batches.
"""
COUNTS = {
    "prompts": (
        "more_prompts <> prompts OR CASE WHEN :rounds THEN prompts <> responses / :group_size +"
        " dropped_groups OR prompts NOT BETWEEN :prompts AND :prompts * :rounds ELSE prompts <>"
        " :prompts END"
    ),
    "responses": (
        "CASE WHEN :varying THEN responses % :group_size <> 0 OR (:rounds AND responses > :prompts"
        " * :group_size) ELSE responses <> prompts * :group_size END"
    ),
    "dropped_groups": f"zero_variance_groups * :prompts - dropped_groups > {SINGLE} * prompts",
    "tokens_sampled_total": (
        "CASE WHEN :varying THEN more_tokens < 0 OR tokens_trained_total > tokens_sampled_total *"
        f" :epochs ELSE ABS(more_tokens - responses * response_tokens_mean) > {SINGLE} *"
        " more_tokens END"
    ),
    "tokens_trained_total": (
        f"CASE WHEN :varying THEN ABS(more_trained - {TRAINED}) > {SINGLE} * more_trained "
        "ELSE tokens_trained_total <> tokens_sampled_total * :epochs END"
    ),
    "updates_total": (
        f"CASE WHEN :varying THEN more_updates <> {UPDATES_DUE} ELSE updates_total <> (step + 1) *"
        " :updates END"
    ),
    "flops_total": "more_flops <= 0",
    # A step in which no group has a signal trains on no response, and keeps nothing for replay.
    "replay_bytes": (
        "replay_bytes > 0 AND NOT :replays OR replay_bytes = 0 AND :replays AND"
        " zero_variance_groups < 1"
    ),
    "device_seconds_total": f"ABS(more_seconds - seconds_step) > {EQUAL_TO} * device_seconds_total",
}
"""By wrong column the condition that no step may meet.

Values that were not recorded are NULL and meet none.
"""
CLIPS = {
    "learning_rate": (
        "ABS(learning_rate - :rate * MIN(1.0, (CASE WHEN :varying THEN before ELSE step * :updates"
        f" + minibatch END + 1.0) / :warmup)) > {EQUAL_TO} * :rate"
    ),
    "clipped_tokens": (
        "ABS(clipped_tokens - clip_fraction_tokens * response_tokens) > 1e-6 * response_tokens"
    ),
    "clip_fraction_tokens": (
        "ABS(clip_fraction_tokens_high + clip_fraction_tokens_low - clip_fraction_tokens) >"
        f" {EQUAL_TO}"
    ),
}
"""The same of updates."""


def first_missing(evidence: "Evidence", run: str, steps: int, updates: int | None) -> str | None:
    """What `steps` steps with `updates` updates each lack or have too much; None if they are
    complete.

    With `updates` None the steps state how many updates they made.
    """
    for table, each, column in (("steps", 1, "0"), ("updates", updates, "minibatch")):
        if each is None:
            query = (
                "SELECT (SELECT COUNT(*) FROM updates WHERE run_id = :run), MAX(updates_total) FROM"
                " steps"
            )
            made, due = evidence.rows(f"{query} WHERE run_id = :run", {"run": run})[0]
            return None if made == due else f"{made} updates, where its steps count {due}"
        query = (
            f"SELECT COUNT(*), MIN(step), MAX(step), MAX({column}) FROM {table} WHERE run_id = ?"
        )
        count, low, high, last = evidence.rows(query, (run,))[0]
        if (count, low, high, last) != (
            (steps * each, 0, steps - 1, each - 1) if steps else (0, None, None, None)
        ):
            return (
                f"{count} {table} up to step {high}, where {steps * each} up to step {steps - 1}"
                " are due"
            )
    return None


def at_odds(
    evidence: "Evidence", run: str, settings: Mapping[str, float], rule: str | None
) -> Iterator[tuple[str, str]]:
    """Each column that contradicts others or the settings, and the first place where it does.

    `settings`: prompts, group_size, epochs, updates (a step), rate, warmup, kept (share of stored
    responses), varying (whether a step's groups depend on the sampled ones), rounds (of prompts in
    a step; 0: no group is dropped), replays (whether old choices of experts are replayed). `rule`
    is the rule whose would_clip_* must equal the run's own clips, because both have the same range.
    """
    conditions = dict(CLIPS)
    if rule is not None:
        counterfactual = f"would_clip_fraction_tokens_{rule}"
        conditions[counterfactual] = f"ABS({counterfactual} - clip_fraction_tokens) > {EQUAL_TO}"
    values = {"run": run, **settings}
    yield from _first_of(evidence, f"({CHANGES})", {**_shares(STEPS), **COUNTS}, values)
    yield from _first_of(evidence, f"({ORDERED})", {**_shares(UPDATES), **conditions}, values)
    if settings["kept"] >= 1:
        query = f"""
            SELECT steps.step FROM steps JOIN (
              SELECT step, AVG(COALESCE(reward, 0)) AS mean, COUNT(*) AS kept FROM answers
              WHERE run_id = :run AND evaluation = '' AND bench = '{ROLLOUT}' GROUP BY step
            ) USING (step) WHERE run_id = :run
            AND (kept <> responses OR (NOT :rounds AND ABS(mean - reward_mean) > {SINGLE} * (1 + ABS(mean))))
            ORDER BY step LIMIT 1"""  # noqa: E501
        for (step,) in evidence.rows(query, {"run": run, "rounds": settings["rounds"]}):
            yield "reward_mean", f"step {step}"


def _shares(table: TableSpec) -> dict[str, str]:
    """By column that is a share, the condition that it leaves 0 to 1 by more than rounding."""
    shares = [
        column.name
        for column in table.columns
        if column.unit.startswith("share") and not column.json
    ]
    return {name: f'"{name}" NOT BETWEEN -1e-6 AND 1.000001' for name in shares}


def _first_of(
    evidence: "Evidence", table: str, conditions: Mapping[str, str], values: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Each condition that some row meets, by name, with the first such step; all in one pass."""
    sums = ", ".join(f"MIN(step) FILTER (WHERE {condition})" for condition in conditions.values())
    sums_row = evidence.rows(f"SELECT {sums} FROM {table}", values)[0]
    for name, step in zip(conditions, sums_row, strict=True):
        if step is not None:
            yield name, f"step {step}"


def answer_digests(evidence: "Evidence", run: str) -> dict[str, str]:
    """Per evaluation during training the digest of its answers in the database, with their first
    grades.
    """
    query = (
        f"SELECT bench, step, {quoted(ANSWERED)} FROM answers WHERE run_id = ? AND evaluation = ''"
        " AND bench <> ?"
    )
    grouped: dict[str, list[tuple[object, ...]]] = {}
    for bench, step, *row in evidence.rows(query, (run, ROLLOUT)):
        grouped.setdefault(evaluation_key(bench, step), []).append(tuple(row))
    return {key: digest_of_answers(rows) for key, rows in grouped.items()}
