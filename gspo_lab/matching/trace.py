"""What one run left behind that can be held against another run: settings, facts, digests, questions asked."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gspo_lab.matching.settings import flat

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store import Evidence

ROLLOUT = "rollout"
"""The bench under which training responses are stored."""
FIRST = ("rollout_digest", "logprob_digest", "reward_mean", "reward_std", "zero_variance_groups", "grader_errors")
"""What is compared of a run's step 0, before any update could make two arms differ."""
IDENTITIES = ("log_ratio_max_abs", "clip_fraction_tokens")
"""Both are 0 on a mini-batch that meets the very policy that sampled it."""


@dataclass(frozen=True, slots=True)
class Start:
    """A worker took the run up at `step`; `facts` are flat, None where it recorded none."""

    step: int
    facts: dict[str, Any] | None


@dataclass(slots=True)
class Asked:
    """The questions of one evaluation in their order (for training responses: those that were kept), as digests."""

    items: Any = field(default_factory=hashlib.sha256)
    texts: Any = field(default_factory=hashlib.sha256)
    answers: int = 0
    graders: set[str | None] = field(default_factory=set)


@dataclass(frozen=True)
class Trace:
    """One run as it was recorded. `settings` and `bands` are flat; what was not recorded is empty or None."""

    id: str
    arm: str
    seed: int
    finished: bool
    settings: dict[str, Any]
    declared: tuple[str, ...]
    bands: dict[str, Any]
    starts: tuple[Start, ...]
    prompts: dict[int, str]
    """Per step the rolling digest of all prompt ids so far."""
    first: dict[str, Any]
    identities: tuple[tuple[int, tuple[float | None, ...]], ...]
    """Per step its first mini-batch's IDENTITIES."""
    asked: dict[tuple[str, int], Asked]
    """Per bench (or ROLLOUT) and step."""
    base: dict[str, float]
    """Per bench the starting model's score."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the worker found out that began the run at step 0; if none did, what the first one found."""
        known = [start for start in self.starts if start.facts is not None]
        begun = [start for start in known if start.step == 0]
        chosen = begun[-1] if begun else known[0] if known else None
        return {} if chosen is None or chosen.facts is None else chosen.facts

    @property
    def begun(self) -> bool:
        """Whether the facts are those of step 0, so that their weights are the starting weights."""
        return any(start.step == 0 and start.facts is not None for start in self.starts)


_READ: "WeakKeyDictionary[Evidence, dict[str, list[Trace]]]" = WeakKeyDictionary()
"""An Evidence shows one moment for as long as it is open, so a study is read from it once."""


def traces(evidence: "Evidence", study: str) -> list[Trace]:
    """The runs of a study that have recorded anything, in the order of its arms, then seeds."""
    read = _READ.setdefault(evidence, {})
    if study not in read:
        read[study] = _traces(evidence, study)
    return read[study]


def _traces(evidence: "Evidence", study: str) -> list[Trace]:
    runs = [row for row in _rows(evidence.runs(study)) if row["state"] != "planned"]
    starts = _by_run(evidence.starts(study))
    steps = _columns(evidence.steps(study, ["prompt_digest"]), "step", "prompt_digest")
    firsts = _by_run(evidence.steps(study, FIRST, step=0))
    updates = _columns(evidence.updates(study, IDENTITIES, minibatch=0), "step", *IDENTITIES)
    scores = _by_run(evidence.scores(study))
    out = []
    for row in runs:
        run = str(row["run_id"])
        first = firsts.get(run, [{}])[0]
        out.append(
            Trace(
                id=run,
                arm=str(row["arm"]),
                seed=int(row["seed"]),
                finished=row["state"] == "finished",
                settings=flat(resolved(json.loads(row["settings"]))),
                declared=tuple(json.loads(row["declared"])),
                bands=flat(json.loads(row["reference_bands"]) if row["reference_bands"] else {}),
                starts=tuple(
                    Start(int(one["step"]), None if one["facts"] is None else flat(json.loads(one["facts"])))
                    for one in starts.get(run, [])
                ),
                prompts={step: seen for step, seen in steps.get(run, ()) if seen is not None},
                first={name: value for name in FIRST if (value := first.get(name)) is not None},
                identities=tuple((step, tuple(values)) for step, *values in updates.get(run, ())),
                asked=asked(evidence, run),
                base={r["bench"]: r["score"] for r in scores.get(run, []) if r["step"] == 0 and r["score"] is not None},
            )
        )
    return out


def resolved(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with every key that this version knows, as their defaults fill them; others as they are."""
    from pydantic import ValidationError

    from gspo_lab.study import Settings

    try:
        return Settings.model_validate(settings).model_dump(mode="json")
    except ValidationError:
        return settings


def asked(evidence: "Evidence", run: str) -> dict[tuple[str, int], Asked]:
    """What a run asked, and in `texts` what it was answered, per bench and step."""
    out: dict[tuple[str, int], Asked] = {}
    for bench, step, problem, sample, prompt, reference, grader, text in evidence.asked(run):
        one = out.setdefault((bench, step), Asked())
        one.answers += 1
        one.graders.add(grader)
        one.texts.update(json.dumps([problem, sample, text]).encode())
        if bench != ROLLOUT:
            one.items.update(json.dumps([problem, sample, prompt, reference]).encode())
        elif sample == 0:  # how many responses a prompt gets is no part of the stream of prompts
            one.items.update(json.dumps([problem, prompt, reference]).encode())
    return out


def _by_run(frame: "DataFrame") -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(frame):
        out.setdefault(str(row["run_id"]), []).append(row)
    return out


def _columns(frame: "DataFrame", *names: str) -> dict[str, tuple[tuple[Any, ...], ...]]:
    """Per run its rows as tuples of the named columns; None for what is missing. For long frames."""
    out = {}
    for run, group in frame.groupby("run_id", sort=False):
        columns = [group[name].tolist() for name in names]
        gaps = [
            column if group[name].notna().all() else [None if _missing(v) else v for v in column]
            for name, column in zip(names, columns, strict=True)
        ]
        out[str(run)] = tuple(zip(*gaps, strict=True))
    return out


def _rows(frame: "DataFrame") -> Iterator[dict[str, Any]]:
    """The rows with None for what is missing."""
    columns = {str(name): frame[name].tolist() for name in frame.columns}
    for row in zip(*columns.values(), strict=True):
        yield {name: None if _missing(value) else value for name, value in zip(columns, row, strict=True)}


def _missing(value: Any) -> bool:
    return value is None or value != value
