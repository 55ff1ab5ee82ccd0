"""The checks that decide whether two runs of one seed are a matched pair.

settings, code, packages, device, numerics       how the runs were made
weights, tokenizer, chat template, grader        what they started from
prompts, first rollout, first mini-batches       what they did before the arms could differ
benchmark items, protocol, grader, base score    how they are scored
identity, plan, sealed answers                   whether each run's record is consistent
                                                 (`record_checks`)
"""

from collections.abc import Iterator, Mapping, Sequence
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
    other_values,
)
from gspo_lab.analysis.matching.trace import (
    COUNTS,
    PLANNED_TOTALS,
    REWARDS,
    TOTALS,
    Trace,
)
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.recording.records import ROLLOUT
from gspo_lab.recording.store import Evidence
from gspo_lab.recording.store.traces import read_questions
from gspo_lab.study import Arm, ArmsByName
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
    arms: ArmsByName,
    bands: JsonMapping,
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
        first_digest(pair, "first rollout", "rollout_digest"),
        first_digest(pair, "first log-probs", "logprob_digest"),
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
    recorder_a = pair.run_a.recorder
    recorder_b = pair.run_b.recorder
    if recorder_a == recorder_b:
        return Check(OWN_RECORD, Match.UNKNOWN, f"recorded by {recorder_a}: taken on trust")
    return differs(
        OWN_RECORD,
        [("recorder", pair.describe_values(recorder_a or "this lab", recorder_b or "this lab"))],
    )


def settings(pair: RunPair) -> Check:
    """Every resolved setting except those of benchmarks, which have a separate check."""
    odd = [key for key in pair.undeclared_keys if not under(key, ["bench"])]
    if pair.declared_keys and not odd:
        return Check(
            "settings", Match.DECLARED, pair.setting_values(pair.declared_keys), pair.declared_keys
        )
    equal = f"{len(pair.run_a.settings)} settings"
    return differs("settings", pair.setting_faults(odd), equal=equal)


def declaration(pair: RunPair, arms: ArmsByName, bands: JsonMapping) -> Check:
    """Whether both runs were made as study.json declares their arms.

    `bands`: its flat reference ranges.
    """
    faults: list[Fault] = []
    for trace in pair.traces:
        arm = arms[trace.arm]
        for part, text in _declaration_faults(trace, arm, bands):
            faults.append((f"{trace.arm}: {part}", f"{trace.id} {text}"))
    return differs("declaration", faults, equal="both runs were made as study.json declares them")


def _declaration_faults(trace: Trace, arm: Arm, bands: JsonMapping) -> Iterator[Fault]:
    """What of a run is not as its arm declares, each as the end of a sentence."""
    for key, values in other_values(trace.settings, arm.flat_settings, "declared"):
        yield key, f"ran with {values}"
    if sorted(trace.declared) != sorted(arm.declared):
        keys = f"{join_names(trace.declared)}, study.json {join_names(arm.declared)}"
        yield "declared keys", f"declares {keys}"
    measured = {
        key.removeprefix(BANDS): v for key, v in trace.facts.items() if key.startswith(BANDS)
    }
    odd: list[str] = []
    for recorded in (trace.bands, measured):
        odd += differing(recorded, bands) if recorded and bands else []
    for key in dict.fromkeys(odd):
        yield f"reference_bands.{key}", f"counts would_clip_* at another range of {key}"


def facts(
    pair: RunPair, name: str, keys: Sequence[str], *excused: str, null_is_a_value: bool = False
) -> Check:
    """Compare the workers' facts under `keys`; a declared setting in `excused` explains a
    difference.
    """

    tables = tuple(f"{key}." for key in keys)

    def chosen(trace: Trace) -> JsonObject:
        return {
            key.removeprefix("packages.").removeprefix("flags."): value
            for key, value in trace.facts.items()
            if f"{key}.".startswith(tables) and (null_is_a_value or value is not None)
        }

    return pair.compare(name, chosen, pair.declared_under(*excused))


