"""What each run's record says of itself: whose it is, whether it is whole, and whether its numbers agree.

Runs that are no evidence of their own cannot be a pair. Nothing of a pair is compared here, and nothing excuses it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from gspo_lab.matching.pairing import EQUAL, UNDECLARED, UNKNOWN, Check, Sides
from gspo_lab.matching.settings import shown
from gspo_lab.matching.trace import Trace, resolved
from gspo_lab.records import ROLLOUT
from gspo_lab.store.consistency import answer_digests, at_odds, first_missing
from gspo_lab.store.traces import read_equal_norms
from gspo_lab.study import Declaration, Settings, VerdictTable, digest, flat
from gspo_lab.study.declaration import rule_of
from gspo_lab.study.dotted import differing

if TYPE_CHECKING:
    from gspo_lab.store import Evidence

NATIVE = "native"
"""The engine whose schedule and columns are the lab's own definitions."""

Odd = tuple[str, str]
"""What is wrong with a run's record: a name for it, and what was found."""


Account = Mapping[str, tuple[Odd, ...]]
"""Per check what is wrong with one run's record. A check that is missing could not be made of it."""

MEANINGS = {
    "identity": "both journals name their run and what study.json locks; no seed did what another one did",
    "plan": "every step, update and evaluation that is declared, and no other",
    "own numbers": "clips, learning rates and counts agree with each other and the settings",
    "sealed answers": "every evaluation's answers have the digest that the run's last word holds",
}


def checks(pair: Sides, accounts: Mapping[str, Account]) -> tuple[Check, ...]:
    """The rows of a pair: what is wrong with either run."""
    return tuple(_check(pair, name, accounts) for name in MEANINGS)


def _check(pair: Sides, name: str, accounts: Mapping[str, Account]) -> Check:
    found = [(trace, accounts[trace.id].get(name)) for trace in (pair.one, pair.other)]
    odd = [(f"{trace.arm}: {part}", f"{trace.id}: {said}") for trace, ones in found for part, said in ones or ()]
    if odd:
        return Check(name, UNDECLARED, "; ".join(said for _, said in odd), tuple(dict.fromkeys(p for p, _ in odd)))
    if any(ones is None for _, ones in found):
        return Check(name, UNKNOWN, pair.silent(*(ones is not None for _, ones in found)))
    return Check(name, EQUAL, MEANINGS[name])


def accounts(evidence: "Evidence", declared: Declaration, traces: Sequence[Trace]) -> dict[str, Account]:
    """Per run id what its record says of itself, beside the study's declaration and its arm's other runs."""
    known = {declared.content_digest: declared.locked()} | {digest(one): one for one in declared.superseded}
    twins = [*_copies(traces), *_twins(traces, read_equal_norms(evidence, declared.name))]
    most: dict[str, int] = {}
    for trace in traces:
        for (bench, _), asked in trace.asked.items():
            most[bench] = max(most.get(bench, 0), asked.problems)
    shared = {id(trace.nested): trace.nested for trace in traces}  # the runs of an arm
    settings = {place: _settings(nested) for place, nested in shared.items()}
    return {
        trace.id: _account(evidence, declared, trace, settings[id(trace.nested)], known, twins, most)
        for trace in traces
    }


def _account(
    evidence: "Evidence",
    declared: Declaration,
    trace: Trace,
    settings: Settings | None,
    known: Mapping[str | None, Mapping[str, Any]],
    twins: Sequence[tuple[Trace, Trace]],
    most: Mapping[str, int],
) -> Account:
    copied = [("seed", f"it sampled or learned what {one.id} did") for one, copy in twins if copy is trace]
    signed = [start for start in trace.starts if start.run is not None]
    out: dict[str, tuple[Odd, ...]] = {}
    if not signed and trace.declaration is None and trace.seal is None:
        return {"identity": tuple(copied)} if copied else out
    out["identity"] = (*_identity(declared, trace, known), *copied)
    if settings is not None and settings.engine.name == NATIVE:
        if trace.finished:
            out["plan"] = tuple(_plan(evidence, trace, settings, most))
        out["own numbers"] = tuple(_numbers(evidence, trace, settings))
    if trace.finished:
        out["sealed answers"] = tuple(_sealed(evidence, trace))
    return out


def _identity(declared: Declaration, trace: Trace, known: Mapping[str | None, Mapping[str, Any]]) -> Iterator[Odd]:
    own = trace.id.partition("/")[2]
    for start in trace.starts:
        if start.run is None or start.declaration is None:
            if start is trace.starts[-1]:  # an earlier version may have begun it
                yield "signature", "its last worker did not say of which run and declaration it was"
            continue
        if start.run.partition("/")[2] != own:
            yield "run", f"its journal is that of {start.run}"
        before = known.get(start.declaration)
        if before is None:
            yield (
                "declaration",
                f"it was made under the declaration {shown(start.declaration)}, which study.json does not hold",
            )
        else:
            yield from _made_otherwise(declared, trace, before)
            if trace.seed not in before["seeds"]:
                yield "declaration", f"seed {trace.seed} was not declared when it began"


