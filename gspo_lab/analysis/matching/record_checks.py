"""Whether each run's record is consistent: its run and declaration, its completeness, and its
numbers.

These checks concern one run at a time, and no declared setting excuses a fault.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from pydantic import ValidationError

from gspo_lab.analysis.matching.run_pair import (
    Check,
    Fault,
    RunPair,
    differs,
    format_value,
    other_values,
)
from gspo_lab.analysis.matching.trace import Trace, parse_settings
from gspo_lab.common.plain_data import JsonMapping, OptionalText
from gspo_lab.recording.records import ROLLOUT
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.completeness import answer_digests, first_missing, read_rates
from gspo_lab.recording.store.traces import read_equal_norms
from gspo_lab.study import Declaration, Settings, VerdictTable, digest, flat
from gspo_lab.study.dotted_keys import differing

NATIVE = "native"
"""The engine whose schedule and columns the lab defines."""

RecordFaults = Mapping[str, tuple[Fault, ...]]
"""Per check the faults of one run's record. A check that could not be made is missing."""

MEANINGS = {
    "identity": (
        "both journals name their run and what study.json locks; no seed did what another one did"
    ),
    "plan": "every step, update and evaluation that is declared, and no other",
    "sealed answers": "every evaluation's answers have the digest that the run's last word holds",
}


def checks(pair: RunPair, by_run: Mapping[str, RecordFaults]) -> tuple[Check, ...]:
    """The record checks of a pair; a fault of either run fails them."""
    return tuple(_check(pair, name, by_run) for name in MEANINGS)


def _check(pair: RunPair, name: str, by_run: Mapping[str, RecordFaults]) -> Check:
    faults: list[Fault] = []
    recorded = []
    for trace in pair.traces:
        run_faults = by_run[trace.id].get(name)
        recorded.append(run_faults is not None)
        for part, text in run_faults or ():
            faults.append((f"{trace.arm}: {part}", f"{trace.id}: {text}"))
    if not faults and (gap := pair.gap(name, *recorded)):
        return gap
    return differs(name, faults, equal=MEANINGS[name])


def record_faults(
    evidence: Evidence, declared: Declaration, traces: Sequence[Trace]
) -> dict[str, RecordFaults]:
    """Per run id the faults of its record, given the study's declaration and its arm's other
    runs.
    """
    declarations = {declared.content_digest: declared.locked()} | {
        digest(locked): locked for locked in declared.superseded
    }
    twins = [*_copies(traces), *_twins(traces, read_equal_norms(evidence, declared.name))]
    most: dict[str, int] = {}
    for trace in traces:
        for (bench, _), answers in trace.answers.items():
            most[bench] = max(most.get(bench, 0), answers.problems)
    return {
        trace.id: _run_faults(evidence, declared, trace, declarations, twins, most)
        for trace in traces
    }


def _run_faults(
    evidence: Evidence,
    declared: Declaration,
    trace: Trace,
    declarations: Mapping[OptionalText, JsonMapping],
    twins: Sequence[tuple[Trace, Trace]],
    most: Mapping[str, int],
) -> RecordFaults:
    settings = trace.parsed
    copied = [
        ("seed", f"it sampled or learned what {original.id} did")
        for original, copy in twins
        if copy is trace
    ]
    identified = any(start.run is not None for start in trace.starts)
    out: dict[str, tuple[Fault, ...]] = {}
    if not identified and trace.declaration is None and trace.seal is None:
        return {"identity": tuple(copied)} if copied else out
    out["identity"] = (*_identity(declared, trace, declarations), *copied)
    if settings is not None and settings.engine.name == NATIVE and trace.finished:
        out["plan"] = tuple(_plan(evidence, trace, settings, most))
    if trace.finished:
        out["sealed answers"] = tuple(_seal_faults(evidence, trace))
    return out


def _identity(
    declared: Declaration, trace: Trace, declarations: Mapping[OptionalText, JsonMapping]
) -> Iterator[Fault]:
    name = trace.id.partition("/")[2]
    for start in trace.starts:
        if start.run is None or start.declaration is None:
            yield "run", "a worker of it did not say of which run and declaration it was"
            continue
        if start.run.partition("/")[2] != name:
            yield "run", f"its journal is that of {start.run}"
        locked = declarations.get(start.declaration)
        if locked is None:
            yield (
                "declaration",
                (
                    f"it was made under the declaration {format_value(start.declaration)}, which"
                    " study.json does not hold"
                ),
            )
        else:
            yield from _declaration_changes(declared, trace, locked)
            if trace.seed not in locked["seeds"]:
                yield "declaration", f"seed {trace.seed} was not declared when it began"


