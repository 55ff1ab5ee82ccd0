"""The checks that say whether two runs of one seed are a pair: each compares two traces and knows what may differ.

settings ─ code ─ packages ─ device ─ numerics        what the runs were made with
weights ─ tokenizer ─ chat template ─ grader          what they started from
prompts ─ first rollout ─ first mini-batches          what they did before any difference could show
benchmark items ─ protocol ─ grader ─ base score      how they are scored
identity ─ plan ─ own numbers ─ sealed answers        whether each run's record bears itself out
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gspo_lab.matching import deeds, origin, own
from gspo_lab.matching.pairing import EQUAL, STARTING, UNKNOWN, Check, Sides
from gspo_lab.matching.trace import COUNTS, REWARDS, Trace
from gspo_lab.study import Arm


def all_checks(
    pair: Sides,
    arms: Mapping[str, Arm],
    bands: Mapping[str, Any],
    first_item: Callable[[Trace, Trace, str, int], str],
    accounts: Mapping[str, own.Account],
) -> tuple[Check, ...]:
    """Every check of one pair, in the order in which a cause comes before its effects."""
    found = (
        origin.settings(pair),
        origin.declaration(pair, arms, bands),
        origin.facts(pair, "code", ["code"]),
        origin.facts(pair, "packages", ["gspo_lab", "python", "packages"], "engine"),
        origin.facts(pair, "device", ["device"]),
        origin.facts(pair, "numerics", ["threads", "instructions", "flags"]),
        origin.restarts(pair),
        origin.weights(pair),
        origin.facts(pair, "tokenizer", ["tokenizer"], *STARTING),
        origin.facts(pair, "chat template", ["chat_template"], *STARTING, null_is_a_value=True),
        origin.other_facts(pair),
        origin.grader(pair),
        deeds.prompts(pair),
        deeds.first_digest(pair, "first rollout", "rollout_digest", "token ids of step 0"),
        deeds.first_digest(pair, "first log-probs", "logprob_digest", "the sampler's log-probs of step 0"),
        deeds.first_columns(pair, "first rewards", REWARDS),
        deeds.first_columns(pair, "first counts", COUNTS),
        deeds.first_minibatches(pair),
        deeds.compute(pair),
        deeds.benchmark_protocol(pair),
        deeds.benchmark_items(pair, first_item),
        deeds.benchmark_grader(pair),
        deeds.base_score(pair),
        *own.checks(pair, accounts),
    )
    return (origin.own_record(pair), *map(_on_trust, found)) if pair.imported else found


OF_THE_IMPORT = ("settings", "declaration", "restarts", "benchmark protocol")
"""The checks of what an import has written by itself: how its runs were really made, no worker has told."""


def _on_trust(check: Check) -> Check:
    if check.name in OF_THE_IMPORT and check.state == EQUAL:
        return replace(check, state=UNKNOWN, detail="written alike by their import")
    return check
