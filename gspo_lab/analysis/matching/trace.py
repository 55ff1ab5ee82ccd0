"""The recorded data of one run that are compared with another run: settings, facts, digests,
answers.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from pydantic import ValidationError

from gspo_lab.common.plain_data import JsonObject, OptionalText, Strings
from gspo_lab.common.states import State
from gspo_lab.recording.records import ROLLOUT
from gspo_lab.recording.records.update import CLIP_FRACTION
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.answers import score_rows
from gspo_lab.recording.store.records import step_rows
from gspo_lab.recording.store.traces import (
    read_first_minibatches,
    read_prompt_digests,
    read_prompt_streams,
    read_questions,
    read_seals,
    read_starts,
)
from gspo_lab.study import Origin, Settings, flat
from gspo_lab.study.dotted_keys import under
from gspo_lab.study.import_origin import ORIGIN
from gspo_lab.study.schema import clips_at_1

REWARDS = ("reward_mean", "reward_std", "zero_variance_groups", "grader_errors")
COUNTS = ("response_tokens_mean", "tokens_sampled_total", "flops_total")
FIRST = ("rollout_digest", "logprob_digest", *REWARDS, *COUNTS)
"""The columns of step 0 that are compared, before any update could make two arms differ."""
PLANNED_TOTALS = ("prompts_total", "updates_total")
LENGTH_TOTALS = ("tokens_sampled_total", "tokens_trained_total", "flops_total")
TOTALS = (*PLANNED_TOTALS, *LENGTH_TOTALS)
"""A run's total compute: what the settings plan, and what depends on the lengths of its answers."""
ZERO_COLUMNS = ("log_ratio_max_abs", CLIP_FRACTION)
"""Both are 0 on a mini-batch that meets the policy that sampled it; a loss without a clip has only
the first.
"""


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """A worker that began or resumed the run at `step`: its flat facts, its run, and the digest of
    study.json.
    """

    step: int
    facts: JsonObject | None
    run: OptionalText
    declaration: OptionalText


@dataclass(frozen=True, slots=True)
class AnswerDigests:
    """Digests of the questions and answers of one evaluation, or of the stored training responses
    of one step.
    """

    items: bytes
    texts: bytes
    count: int
    problems: int
    samples: int
    """Answers per problem; 0 if the problems have different numbers, or samples are not numbered
    from 0.
    """
    graders: frozenset[OptionalText]


@dataclass(frozen=True)
class PromptDigests:
    """Rolling digests of a run's prompt ids; equal streams have an equal `fingerprint` (None:
    nothing recorded).
    """

    steps: int
    fingerprint: OptionalText
    read: Callable[[], dict[int, str]]

    @cached_property
    def digests(self) -> dict[int, str]:
        """Per step the digest of all prompt ids up to and with it."""
        return self.read() if self.steps else {}

    def compare(self, other: "PromptDigests") -> tuple[int, int | None]:
        """How many steps two streams have in common, and the first step at which they differ."""
        if self.fingerprint == other.fingerprint:
            return self.steps, None
        common = sorted(self.digests.keys() & other.digests.keys())
        return len(common), next(
            (step for step in common if self.digests[step] != other.digests[step]), None
        )


@dataclass(frozen=True, slots=True)
class FirstMinibatchCheck:
    """A run's first mini-batches: with a log-ratio (`known`), with a clip fraction (`clips`), with
    values not 0.
    """

    ratios: int
    clips: int
    odd: bool
    broken: tuple[int, dict[str, float]] | None


@dataclass(frozen=True)
class Trace:
    """The record of one run. `settings` and `bands` are flat; missing data are empty or None."""

    id: str
    arm: str
    seed: int
    finished: bool
    parsed: Settings | None
    """None where they are no valid settings."""
    settings: JsonObject
    declared: Strings
    bands: JsonObject
    starts: tuple[WorkerStart, ...]
    prompts: PromptDigests
    first_step: JsonObject
    spent: dict[str, float]
    """TOTALS at the last planned step; empty before."""
    first_minibatches: FirstMinibatchCheck
    answers: dict[tuple[str, int], AnswerDigests]
    """Per bench (or ROLLOUT) and step."""
    base: dict[str, float]
    """Per bench the starting model's score."""
    declaration: OptionalText
    """The digest of study.json in the run's run.json."""
    seal: dict[str, str] | None
    """The digest of each evaluation's answers in the last line of the journal."""

    @cached_property
    def facts(self) -> JsonObject:
        """The facts of the last worker that began at step 0; without one, those of the first worker
        with facts.
        """
        recorded = [(start.step, start.facts) for start in self.starts if start.facts is not None]
        begun = [facts for step, facts in recorded if step == 0]
        if begun:
            return begun[-1]
        return recorded[0][1] if recorded else {}

    @property
    def recorder(self) -> OptionalText:
        """The program that recorded the run, as its import states; None for a worker of this
        lab.
        """
        origin = {
            key.removeprefix(f"{ORIGIN}."): v
            for key, v in self.facts.items()
            if under(key, [ORIGIN])
        }
        return Origin.from_fact(origin, self.id).recorder if origin else None

    def graders(self, bench: str) -> set[str]:
        """The graders that the run's answers to a bench name."""
        graders: set[OptionalText] = set()
        for (name, _), answers in self.answers.items():
            if name == bench:
                graders |= answers.graders
        return {grader for grader in graders if grader is not None}

    @property
    def at_step_0(self) -> bool:
        """Whether the facts are those of step 0, so that their weights are the starting weights."""
        return any(start.step == 0 and start.facts is not None for start in self.starts)


