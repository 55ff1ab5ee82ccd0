"""Later evaluations, of runs' checkpoints and of other models: counts by problem, and how far arms lie apart."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gspo_lab.readings.source import Source
from gspo_lab.stats import TwoWay, two_way
from gspo_lab.stats.passk import CheckpointScore, checkpoint_score, pass_at_k
from gspo_lab.store.answers import by_problem
from gspo_lab.store.traces import read_later_evaluations

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store import Evidence

KEYS = ["run_id", "step", "bench"]
COUNTS = ("answers", "repeats", "long", "truncated", "errors", "by_others")


@dataclass(frozen=True)
class CheckpointAnswers:
    """A checkpoint's answers to one benchmark. `score` and `pass_at_k`, of the `k` answers that every graded problem
    has at least, are None where nothing was graded; `graded` has its problems: problem, correct, graded (counts)."""

    run_id: str
    bench: str
    step: int
    problems: int
    samples: int
    distinct: float
    """The mean over problems of how many of the answers differ."""
    counts: dict[str, int]
    error: str | None
    answered_by: str | None
    how: dict[str, Any]
    """The declaration of the evaluation."""
    graded: "DataFrame"
    score: CheckpointScore | None
    k: int | None
    pass_at_k: float | None


def checkpoints(evidence: "Evidence", runs: Sequence[str], evaluation: str) -> Iterator[CheckpointAnswers]:
    """Every checkpoint of these runs (or model, or server), run by run in the order of `runs`, by step."""
    later = read_later_evaluations(evidence, runs)
    rows = later[later["evaluation"] == evaluation]
    how = {str(run): json.loads(content) for run, content in zip(rows["run_id"], rows["content"], strict=True)}
    frame = by_problem(evidence, runs, evaluation)
    parts = [part for _, part in frame.groupby(KEYS, sort=False)]
    for part in sorted(parts, key=lambda rows: (runs.index(rows["run_id"].iloc[0]), rows["step"].iloc[0])):
        run, step, bench = part[KEYS].iloc[0]
        graded = part[part["graded"] > 0]
        k = int(graded["graded"].min()) if len(graded) else None
        yield CheckpointAnswers(
            run_id=str(run),
            bench=str(bench),
            step=int(step),
            problems=len(part),
            samples=int(part["answers"].max()),
            distinct=float(part["distinct"].mean()),
            counts={name: int(part[name].sum()) for name in COUNTS},
            error=min(part["error"].dropna(), default=None),
            answered_by=min(part["answered_by"].dropna(), default=None),
            how=how.get(str(run), {}),
            graded=graded,
            score=None if k is None else checkpoint_score(graded["correct"], graded["graded"]),
            k=k,
            pass_at_k=None if k is None else float(pass_at_k(graded["correct"], graded["graded"], k).mean()),
        )


def arms_apart(source: Source, evaluation: str) -> Iterator[tuple[str, str, int, TwoWay]]:
    """Benchmark, arm, number of problems and the difference to the study's baseline after the last step, with an
    interval for new problems and new seeds."""
    runs = source.evidence.runs(source.study)
    frame = by_problem(source.evidence, list(runs["run_id"]), evaluation)
    frame = frame.merge(runs[["run_id", "arm", "seed"]], on="run_id")
    frame = frame[(frame["graded"] > 0) & (frame["step"] == frame.groupby("run_id")["step"].transform("max"))]
    frame["rate"] = frame["correct"] / frame["graded"]
    by_arm = {arm: part.pivot(index="seed", columns="problem", values="rate") for arm, part in frame.groupby("arm")}
    baseline = source.declaration.baseline
    for arm in source.declaration.treatments:
        if arm in by_arm and baseline in by_arm:
            difference = (by_arm[arm] - by_arm[baseline]).dropna(how="all").dropna(axis=1)
            crossed = two_way(difference.to_numpy(), source.declaration.verdict.alpha)
            yield str(frame["bench"].iloc[0]), arm, difference.shape[1], crossed