def weights(pair: RunPair) -> Check:
    """Digests of the starting weights, and of a critic's.

    Only a worker that began its run at step 0 knows them.
    """
    if gap := pair.gap("weights", *(trace.at_step_0 for trace in pair.traces)):
        return gap
    # Compare critics only where both runs have one: whether a run has one is a setting, which has
    # its check.
    critics = ["critic"] if all("critic" in trace.facts for trace in pair.traces) else []
    return facts(pair, "weights", ["weights", *critics], *STARTING)


def remaining_facts(pair: RunPair) -> Check:
    """All facts without a separate check, so that every recorded fact is compared."""
    every_key = pair.run_a.facts.keys() | pair.run_b.facts.keys()
    keys = [key for key in every_key if not under(key, COVERED)]
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
    recorded = [
        [(start.step, start.facts) for start in t.starts if start.facts is not None]
        for t in pair.traces
    ]
    if gap := pair.gap("restarts", *recorded):
        return gap
    faults: list[Fault] = []
    for trace, ((first_step, first_facts), *later) in zip(pair.traces, recorded, strict=True):
        for step, resumed in later:
            other = [ORIGIN]
            if step != first_step:  # these digests are of the weights at the checkpoint
                other += ["weights", "critic", "start"]
            for key, values in other_values(resumed, first_facts, "before"):
                if not under(key, other):
                    text = f"{trace.id} went on at step {step} with {values}"
                    faults.append((f"{trace.arm}: {key}", text))
    times = sum(len(trace.starts) - 1 for trace in pair.traces)
    equal = f"workers beside the first: {times}, all alike" if times else "one worker each"
    return differs("restarts", faults, equal=equal)


def grader(pair: RunPair) -> Check:
    """Name and version of the reward function: by the task, and by every stored training answer."""

    def graders(trace: Trace) -> set[Any]:
        return trace.graders(ROLLOUT) | {trace.facts.get("grader")} - {None}

    return pair.same_graders("grader", graders)


def prompts(pair: RunPair) -> Check:
    """The prompt ids of every common step, and the stored texts of the prompts."""
    prompts_a = pair.run_a.prompts
    prompts_b = pair.run_b.prompts
    count, parted = prompts_a.compare(prompts_b)
    if gap := pair.gap("prompts", prompts_a.steps, prompts_b.steps):
        return gap
    if not count:
        return Check("prompts", Match.UNKNOWN, "no step in common")
    if parted is not None:
        detail = f"the streams of prompts part at step {parted}"
        return differs(
            "prompts",
            [(f"step {parted}", detail)],
            pair.declared_under("rollout.prompts_per_step", "task"),
        )
    common = sorted(pair.run_a.answers.keys() & pair.run_b.answers.keys())
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


def first_digest(pair: RunPair, name: str, digest: str) -> Check:
    """Compare a digest of what each run sampled at step 0, bit for bit."""

    def recorded(trace: Trace) -> JsonObject:
        value = trace.first_step.get(digest)
        return {} if value is None else {"step 0": value}

    reasons = _sampling_differences(pair)
    if digest == "logprob_digest" and _same_first_rollout(pair):
        # The same tokens in batches of another shape, as an engine of several processes makes
        # them, have log-probs that differ in their last bits.
        reasons += pair.declared_under("engine")
    return pair.compare(name, recorded, reasons)


def _same_first_rollout(pair: RunPair) -> bool:
    rollouts = [trace.first_step.get("rollout_digest") for trace in pair.traces]
    return rollouts[0] == rollouts[1]


def first_columns(pair: RunPair, name: str, columns: Sequence[str]) -> Check:
    """Compare numbers of step 0: equal responses have equal grades, lengths and costs."""
    recorded = [
        {key for key in columns if key in trace.first_step and "rollout_digest" in trace.first_step}
        for trace in pair.traces
    ]
    if gap := pair.gap(name, *recorded):
        return gap
    common = set.intersection(*recorded)
    if not common:
        return Check(name, Match.UNKNOWN, "no number in common")
    values_a = pair.run_a.first_step
    odd = {key for key in common if values_a[key] != pair.run_b.first_step[key]}
    reasons = [] if _same_first_rollout(pair) else _sampling_differences(pair)
    if odd == {"flops_total"}:
        reasons += pair.declared_under(*COSTS)
    if columns is COUNTS and "tokens_sampled_total" not in odd:
        # Dropped groups were sampled too, but the lengths are of the groups that train.
        reasons += pair.declared_under("rollout.dynamic_sampling")

    def numbers(trace: Trace) -> JsonObject:
        return {key: trace.first_step[key] for key in common}

    return pair.compare(name, numbers, reasons, " at step 0")


