"""What one run left behind that can be held against another run: settings, facts, digests, questions asked."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from gspo_lab.records import ROLLOUT
from gspo_lab.states import State
from gspo_lab.store.answers import read_scores
from gspo_lab.store.records import read_steps, read_updates
from gspo_lab.store.traces import (
    read_first_minibatches,
    read_prompt_digests,
    read_prompt_streams,
    read_questions,
    read_seals,
    read_starts,
)
from gspo_lab.study import Origin, flat
from gspo_lab.study.dotted import under
from gspo_lab.study.origin import ORIGIN

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store import Evidence

REWARDS = ("reward_mean", "reward_std", "zero_variance_groups", "grader_errors")
COUNTS = ("response_tokens_mean", "tokens_sampled_total", "flops_total")
FIRST = ("rollout_digest", "logprob_digest", *REWARDS, *COUNTS)
"""What is compared of a run's step 0, before any update could make two arms differ."""
GIVEN, GROWN = ("prompts_total", "updates_total"), ("tokens_sampled_total", "tokens_trained_total", "flops_total")
"""What a run's compute is by the end: as declared, and as the lengths of its answers made it."""
IDENTITIES = ("log_ratio_max_abs", "clip_fraction_tokens")
"""Both are 0 on a mini-batch that meets the very policy that sampled it; a loss without a clip has the first alone."""


@dataclass(frozen=True, slots=True)
class Start:
    """A worker took the run up at `step`; `facts` are flat, None where it recorded none.

    `run` and `declaration` are what it says that it was started on, and under which digest of study.json.
    """

    step: int
    facts: dict[str, Any] | None
    run: str | None
    declaration: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """One evaluation, or the training responses that were kept: digests of questions and of answers, in order."""

    items: bytes
    texts: bytes
    answers: int
    problems: int
    samples: int
    """Of each problem; 0 where they are not as many, or not numbered from 0."""
    graders: frozenset[str | None]


@dataclass(frozen=True)
class Stream:
    """The rolling digests of a run's prompt ids, step by step; most are never looked at, for equal streams are told by
    `fingerprint`, which is of all steps and digests. None: nothing was recorded."""

    steps: int
    fingerprint: str | None
    read: Callable[[], dict[int, str]]

    @cached_property
    def digests(self) -> dict[int, str]:
        """Per step the digest of all prompt ids up to and with it."""
        return self.read() if self.steps else {}


@dataclass(frozen=True, slots=True)
class Identities:
    """A run's first mini-batches: how many have a log-ratio, how many of these a clip fraction, whether any is not 0,
    and where that begins, with what."""

    known: int
    clips: int
    odd: bool
    broken: tuple[int, dict[str, float]] | None


@dataclass(frozen=True)
class Trace:
    """One run as it was recorded. `settings` and `bands` are flat; what was not recorded is empty or None."""

    id: str
    arm: str
    seed: int
    finished: bool
    nested: dict[str, Any]
    """The settings, of which `settings` is flat."""
    settings: dict[str, Any]
    declared: tuple[str, ...]
    bands: dict[str, Any]
    starts: tuple[Start, ...]
    prompts: Stream
    first: dict[str, Any]
    spent: dict[str, float]
    """GIVEN and GROWN at the last planned step; empty before."""
    identities: Identities
    asked: dict[tuple[str, int], Asked]
    """Per bench (or ROLLOUT) and step."""
    base: dict[str, float]
    """Per bench the starting model's score."""
    declaration: str | None
    """The digest of study.json by its run.json."""
    seal: dict[str, str] | None
    """The digest of each evaluation's answers by the run's last word."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the worker found out that began the run at step 0; if none did, what the first one found."""
        known = [start for start in self.starts if start.facts is not None]
        begun = [start for start in known if start.step == 0]
        chosen = begun[-1] if begun else known[0] if known else None
        return {} if chosen is None or chosen.facts is None else chosen.facts

    @property
    def recorder(self) -> str | None:
        """The program that recorded the run, by what its import says; None: a worker of this lab."""
        found = {key.removeprefix(f"{ORIGIN}."): v for key, v in self.facts.items() if under(key, [ORIGIN])}
        return Origin.from_fact(found, self.id).recorder if found else None

    def graders(self, bench: str) -> set[str]:
        """Who graded the run's answers to a bench, by every answer's own word."""
        own = (asked.graders for (name, _), asked in self.asked.items() if name == bench)
        return {by for graders in own for by in graders if by is not None}

    @property
    def begun(self) -> bool:
        """Whether the facts are those of step 0, so that their weights are the starting weights."""
        return any(start.step == 0 and start.facts is not None for start in self.starts)


