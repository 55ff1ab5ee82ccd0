"""What an evaluation came to, as rows: scores with intervals over problems, pass@k, arms against each other."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.evaluation.bench import Bench
    from gspo_lab.readings import Source
    from gspo_lab.store import Evidence

SUSPICIOUS = 0.02
"""The share of long answers that may repeat another answer to the same problem before somebody should be told."""

LOWERED = {"context": "all that the prompt leaves of the context", "embedded": "all that an embedded model gets"}
"""What kept answers from the token limit that was asked for."""

RATINGS = {"rating": ("rating of one attempt", 1), "rating_of_eight": ("rating of up to 8 attempts", 8)}
"""Estimates from the problems' ratings on CodeForces, with the attempts of each. Neither is CodeElo, which ranks a
model among the contestants of whole contests."""


def difficulties(bench: "Bench") -> dict[str, float]:
    """The ratings of a benchmark's problems on CodeForces, by their ids; nothing for other benchmarks."""
    rating = getattr(bench.task, "difficulty", lambda problem: None)
    known = {problem.id: rating(problem) for problem in bench.problems}
    return {name: value for name, value in known.items() if value is not None}


def rated(difficulty: Mapping[str, float], graded: "DataFrame", attempts: int) -> dict[str, Any] | None:
    """The rating by the chance that `attempts` answers solve each problem of known difficulty. None without such a
    problem, or where a problem has fewer answers. `graded`: columns problem, correct and graded (counts)."""
    from gspo_lab.stats.passk import pass_at_k
    from gspo_lab.stats.rating import estimate_rating

    graded = graded[graded["problem"].isin(list(difficulty))]
    if graded.empty or graded["graded"].min() < attempts:
        return None
    solved = pass_at_k(graded["correct"], graded["graded"], attempts)
    return {**vars(estimate_rating(graded["problem"].map(difficulty), solved)), "note": "estimate, not CodeElo"}


