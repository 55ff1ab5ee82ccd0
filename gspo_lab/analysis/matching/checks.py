"""The checks that decide whether two runs of one seed are a matched pair.

settings, code, packages, device, numerics       how the runs were made
weights, tokenizer, chat template, grader        what they started from
prompts, first rollout, first mini-batches       what they did before the arms could differ
benchmark items, protocol, grader, base score    how they are scored
identity, plan, sealed answers                   whether each run's record is consistent
                                                 (`record_checks`)
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gspo_lab.analysis.matching import record_checks
from gspo_lab.analysis.matching.run_pair import (
    OWN_RECORD,
    Check,
    Fault,
    Match,
    RunPair,
    differs,
    format_value,
    join_names,
)
from gspo_lab.analysis.matching.trace import COUNTS, LENGTH_TOTALS, PLANNED_TOTALS, REWARDS
from gspo_lab.recording.records import ROLLOUT
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.traces import read_questions
from gspo_lab.study import Arm, flat
from gspo_lab.study.dotted_keys import differing, under
from gspo_lab.study.import_origin import ORIGIN
from gspo_lab.study.schema import KEYS
from gspo_lab.study.verdict_tables import score_named

STARTING = tuple(name for name, key in KEYS.items() if key.affects == "start")
"""Settings that, if declared, allow different starting models; a sweep may vary any of them."""
SAMPLING = tuple(name for name, key in KEYS.items() if key.affects in ("start", "sampling"))
"""Settings that, if declared, allow different first responses."""
WRITTEN_BY_IMPORT = ("settings", "declaration", "restarts", "benchmark protocol")
"""Checks of values that the import wrote: no worker recorded how imported runs were made."""
BANDS = "reference_bands."
"""Prefix of the facts that name the ranges at which a worker counted hypothetical clips."""
COVERED = (
    "code",
    "gspo_lab",
    "python",
    "packages",
    "device",
    "threads",
    "instructions",
    "flags",
    "weights",
    "critic",
    "tokenizer",
    "chat_template",
    "grader",
    ORIGIN,
)
"""Facts that have a separate check."""
COSTS = (
    *(name for name, key in KEYS.items() if key.adds_forward_passes),
    "objective.truncated",
    "objective.turn_credit",
    "rollout.dynamic_sampling",
    "rollout.overlong_buffer",
    "rollout.overlong_penalty",
)
"""Declared settings that explain different FLOPs for one first rollout: they change the passes over
it, or which of its responses train. `keys.Key.cost` lists settings that take time, which is another
question: precision takes no FLOPs.
"""


def all_checks(
    evidence: Evidence,
    pair: RunPair,
    arms: Mapping[str, Arm],
    bands: Mapping[str, Any],
    faults: Mapping[str, record_checks.RecordFaults],
) -> tuple[Check, ...]:
    """Every check of one pair. A check of a cause comes before the checks of its effects."""
    checks = (
        settings(pair),
        declaration(pair, arms, bands),
        facts(pair, "code", ["code"]),
        facts(pair, "packages", ["gspo_lab", "python", "packages"], "engine"),
        facts(pair, "device", ["device"]),
        facts(pair, "numerics", ["threads", "instructions", "flags"]),
        restarts(pair),
        weights(pair),
        facts(pair, "tokenizer", ["tokenizer"], *STARTING),
        facts(pair, "chat template", ["chat_template"], *STARTING, null_is_a_value=True),
        remaining_facts(pair),
        grader(pair),
        prompts(pair),
        first_digest(pair, "first rollout", "rollout_digest", "token ids of step 0"),
        first_digest(
            pair, "first log-probs", "logprob_digest", "the sampler's log-probs of step 0"
        ),
        first_columns(pair, "first rewards", REWARDS),
        first_columns(pair, "first counts", COUNTS),
        first_minibatches(pair),
        compute(pair),
        benchmark_protocol(pair),
        benchmark_items(evidence, pair),
        benchmark_grader(pair),
        base_score(pair),
        *record_checks.checks(pair, faults),
    )
    return (recorder(pair), *map(_mark_unproven, checks)) if pair.imported else checks


def _mark_unproven(check: Check) -> Check:
    if check.name in WRITTEN_BY_IMPORT and check.state == Match.EQUAL:
        return replace(check, state=Match.UNKNOWN, detail="written alike by their import")
    return check


def recorder(pair: RunPair) -> Check:
    """Which program recorded the runs. The lab cannot verify what another program recorded."""
    left = pair.left.recorder
    right = pair.right.recorder
    if left == right:
        return Check(OWN_RECORD, Match.UNKNOWN, f"recorded by {left}: taken on trust")
    return differs(
        OWN_RECORD, [("recorder", pair.describe_values(left or "this lab", right or "this lab"))]
    )


def settings(pair: RunPair) -> Check:
    """Every resolved setting except those of benchmarks, which have a separate check."""
    odd = [key for key in pair.unstated if not under(key, ["bench"])]
    if pair.stated and not odd:
        return Check("settings", Match.DECLARED, pair.setting_values(pair.stated), pair.stated)
    faults = [(key, pair.setting_values([key])) for key in odd]
    return differs("settings", faults, equal=f"{len(pair.left.settings)} settings")


def declaration(pair: RunPair, arms: Mapping[str, Arm], bands: Mapping[str, Any]) -> Check:
    """Whether both runs were made as study.json declares their arms.

    `bands`: its flat reference ranges.
    """
    faults: list[Fault] = []
    for trace in pair.traces:
        resolved = flat(arms[trace.arm].resolved)
        stated = arms[trace.arm].declared
        for key in differing(trace.settings, resolved):
            values = (
                f"{format_value(trace.settings.get(key))}, declared"
                f" {format_value(resolved.get(key))}"
            )
            faults.append((f"{trace.arm}: {key}", f"{trace.id} ran with {key} = {values}"))
        if sorted(trace.declared) != sorted(stated):
            keys = f"declares {join_names(trace.declared)}, study.json {join_names(stated)}"
            faults.append((f"{trace.arm}: declared keys", f"{trace.id} {keys}"))
        measured = {
            key.removeprefix(BANDS): v for key, v in trace.facts.items() if key.startswith(BANDS)
        }
        odd = [
            key
            for recorded in (trace.bands, measured)
            if recorded and bands
            for key in differing(recorded, bands)
        ]
        for key in dict.fromkeys(odd):
            sentence = f"{trace.id} counts would_clip_* at another range of {key}"
            faults.append((f"{trace.arm}: reference_bands.{key}", sentence))
    return differs("declaration", faults, equal="both runs were made as study.json declares them")


def facts(
    pair: RunPair, name: str, keys: Sequence[str], *excused: str, null_is_a_value: bool = False
) -> Check:
    """Compare the workers' facts under `keys`; a declared setting in `excused` explains a
    difference.
    """
    left, right = (
        {
            key: v
            for key, v in trace.facts.items()
            if under(key, keys) and (null_is_a_value or v is not None)
        }
        for trace in pair.traces
    )
    if not left or not right:
        return pair.missing_records(name, bool(left), bool(right))
    odd = differing(left, right)
    short = {key: key.removeprefix("packages.").removeprefix("flags.") for key in odd}
    faults = [
        (short[key], f"{short[key]}: {pair.describe_values(left.get(key), right.get(key))}")
        for key in odd
    ]
    equal = ", ".join(_fact(key, value, len(left) == 1) for key, value in sorted(left.items()))
    return differs(name, faults, pair.declared_under(*excused), equal=equal)


def weights(pair: RunPair) -> Check:
    """Digests of the starting weights, and of a critic's.

    Only a worker that began its run at step 0 knows them.
    """
    if not (pair.left.at_step_0 and pair.right.at_step_0):
        return pair.missing_records("weights", pair.left.at_step_0, pair.right.at_step_0)
    # Compare critics only where both runs have one: whether a run has one is a setting, which has
    # its check.
    critics = ["critic"] if all("critic" in trace.facts for trace in pair.traces) else []
    return facts(pair, "weights", ["weights", *critics], *STARTING)


def remaining_facts(pair: RunPair) -> Check:
    """All facts without a separate check, so that every recorded fact is compared."""
    keys = {key for trace in pair.traces for key in trace.facts if not under(key, COVERED)}
    if not keys:
        return Check("other facts", Match.EQUAL, "none recorded by either")
    return facts(
        pair,
        "other facts",
        sorted(keys),
        *STARTING,
        "rollout.sampler",
        "rollout.batch_invariant",
        "engine",
    )


def restarts(pair: RunPair) -> Check:
    """Whether every worker that resumed a run had the same facts as the worker that began it."""
    faults: list[Fault] = []
    times = 0
    recorded = [
        [(start.step, start.facts) for start in t.starts if start.facts is not None]
        for t in pair.traces
    ]
    if not all(recorded):
        return pair.missing_records("restarts", *map(bool, recorded))
    for trace, ((first_step, first), *later) in zip(pair.traces, recorded, strict=True):
        for step, resumed in later:
            odd = [key for key in differing(first, resumed) if not under(key, [ORIGIN])]
            if step != first_step:  # these digests are of the weights at the checkpoint
                odd = [key for key in odd if key not in ("weights", "critic", "start")]
            for key in odd:
                values = f"{format_value(resumed.get(key))}, before {format_value(first.get(key))}"
                faults.append(
                    (
                        f"{trace.arm}: {key}",
                        f"{trace.id} went on at step {step} with {key} = {values}",
                    )
                )
        times += len(trace.starts) - 1
    equal = f"workers beside the first: {times}, all alike" if times else "one worker each"
    return differs("restarts", faults, equal=equal)


def grader(pair: RunPair) -> Check:
    """Name and version of the reward function: by the task, and by every stored training answer."""
    left, right = (
        trace.graders(ROLLOUT) | {trace.facts.get("grader")} - {None} for trace in pair.traces
    )
    return pair.same_graders("grader", left, right)


def _fact(key: str, value: Any, alone: bool) -> str:
    value = "none" if value is None else format_value(value)
    if alone:
        return str(value)
    name = key.rpartition(".")[2] if key.startswith(("packages.", "flags.")) else key
    return f"{name} {value}"


def prompts(pair: RunPair) -> Check:
    """The prompt ids of every common step, and the stored texts of the prompts."""
    left = pair.left.prompts
    right = pair.right.prompts
    count, parted = left.compare(right)
    if not count:
        return pair.missing_records("prompts", bool(left.steps), bool(right.steps))
    if parted is not None:
        detail = f"the streams of prompts part at step {parted}"
        return differs(
            "prompts",
            [(f"step {parted}", detail)],
            pair.declared_under("rollout.prompts_per_step", "task"),
        )
    common = sorted(pair.left.answers.keys() & pair.right.answers.keys())
    stored = [step for bench, step in common if bench == ROLLOUT and not _varying(pair)]
    step = next((step for step in stored if not _same_items(pair, ROLLOUT, step)), None)
    if step is not None:
        detail = f"equal prompt ids, but the texts or references kept of step {step} differ"
        return differs("prompts", [(f"step {step}, texts", detail)], pair.declared_under("task"))
    return Check("prompts", Match.EQUAL, f"the same prompts in the same order over {count} steps")


def _varying(pair: RunPair) -> bool:
    """Whether the sampled responses decide what a step trains on: responses may wait for a later
    step or be dropped.
    """
    keys = ("rollout.dynamic_sampling", "rollout.tokens_per_step")
    return any(trace.settings.get(key) for trace in pair.traces for key in keys)


def first_digest(pair: RunPair, name: str, digest: str, title: str) -> Check:
    """Compare a digest of what each run sampled at step 0, bit for bit."""
    left = pair.left.first.get(digest)
    right = pair.right.first.get(digest)
    if left is None or right is None:
        return pair.missing_records(name, left is not None, right is not None)
    faults = [("step 0", f"{title}: {pair.describe_values(left, right)}")] if left != right else []
    reasons = _sampling_differences(pair)
    rollouts = [trace.first.get("rollout_digest") for trace in pair.traces]
    if digest == "logprob_digest" and rollouts[0] == rollouts[1]:
        # The same tokens in batches of another shape, as an engine of several processes makes
        # them, have log-probs that differ in their last bits.
        reasons += pair.declared_under("engine")
    return differs(name, faults, reasons, equal=f"{title}: {format_value(left)}")


def first_columns(pair: RunPair, name: str, columns: Sequence[str]) -> Check:
    """Compare numbers of step 0: equal responses have equal grades, lengths and costs."""
    left = pair.left.first
    right = pair.right.first
    names = [key for key in columns if key in left and key in right]
    if not names or "rollout_digest" not in left or "rollout_digest" not in right:
        recorded = [
            any(key in first for key in columns) and "rollout_digest" in first
            for first in (left, right)
        ]
        return pair.missing_records(name, *recorded, otherwise="no number in common")
    odd = [key for key in names if left[key] != right[key]]
    faults = [
        (key, f"{key} at step 0: {pair.describe_values(left[key], right[key])}") for key in odd
    ]
    reasons = (
        _sampling_differences(pair) if left["rollout_digest"] != right["rollout_digest"] else []
    )
    if odd == ["flops_total"]:
        reasons += pair.declared_under(*COSTS)
    if columns is COUNTS and "tokens_sampled_total" not in odd:
        # Dropped groups were sampled too, but the lengths are of the groups that train.
        reasons += pair.declared_under("rollout.dynamic_sampling")
    return differs(
        name, faults, reasons, equal=", ".join(f"{key} {format_value(left[key])}" for key in names)
    )


def compute(pair: RunPair) -> Check:
    """Prompts and updates in all, which must be equal.

    Tokens and FLOPs are only shown: answers may grow longer.
    """
    name = "compute"
    left = pair.left.spent
    right = pair.right.spent
    # With a varying batch the number of groups decides the number of updates, as answer lengths
    # decide tokens.
    planned = [key for key in PLANNED_TOTALS if key != "updates_total" or not _varying(pair)]
    grown = [key for key in (*PLANNED_TOTALS, *LENGTH_TOTALS) if key not in planned]
    recorded = [set(planned) <= spent.keys() for spent in (left, right)]
    if not (pair.left.finished and pair.right.finished) and not all(recorded):
        return Check(name, Match.UNKNOWN, "counted when both have finished")
    if not all(recorded):
        return pair.missing_records(name, *recorded)
    odd = [key for key in planned if left[key] != right[key]]
    if odd:
        faults = [(key, f"{key}: {pair.describe_values(left[key], right[key])}") for key in odd]
        reasons = pair.declared_under("steps", "rollout", "update", "engine")
        # With dynamic sampling the number of replacement groups depends on what the model learned.
        dropping = any(trace.settings.get("rollout.dynamic_sampling") for trace in pair.traces)
        return differs(name, faults, reasons or ["rollout.dynamic_sampling"] * dropping)
    ratios = [
        f"{key} {right[key] / left[key]:.3f}" for key in grown if left.get(key) and key in right
    ]
    growth = f"; {pair.right.arm} / {pair.left.arm}: {', '.join(ratios)}" if ratios else ""
    return Check(
        name,
        Match.EQUAL,
        f"{', '.join(f'{key} {format_value(left[key])}' for key in planned)}{growth}",
    )


def first_minibatches(pair: RunPair) -> Check:
    """A step's first mini-batch meets the policy that sampled it: in every step its ratios are 1
    and nothing clips.

    The ratios must be recorded. A loss without a clip has no clip fraction; then only the ratios
    are checked.
    """
    name = "first mini-batches"
    faults: list[Fault] = []
    checked = [trace.first_minibatches for trace in pair.traces]
    for trace in pair.traces:
        if not trace.first_minibatches.known:
            return pair.missing_records(name, *(check.known > 0 for check in checked))
        broken = trace.first_minibatches.broken
        if broken is not None:
            values = ", ".join(f"{key} {format_value(v)}" for key, v in broken[1].items())
            faults.append(
                (f"{trace.arm}, step {broken[0]}", f"{trace.id} at step {broken[0]}: {values}")
            )
    known = sum(check.known for check in checked)
    clips = sum(check.clips for check in checked)
    partly = f"ratio 1 in all {known} of them, clip 0 in the {clips} that count clips"
    equal = partly if clips < known else f"ratio 1 and clip 0 in all {known} of them"
    odd = [trace.arm for trace in pair.traces if trace.first_minibatches.odd]
    sampler = {
        trace.arm for trace in pair.traces if trace.settings.get("update.old_logprobs") == "sampler"
    }
    reasons = ["update.old_logprobs = sampler"] if sampler.issuperset(odd) else []
    return differs(name, faults, reasons, equal=equal)


def benchmark_protocol(pair: RunPair) -> Check:
    """How benchmarks are evaluated: problems, samples, temperature, nucleus, token limit,
    interval.
    """
    faults = [(key, pair.setting_values([key])) for key in pair.unstated if under(key, ["bench"])]
    benches = [
        value
        for key, value in pair.left.settings.items()
        if under(key, ["bench"]) and key.endswith(".name")
    ]
    equal = (
        f"equal settings of {join_names(benches)}" if benches else "no benchmark declared by either"
    )
    return differs("benchmark protocol", faults, equal=equal)


def benchmark_items(evidence: Evidence, pair: RunPair) -> Check:
    """The problems of every evaluation: how often and in which order they were sampled, their texts
    and references.
    """
    name = "benchmark items"
    left, right = ({key for key in trace.answers if key[0] != ROLLOUT} for trace in pair.traces)
    if not left or not right:
        return pair.missing_records(name, bool(left), bool(right))
    if pair.left.finished and pair.right.finished and left != right:
        alone = [f"{bench} after step {step}" for bench, step in sorted(left ^ right)]
        faults = [(name.replace(" after", ","), f"only one run evaluated {name}") for name in alone]
        return differs(name, faults, pair.declared_under("steps", "bench", "task"))
    for bench, step in sorted(left & right):
        if not _same_items(pair, bench, step):
            where = (
                f"{bench} after step {step}: {_first_different_item(evidence, pair, bench, step)}"
            )
            return differs(name, [(f"{bench}, step {step}", where)], pair.declared_under("task"))
    if not left & right:
        return Check(name, Match.UNKNOWN, "no evaluation in common")
    answers = sum(pair.left.answers[key].count for key in left & right)
    return Check(
        name, Match.EQUAL, f"{len(left & right)} evaluations, {answers} answers, item by item"
    )


def _first_different_item(evidence: Evidence, pair: RunPair, bench: str, step: int) -> str:
    """The first question in which two evaluations differ, as text."""
    lists = [
        [row[2:6] for row in read_questions(evidence, trace.id) if row[:2] == (bench, step)]
        for trace in pair.traces
    ]
    for index, (a, b) in enumerate(zip(*lists, strict=False)):
        if a[:2] != b[:2]:
            return (
                f"question {index} is {a[0]} #{a[1]} in {pair.left.arm}, {b[0]} #{b[1]} in"
                f" {pair.right.arm}"
            )
        if a != b:
            return (
                f"question {index}, {a[0]}, has another {'text' if a[2] != b[2] else 'reference'}"
            )
    return f"{len(lists[0])} answers in {pair.left.arm}, {len(lists[1])} in {pair.right.arm}"


def benchmark_grader(pair: RunPair) -> Check:
    """Which grader, in which version, graded the benchmarks' answers."""
    benches = sorted(
        {bench for trace in pair.traces for bench, _ in trace.answers if bench != ROLLOUT}
    )
    left, right = (
        {f"{bench} by {grader}" for bench in benches for grader in trace.graders(bench)}
        for trace in pair.traces
    )
    return pair.same_graders("benchmark grader", left, right)