def traces(evidence: Evidence, study: str) -> list[Trace]:
    """The begun runs of a study, in the order of its arms, then seeds."""
    runs = [row for row in evidence.run_rows(study) if row["state"] != State.PLANNED]
    starts = _by_run(read_starts(evidence, study))
    streams = read_prompt_streams(evidence, study)
    firsts = _by_run(step_rows(evidence, study, FIRST, [0]))
    last = {row["steps_planned"] - 1 for row in runs if row["steps_planned"]}
    spent = {(row["run_id"], row["step"]): row for row in step_rows(evidence, study, TOTALS, last)}
    scores = _by_run(score_rows(evidence, study))
    seals = read_seals(evidence, study)
    arm_settings: dict[str, tuple[Settings | None, JsonObject]] = {}  # parsed once per arm
    out = []
    for row in runs:
        run = row["run_id"]
        if row["settings"] not in arm_settings:
            arm_settings[row["settings"]] = parse_settings(json.loads(row["settings"]))
        parsed, settings = arm_settings[row["settings"]]
        out.append(
            Trace(
                id=run,
                arm=row["arm"],
                seed=row["seed"],
                finished=row["state"] == State.FINISHED,
                parsed=parsed,
                settings=settings,
                declared=tuple(json.loads(row["declared"])),
                bands=flat(json.loads(row["reference_bands"]) if row["reference_bands"] else {}),
                starts=tuple(
                    WorkerStart(
                        start["step"],
                        start["facts"] and flat(json.loads(start["facts"])),
                        start["run"],
                        start["declaration"],
                    )
                    for start in starts.get(run, [])
                ),
                prompts=PromptDigests(
                    *streams.get(run, (0, None)), read=partial(read_prompt_digests, evidence, run)
                ),
                first_step=_recorded(firsts.get(run, [{}])[0], FIRST),
                spent=_recorded(spent.get((run, (row["steps_planned"] or 0) - 1), {}), TOTALS),
                first_minibatches=_first_minibatch_check(evidence, run, settings),
                answers=_answer_digests(evidence, run),
                base={
                    r["bench"]: r["score"]
                    for r in scores.get(run, [])
                    if r["step"] == 0 and r["score"] is not None
                },
                declaration=row["declaration"],
                seal=seals.get(run),
            )
        )
    return out


def _recorded(row: JsonObject, names: Sequence[str]) -> JsonObject:
    """The columns of a record that are not None."""
    return {name: row[name] for name in names if row.get(name) is not None}


def parse_settings(nested: JsonObject) -> tuple[Settings | None, JsonObject]:
    """Settings, and flat with all defaults; None, and flat as they are, where they are no valid
    settings.
    """
    try:
        settings = Settings.model_validate(nested)
    except ValidationError:
        return None, flat(nested)
    return settings, flat(settings.model_dump(mode="json"))


def _answer_digests(evidence: Evidence, run: str) -> dict[tuple[str, int], AnswerDigests]:
    """Digests of a run's questions (`items`) and answers (`texts`), per bench and step."""
    rows: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for bench, step, *row in read_questions(evidence, run):
        rows.setdefault((bench, step), []).append(tuple(row))
    out = {}
    for (bench, step), answers in rows.items():
        problems, samples, *_, graders, texts = zip(*answers, strict=True)
        # Of training responses only the first to each prompt: the group size is no part of the
        # stream of prompts.
        items = _digest([row[:4] for row in answers if bench != ROLLOUT or row[1] == 0])
        count = len(set(problems))
        group = len(set(samples))
        even = len(answers) == count * group == count * (max(samples) + 1)
        out[bench, step] = AnswerDigests(
            items,
            _digest([problems, samples, texts]),
            len(answers),
            count,
            group if even else 0,
            frozenset(graders),
        )
    return out


def _digest(columns: Any) -> bytes:
    return hashlib.sha256(json.dumps(columns).encode()).digest()


def _by_run(rows: Sequence[JsonObject]) -> dict[str, list[JsonObject]]:
    out: dict[str, list[JsonObject]] = {}
    for row in rows:
        out.setdefault(row["run_id"], []).append(row)
    return out


def _first_minibatch_check(
    evidence: Evidence, run: str, settings: JsonObject
) -> FirstMinibatchCheck:
    columns = ZERO_COLUMNS[:1] if clips_at_1(settings) else ZERO_COLUMNS
    odd, broken, (ratios, *clips) = read_first_minibatches(evidence, run, columns)
    return FirstMinibatchCheck(ratios, sum(clips), odd, broken)
