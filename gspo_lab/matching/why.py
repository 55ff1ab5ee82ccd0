"""Where two runs part: the first difference in causal order, and the first of every later kind.

setting > code, packages, device, numerics > weights, tokenizer, chat template, grader
    > then by time: benchmark answers after k steps, step k's prompts, responses, log-probs, rewards, updates
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from gspo_lab.errors import LabError
from gspo_lab.matching.settings import declared, shown
from gspo_lab.matching.trace import Trace, traces
from gspo_lab.records import ROLLOUT, UpdateRecord, is_time
from gspo_lab.registry import nearest
from gspo_lab.store.records import read_steps, read_updates
from gspo_lab.store.traces import read_questions
from gspo_lab.study.dotted import differing, under

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

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
"""Kinds of difference between workers, causes first, with the facts that tell."""
AROUND = 40
"""Characters shown on each side of the place where two texts part."""
ROUNDING = 2**-20
"""Relative difference that float32 sums in another order explain: 8 units in the last place (2**-23)."""


@dataclass(frozen=True)
class Difference:
    """One place where two runs part. `one` and `other` are the two values as text; `declared`: an arm states it.

    `later` has, on the first difference only, the first one of every kind that follows.
    """

    kind: str
    where: str
    one: str
    other: str
    context: tuple[str, ...] = ()
    declared: bool = False
    later: tuple["Difference", ...] = ()

    def lines(self) -> list[str]:
        """The difference for a terminal, with what stood before it."""
        stated = " (declared)" if self.declared else ""
        return [f"{self.kind}: {self.where}: {self.one} | {self.other}{stated}", *(f"    {x}" for x in self.context)]

    def to_json(self) -> dict[str, Any]:
        """The difference as plain data."""
        own = {name: getattr(self, name) for name in ("kind", "where", "one", "other", "declared")}
        return {**own, "context": list(self.context), "later": [one.to_json() for one in self.later]}


def why(evidence: "Evidence", run_a: str, run_b: str) -> Difference | None:
    """The first place where two runs part, by their ids (`study/arm/s0`); None where all that both recorded agrees."""
    studies = dict.fromkeys(run.partition("/")[0] for run in (run_a, run_b))
    known = {trace.id: trace for study in studies for trace in traces(evidence, study)}
    one, other = (_trace(evidence, run, known) for run in (run_a, run_b))
    found = [*_made_with(one, other), *_worked_on(one, other), *_recorded(evidence, one, other)]
    if not found:
        return None
    first, *later = found
    return replace(first, later=tuple(later))


def _trace(evidence: "Evidence", run: str, traces: Mapping[str, Trace]) -> Trace:
    study = run.partition("/")[0]
    known = [str(name) for name in evidence.runs(study)["run_id"]]
    if run not in known:
        raise LabError(f"no run '{run}'{nearest(run, known)}; {study} has {', '.join(known)}")
    if run not in traces:
        raise LabError(f"{run} has not begun: there is nothing to compare yet")
    return traces[run]


def _made_with(one: Trace, other: Trace) -> Iterator[Difference]:
    if one.seed != other.seed:
        yield Difference("setting", "seed", str(one.seed), str(other.seed))
    keys = differing(one.settings, other.settings)
    stated = declared(keys, (*one.declared, *other.declared), one.settings, other.settings)
    # What nobody declared is the likelier surprise.
    for key in sorted(keys, key=lambda key: (key in stated, key)):
        values = shown(one.settings.get(key)), shown(other.settings.get(key))
        yield Difference("setting", key, *values, declared=key in stated)


def _worked_on(one: Trace, other: Trace) -> Iterator[Difference]:
    if not one.facts or not other.facts:
        return
    keys = differing(one.facts, other.facts)
    known = one.begun and other.begun
    for kind, names in CAUSES.items():
        for key in keys:
            if under(key, names) and (key != "weights" or known):
                yield Difference(kind, key, shown(one.facts.get(key)), shown(other.facts.get(key)))


def _recorded(evidence: "Evidence", one: Trace, other: Trace) -> list[Difference]:
    """The first difference of every kind that recorded moments show, in the order in which they happened."""
    answers = _answers(evidence, one, other)
    found = [
        *_first_answer(answers),
        *_first_prompt(one, other, answers),
        *_first_step(evidence, one, other, answers),
        *_first_update(evidence, one, other),
    ]
    return [difference for _, difference in sorted(found, key=lambda entry: entry[0])]


Moment = tuple[int, int]
"""Step, and the place within it: 0 evaluation before it, 1 prompts, 2 responses, 3 log-probs, 4 rewards, 5 updates."""
Answers = tuple[dict[Any, tuple[Any, ...]], dict[Any, tuple[Any, ...]]]
"""Of each run: (bench, step, problem, sample) -> (prompt, reference, grader, text)."""


def _answers(evidence: "Evidence", one: Trace, other: Trace) -> Answers:
    first, second = ({row[:4]: row[4:] for row in read_questions(evidence, run.id)} for run in (one, other))
    return first, second


def _first_answer(answers: Answers) -> Iterator[tuple[Moment, Difference]]:
    first, second = answers
    common = [key for key in first if key in second and key[0] != ROLLOUT]
    for key in sorted(common, key=lambda key: key[1]):  # stable: within a step in the order of asking
        if first[key] != second[key]:
            bench, step, problem, sample = key
            where = f"{bench} after {step} steps, {problem} #{sample}"
            place = next(i for i, (a, b) in enumerate(zip(first[key], second[key], strict=True)) if a != b)
            what = ("prompt", "reference", "grader", "text")[place]
            a, b = first[key][place], second[key][place]
            if what == "text":
                yield (step, 0), Difference("answer", where, *_parted(a, b), context=(f"asked: {first[key][0]}",))
            else:
                yield (step, 0), Difference("answer", f"{where}: its {what}", str(a), str(b))
            return


def _first_prompt(one: Trace, other: Trace, answers: Answers) -> Iterator[tuple[Moment, Difference]]:
    common = sorted(one.prompts.digests.keys() & other.prompts.digests.keys())
    step = next((step for step in common if one.prompts.digests[step] != other.prompts.digests[step]), None)
    if step is None:
        return
    kept = [[key[2] for key in side if key[:2] == (ROLLOUT, step) and key[3] == 0] for side in answers]
    asked = next(((a, b) for a, b in zip(*kept, strict=False) if a != b), None)
    if asked is not None:
        yield (step, 1), Difference("prompt", f"step {step}", *asked)
    else:
        values = shown(one.prompts.digests[step]), shown(other.prompts.digests[step])
        note = "the problems that differ are not among those kept; [record] rollouts = 1.0 keeps all"
        yield (step, 1), Difference("prompt", f"step {step}, digest", *values, context=(note,))


STEP_COLUMNS = (("rollout", "rollout_digest", 2), ("log-probs", "logprob_digest", 3), ("reward", "reward_mean", 4))


def _first_step(
    evidence: "Evidence", one: Trace, other: Trace, answers: Answers
) -> Iterator[tuple[Moment, Difference]]:
    names = [name for _, name, _ in STEP_COLUMNS]
    tables = [read_steps(evidence, run.id.partition("/")[0], names, run=run.id) for run in (one, other)]
    both = tables[0].merge(tables[1], on="step", suffixes=("_one", "_other"))
    whole = all(run.settings.get("record.rollouts") == 1 for run in (one, other))
    for kind, name, place in STEP_COLUMNS:
        columns = (both["step"].tolist(), both[f"{name}_one"].tolist(), both[f"{name}_other"].tolist())
        parted = next(((step, a, b) for step, a, b in zip(*columns, strict=True) if _differ(a, b)), None)
        if parted is not None:
            step, a, b = parted
            yield (
                (step, place),
                (
                    _rollout(step, answers, a, b, whole)
                    if kind == "rollout"
                    else Difference(kind, f"step {step}, {name}", shown(a), shown(b))
                ),
            )


def _rollout(step: int, answers: Answers, a: str, b: str, whole: bool) -> Difference:
    """The first kept response that differs, with the text around the place; `whole`: all trained on were kept."""
    first, second = answers
    kept = [key for key in first if key[:2] == (ROLLOUT, step) and key in second]
    for key in kept:
        if first[key][3] != second[key][3]:
            where = f"step {step}, response {key[3]} to {key[2]}"
            return Difference(
                "rollout", where, *_parted(first[key][3], second[key][3]), context=(f"asked: {first[key][0]}",)
            )
    note = f"the {len(kept)} responses kept of this step agree" if kept else "no response of this step was kept"
    note += "; what a step does not train on never is" if whole else "; [record] rollouts = 1.0 keeps all"
    return Difference("rollout", f"step {step}, token ids", shown(a), shown(b), context=(note,))


def _first_update(evidence: "Evidence", one: Trace, other: Trace) -> Iterator[tuple[Moment, Difference]]:
    keys = ("step", "minibatch")
    names = [f.name for f in fields(UpdateRecord) if f.name not in keys and not is_time(f.name)]
    tables = [read_updates(evidence, run.id.partition("/")[0], names, run=run.id) for run in (one, other)]
    both = tables[0].merge(tables[1], on=list(keys), suffixes=("_one", "_other"))
    # Equal settings make equal bits. Two rules that are equal at ratio 1 make them up to rounding.
    rounding = ROUNDING if differing(one.settings, other.settings) else 0.0
    for row in both.to_dict("records"):
        odd = [name for name in names if _differ(row[f"{name}_one"], row[f"{name}_other"], rounding)]
        if odd:
            step, minibatch, name = row["step"], row["minibatch"], odd[0]
            values = _cut(shown(row[f"{name}_one"])), _cut(shown(row[f"{name}_other"]))
            rest = (f"and {len(odd) - 1} more columns: {', '.join(islice(odd, 1, 6))}",) if odd[1:] else ()
            yield (step, 5), Difference("update", f"step {step}, mini-batch {minibatch}, {name}", *values, context=rest)
            return


def _differ(a: Any, b: Any, rounding: float = 0.0) -> bool:
    """Whether two values that both runs recorded differ by more than a relative `rounding`."""
    missing = any(v is None or (isinstance(v, float) and math.isnan(v)) for v in (a, b))
    if missing or a == b:
        return False
    return not (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=rounding))


def _parted(a: str | None, b: str | None) -> tuple[str, str]:
    """Two texts around the first character in which they differ, marked ›."""
    first, second = a or "", b or ""
    shared = next(
        (i for i, (x, y) in enumerate(zip(first, second, strict=False)) if x != y), min(len(first), len(second))
    )
    begin = max(0, shared - AROUND)
    lead = ("…" if begin else "") + first[begin:shared]
    ends = [text[shared : shared + AROUND] + ("…" if len(text) > shared + AROUND else "") for text in (first, second)]
    return f"{lead}›{ends[0]}", f"{lead}›{ends[1]}"


def _cut(text: str) -> str:
    return text if len(text) <= 2 * AROUND else f"{text[: 2 * AROUND]}…"


def lines(found: Difference | None, run_a: str, run_b: str) -> list[str]:
    """What `gspo-lab diff` prints."""
    if found is None:
        return [f"{run_a} and {run_b} agree in everything that both recorded"]
    out = [f"{run_a} and {run_b} part here:", *(f"  {line}" for line in found.lines())]
    if found.later:
        out.append("and after that:")
        out += [f"  {line}" for one in found.later for line in one.lines()]
    return out