def scores(
    evidence: "Evidence", ids: list[str], evaluation: str, difficulty: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """One row per run (or model, or server) and step: avg@k with an interval over problems, pass@k, what went wrong."""
    from gspo_lab.readings.later_evaluations import checkpoints

    out = []
    for one in checkpoints(evidence, ids, evaluation):
        names = ("mean", "item_low", "item_high", "se", "sampling_se", "item_se")
        score = [None if one.score is None else getattr(one.score, name) for name in names]
        row: dict[str, Any] = {
            **{name: getattr(one, name) for name in ("run_id", "bench")},
            "evaluation": evaluation,
            **{name: getattr(one, name) for name in ("step", "problems", "samples")},
            **dict(zip(("score", "low", "high", "se", "sampling_se", "item_se"), score, strict=True)),
            **{name: getattr(one, name) for name in ("k", "pass_at_k", "distinct")},
            **one.counts,
            **{name: getattr(one, name) for name in ("error", "answered_by")},
            "limits": one.how.get("limits"),
            "weights": one.how.get("subject", {}).get("checkpoints", {}).get(str(one.step)),
        }
        if difficulty:
            row |= {name: rated(difficulty, one.graded, attempts) for name, (_, attempts) in RATINGS.items()}
        out.append(row)
    return out


def comparisons(found: "Source", evaluation: str) -> list[dict[str, Any]]:
    """Every arm against the study's baseline after the last step, with an interval for new problems and new seeds."""
    from gspo_lab.readings.later_evaluations import arms_apart

    baseline = found.declaration.baseline
    return [
        {"bench": bench, "arm": arm, "against": baseline, "seeds": apart.seeds, "problems": problems}
        | {"difference": apart.estimate, "low": apart.low, "high": apart.high, "note": apart.reason}
        for bench, arm, problems, apart in arms_apart(found, evaluation)
    ]


def with_shared_starts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, those of one start that several runs share (the same weights, the same numbers) as one, named so."""
    alike: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        numbers = tuple(row[key] for key in ("answers", "score", "low", "high", "pass_at_k", "truncated", "errors"))
        start = (row["weights"], numbers) if row["step"] == 0 and row["weights"] else (row["run_id"], row["step"])
        alike.setdefault(start, []).append(row)
    return [
        ones[0]
        if len(ones) == 1
        else {**ones[0], "run_id": f"{_together([one['run_id'] for one in ones])} (shared start)"}
        for ones in alike.values()
    ]


def _together(ids: list[str]) -> str:
    """`s/grpo/s0`, `s/gspo/s0` -> `s/grpo+gspo/s0`."""
    parts = zip(*(run_id.split("/") for run_id in ids), strict=True)
    return "/".join("+".join(dict.fromkeys(names)) for names in parts)


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `scores` as a person reads it."""
    k = row["k"]
    several = {} if k == 1 else {f"pass@{k}": row["pass_at_k"], "distinct": row["distinct"]}
    return {
        "asked": row["run_id"],
        "step": row["step"],
        f"avg@{row['samples']}": row["score"],
        "95%": None if row["low"] is None else f"{row['low']:.3f}–{row['high']:.3f}",
        **several,
        **{words: _rating_words(row[name]) for name, (words, _) in RATINGS.items() if row.get(name)},
        "cut": row["truncated"],
        "not graded": row["errors"],
        **({"answered by": row["answered_by"]} if row["by_others"] else {}),
    }


def _rating_words(rating: Mapping[str, Any]) -> str:
    low, high = (None if rating[end] is None else round(rating[end]) for end in ("low", "high"))
    if rating["rating"] is None:
        return f"below {high}" if low is None else f"above {low}"
    return f"{rating['rating']:.0f} (no interval)" if low is None else f"{rating['rating']:.0f} ({low} to {high})"


def asked_how(bench: "Bench", rows: list[dict[str, Any]]) -> str:
    """How the questions were put and what limited the answers, in one line."""
    how, task = bench.sampling, bench.task
    limits = [row["limits"] for row in rows if row["limits"]]
    low = min((one["lowest"] for one in limits), default=how.max_tokens)
    high = max((one["highest"] for one in limits), default=how.max_tokens)
    why = " and ".join(sorted({LOWERED[one["lowered_by"]] for one in limits if one["lowered_by"]}))
    lowered = f" (instead of {how.max_tokens:,}: {why})" if why else ""
    data = "" if task.data_digest is None else f", data {task.data_digest[:12]}"
    return (
        f"{len(bench.problems)} problems x {bench.samples}, temperature {how.temperature:g}, top-p {how.top_p:g}, "
        f"token limit {low:,}{'' if low == high else f' to {high:,}'}{lowered}, prompt {task.prompt_version}, "
        f"grader {task.grader}{data}; 95% over problems"
    )


def ungraded(rows: list[dict[str, Any]]) -> str | None:
    """A note where the grader failed: such answers are in no score."""
    count, answers = sum(row["errors"] for row in rows), sum(row["answers"] for row in rows)
    if not count:
        return None
    why = next((row["error"] for row in rows if row["error"]), "no reason was given")
    return f"{count} of {answers} answers could not be graded and are in no score ({why}): gspo-lab regrade tries again"


def by_others(rows: list[dict[str, Any]], asked: str) -> str | None:
    """A note where a server says that another model has answered than the one that was asked."""
    count, answers = sum(row["by_others"] for row in rows), sum(row["answers"] for row in rows)
    if not count:
        return None
    name = next(row["answered_by"] for row in rows if row["by_others"])
    return f"{count} of {answers} answers are, as the server says, by '{name}' and not by '{asked}', which was asked"


def repeated(rows: list[dict[str, Any]]) -> str | None:
    """A warning where sampled answers repeat each other word for word: engines seeded alike do that."""
    repeats, long = sum(row["repeats"] for row in rows), sum(row["long"] for row in rows)
    if repeats <= SUSPICIOUS * long:
        return None
    return (
        f"{repeats} of {long} long answers repeat another answer to the same problem word for word; does the engine "
        "seed every sample for itself? (a model that ends in a loop does it too)"
    )