def traces(evidence: "Evidence", study: str) -> list[Trace]:
    """The runs of a study that have recorded anything, in the order of its arms, then seeds."""
    runs = [row for row in _rows(evidence.runs(study)) if row["state"] != State.PLANNED]
    starts = _by_run(read_starts(evidence, study))
    streams = read_prompt_streams(evidence, study)
    firsts = _by_run(read_steps(evidence, study, FIRST, at=[0]))
    last = {int(row["steps_planned"]) - 1 for row in runs if row["steps_planned"]}
    spent = {
        (str(row["run_id"]), row["step"]): row for row in _rows(read_steps(evidence, study, (*GIVEN, *GROWN), at=last))
    }
    first_minibatches = read_first_minibatches(evidence, study, IDENTITIES)
    scores = _by_run(read_scores(evidence, study))
    seals = read_seals(evidence, study)
    told: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}  # runs of one arm share theirs
    out = []
    for row in runs:
        run = str(row["run_id"])
        first = firsts.get(run, [{}])[0]
        if row["settings"] not in told:
            own = resolved(json.loads(row["settings"]))
            told[row["settings"]] = own, flat(own)
        nested, settings = told[row["settings"]]
        out.append(
            Trace(
                id=run,
                arm=str(row["arm"]),
                seed=int(row["seed"]),
                finished=row["state"] == State.FINISHED,
                nested=nested,
                settings=settings,
                declared=tuple(json.loads(row["declared"])),
                bands=flat(json.loads(row["reference_bands"]) if row["reference_bands"] else {}),
                starts=tuple(
                    Start(
                        int(one["step"]),
                        None if one["facts"] is None else flat(json.loads(one["facts"])),
                        one["run"],
                        one["declaration"],
                    )
                    for one in starts.get(run, [])
                ),
                prompts=Stream(*streams.get(run, (0, None)), read=partial(read_prompt_digests, evidence, run)),
                first={name: value for name in FIRST if (value := first.get(name)) is not None},
                spent={
                    name: value
                    for name, value in spent.get((run, (row["steps_planned"] or 0) - 1), {}).items()
                    if name in (*GIVEN, *GROWN) and value is not None
                },
                identities=_identities(evidence, study, run, first_minibatches[run]),
                asked=asked(evidence, run),
                base={r["bench"]: r["score"] for r in scores.get(run, []) if r["step"] == 0 and r["score"] is not None},
                declaration=row["declaration"],
                seal=seals.get(run),
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
    rows: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for bench, step, *row in read_questions(evidence, run):
        rows.setdefault((bench, step), []).append(tuple(row))
    out = {}
    for (bench, step), found in rows.items():
        problems, samples, *_, graders, texts = zip(*found, strict=True)
        # Of training responses the first to each prompt: how many there are is no part of the stream of prompts.
        items = [one[:4] for one in found if bench != ROLLOUT or one[1] == 0]
        answers = _digest([problems, samples, texts])
        count, each = len(set(problems)), len(set(samples))
        even = len(found) == count * each == count * (max(samples) + 1)
        out[bench, step] = Asked(_digest(items), answers, len(found), count, each if even else 0, frozenset(graders))
    return out


def _digest(columns: Any) -> bytes:
    return hashlib.sha256(json.dumps(columns).encode()).digest()


def _by_run(frame: "DataFrame") -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(frame):
        out.setdefault(str(row["run_id"]), []).append(row)
    return out


def _identities(evidence: "Evidence", study: str, run: str, found: tuple[bool, int | None, list[int]]) -> Identities:
    odd, step, (known, clips) = found
    if step is None:
        return Identities(known, clips, odd, None)
    [row] = _rows(read_updates(evidence, study, IDENTITIES, run=run, at=[step], minibatch=0))
    return Identities(known, clips, odd, (step, {name: row[name] for name in IDENTITIES if row[name] is not None}))


def _rows(frame: "DataFrame") -> Iterator[dict[str, Any]]:
    """The rows with None for what is missing."""
    columns = {str(name): frame[name].tolist() for name in frame.columns}
    for row in zip(*columns.values(), strict=True):
        yield {name: None if _missing(value) else value for name, value in zip(columns, row, strict=True)}


def _missing(value: Any) -> bool:
    return value is None or value != value
