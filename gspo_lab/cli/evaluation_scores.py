"""What `eval` and `show` say of answers: scores with intervals over problems, how the arms of a
study compare, and remarks.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from gspo_lab.cli.output import print_json, print_lines, print_table
from gspo_lab.cli.shared_options import evidence_of, warn
from gspo_lab.common.plain_data import JsonMapping, JsonObject

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.analysis.readings import Source
    from gspo_lab.cli.published_score import PublishedNumber
    from gspo_lab.recording.store import Evidence
    from gspo_lab.tasks.evaluation.benchmark_spec import Bench

SUSPICIOUS = 0.02
"""Above this share of long answers that repeat another answer to the same problem, a note says so.
"""

LOWERED = {
    "context": "all that the prompt leaves of the context",
    "embedded": "all that an embedded model gets",
}
"""Why answers had a lower token limit than the requested one."""


RATINGS = {
    "rating": ("rating of one attempt", 1),
    "rating_of_eight": ("rating of up to 8 attempts", 8),
}
"""Estimates from the problems' CodeForces ratings, with the attempts of each.

CodeElo ranks over whole contests.
"""
OF_SCORE = {"score": "mean", "low": "item_low", "high": "item_high"} | {
    n: n for n in ("se", "sampling_se", "item_se")
}


def show_scores(
    runs: Path,
    ids: list[str],
    benches: "dict[str, Bench]",
    study: str | None,
    json: bool,
    served: str | None,
    published: "PublishedNumber | None",
) -> bool:
    """Print the scores with their intervals, and for a study how its arms compare. `served`: the
    model of a server.

    Returns whether all answers were graded.
    """
    from gspo_lab.analysis.readings import Source

    with evidence_of(runs) as evidence:
        rows = {}
        for name, bench in benches.items():
            rows[name] = scores(evidence, ids, name, _difficulties(bench))
            if published is not None:
                for row in rows[name]:
                    row["published"] = published.compared(row, bench)
        source = Source(evidence, study or "")
        compared = {}
        if study is not None:
            compared = {name: _arms_compared(source, name) for name in benches}
    flat = list(chain.from_iterable(rows.values()))
    if json:
        protocols = {name: bench.protocol for name, bench in benches.items()}
        together = list(chain.from_iterable(compared.values()))
        print_json({"asked": protocols, "scores": flat, "comparisons": together})
    else:
        for name, bench in benches.items():
            _print_scores(name, bench, rows[name], compared.get(name))
            if published is not None:
                _print_published(rows[name])
    for name, bench in benches.items():
        for note in _notes(rows[name], served, sampled=bench.sampling.temperature > 0):
            warn(f"{name}: {note}")
    return not any(row["errors"] for row in flat)


def _difficulties(bench: "Bench") -> JsonObject:
    """The difficulty of every problem whose task rates it."""
    rating = getattr(bench.task, "difficulty", lambda problem: None)
    ratings = {problem.id: rating(problem) for problem in bench.problems}
    return {problem: value for problem, value in ratings.items() if value is not None}


def _arms_compared(source: "Source", bench: str) -> list[JsonObject]:
    """How a study's arms compare with its baseline on one benchmark."""
    from gspo_lab.analysis.readings.answers import arms_apart

    return [
        {
            "bench": bench_name,
            "arm": arm,
            "against": source.declaration.baseline,
            "seeds": test.seeds,
            "problems": problems,
            "difference": test.estimate,
            "low": test.low,
            "high": test.high,
            "note": test.reason,
        }
        for bench_name, arm, problems, test in arms_apart(source, bench)
    ]


def _print_scores(
    name: str,
    bench: "Bench",
    rows: list[JsonObject],
    compared: list[JsonObject] | None,
) -> None:
    """The table of one benchmark's scores, and how a study's arms compare on it."""
    readable = [_readable(row) for row in rows]
    print_table(readable, empty="no answers", title=f"{name}\n{_protocol(bench, rows)}")
    if compared:
        print_table(compared, empty="", title="\narms, on new problems and new seeds")


def _print_published(rows: list[JsonObject]) -> None:
    """How each score compares with the published number, and what differs in protocol."""
    from gspo_lab.cli.published_score import sentence

    for row in rows:
        print_lines([f"{row['run_id']}, step {row['step']}: {sentence(row['published'])}"])
    print_lines([_published_protocol(rows[0]["published"]["differs"])])


def _published_protocol(differs: Mapping[str, str]) -> str:
    """What may differ between an evaluation and that of a published number."""
    settings = ", ".join(f"{name} {values}" for name, values in differs.items())
    return (
        f"Unlike the benchmark's usual settings: {settings or 'nothing'}. Not known of the"
        " published number: its settings, prompt and grader."
    )


