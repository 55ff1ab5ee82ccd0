"""The checks that decide whether two runs of one seed are a matched pair.

settings, code, packages, device, numerics            how the runs were made
weights, tokenizer, chat template, grader             what they started from
prompts, first rollout, first mini-batches            what they did before the arms could differ
benchmark items, protocol, grader, base score         how they are scored
identity, plan, own numbers, sealed answers           whether each run's record is consistent
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gspo_lab.matching import behaviour_checks, record_checks, setup_checks
from gspo_lab.matching.run_pair import EQUAL, STARTING, UNKNOWN, Check, RunPair
from gspo_lab.matching.trace import COUNTS, REWARDS
from gspo_lab.study import Arm

if TYPE_CHECKING:
    from gspo_lab.store import Evidence


def all_checks(
    evidence: "Evidence",
    pair: RunPair,
    arms: Mapping[str, Arm],
    bands: Mapping[str, Any],
    faults: Mapping[str, record_checks.RecordFaults],
) -> tuple[Check, ...]:
    """Every check of one pair. A check of a cause comes before the checks of its effects."""
    first_digest = behaviour_checks.first_digest
    checks = (
        setup_checks.settings(pair),
        setup_checks.declaration(pair, arms, bands),
        setup_checks.facts(pair, "code", ["code"]),
        setup_checks.facts(pair, "packages", ["gspo_lab", "python", "packages"], "engine"),
        setup_checks.facts(pair, "device", ["device"]),
        setup_checks.facts(pair, "numerics", ["threads", "instructions", "flags"]),
        setup_checks.restarts(pair),
        setup_checks.weights(pair),
        setup_checks.facts(pair, "tokenizer", ["tokenizer"], *STARTING),
        setup_checks.facts(pair, "chat template", ["chat_template"], *STARTING, null_is_a_value=True),
        setup_checks.remaining_facts(pair),
        setup_checks.grader(pair),
        behaviour_checks.prompts(pair),
        first_digest(pair, "first rollout", "rollout_digest", "token ids of step 0"),
        first_digest(pair, "first log-probs", "logprob_digest", "the sampler's log-probs of step 0"),
        behaviour_checks.first_columns(pair, "first rewards", REWARDS),
        behaviour_checks.first_columns(pair, "first counts", COUNTS),
        behaviour_checks.first_minibatches(pair),
        behaviour_checks.compute(pair),
        behaviour_checks.benchmark_protocol(pair),
        behaviour_checks.benchmark_items(evidence, pair),
        behaviour_checks.benchmark_grader(pair),
        behaviour_checks.base_score(pair),
        *record_checks.checks(pair, faults),
    )
    return (setup_checks.recorder(pair), *map(_mark_unproven, checks)) if pair.imported else checks


WRITTEN_BY_IMPORT = ("settings", "declaration", "restarts", "benchmark protocol")
"""Checks of values that the import wrote: no worker recorded how imported runs were made."""


def _mark_unproven(check: Check) -> Check:
    if check.name in WRITTEN_BY_IMPORT and check.state == EQUAL:
        return replace(check, state=UNKNOWN, detail="written alike by their import")
    return check