def _declaration_changes(
    declared: Declaration, trace: Trace, locked: JsonMapping
) -> Iterator[Fault]:
    """How the present declaration differs from the one under which a run was made."""
    try:
        rule = flat(VerdictTable.model_validate(locked["verdict"]).model_dump(mode="json"))
        present = flat(declared.verdict.model_dump(mode="json"))
        for key, values in other_values(present, rule, "when it began"):
            yield f"verdict.{key}", f"verdict.{values}"
        arm = parse_settings(locked["arms"][trace.arm]["settings"])[1]
    except (KeyError, TypeError, ValidationError):
        yield "declaration", "the declaration under which it was made does not hold its arm"
        return
    for key in differing(arm, trace.settings):
        yield key, f"its arm declared {key} = {format_value(arm.get(key))} when it began"


def _copies(traces: Sequence[Trace]) -> Iterator[tuple[Trace, Trace]]:
    """Runs of one arm and different seeds that sampled identical tokens in step 0: a run, and its
    likely copy.
    """
    originals: dict[tuple[Any, ...], Trace] = {}
    for trace in sorted(traces, key=lambda trace: trace.seed):
        tokens = trace.first_step.get("rollout_digest")
        logprobs = trace.first_step.get("logprob_digest")
        if tokens is not None and logprobs is not None:
            original = originals.setdefault((trace.arm, tokens, logprobs), trace)
            if original.seed != trace.seed:
                yield original, trace


def _twins(
    traces: Sequence[Trace], alike: Iterable[Collection[str]]
) -> Iterator[tuple[Trace, Trace]]:
    """Runs of one arm and different seeds with exactly equal gradient norms in two steps or more.

    `alike` has per step and norm the ids of the runs that share it. Imported runs are left out:
    their logs may round norms, or hold norms after clipping.
    """
    by_id = {trace.id: trace for trace in traces if trace.recorder is None}
    counts: Counter[tuple[str, str]] = Counter()
    for ids in alike:
        runs = sorted((by_id[run] for run in ids if run in by_id), key=lambda trace: trace.seed)
        counts.update(
            (original.id, copy.id)
            for original, copy in combinations(runs, 2)
            if original.arm == copy.arm
        )
    yield from (
        (by_id[original], by_id[copy]) for (original, copy), steps in counts.items() if steps > 1
    )


def _plan(
    evidence: Evidence, trace: Trace, settings: Settings, most: Mapping[str, int]
) -> Iterator[Fault]:
    """Steps, updates, rates, evaluations or answers that differ from the settings' schedule.

    `most`: per bench the largest number of problems in any evaluation of the study.
    """
    steps = settings.steps
    updates = settings.update.per_rollout_batch if not settings.rollout.varying else None
    if missing := first_missing(evidence, trace.id, steps, updates):
        yield "steps", missing
    for number, (step, rate) in enumerate(read_rates(evidence, trace.id)):
        due = settings.update.rate(number)
        if not math.isclose(rate, due):
            text = f"an update of step {step} has the learning rate {rate:.6g}; due is {due:.6g}"
            yield f"learning rate, step {step}", text
            break
    for bench in settings.bench:
        evaluated = {step for name, step in trace.answers if name == bench.name}
        if odd := sorted(evaluated ^ set(bench.moments(steps))):
            yield (
                f"{bench.name}, step {odd[0]}",
                f"{bench.name} after step {odd[0]} was not as scheduled",
            )
        for step in sorted(evaluated):
            answers = trace.answers[bench.name, step]
            samples = bench.samples_at(step, steps)
            odd_count = (
                not most[bench.name] <= answers.problems <= (bench.problems or answers.problems)
            )
            if odd_count or answers.samples != samples:
                text = (
                    f"{answers.count} answers to {answers.problems} problems of {bench.name} after"
                    f" step {step}"
                )
                yield (
                    f"{bench.name}, step {step}",
                    f"{text}; declared are {bench.problems or 'all'} x {samples}",
                )
    undeclared = (
        {name for name, _ in trace.answers} - {bench.name for bench in settings.bench} - {ROLLOUT}
    )
    for name in sorted(undeclared):
        yield name, f"it was asked {name}, which is not declared"


def _seal_faults(evidence: Evidence, trace: Trace) -> Iterator[Fault]:
    if trace.seal is None:
        yield "seal", "its last word holds no digests of its answers"
        return
    digests = answer_digests(evidence, trace.id)
    for key in sorted(trace.seal.keys() | digests.keys()):
        if trace.seal.get(key) != digests.get(key):
            yield key, f"the answers of {key} are not those that the run sealed"
