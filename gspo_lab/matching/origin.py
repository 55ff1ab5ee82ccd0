"""What two runs were made with and started from: settings, code, packages, machine, weights, tokenizer, grader."""

from collections.abc import Mapping, Sequence
from typing import Any

from gspo_lab.matching.pairing import DECLARED, EQUAL, OWN_RECORD, STARTING, UNDECLARED, UNKNOWN, Check, Sides, differs
from gspo_lab.matching.settings import listed, shown
from gspo_lab.records import ROLLOUT
from gspo_lab.study import Arm, flat
from gspo_lab.study.dotted import differing, under
from gspo_lab.study.origin import ORIGIN


def own_record(pair: Sides) -> Check:
    """Whether the lab's own workers recorded the two; whatever another program recorded is taken on trust."""
    one, other = pair.one.recorder, pair.other.recorder
    if one == other:
        return Check(OWN_RECORD, UNKNOWN, f"recorded by {one}: taken on trust")
    return Check(OWN_RECORD, UNDECLARED, pair.told(one or "this lab", other or "this lab"), ("recorder",))


def settings(pair: Sides) -> Check:
    """Every resolved setting but the benchmarks', which are a check of their own."""
    odd = [key for key in pair.unstated if not under(key, ["bench"])]
    if odd:
        return Check("settings", UNDECLARED, pair.values(odd), tuple(odd))
    if pair.stated:
        return Check("settings", DECLARED, pair.values(pair.stated), pair.stated)
    return Check("settings", EQUAL, f"{len(pair.one.settings)} settings")


def declaration(pair: Sides, arms: Mapping[str, Arm], bands: Mapping[str, Any]) -> Check:
    """Whether both runs were made with what study.json says of their arms; `bands`: its flat reference bands."""
    parts, said = [], []
    for trace in (pair.one, pair.other):
        wanted, stated = flat(arms[trace.arm].resolved), arms[trace.arm].declared
        for key in differing(trace.settings, wanted):
            parts.append(f"{trace.arm}: {key}")
            said.append(
                f"{trace.id} ran with {key} = {shown(trace.settings.get(key))}, declared {shown(wanted.get(key))}"
            )
        if sorted(trace.declared) != sorted(stated):
            parts.append(f"{trace.arm}: declared keys")
            said.append(f"{trace.id} declares {listed(trace.declared)}, study.json {listed(stated)}")
        measured = {key.removeprefix(BANDS): v for key, v in trace.facts.items() if key.startswith(BANDS)}
        odd_bands = [key for own in (trace.bands, measured) if own and bands for key in differing(own, bands)]
        for key in dict.fromkeys(odd_bands):
            parts.append(f"{trace.arm}: reference_bands.{key}")
            said.append(f"{trace.id} counts would_clip_* at another range of {key}")
    if parts:
        return Check("declaration", UNDECLARED, "; ".join(said), tuple(dict.fromkeys(parts)))
    return Check("declaration", EQUAL, "both runs were made as study.json declares them")


def facts(pair: Sides, name: str, keys: Sequence[str], *excused: str, null_is_a_value: bool = False) -> Check:
    """Facts of the two workers under `keys`; those of a declared setting in `excused` may differ."""
    found = [{key: v for key, v in side.facts.items() if under(key, keys)} for side in (pair.one, pair.other)]
    one, other = found
    if not null_is_a_value:
        one, other = ({key: v for key, v in side.items() if v is not None} for side in found)
    if not one or not other:
        return Check(name, UNKNOWN, pair.silent(bool(one), bool(other)))
    odd = differing(one, other)
    short = {key: key.removeprefix("packages.").removeprefix("flags.") for key in odd}
    if not odd:
        alone = len(one) == 1
        return Check(name, EQUAL, ", ".join(_fact(key, value, alone) for key, value in sorted(one.items())))
    said = "; ".join(f"{short[key]}: {pair.told(one.get(key), other.get(key))}" for key in odd)
    return differs(name, said, tuple(short.values()), pair.excuses(*excused))


def weights(pair: Sides) -> Check:
    """The digests of the starting weights, a critic's too, known only from a worker that began its run at step 0."""
    if not (pair.one.begun and pair.other.begun):
        return Check("weights", UNKNOWN, pair.silent(pair.one.begun, pair.other.begun))
    # A critic's start is compared where both have one; that only one has is among the settings.
    critics = ["critic"] if all("critic" in side.facts for side in (pair.one, pair.other)) else []
    return facts(pair, "weights", ["weights", *critics], *STARTING)


BANDS = "reference_bands."
"""Begins the facts that say at which ranges a worker counted clips that did not happen."""
COVERED = (
    *("code", "gspo_lab", "python", "packages", "device", "threads", "instructions", "flags"),
    *("weights", "critic", "tokenizer", "chat_template", "grader", ORIGIN),
)
"""Facts that have a check of their own."""


def other_facts(pair: Sides) -> Check:
    """Whatever else an engine found out about itself, so that nothing recorded goes uncompared."""
    rest = {key for side in (pair.one, pair.other) for key in side.facts if not under(key, COVERED)}
    if not rest:
        return Check("other facts", EQUAL, "none recorded by either")
    return facts(pair, "other facts", sorted(rest), *STARTING, "rollout.sampler", "rollout.batch_invariant", "engine")


def restarts(pair: Sides) -> Check:
    """Every worker that took a run up again must have been like the one that began it."""
    parts, said, times = [], [], 0
    for trace in (pair.one, pair.other):
        known = [start for start in trace.starts if start.facts is not None]
        if not known:
            recorded = [any(start.facts is not None for start in t.starts) for t in (pair.one, pair.other)]
            return Check("restarts", UNKNOWN, pair.silent(*recorded))
        first = known[0]
        for start in known[1:]:
            assert first.facts is not None
            assert start.facts is not None
            odd = [key for key in differing(first.facts, start.facts) if not under(key, [ORIGIN])]
            if start.step != first.step:  # the digests are then those of the weights it went on from
                odd = [key for key in odd if key not in ("weights", "critic", "start")]
            parts += [f"{trace.arm}: {key}" for key in odd]
            said += [
                f"{trace.id} went on at step {start.step} with {key} = {shown(start.facts.get(key))}, "
                f"before {shown(first.facts.get(key))}"
                for key in odd
            ]
        times += len(trace.starts) - 1
    if parts:
        return Check("restarts", UNDECLARED, "; ".join(said), tuple(dict.fromkeys(parts)))
    return Check("restarts", EQUAL, f"workers beside the first: {times}, all alike" if times else "one worker each")


def grader(pair: Sides) -> Check:
    """The reward function and its version, as the task names it and as every kept training answer was graded."""
    one, other = (side.graders(ROLLOUT) | {side.facts.get("grader")} - {None} for side in (pair.one, pair.other))
    return pair.same_graders("grader", one, other)


def _fact(key: str, value: Any, alone: bool) -> str:
    value = "none" if value is None else shown(value)
    if alone:
        return str(value)
    name = key.rpartition(".")[2] if key.startswith(("packages.", "flags.")) else key
    return f"{name} {value}"
