"""Checks of how two runs were made: settings, code, packages, machine, starting weights, tokenizer, grader."""

from collections.abc import Mapping, Sequence
from typing import Any

from gspo_lab.matching.run_pair import DECLARED, EQUAL, OWN_RECORD, STARTING, UNKNOWN, Check, Fault, RunPair, differs
from gspo_lab.matching.settings_diff import format_value, join_names
from gspo_lab.records import ROLLOUT
from gspo_lab.study import Arm, flat
from gspo_lab.study.dotted_keys import differing, under
from gspo_lab.study.import_origin import ORIGIN


def recorder(pair: RunPair) -> Check:
    """Which program recorded the runs. The lab cannot verify what another program recorded."""
    left, right = pair.left.recorder, pair.right.recorder
    if left == right:
        return Check(OWN_RECORD, UNKNOWN, f"recorded by {left}: taken on trust")
    return differs(OWN_RECORD, [("recorder", pair.describe_values(left or "this lab", right or "this lab"))])


def settings(pair: RunPair) -> Check:
    """Every resolved setting except those of benchmarks, which have a separate check."""
    odd = [key for key in pair.unstated if not under(key, ["bench"])]
    if odd:
        return differs("settings", [(key, pair.setting_values([key])) for key in odd])
    if pair.stated:
        return Check("settings", DECLARED, pair.setting_values(pair.stated), pair.stated)
    return Check("settings", EQUAL, f"{len(pair.left.settings)} settings")


def declaration(pair: RunPair, arms: Mapping[str, Arm], bands: Mapping[str, Any]) -> Check:
    """Whether both runs were made as study.json declares their arms. `bands`: its flat reference ranges."""
    faults: list[Fault] = []
    for trace in pair.traces:
        resolved, stated = flat(arms[trace.arm].resolved), arms[trace.arm].declared
        for key in differing(trace.settings, resolved):
            values = f"{format_value(trace.settings.get(key))}, declared {format_value(resolved.get(key))}"
            faults.append((f"{trace.arm}: {key}", f"{trace.id} ran with {key} = {values}"))
        if sorted(trace.declared) != sorted(stated):
            keys = f"declares {join_names(trace.declared)}, study.json {join_names(stated)}"
            faults.append((f"{trace.arm}: declared keys", f"{trace.id} {keys}"))
        measured = {key.removeprefix(BANDS): v for key, v in trace.facts.items() if key.startswith(BANDS)}
        odd = [key for recorded in (trace.bands, measured) if recorded and bands for key in differing(recorded, bands)]
        for key in dict.fromkeys(odd):
            sentence = f"{trace.id} counts would_clip_* at another range of {key}"
            faults.append((f"{trace.arm}: reference_bands.{key}", sentence))
    if faults:
        return differs("declaration", faults)
    return Check("declaration", EQUAL, "both runs were made as study.json declares them")


def facts(pair: RunPair, name: str, keys: Sequence[str], *excused: str, null_is_a_value: bool = False) -> Check:
    """Compare the workers' facts under `keys`; a declared setting in `excused` explains a difference."""
    left, right = (
        {key: v for key, v in trace.facts.items() if under(key, keys) and (null_is_a_value or v is not None)}
        for trace in pair.traces
    )
    if not left or not right:
        return pair.missing_records(name, bool(left), bool(right))
    odd = differing(left, right)
    short = {key: key.removeprefix("packages.").removeprefix("flags.") for key in odd}
    if not odd:
        return Check(name, EQUAL, ", ".join(_fact(key, value, len(left) == 1) for key, value in sorted(left.items())))
    faults = [(short[key], f"{short[key]}: {pair.describe_values(left.get(key), right.get(key))}") for key in odd]
    return differs(name, faults, pair.declared_under(*excused))


def weights(pair: RunPair) -> Check:
    """Digests of the starting weights, and of a critic's. Only a worker that began its run at step 0 knows them."""
    if not (pair.left.at_step_0 and pair.right.at_step_0):
        return pair.missing_records("weights", pair.left.at_step_0, pair.right.at_step_0)
    # Compare critics only where both runs have one: whether a run has one is a setting, which has its check.
    critics = ["critic"] if all("critic" in trace.facts for trace in pair.traces) else []
    return facts(pair, "weights", ["weights", *critics], *STARTING)


BANDS = "reference_bands."
"""Prefix of the facts that name the ranges at which a worker counted hypothetical clips."""
COVERED = (
    *("code", "gspo_lab", "python", "packages", "device", "threads", "instructions", "flags"),
    *("weights", "critic", "tokenizer", "chat_template", "grader", ORIGIN),
)
"""Facts that have a separate check."""


def remaining_facts(pair: RunPair) -> Check:
    """All facts without a separate check, so that every recorded fact is compared."""
    keys = {key for trace in pair.traces for key in trace.facts if not under(key, COVERED)}
    if not keys:
        return Check("other facts", EQUAL, "none recorded by either")
    return facts(pair, "other facts", sorted(keys), *STARTING, "rollout.sampler", "rollout.batch_invariant", "engine")


def restarts(pair: RunPair) -> Check:
    """Whether every worker that resumed a run had the same facts as the worker that began it."""
    faults: list[Fault] = []
    times = 0
    recorded = [[(start.step, start.facts) for start in t.starts if start.facts is not None] for t in pair.traces]
    if not all(recorded):
        return pair.missing_records("restarts", *map(bool, recorded))
    for trace, ((first_step, first), *later) in zip(pair.traces, recorded, strict=True):
        for step, resumed in later:
            odd = [key for key in differing(first, resumed) if not under(key, [ORIGIN])]
            if step != first_step:  # these digests are of the weights at the checkpoint
                odd = [key for key in odd if key not in ("weights", "critic", "start")]
            for key in odd:
                values = f"{format_value(resumed.get(key))}, before {format_value(first.get(key))}"
                faults.append((f"{trace.arm}: {key}", f"{trace.id} went on at step {step} with {key} = {values}"))
        times += len(trace.starts) - 1
    if faults:
        return differs("restarts", faults)
    return Check("restarts", EQUAL, f"workers beside the first: {times}, all alike" if times else "one worker each")


def grader(pair: RunPair) -> Check:
    """Name and version of the reward function: by the task, and by every stored training answer."""
    left, right = (trace.graders(ROLLOUT) | {trace.facts.get("grader")} - {None} for trace in pair.traces)
    return pair.same_graders("grader", left, right)


def _fact(key: str, value: Any, alone: bool) -> str:
    value = "none" if value is None else format_value(value)
    if alone:
        return str(value)
    name = key.rpartition(".")[2] if key.startswith(("packages.", "flags.")) else key
    return f"{name} {value}"