def compute(pair: RunPair) -> Check:
    """Prompts and updates in all, which must be equal.

    Tokens and FLOPs are shown and not compared: answers may grow longer.
    """
    name = "prompts and updates"
    spent_a = pair.run_a.spent
    spent_b = pair.run_b.spent
    # With a varying batch the number of groups decides the number of updates, as answer lengths
    # decide tokens.
    planned = [key for key in PLANNED_TOTALS if key != "updates_total" or not _varying(pair)]
    grown = [key for key in TOTALS if key not in planned]
    recorded = [set(planned) <= spent.keys() for spent in (spent_a, spent_b)]
    if not (pair.run_a.finished and pair.run_b.finished) and not all(recorded):
        return Check(name, Match.UNKNOWN, "counted when both have finished")
    if gap := pair.gap(name, *recorded):
        return gap
    reasons = pair.declared_under("steps", "rollout", "update", "engine")
    # With dynamic sampling the number of replacement groups depends on what the model learned.
    if any(trace.settings.get("rollout.dynamic_sampling") for trace in pair.traces):
        reasons = reasons or ["rollout.dynamic_sampling"]
    check = pair.compare(name, lambda trace: {key: trace.spent[key] for key in planned}, reasons)
    ratios = [
        f"{key} {spent_b[key] / spent_a[key]:.3f}"
        for key in grown
        if spent_a.get(key) and key in spent_b
    ]
    if check.state != Match.EQUAL or not ratios:
        return check
    unequal = f"not compared, {pair.run_b.arm} / {pair.run_a.arm}: {', '.join(ratios)}"
    return replace(check, detail=f"{check.detail}; {unequal}")


def first_minibatches(pair: RunPair) -> Check:
    """A step's first mini-batch meets the policy that sampled it: in every step its ratios are 1
    and nothing clips.

    The ratios must be recorded. A loss without a clip has no clip fraction; then only the ratios
    are checked.
    """
    name = "first mini-batches"
    checked = [trace.first_minibatches for trace in pair.traces]
    if gap := pair.gap(name, *(check.ratios for check in checked)):
        return gap
    faults: list[Fault] = []
    for trace, check in zip(pair.traces, checked, strict=True):
        if check.broken is not None:
            step, values = check.broken
            text = ", ".join(f"{key} {format_value(value)}" for key, value in values.items())
            faults.append((f"{trace.arm}, step {step}", f"{trace.id} at step {step}: {text}"))
    ratios = sum(check.ratios for check in checked)
    clips = sum(check.clips for check in checked)
    partly = f"ratio 1 in all {ratios} of them, clip 0 in the {clips} that count clips"
    equal = partly if clips < ratios else f"ratio 1 and clip 0 in all {ratios} of them"
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
    odd = [key for key in pair.undeclared_keys if under(key, ["bench"])]
    benches = [
        value
        for key, value in pair.run_a.settings.items()
        if under(key, ["bench"]) and key.endswith(".name")
    ]
    equal = (
        f"equal settings of {join_names(benches)}" if benches else "no benchmark declared by either"
    )
    return differs("benchmark protocol", pair.setting_faults(odd), equal=equal)