def rated(difficulty: Mapping[str, float], graded: "DataFrame", attempts: int) -> JsonObject | None:
    """The rating by the chance that `attempts` answers solve each problem of known difficulty.

    None without such a problem, or where a problem has fewer answers. `graded`: columns problem,
    correct and graded (counts).
    """
    from gspo_lab.analysis.stats.passk import estimate_rating, pass_at_k

    graded = graded[graded["problem"].isin(list(difficulty))]
    if graded.empty or graded["graded"].min() < attempts:
        return None
    solved = pass_at_k(graded["correct"], graded["graded"], attempts)
    return {
        **vars(estimate_rating(graded["problem"].map(difficulty), solved)),
        "note": "estimate, not CodeElo",
    }


def scores(
    evidence: "Evidence",
    ids: list[str],
    evaluation: str,
    difficulty: Mapping[str, float] | None = None,
) -> list[JsonObject]:
    """One row per run (or model, or server) and step: avg@k with an interval over problems, pass@k,
    what went wrong.
    """
    from gspo_lab.analysis.readings.answers import checkpoints

    plain = (
        "run_id",
        "bench",
        "step",
        "problems",
        "samples",
        "k",
        "pass_at_k",
        "distinct",
        "error",
        "answered_by",
    )
    out = []
    for checkpoint in checkpoints(evidence, ids, evaluation):
        row: JsonObject = {
            **{name: getattr(checkpoint, name) for name in plain},
            **{key: getattr(checkpoint.score, name, None) for key, name in OF_SCORE.items()},
            **checkpoint.counts,
            "evaluation": evaluation,
            "limits": checkpoint.how.get("limits"),
            "weights": (
                checkpoint.how.get("subject", {}).get("checkpoints", {}).get(str(checkpoint.step))
            ),
        }
        if difficulty:
            row |= {
                name: rated(difficulty, checkpoint.graded, attempts)
                for name, (_, attempts) in RATINGS.items()
            }
        out.append(row)
    return out


def _readable(row: JsonObject) -> JsonObject:
    k = row["k"]
    several = {} if k == 1 else {f"pass@{k}": row["pass_at_k"], "distinct": row["distinct"]}
    return {
        "asked": row["run_id"],
        "step": row["step"],
        f"avg@{row['samples']}": row["score"],
        "95%": None if row["low"] is None else f"{row['low']:.3f}–{row['high']:.3f}",
        **several,
        **{
            words: _rating_words(row[name]) for name, (words, _) in RATINGS.items() if row.get(name)
        },
        "cut": row["truncated"],
        "not graded": row["errors"],
        **({"answered by": row["answered_by"]} if row["by_others"] else {}),
    }


def _rating_words(rating: JsonMapping) -> str:
    low = None if rating["low"] is None else round(rating["low"])
    high = None if rating["high"] is None else round(rating["high"])
    if rating["rating"] is None:
        return f"below {high}" if low is None else f"above {low}"
    return (
        f"{rating['rating']:.0f} (no interval)"
        if low is None
        else f"{rating['rating']:.0f} ({low} to {high})"
    )


def _protocol(bench: "Bench", rows: list[JsonObject]) -> str:
    sampling = bench.sampling
    task = bench.task
    limits = [row["limits"] for row in rows if row["limits"]]
    low = min((limit["lowest"] for limit in limits), default=sampling.max_tokens)
    high = max((limit["highest"] for limit in limits), default=sampling.max_tokens)
    why = " and ".join(
        sorted({LOWERED[limit["lowered_by"]] for limit in limits if limit["lowered_by"]})
    )
    lowered = f" (instead of {sampling.max_tokens:,}: {why})" if why else ""
    data = "" if task.data_digest is None else f", data {task.data_digest[:12]}"
    limit = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return (
        f"{len(bench.problems)} problems x {bench.samples},"
        f" temperature {sampling.temperature:g}, top-p {sampling.top_p:g},"
        f" token limit {limit}{lowered},"
        f" prompt {task.prompt_version}, grader {task.grader}{data}; 95% over problems"
    )


def _notes(rows: list[JsonObject], served: str | None, *, sampled: bool) -> Iterator[str]:
    """Remarks on an evaluation, a line each: where the grader failed, where a server named another
    model than the requested `served`, and where sampled answers repeat each other. Servers with
    equal seeds repeat answers.
    """
    errors = sum(row["errors"] for row in rows)
    answers = sum(row["answers"] for row in rows)
    renamed = sum(row["by_others"] for row in rows)
    repeats = sum(row["repeats"] for row in rows)
    long = sum(row["long"] for row in rows)
    if errors:
        why = next((row["error"] for row in rows if row["error"]), "no reason was given")
        ungraded = f"{errors} of {answers} answers could not be graded and are in no score ({why})"
        yield f"{ungraded}: gspo-lab records regrade tries again"
    if served is not None and renamed:
        name = next(row["answered_by"] for row in rows if row["by_others"])
        by = f"{renamed} of {answers} answers are, as the server says, by '{name}'"
        yield f"{by} and not by '{served}', which was asked"
    # A model in this process seeds every sample by itself; whether a server does is unknown.
    if served is not None and sampled and repeats > SUSPICIOUS * long:
        yield (
            f"{repeats} of {long} long answers repeat another answer to the same problem word for"
            " word; does the engine seed every sample for itself? (a model that ends in a loop"
            " does it too)"
        )