def base_score(pair: RunPair) -> Check:
    """The starting models' scores on the benchmarks, and the texts of their answers."""
    name = "base score"
    benches = sorted(pair.left.base.keys() & pair.right.base.keys())
    if not benches:
        return pair.missing_records(name, bool(pair.left.base), bool(pair.right.base))
    left = pair.left.base
    right = pair.right.base
    scores = {
        bench: f"{bench}: {pair.describe_values(left[bench], right[bench])}" for bench in benches
    }
    logged = [
        bench
        for bench in benches
        if any((_asked(bench), 0) not in trace.answers for trace in pair.traces)
    ]
    if logged:
        return Check(
            name, Match.UNKNOWN, "; ".join(f"{scores[bench]}, as logged" for bench in logged)
        )
    faults: list[Fault] = []
    for bench in benches:
        if left[bench] != right[bench]:
            faults.append((bench, scores[bench]))
        elif (
            pair.left.answers[_asked(bench), 0].texts != pair.right.answers[_asked(bench), 0].texts
        ):
            faults.append(
                (bench, f"{bench}: {format_value(left[bench])} in both, by different answers")
            )
    reasons = pair.declared_under(*STARTING, "rollout.sampler", "rollout.dtype")
    return differs(
        name,
        faults,
        reasons,
        equal=", ".join(f"{bench} {format_value(left[bench])}" for bench in benches),
    )


def _asked(score: str) -> str:
    """The benchmark whose answers a score is of: a mean reward, "addition:reward", has those of
    "addition".
    """
    return score_named(score).bench


def _sampling_differences(pair: RunPair) -> list[str]:
    """Why two runs may sample different first responses: declared sampling settings, or separate
    random numbers.

    Staleness does not explain it: the starting weights sample the first rollouts, whatever the
    staleness.
    """
    sampling = [key for key in pair.declared_under(*SAMPLING) if key != "rollout.staleness"]
    uncoupled = any(trace.settings.get("rollout.coupled") is False for trace in pair.traces)
    return [*sampling, *(["rollout.coupled = false"] if uncoupled else [])]


def _same_items(pair: RunPair, bench: str, step: int) -> bool:
    return pair.left.answers[bench, step].items == pair.right.answers[bench, step].items