def benchmark_items(evidence: Evidence, pair: RunPair) -> Check:
    """The problems of every evaluation: how often and in which order they were sampled, their texts
    and references.
    """
    name = "benchmark items"
    evaluations_a = {key for key in pair.run_a.answers if key[0] != ROLLOUT}
    evaluations_b = {key for key in pair.run_b.answers if key[0] != ROLLOUT}
    if gap := pair.gap(name, evaluations_a, evaluations_b):
        return gap
    if pair.run_a.finished and pair.run_b.finished and evaluations_a != evaluations_b:
        faults = []
        for bench, step in sorted(evaluations_a ^ evaluations_b):
            text = f"only one run evaluated {bench} after step {step}"
            faults.append((f"{bench}, step {step}", text))
        return differs(name, faults, pair.declared_under("steps", "bench", "task"))
    common = sorted(evaluations_a & evaluations_b)
    if not common:
        return Check(name, Match.UNKNOWN, "no evaluation in common")
    for bench, step in common:
        if not _same_items(pair, bench, step):
            item = _first_different_item(evidence, pair, bench, step)
            fault = (f"{bench}, step {step}", f"{bench} after step {step}: {item}")
            return differs(name, [fault], pair.declared_under("task"))
    answers = sum(pair.run_a.answers[key].count for key in common)
    detail = f"{len(common)} evaluations, {answers} answers, item by item"
    return Check(name, Match.EQUAL, detail)


def _first_different_item(evidence: Evidence, pair: RunPair, bench: str, step: int) -> str:
    """The first question in which two evaluations differ, as text."""
    questions = [
        [row[2:6] for row in read_questions(evidence, trace.id) if row[:2] == (bench, step)]
        for trace in pair.traces
    ]
    for index, (a, b) in enumerate(zip(*questions, strict=False)):
        if a[:2] != b[:2]:
            return f"question {index} is {pair.describe_values(*map(_item_name, (a, b)))}"
        if a != b:
            difference = "text" if a[2] != b[2] else "reference"
            return f"question {index}, {a[0]}, has another {difference}"
    return pair.describe_values(*(f"{len(answers)} answers" for answers in questions))


def _item_name(question: tuple[Any, ...]) -> str:
    problem, sample, *_ = question
    return f"{problem} #{sample}"


def benchmark_grader(pair: RunPair) -> Check:
    """Which grader, in which version, graded the benchmarks' answers."""

    def graders(trace: Trace) -> set[str]:
        by_bench: set[str] = set()
        for bench in {bench for bench, _ in trace.answers if bench != ROLLOUT}:
            by_bench |= {f"{bench} by {grader}" for grader in trace.graders(bench)}
        return by_bench

    return pair.same_graders("benchmark grader", graders)


def base_score(pair: RunPair) -> Check:
    """The starting models' scores on the benchmarks, and the texts of their answers."""
    name = "base score"
    base_a = pair.run_a.base
    base_b = pair.run_b.base
    if gap := pair.gap(name, base_a, base_b):
        return gap
    common = sorted(base_a.keys() & base_b.keys())
    if not common:
        return Check(name, Match.UNKNOWN, "no benchmark in common")
    faults: list[Fault] = []
    logged = []
    for bench in common:
        key = (score_named(bench).bench, 0)  # a mean reward, "addition:reward", has "addition"'s
        text = f"{bench}: {pair.describe_values(base_a[bench], base_b[bench])}"
        if any(key not in trace.answers for trace in pair.traces):
            logged.append(f"{text}, as logged")
        elif base_a[bench] != base_b[bench]:
            faults.append((bench, text))
        elif pair.run_a.answers[key].texts != pair.run_b.answers[key].texts:
            text = f"{bench}: {format_value(base_a[bench])} in both, by different answers"
            faults.append((bench, text))
    if logged:
        return Check(name, Match.UNKNOWN, "; ".join(logged))
    reasons = pair.declared_under(*STARTING, "rollout.sampler", "rollout.dtype")
    equal = ", ".join(f"{bench} {format_value(base_a[bench])}" for bench in common)
    return differs(name, faults, reasons, equal=equal)


def _sampling_differences(pair: RunPair) -> list[str]:
    """Why two runs may sample different first responses: declared sampling settings, or separate
    random numbers.

    Staleness does not explain it: the starting weights sample the first rollouts, whatever the
    staleness.
    """
    reasons = [key for key in pair.declared_under(*SAMPLING) if key != "rollout.staleness"]
    if any(trace.settings.get("rollout.coupled") is False for trace in pair.traces):
        reasons.append("rollout.coupled = false")
    return reasons


def _same_items(pair: RunPair, bench: str, step: int) -> bool:
    return pair.run_a.answers[bench, step].items == pair.run_b.answers[bench, step].items
