"""The first difference of two runs in causal order, and the first difference of every later kind.

setting > code, packages, device, numerics > weights, tokenizer, chat template, grader
    > then by time: benchmark answers after k steps, step k's prompts, responses, log-probs,
    rewards, updates
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any

from gspo_lab.analysis.matching.run_pair import declared, format_value
from gspo_lab.analysis.matching.trace import Trace, traces
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject, OptionalText, Strings
from gspo_lab.common.registry import nearest
from gspo_lab.common.text import counted
from gspo_lab.recording.records import ROLLOUT, UpdateRecord, is_time
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.records import read_steps, read_updates
from gspo_lab.recording.store.traces import read_questions
from gspo_lab.study.dotted_keys import differing, under

CAUSES = {
    "code": ("code", "gspo_lab"),
    "package": ("python", "packages"),
    "device": ("device",),
    "numerics": ("threads", "instructions", "flags"),
    "weights": ("weights", "parameters"),
    "tokenizer": ("tokenizer",),
    "chat template": ("chat_template",),
    "grader": ("grader",),
}
"""Kinds of difference between workers, causes first, and the facts that show them."""
MARK = "›"
"""Stands before the first character in which two texts differ."""
AROUND = 40
"""Characters shown on each side of the first different character of two texts."""
ROUNDING = 2**-20
"""Relative difference that float32 sums in another order explain: 8 units in the last place
(2**-23).
"""

Moment = tuple[int, int]
"""Step, and the place within it: 0 evaluation before it, 1 prompts, 2 responses, 3 log-probs, 4
rewards, 5 updates.
"""
Answers = tuple[dict[Any, tuple[Any, ...]], dict[Any, tuple[Any, ...]]]
"""The answers of two runs: (bench, step, problem, sample) -> (prompt, reference, grader, text)."""


@dataclass(frozen=True)
class Difference:
    """One difference of two runs. `value_a` and `value_b` are the two values as text; `declared`:
    an arm states it.

    `later` holds, on the first difference only, the first difference of every later kind.
    """

    kind: str
    where: str
    value_a: str
    value_b: str
    context: Strings = ()
    declared: bool = False
    later: tuple["Difference", ...] = ()

    def lines(self) -> list[str]:
        """The difference for a terminal, with its context."""
        suffix = " (declared)" if self.declared else ""
        return [
            f"{self.kind}: {self.where}: {self.value_a} | {self.value_b}{suffix}",
            *(f"    {x}" for x in self.context),
        ]

    def to_json(self) -> JsonObject:
        """The difference as plain data."""
        out = {
            "kind": self.kind,
            "where": self.where,
            "one": self.value_a,
            "other": self.value_b,
            "declared": self.declared,
        }
        return {
            **out,
            "context": list(self.context),
            "later": [later.to_json() for later in self.later],
        }


def first_difference(evidence: Evidence, run_a: str, run_b: str) -> Difference | None:
    """The first difference of two runs, by their ids (`study/arm/s0`); None if all data that both
    recorded agree.
    """
    studies = dict.fromkeys(run.partition("/")[0] for run in (run_a, run_b))
    by_id: dict[str, Trace] = {}
    for study in studies:
        by_id |= {trace.id: trace for trace in traces(evidence, study)}
    trace_a = _trace(evidence, run_a, by_id)
    trace_b = _trace(evidence, run_b, by_id)
    answers_a = {row[:4]: row[4:] for row in read_questions(evidence, trace_a.id)}
    answers_b = {row[:4]: row[4:] for row in read_questions(evidence, trace_b.id)}
    answers: Answers = answers_a, answers_b
    recorded = [
        *_first_answer(answers),
        *_first_prompt(trace_a, trace_b, answers),
        *_first_step(evidence, trace_a, trace_b, answers),
        *_first_update(evidence, trace_a, trace_b),
    ]
    by_time = (difference for _, difference in sorted(recorded, key=lambda entry: entry[0]))
    differences = [*_settings(trace_a, trace_b), *_facts(trace_a, trace_b), *by_time]
    return replace(differences[0], later=tuple(differences[1:])) if differences else None


def _trace(evidence: Evidence, run: str, traces: Mapping[str, Trace]) -> Trace:
    study = run.partition("/")[0]
    ids = [recorded.id for recorded in evidence.chosen(study)]
    if run not in ids:
        raise LabError(f"no run '{run}'{nearest(run, ids)}; {study} has {', '.join(ids)}")
    if run not in traces:
        raise LabError(f"{run} has not begun: there is nothing to compare yet")
    return traces[run]


def _settings(trace_a: Trace, trace_b: Trace) -> Iterator[Difference]:
    if trace_a.seed != trace_b.seed:
        yield Difference("setting", "seed", str(trace_a.seed), str(trace_b.seed))
    keys = differing(trace_a.settings, trace_b.settings)
    declared_keys = declared(
        keys, (*trace_a.declared, *trace_b.declared), trace_a.settings, trace_b.settings
    )
    # Undeclared differences come first: they are the likelier surprise.
    for key in sorted(keys, key=lambda key: (key in declared_keys, key)):
        values = format_value(trace_a.settings.get(key)), format_value(trace_b.settings.get(key))
        yield Difference("setting", key, *values, declared=key in declared_keys)


def _facts(trace_a: Trace, trace_b: Trace) -> Iterator[Difference]:
    if not trace_a.facts or not trace_b.facts:
        return
    keys = differing(trace_a.facts, trace_b.facts)
    starting = trace_a.at_step_0 and trace_b.at_step_0
    for kind, names in CAUSES.items():
        for key in keys:
            if under(key, names) and (key != "weights" or starting):
                yield Difference(
                    kind,
                    key,
                    format_value(trace_a.facts.get(key)),
                    format_value(trace_b.facts.get(key)),
                )


def _first_answer(answers: Answers) -> Iterator[tuple[Moment, Difference]]:
    answers_a, answers_b = answers
    common = [key for key in answers_a if key in answers_b and key[0] != ROLLOUT]
    for key in sorted(
        common, key=lambda key: key[1]
    ):  # a stable sort keeps the sampling order within a step
        if answers_a[key] != answers_b[key]:
            bench, step, problem, sample = key
            where = f"{bench} after {step} steps, {problem} #{sample}"
            columns = zip(
                ("prompt", "reference", "grader", "text"),
                answers_a[key],
                answers_b[key],
                strict=True,
            )
            column, a, b = next((column, a, b) for column, a, b in columns if a != b)
            if column == "text":
                yield (
                    (step, 0),
                    Difference(
                        "answer", where, *_excerpts(a, b), context=(f"asked: {answers_a[key][0]}",)
                    ),
                )
            else:
                yield (step, 0), Difference("answer", f"{where}: its {column}", str(a), str(b))
            return


def _first_prompt(
    trace_a: Trace, trace_b: Trace, answers: Answers
) -> Iterator[tuple[Moment, Difference]]:
    step = trace_a.prompts.compare(trace_b.prompts)[1]
    if step is None:
        return
    stored = [
        [key[2] for key in side if key[:2] == (ROLLOUT, step) and key[3] == 0] for side in answers
    ]
    problems = next(((a, b) for a, b in zip(*stored, strict=False) if a != b), None)
    if problems is not None:
        yield (step, 1), Difference("prompt", f"step {step}", *problems)
    else:
        values = (
            format_value(trace_a.prompts.digests[step]),
            format_value(trace_b.prompts.digests[step]),
        )
        note = (
            "the problems that differ are not among those kept; [record] rollouts = 1.0 keeps all"
        )
        yield (step, 1), Difference("prompt", f"step {step}, digest", *values, context=(note,))


STEP_COLUMNS = (
    ("rollout", "rollout_digest", 2),
    ("log-probs", "logprob_digest", 3),
    ("reward", "reward_mean", 4),
)


def _first_step(
    evidence: Evidence, trace_a: Trace, trace_b: Trace, answers: Answers
) -> Iterator[tuple[Moment, Difference]]:
    names = [name for _, name, _ in STEP_COLUMNS]
    tables = [
        read_steps(evidence, run.id.partition("/")[0], names, run=run.id)
        for run in (trace_a, trace_b)
    ]
    merged = tables[0].merge(tables[1], on="step", suffixes=("_one", "_other"))
    complete = all(run.settings.get("record.rollouts") == 1 for run in (trace_a, trace_b))
    for kind, name, place in STEP_COLUMNS:
        columns = (
            merged["step"].tolist(),
            merged[f"{name}_one"].tolist(),
            merged[f"{name}_other"].tolist(),
        )
        parted = next(
            ((step, a, b) for step, a, b in zip(*columns, strict=True) if _differ(a, b)), None
        )
        if parted is not None:
            step, a, b = parted
            if kind == "rollout":
                yield (step, place), _rollout(step, answers, a, b, complete)
            else:
                yield (
                    (step, place),
                    Difference(kind, f"step {step}, {name}", format_value(a), format_value(b)),
                )


def _rollout(step: int, answers: Answers, a: str, b: str, complete: bool) -> Difference:
    """The first stored response that differs, as an excerpt.

    `complete`: all responses that train were stored.
    """
    answers_a, answers_b = answers
    stored = [key for key in answers_a if key[:2] == (ROLLOUT, step) and key in answers_b]
    for key in stored:
        a = answers_a[key][3]
        b = answers_b[key][3]
        if a != b:
            where = f"step {step}, response {key[3]} to problem '{key[2]}'"
            return Difference(
                "rollout", where, *_excerpts(a, b), context=(f"asked: {answers_a[key][0]}",)
            )
    note = (
        f"the {len(stored)} responses kept of this step agree"
        if stored
        else "no response of this step was kept"
    )
    note += (
        "; what a step does not train on never is"
        if complete
        else "; [record] rollouts = 1.0 keeps all"
    )
    return Difference(
        "rollout", f"step {step}, token ids", format_value(a), format_value(b), context=(note,)
    )


def _first_update(
    evidence: Evidence, trace_a: Trace, trace_b: Trace
) -> Iterator[tuple[Moment, Difference]]:
    keys = ("step", "minibatch")
    names = [f.name for f in fields(UpdateRecord) if f.name not in keys and not is_time(f.name)]
    tables = [
        read_updates(evidence, run.id.partition("/")[0], names, run=run.id)
        for run in (trace_a, trace_b)
    ]
    merged = tables[0].merge(tables[1], on=list(keys), suffixes=("_one", "_other"))
    # Equal settings give equal bits. Two ratio rules that agree at ratio 1 give equal values up to
    # rounding.
    rounding = ROUNDING if differing(trace_a.settings, trace_b.settings) else 0.0
    for row in merged.to_dict("records"):
        odd = [
            name for name in names if _differ(row[f"{name}_one"], row[f"{name}_other"], rounding)
        ]
        if odd:
            step = row["step"]
            minibatch = row["minibatch"]
            name = odd[0]
            values = (
                _beginning(format_value(row[f"{name}_one"])),
                _beginning(format_value(row[f"{name}_other"])),
            )
            such = ", such as" if len(odd) > 6 else ":"
            remark = (
                f"and {counted(len(odd) - 1, 'more column')}{such} {', '.join(islice(odd, 1, 6))}"
            )
            note = (remark,) if odd[1:] else ()
            yield (
                (step, 5),
                Difference(
                    "update", f"step {step}, mini-batch {minibatch}, {name}", *values, context=note
                ),
            )
            return


def _differ(a: Any, b: Any, rounding: float = 0.0) -> bool:
    """Whether two values that both runs recorded differ by more than a relative `rounding`."""
    missing = any(v is None or (isinstance(v, float) and math.isnan(v)) for v in (a, b))
    if missing or a == b:
        return False
    parts_a = _parts(a)
    parts_b = _parts(b)
    if parts_a and len(parts_a) == len(parts_b):  # one number for each layer, or quantile
        return any(
            _differ(one, other, rounding) for one, other in zip(parts_a, parts_b, strict=True)
        )
    return not (
        isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=rounding)
    )


def _parts(value: Any) -> list[Any]:
    """The parts of a column that holds a list; empty for other columns."""
    if isinstance(value, str) and value.startswith("["):
        return list(json.loads(value))
    return []


def _excerpts(a: OptionalText, b: OptionalText) -> tuple[str, str]:
    """Two texts around their first different character, which has a mark."""
    text_a = a or ""
    text_b = b or ""
    shared = next(
        (i for i, (x, y) in enumerate(zip(text_a, text_b, strict=False)) if x != y),
        min(len(text_a), len(text_b)),
    )
    begin = max(0, shared - AROUND)
    lead = text_a[begin:shared]
    if begin:
        lead = f"…{lead}"

    def excerpt(text: str) -> str:
        end = text[shared : shared + AROUND]
        return f"{lead}{MARK}{end}…" if len(text) > shared + AROUND else f"{lead}{MARK}{end}"

    return excerpt(text_a), excerpt(text_b)


def _beginning(text: str) -> str:
    return text if len(text) <= 2 * AROUND else f"{text[: 2 * AROUND]}…"


def lines(difference: Difference | None, run_a: str, run_b: str) -> list[str]:
    """The output of `gspo-lab compare`."""
    if difference is None:
        return [f"{run_a} and {run_b} agree in everything that both recorded"]
    out = [f"{run_a} and {run_b} part here:", *(f"  {line}" for line in difference.lines())]
    if difference.later:
        out.append("and after that:")
        for later in difference.later:
            out += [f"  {line}" for line in later.lines()]
    if any(MARK in line for line in out):
        out.append(f"{MARK} marks the first character in which two texts differ")
    return out