def _made_otherwise(declared: Declaration, trace: Trace, before: Mapping[str, Any]) -> Iterator[Odd]:
    """In what an earlier declaration, under which a run was made, is not the present one."""
    try:
        rule = VerdictTable.model_validate(before["verdict"]).model_dump(mode="json")
        now = declared.verdict.model_dump(mode="json")
        for key in differing(flat(rule), flat(now)):
            told = f"verdict.{key} was {shown(flat(rule).get(key))} when it began, now {shown(flat(now).get(key))}"
            yield f"verdict.{key}", told
        arm = flat(resolved(before["arms"][trace.arm]["settings"]))
    except (KeyError, TypeError, ValidationError):
        yield "declaration", "the declaration under which it was made does not hold its arm"
        return
    for key in differing(arm, trace.settings):
        yield key, f"its arm declared {key} = {shown(arm.get(key))} when it began"


def _copies(traces: Sequence[Trace]) -> Iterator[tuple[Trace, Trace]]:
    """Runs of one arm and different seeds that sampled the very same in step 0: a run, and what may be its copy."""
    first: dict[tuple[Any, ...], Trace] = {}
    for trace in sorted(traces, key=lambda one: one.seed):
        tokens, logprobs = trace.first.get("rollout_digest"), trace.first.get("logprob_digest")
        if tokens is not None and logprobs is not None:
            known = first.setdefault((trace.arm, tokens, logprobs), trace)
            if known.seed != trace.seed:
                yield known, trace


def _twins(traces: Sequence[Trace], alike: Iterable[Collection[str]]) -> Iterator[tuple[Trace, Trace]]:
    """Runs of one arm and different seeds with the same gradient norm, to the last digit, in two steps or more; `alike`
    has per step and norm the runs that share it. Imported logs may round, or hold norms after clipping: they are left
    out."""
    known = {trace.id: trace for trace in traces if trace.recorder is None}
    counts: Counter[tuple[str, str]] = Counter()
    for ids in alike:
        runs = sorted((known[run] for run in ids if run in known), key=lambda trace: trace.seed)
        counts.update((one.id, copy.id) for one, copy in combinations(runs, 2) if one.arm == copy.arm)
    yield from ((known[one], known[copy]) for (one, copy), steps in counts.items() if steps > 1)


def _settings(nested: Mapping[str, Any]) -> Settings | None:
    try:
        return Settings.model_validate(nested)
    except ValidationError:
        return None


def _plan(evidence: "Evidence", trace: Trace, settings: Settings, most: Mapping[str, int]) -> Iterator[Odd]:
    """Steps and updates, evaluations and their answers, as the settings schedule them; `most`: per bench the problems
    that any run of the study was asked."""
    steps = settings.steps
    each = settings.update.per_rollout_batch if not settings.rollout.varying else None
    if missing := first_missing(evidence, trace.id, steps, each):
        yield "steps", missing
    for bench in settings.bench:
        found = {step for name, step in trace.asked if name == bench.name}
        if odd := sorted(found ^ set(bench.moments(steps))):
            yield f"{bench.name}, step {odd[0]}", f"{bench.name} after step {odd[0]} was not as scheduled"
        for step in sorted(found):
            asked = trace.asked[bench.name, step]
            samples = bench.samples_at(step, steps)
            odd_count = asked.problems < most[bench.name] or asked.problems > (bench.problems or asked.problems)
            if odd_count or asked.samples != samples:
                told = f"{asked.answers} answers to {asked.problems} problems of {bench.name} after step {step}"
                yield f"{bench.name}, step {step}", f"{told}; declared are {bench.problems or 'all'} x {samples}"
    undeclared = {name for name, _ in trace.asked} - {bench.name for bench in settings.bench} - {ROLLOUT}
    for name in sorted(undeclared):
        yield name, f"it was asked {name}, which is not declared"


def _numbers(evidence: "Evidence", trace: Trace, settings: Settings) -> Iterator[Odd]:
    """Recorded numbers that follow from each other or from the settings."""
    update, rollout, objective, rule = settings.update, settings.rollout, settings.objective, rule_of(settings)
    values = {
        "prompts": rollout.prompts_per_step,
        "group_size": rollout.group_size,
        "epochs": update.epochs,
        "updates": update.per_rollout_batch,
        "rate": update.learning_rate,
        "warmup": max(update.warmup_updates, 1),
        "kept": settings.record.rollouts,
        "varying": rollout.varying,
        "rounds": rollout.dynamic_sampling,
        "replays": settings.routing_replay != "none",
    }
    band = [objective.clip_low, objective.clip_high]
    same = objective.policy_loss == "clip" and trace.bands.get(rule) == band
    for column, where in at_odds(evidence, trace.id, values, rule if same else None):
        yield column, f"{column} contradicts the settings or other columns from {where} on"


def _sealed(evidence: "Evidence", trace: Trace) -> Iterator[Odd]:
    if trace.seal is None:
        yield "seal", "its last word holds no digests of its answers"
        return
    found = answer_digests(evidence, trace.id)
    for key in sorted(trace.seal.keys() | found.keys()):
        if trace.seal.get(key) != found.get(key):
            yield key, f"the answers of {key} are not those that the run sealed"
