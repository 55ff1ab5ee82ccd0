"""What an evaluation came to, as rows: scores with intervals over problems, pass@k, arms against each other."""

import json
from typing import TYPE_CHECKING, Any

from gspo_lab.registry import look_up
from gspo_lab.store.answers import by_problem

if TYPE_CHECKING:
    from pathlib import Path

    from gspo_lab.evaluation.bench import Bench
    from gspo_lab.findings import Findings
    from gspo_lab.findings.standings import ContestRatings
    from gspo_lab.store import Evidence

SUSPICIOUS = 0.02
"""The share of long answers that may repeat another answer to the same problem before somebody should be told."""

LOWERED = {"context": "all that the prompt leaves of the context", "embedded": "all that an embedded model gets"}
"""What kept answers from the token limit that was asked for."""


COUNTS = ("answers", "repeats", "long", "truncated", "errors", "by_others")


def columns_of(bench: "Bench", standings: "Path | None") -> "ContestRatings | None":
    """What adds columns to the scores of a benchmark; None: nothing does."""
    made_by = getattr(bench.task, "columns", None)
    references = {problem.id: problem.reference for problem in bench.problems}
    return None if made_by is None else look_up("columns", made_by, {})(references, standings)


def scores(
    evidence: "Evidence", ids: list[str], evaluation: str, columns: "ContestRatings | None" = None
) -> list[dict[str, Any]]:
    """One row per run (or model, or server) and step: avg@k with an interval over problems, pass@k, what went wrong."""
    from gspo_lab.stats.passk import checkpoint_score, pass_at_k
    from gspo_lab.store.traces import read_later_evaluations

    frame = by_problem(evidence, ids, evaluation)
    later = read_later_evaluations(evidence, ids)
    how = {
        row["run_id"]: json.loads(row["content"]) for row in later.to_dict("records") if row["evaluation"] == evaluation
    }
    out = []
    for _, part in frame.groupby(["run_id", "bench", "step"], sort=False):
        run_id, bench, step = part[["run_id", "bench", "step"]].iloc[0]
        graded = part[part["graded"] > 0]
        row: dict[str, Any] = {
            "run_id": run_id,
            "bench": bench,
            "evaluation": evaluation,
            "step": int(step),
            "problems": len(part),
            "samples": int(part["answers"].max()),
            **dict.fromkeys(("score", "low", "high", "se", "sampling_se", "item_se", "k", "pass_at_k")),
            "distinct": float(part["distinct"].mean()),
            **{name: int(part[name].sum()) for name in COUNTS},
            "error": min(part["error"].dropna(), default=None),
            "answered_by": min(part["answered_by"].dropna(), default=None),
            "limits": how.get(run_id, {}).get("limits"),
            "weights": how.get(run_id, {}).get("subject", {}).get("checkpoints", {}).get(str(step)),
        }
        if len(graded):
            seen = checkpoint_score(graded["correct"], graded["graded"])
            k = int(graded["graded"].min())
            row |= {"score": seen.mean, "low": seen.item_low, "high": seen.item_high, "k": k}
            row |= {"se": seen.se, "sampling_se": seen.sampling_se, "item_se": seen.item_se}
            row["pass_at_k"] = float(pass_at_k(graded["correct"], graded["graded"], k).mean())
        if columns is not None:
            row |= columns.of(row, graded, evidence)
        out.append(row)
    place = {run_id: index for index, run_id in enumerate(ids)}
    return sorted(out, key=lambda row: (place[row["run_id"]], row["step"]))


def comparisons(found: "Findings", evaluation: str) -> list[dict[str, Any]]:
    """Every arm against the study's baseline after the last step, with an interval for new problems and new seeds."""
    from gspo_lab.stats.two_way import two_way

    runs = found.frame
    frame = by_problem(found.evidence, list(runs["run_id"]), evaluation)
    frame = frame.merge(runs[["run_id", "arm", "seed"]], on="run_id")
    frame = frame[(frame["graded"] > 0) & (frame["step"] == frame.groupby("run_id")["step"].transform("max"))]
    frame["rate"] = frame["correct"] / frame["graded"]
    by_arm = {arm: part.pivot(index="seed", columns="problem", values="rate") for arm, part in frame.groupby("arm")}
    baseline = found.declaration.baseline
    out = []
    for arm in found.declaration.treatments:
        if arm not in by_arm or baseline not in by_arm:
            continue
        difference = (by_arm[arm] - by_arm[baseline]).dropna(how="all").dropna(axis=1)
        seen = two_way(difference.to_numpy(), found.declaration.verdict.alpha)
        compared = {"bench": frame["bench"].iloc[0], "arm": arm, "against": baseline, "seeds": seen.seeds}
        out.append(
            compared
            | {"problems": difference.shape[1], "difference": seen.estimate, "low": seen.low, "high": seen.high}
            | {"note": seen.reason}
        )
    return out


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


def shown(row: dict[str, Any], columns: "ContestRatings | None") -> dict[str, Any]:
    """A row of `scores` as a person reads it."""
    k = row["k"]
    several = {} if k == 1 else {f"pass@{k}": row["pass_at_k"], "distinct": row["distinct"]}
    return {
        "asked": row["run_id"],
        "step": row["step"],
        f"avg@{row['samples']}": row["score"],
        "95%": None if row["low"] is None else f"{row['low']:.3f}–{row['high']:.3f}",
        **several,
        **({} if columns is None else columns.shown(row)),
        "cut": row["truncated"],
        "not graded": row["errors"],
        **({"answered by": row["answered_by"]} if row["by_others"] else {}),
    }


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
